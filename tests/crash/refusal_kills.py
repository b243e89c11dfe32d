"""Death at every command while rows break a key that the upstream gives up, or a DDL waits.

python -m tests.crash.refusal_kills [--every N]     BINLOG_TIDB, BINLOG_MYSQLD: see tests/downstreams.py

dropped   DROP INDEX of a unique key, with duplicates before its binlog: the key goes early, once
shards    a column of two tables that share a target goes when the second one drops it
decided   TRUNCATE PARTITION of one of them: an operator takes its rows away, then `skip`
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from drainer.ddl.rules import SKIP
from drainer.mysql.connection import Target
from drainer.mysql.errors import SessionError
from drainer.stream.rules.rule_set import Rules
from tests.crash.faults.statement_proxy import StatementProxy
from tests.crash.small_run import Statement
from tests.downstreams import of_a_campaign
from tests.drainer.ddl.quarantine.early_drops import (
    DROP_INDEX,
    EARLY,
    WINDOW,
    History,
    decided,
    keys,
    recording,
)
from tests.drainer.ddl.quarantine.early_drops import contents as rows_of
from tests.drainer.ddl.quarantine.shards import BEGIN, MERGES, ROUTES, T1, T2
from tests.drainer.support.apply_life import Life, Recording, clean, run
from tests.drainer.support.made_recording import inserts
from tests.drainer.support.made_recording import recording as made
from tests.drainer.support.waiting_life import Document, live
from tidb_binlog.ddl_job import ActionType
from tidb_binlog.errors import BinlogError

LANES: Final = 2
BEFORE: Final = 3
"""Binlogs that are downstream before anybody dies: the table and its first row."""


@dataclass(frozen=True)
class Case:
    """`correct` is the operator, before `skip`; `check` looks at the end."""

    recording: Recording
    check: Callable[[Target], None]
    correct: Callable[[Target], object] | None = None
    rules: Rules | None = None


def _all_there(target: Target) -> None:
    assert rows_of(target) == [(number, number) for number in range(1, 7)]
    assert run(target, "SELECT * FROM tidb_binlog.quarantine") == []


def _went_early(target: Target) -> None:
    _all_there(target)
    assert keys(target) == {"PRIMARY"}
    told = decided(target)  # without the outcome, where it died after the statement
    assert told
    assert {row[:2] for row in told} == {row[:2] for row in EARLY}
    assert {row[2] for row in told} <= {"", EARLY[0][2]}


def _merged(target: Target) -> None:
    assert sorted(run(target, "SELECT * FROM d.`all`")) == MERGED
    assert run(target, "SELECT * FROM tidb_binlog.quarantine") == []


def _truncated(target: Target) -> None:
    assert run(target, "SELECT id FROM d.`all` ORDER BY id") == [(2,), (3,), (4,)]
    assert run(target, "SELECT * FROM tidb_binlog.quarantine") == []


def _remove_first(target: Target) -> None:
    run(target, "DELETE FROM d.`all` WHERE id=1", "SELECT 1")


MERGE, MERGED = MERGES["drop column"]
TRUNCATE = Statement(ActionType.TRUNCATE_TABLE_PARTITION, "ALTER TABLE `t1` TRUNCATE PARTITION `p`", T1)
CASES: Final = {
    "dropped": Case(recording(*WINDOW, DROP_INDEX, [(6, 2, 6)]), _went_early),
    "shards": Case(made(*BEGIN, *MERGE), _merged, rules=ROUTES),
    "decided": Case(
        made(*BEGIN, TRUNCATE, inserts(T1, (3, 3, "c")), inserts(T2, (4, 4, "d"))),
        _truncated,
        _remove_first,
        ROUTES,
    ),
}


class RefusalSweep:
    """`seen` has the commands at which it died."""

    def __init__(self, target: Target, case: Case) -> None:
        self._target, self._case = target, case
        self._proxy = StatementProxy(target.host, target.port)
        self._through = replace(target, port=self._proxy.port)
        self.seen: list[str] = []
        self._lives: list[Life] = []

    async def die_at(self, number: int, *, passes: bool) -> bool:
        """Whether there was such a command."""
        case = self._case
        await asyncio.to_thread(clean, self._target)
        first = replace(case.recording, entries=case.recording.entries[:BEFORE])
        assert await Life(first, self._target, LANES, rules=case.rules).run(size=1)
        self._lives.clear()
        self._proxy.arm(number, passes=passes)
        await self._live_until_struck()
        struck = self._proxy.struck.is_set()
        place = f"{'after' if passes else 'before'} {number}: {self._proxy.at.decode(errors='replace')}"
        if struck:
            self.seen.append(place)
            assert await self._live(self._target) == [], place
        try:
            case.check(self._target)
        except AssertionError as error:
            raise AssertionError(f"died {place}" if struck else "undisturbed") from error
        return struck

    async def _live(self, target: Target) -> list[Document]:
        case = self._case
        correct = case.correct
        act = None if correct is None else lambda document: correct(self._target)
        history = History(case.recording.jobs)
        return await live(
            case.recording, target, LANES, size=1, history=history, correct=act, begun=self._lives.append,
            rules=case.rules, decision=SKIP,
        )  # fmt: skip

    async def _live_until_struck(self) -> None:
        task: asyncio.Task[Any] = asyncio.create_task(self._live(self._through))
        while not task.done() and not self._proxy.struck.is_set():
            await asyncio.wait([task], timeout=0.002)
        if self._proxy.struck.is_set():
            for life in self._lives:  # else release would wait for its lane
                life.sink.quarantine.stop()
            task.cancel()
        try:
            assert await task == []
        except (asyncio.CancelledError, SessionError, OSError, BinlogError):
            if not self._proxy.struck.is_set():
                raise

    def close(self) -> None:
        self._proxy.close()


async def sweep(kills: RefusalSweep, every: int, first: int = 1) -> int:
    """How often it died, at every `every`-th command."""
    deaths, number = 0, first
    while True:
        for passes in (False, True):
            if not await kills.die_at(number, passes=passes):
                return deaths
            deaths += 1
        number += every


async def _main(every: int, directory: Path) -> None:
    with of_a_campaign(directory / "db") as target:
        for name, case in CASES.items():
            began_s = time.monotonic()
            kills = RefusalSweep(target, case)
            try:
                deaths = await sweep(kills, every)
            finally:
                kills.close()
            print(f"{name}: {deaths} deaths, all equal, {time.monotonic() - began_s:.0f} s", flush=True)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="tests.crash.refusal_kills", allow_abbrev=False)
    parser.add_argument("--every", type=int, default=1)
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(_main(parser.parse_args(arguments).every, Path(directory)))


if __name__ == "__main__":
    main(sys.argv[1:])

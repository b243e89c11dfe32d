"""The promises of the README's first section, one test each, named after its sentence.

Each test shows the promise, and then that it breaks where its mechanism is taken out: a test that would pass
without the mechanism shows nothing. docs/architecture.md has the list, which is checked here, too.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

import drainer
from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.checkpoint.lane_table import LaneTable
from drainer.compare.verify.chunk_comparison import ChunkComparison
from drainer.compare.verify.result import State
from drainer.mysql.connection import Target
from drainer.sink.mysql.lane import LaneSettings
from drainer.stream.schema.tracker import SchemaTracker
from pump.log.group_commit import GroupCommit
from pump.log.writer import Writer
from tests.architecture.source import ROOT
from tests.crash.log_reading import new_log, read_all
from tests.crash.small_run import Statement
from tests.crash.statement_kills import LifeSweep
from tests.drainer.compare.verify.world import world
from tests.drainer.support import apply_life
from tests.drainer.support.apply_life import Life, run
from tests.drainer.support.made_recording import inserts, recording
from tests.drainer.support.refused_rows import BOTH, DATABASE, EVERYTHING, ONE, begin, contents
from tests.drainer.support.waiting_life import live
from tests.integration.support.subscribed_shop import rows, shop, write
from tests.pump.conftest import pump as pump
from tests.pump.support import corpus, go_layout
from tests.pump.support.memory_log import MemoryDirectory
from tests.pump.support.payloads import opened, pull, put
from tests.pump.support.process import Start
from tidb_binlog import binlog, record
from tidb_binlog.clock import SystemClock
from tidb_binlog.cluster.registry import DRAINERS
from tidb_binlog.errors import BinlogError, DownstreamError
from tidb_binlog.page import status_page
from tidb_binlog.status import drainer_conditions
from tidb_binlog.status.codec import read
from tidb_binlog.status.drainer import DrainerDocument

SECTION = (ROOT / "README.md").read_text().split("\n## What you get\n")[1].split("\n## ")[0]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
OTHERS = dataclasses.replace(ONE, id=102, name="o", indexes=())


def test_each_promise_has_its_test_and_is_on_the_page() -> None:
    """Bold sentences of the section; a row of the page's table has each, and names a test of this file."""
    promises = re.findall(r"^- \*\*(.+?)\*\*", SECTION.replace("\n  ", " "), re.MULTILINE)
    rows = dict(re.findall(r"^\| \*\*(.+?)\*\* \| .+? \| `(test_\w+)` \|$", PAGE, re.MULTILINE))
    assert list(rows) == promises
    for promise, name in rows.items():
        assert name == "test_" + re.sub(r"\W+", "_", promise.lower()).strip("_")
        assert name in globals(), f"{promise} has no test"
    assert len(promises) == 7


# -- Nothing acknowledged is lost. A binlog is on disk before its writer gets the answer. -------------------


async def acknowledged_and_left(*, sync: bool) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """What was acknowledged, and what is there after a power cut right behind each answer."""
    directory = MemoryDirectory()
    writer = Writer(
        new_log(directory, segment_bytes_max=300),
        GroupCommit(bytes_max=4096, records_max=4),
        queue_bytes_max=1 << 20,
        sync=sync,
        clock=SystemClock(),
        on_group=lambda group: None,
        on_failure=lambda failure: None,
    )
    writer.start()
    answered, left = [], []
    for ts in range(1, 30):
        await writer.write(binlog.prewrite(ts, b"k", b"v" * ts), (binlog.PREWRITE, ts, 0))
        answered.append((ts, 0))
        left = read_all(new_log(directory.after_power_cut(), segment_bytes_max=300))
        if left != answered:
            break
    await writer.stop()
    return answered, left


async def test_nothing_acknowledged_is_lost() -> None:
    answered, left = await acknowledged_and_left(sync=True)
    assert (len(answered), left) == (29, answered)
    answered, left = await acknowledged_and_left(sync=False)
    assert left != answered, "without the sync a power cut takes what was acknowledged"


# -- Every row change is applied once, in tables without a key too, whenever a process is killed. ------------


@pytest.mark.integration
async def test_every_row_change_is_applied_once(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed before and behind COMMITs, contents are equal; a position that is not stored with the rows
    applies some of them again."""

    async def deaths() -> int:
        kills = LifeSweep(dataclasses.replace(target, socket=""))
        try:
            return sum(
                [await kills.die_at(number, passes=True, word=b"COMMIT") for number in range(8, 20, 2)]
            )
        finally:
            kills.close()

    assert await deaths() >= 3
    monkeypatch.setattr(LaneTable, "advance", lambda self, connection, lane, position: None)
    with pytest.raises((AssertionError, BinlogError)):
        await deaths()


# -- DDL does not stop replication. So does the table of a row that does not fit downstream. -----------------

CREATE = "CREATE TABLE `t` (`id` INT PRIMARY KEY, `u` VARCHAR(64), `v` INT)"
BARE = dataclasses.replace(ONE, indexes=())
WITH_DDL = recording(
    DATABASE,
    Statement(3, CREATE, BARE),
    Statement(3, CREATE.replace("`t`", "`o`"), OTHERS),
    inserts(BARE, (1, "a", 1), (2, "b", 2)),
    Statement(7, "ALTER TABLE `t` ADD UNIQUE KEY `k` (`u`)", ONE),
    [*inserts(ONE, (3, "c", 3)), *inserts(OTHERS, (1, "a", 1))],
)


@pytest.mark.integration
async def test_ddl_does_not_stop_replication(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """A DDL that is refused, and a row that is: others go on, and all is there after the decision."""
    assert await Life(begin(WITH_DDL, 4), target).run(size=1)
    run(target, "INSERT INTO d.t VALUES (77, 'a', 0)", "SELECT 1")
    ((waiting,),) = [await live(WITH_DDL, target)]
    assert waiting["tables"] == ["d.t"]
    assert run(target, "SELECT id FROM d.o") == [(1,)]

    def correct(_waiting: Any) -> None:
        run(target, "DELETE FROM d.t WHERE id = 77", "SELECT 1")

    assert await live(WITH_DDL, target, correct=correct) == []
    assert contents(target) == [(1, "a", 1), (2, "b", 2), (3, "c", 3)]

    apply_life.clean(target)
    assert await Life(begin(BOTH, 3), target).run(size=1)
    run(target, "INSERT INTO d.t VALUES (77, 'd', 0)", "SELECT 1")
    assert len(await live(BOTH, target)) == 1
    assert await live(BOTH, target, correct=correct) == []
    assert contents(target) == EVERYTHING

    with monkeypatch.context() as without:
        setup = apply_life.QuarantineSetup
        without.setattr(apply_life, "QuarantineSetup", lambda *of: setup(*of[:5], 0, *of[6:]))
        apply_life.clean(target)
        assert await Life(begin(WITH_DDL, 4), target).run(size=1)
        run(target, "INSERT INTO d.t VALUES (77, 'a', 0)", "SELECT 1")
        with pytest.raises(DownstreamError):
            await live(WITH_DDL, target)
    apply_life.clean(target)
    assert await Life(begin(BOTH, 3), target).run(size=1)
    run(target, "INSERT INTO d.t VALUES (77, 'd', 0)", "SELECT 1")
    with pytest.raises(DownstreamError):
        await Life(BOTH, target, lane=LaneSettings(rows_may_wait=False)).run(size=1)


# -- You can prove it. --------------------------------------------------------------------------------------


@pytest.mark.integration
def test_you_can_prove_it(mariadb: MariaDbServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """One value of one row differs, and it is found and named; without the hashes it would not be."""
    with world(mariadb) as both:
        both.make("t", "id INT PRIMARY KEY, b VARCHAR(40)", "SELECT seq, seq FROM mysql.seq_1_to_500")
        assert both.table("t").state is State.EQUAL
        both.run("UPDATE verify_down.t SET b = 'other' WHERE id = 321")
        assert both.table("t").state is State.DIFFERS
        assert [one.key for one in both.told] == [(b"321",)]
        sums = ChunkComparison.sums
        monkeypatch.setattr(ChunkComparison, "sums", lambda self, where: (sums(self, where)[0],) * 2)
        assert both.table("t").state is State.EQUAL, "what is compared are the hashes of rows"


# -- You see what it does. ----------------------------------------------------------------------------------


def test_you_see_what_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever an alert fires for is on the page and in `binlogctl status` (each alert:
    tests/deploy/prometheus/test_shown.py); here: rows that were not as they should have been."""
    document = read({"Drift": {"Rows": {"shop.orders": 3}}}, DrainerDocument)

    def page() -> str:
        return status_page.html(status_page.Shown(DRAINERS, document, "", None, "", (), 1.0))

    (trouble,) = drainer_conditions.of_drainer(document, "d")
    assert "shop.orders (3)" in trouble.text
    assert "shop.orders (3)" in page()
    monkeypatch.setattr(drainer_conditions, "CONDITIONS", ())
    assert not drainer_conditions.of_drainer(document, "d")
    assert "shop.orders (3)" not in page()


# -- It replaces the Go nodes one at a time, and they replace it. -------------------------------------------


async def test_it_replaces_the_go_nodes_one_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory that a Go pump left is served and gone on with; what we leave is in its layout."""
    recording = next(one for one in corpus.recordings(killed=False) if one.scenario == "basic")
    directory = recording.unpack(tmp_path)
    async with opened(directory) as storage:
        served = [one.payload for one in await pull(storage) if one.start_ts != one.commit_ts]
        assert served == [entry.payload for entry in corpus.entries(recording.pulled)]
        await put(storage, binlog.prewrite(1 << 60, b"k", b"v"))
    go_layout.check(go_layout.read(directory), clean=True)
    monkeypatch.setattr(record, "VALUE_LOG_MAGIC", record.VALUE_LOG_MAGIC ^ 1)

    async def another_life() -> None:
        async with opened(directory) as storage:
            await put(storage, binlog.prewrite((1 << 60) + 1, b"k", b"v"))
        go_layout.check(go_layout.read(directory), clean=True)

    with pytest.raises((go_layout.Broken, BinlogError)):
        await another_life()


# -- It is a library, too. ----------------------------------------------------------------------------------


@pytest.mark.integration
async def test_it_is_a_library_too(
    pump: Start, etcd_clean: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Published by column and read by column, in order; names and types come from the published schema."""
    await pump("-node-id=p1", "-heartbeat-interval=200ms").start_and_wait()
    publisher = await shop(etcd_clean)
    for number in range(5):
        await write(publisher, number)

    async def read_rows() -> list[Any]:
        async with drainer.subscribe(etcd_clean, tables=["shop.orders"], start="oldest") as stream:
            return await rows(stream, 5)

    assert await read_rows() == [("shop.orders", number) for number in range(5)]

    def nothing_is_known(self: SchemaTracker, table_id: int, schema_version: int) -> Any:
        raise self._unknown(table_id)

    monkeypatch.setattr(SchemaTracker, "table_for", nothing_is_known)
    with pytest.raises(BinlogError):
        await read_rows()
    await publisher.close()

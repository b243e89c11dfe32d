"""Death at every command that a drainer sends downstream: before it, and right after it.

    python -m tests.crash.statement_kills [--every N] [--processes | --frozen]
    BINLOG_TIDB, BINLOG_MYSQLD: a TiDB or a MySQL instead of a MariaDB, see tests/downstreams.py

A small history is applied through a proxy that counts commands. At the n-th one everything ends: the apply
side of this process, or a drainer process by SIGKILL. Then it starts again without the proxy and gets to the
end; the contents have to be equal, and `consistent` true after the stop. n grows until a run gets through.
`--frozen`: the apply side does not end, but is frozen there until its successor is through.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from binlog_playground.cluster import etcd_server
from drainer.mysql.connection import Target
from drainer.mysql.errors import SessionError
from drainer.sink.mysql.mysql_sink import MysqlSink
from pumpclient.errors import NoPumpRegistered
from tests.crash import small_run
from tests.crash.faults.statement_proxy import StatementProxy
from tests.downstreams import of_a_campaign
from tests.drainer.support.apply_life import Life, Recording, clean
from tests.forked import Forked
from tests.waiting import PATIENCE_S
from tidb_binlog.errors import Conflict, DownstreamError, Unavailable
from tidb_binlog.net.port import free_ports
from tidb_binlog.upstream.standalone import StandaloneUpstream

LANES, BATCH_ROWS = 2, 2


class Sweep:
    """One downstream, dying again and again. `seen` counts commands at which it died, by first word."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.proxy = StatementProxy(target.host, target.port)
        self.through = replace(target, port=self.proxy.port)
        self.seen: Counter[str] = Counter()

    def check(self, place: str) -> None:
        contents, consistent = small_run.found(self.target)
        assert contents == small_run.expected(), f"{place}: {contents}"
        assert consistent, place

    def note(self) -> str:
        command = self.proxy.at.decode(errors="replace")
        self.seen[command.split(" ")[0] or "(no text)"] += 1
        return command

    def close(self) -> None:
        self.proxy.close()


def _life(recording: Recording, target: Target) -> Life:
    """Every table is a large one: a DDL that reads it runs beside the stream."""
    return Life(recording, target, lanes=LANES, batch_rows=BATCH_ROWS, beside_rows=0)


async def run_life(recording: Recording, target: Target) -> bool:
    """To the end, and what waits then."""
    return await _life(recording, target).run(size=2, at_end=MysqlSink.finish_waiting)


class LifeSweep(Sweep):
    """The apply side of this process dies."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self._recording: Recording = small_run.recording()

    async def die_at(self, number: int, *, passes: bool, word: bytes = b"") -> bool:
        """Whether there was such a command; `word`: of those that begin with it."""
        await asyncio.to_thread(clean, self.target)
        self.proxy.arm(number, passes=passes, word=word)
        try:
            await self._live_until_struck()
        except (SessionError, OSError, Unavailable, DownstreamError):
            if not self.proxy.struck.is_set():  # while it took over
                raise
        if not self.proxy.struck.is_set():
            self.check(f"undisturbed, {number}")
            return False
        place = f"died {'after' if passes else 'before'} command {number} ({self.note()})"
        assert await run_life(self._recording, self.target), place
        self.check(place)
        return True

    async def _live_until_struck(self) -> None:
        life = _life(self._recording, self.through)
        run = asyncio.create_task(life.run(size=2, at_end=MysqlSink.finish_waiting))
        while not run.done() and not self.proxy.struck.is_set():
            await asyncio.wait([run], timeout=0.002)
        if self.proxy.struck.is_set():
            life.sink.stop()  # or release waits for the server to come back
            run.cancel()  # it dies
            await asyncio.gather(run, return_exceptions=True)
        else:
            await run


class FrozenSweep(Sweep):
    """The apply side is frozen, a second one takes over and gets to the end, then the first one wakes up.

    Its held command reaches the server after all that: a COMMIT too. `ends` counts what became of it.
    """

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self._recording: Recording = small_run.recording()
        self.ends: Counter[str] = Counter()

    async def freeze_at(self, number: int, word: bytes = b"") -> bool:
        """Whether there was such a command."""
        await asyncio.to_thread(clean, self.target)
        self.proxy.arm(number, freezes=True, word=word)
        first = asyncio.create_task(asyncio.to_thread(asyncio.run, self._first()))
        while not first.done() and not self.proxy.struck.is_set():
            await asyncio.wait([first], timeout=0.002)
        if not self.proxy.struck.is_set():
            await first
            return False
        place = f"frozen before command {number} ({self.note()})"
        try:
            async with asyncio.timeout(PATIENCE_S):
                assert await run_life(self._recording, self.target), place
            self.check(place)
        finally:
            self.proxy.thaw()
            self.ends[await first] += 1
        self.check(f"woken, {place}")
        return True

    async def _first(self) -> str:
        try:
            life = _life(self._recording, self.through)
        except (SessionError, Unavailable, DownstreamError, Conflict):
            return "did not start"
        try:
            assert await life.run(size=2, at_end=MysqlSink.finish_waiting)
        except Conflict:
            return "fenced off"
        return "was done"


class ProcessSweep(Sweep):
    """A drainer process is killed with -9. `endpoint`: an etcd that nobody else uses."""

    def __init__(self, target: Target, endpoint: str, directory: Path) -> None:
        super().__init__(target)
        self._endpoint, self._directory = endpoint, directory
        self._pump: Forked | None = None
        self._number = 0

    async def begin(self) -> None:
        """A pump with the history in it."""
        await (await StandaloneUpstream.connect(self._endpoint)).close()
        self._pump = self._spawn("pump", "pump")
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    return await small_run.publish(self._endpoint)
                except NoPumpRegistered:
                    await asyncio.sleep(0.05)

    def _spawn(self, module: str, name: str, *arguments: str) -> Forked:
        (port,) = free_ports(1)
        shared = [f"--pd-urls={self._endpoint}", f"--addr=127.0.0.1:{port}", f"--node-id={name}"]
        files = [f"--data-dir={self._directory / name}", f"--log-file={self._directory / name}.log"]
        return Forked(module, [*shared, *files, *arguments])

    def _drainer(self, port: int) -> Forked:
        """A new name each time: what is in the registry is not looked at here."""
        config = self._directory / f"{port}.toml"
        config.write_text(
            "initial-commit-ts = 0\n[syncer]\ncheckpoint-interval = 1\n"
            f"worker-count = {LANES}\ntxn-batch = {BATCH_ROWS}\nddl-beside-rows = 0\n"
            f'[syncer.to]\nhost = "{self.target.host}"\nport = {port}\n'
            f'user = "{self.target.user}"\npassword = "{self.target.password}"\n'
        )
        return self._spawn("drainer", f"drainer-{self._number}", f"--config={config}")

    async def die_at(self, number: int, *, passes: bool, word: bytes = b"") -> bool:
        """Whether there was such a command before all was applied."""
        await asyncio.to_thread(clean, self.target)
        self._number += 1
        pids: list[int] = []
        self.proxy.arm(number, passes=passes, word=word, on_strike=lambda: os.kill(pids[0], signal.SIGKILL))
        with self._ended(self._drainer(self.proxy.port)) as process:
            pids.append(process.pid)
            await self._until(lambda: self.proxy.struck.is_set() or self._is_through(0), process)
            if not self.proxy.struck.is_set():
                process.terminate()
                code = await asyncio.to_thread(process.wait, PATIENCE_S)
                if not self.proxy.struck.is_set():
                    assert code == 0
                    self.check(f"undisturbed, {number}")
                    return False
            assert await asyncio.to_thread(process.wait, PATIENCE_S) == -signal.SIGKILL
        place = f"killed {'after' if passes else 'before'} command {number} ({self.note()})"
        epoch = small_run.epoch(self.target)
        with self._ended(self._drainer(self.target.port)) as process:
            await self._until(lambda: self._is_through(epoch), process)
            process.terminate()
            assert await asyncio.to_thread(process.wait, PATIENCE_S) == 0, place
        self.check(place)
        return True

    def _is_through(self, epoch: int) -> bool:
        """A drainer after that epoch has applied everything, and has come to where the last one was."""
        if small_run.epoch(self.target, caught_up=True) <= epoch:
            return False
        with contextlib.suppress(SessionError):  # no such table yet
            return small_run.found(self.target)[0] == small_run.expected() and not small_run.waits(
                self.target
            )
        return False

    async def _until(self, condition: Callable[[], bool], process: Forked) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not await asyncio.to_thread(condition):
                assert process.poll() in (None, -signal.SIGKILL), f"drainer ended with {process.returncode}"
                await asyncio.sleep(0.02)

    @contextlib.contextmanager
    def _ended(self, process: Forked) -> Iterator[Forked]:
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def close(self) -> None:
        super().close()
        if self._pump is not None:
            self._pump.kill()
            self._pump.wait()


async def freezes(sweep: FrozenSweep, every: int, word: bytes = b"") -> int:
    """How often it was frozen, at every `every`-th command that begins with `word`."""
    number = 1
    while await sweep.freeze_at(number, word):
        number += every
    return number // every


async def sweep(kills: LifeSweep | ProcessSweep, every: int, word: bytes = b"") -> int:
    """How often it died, at every `every`-th command that begins with `word`."""
    deaths, number = 0, 1
    while True:
        for passes in (False, True):
            if not await kills.die_at(number, passes=passes, word=word):
                return deaths
            deaths += 1
        number += every


async def _main(chosen: argparse.Namespace, directory: Path) -> None:
    kills: LifeSweep | ProcessSweep | FrozenSweep
    with of_a_campaign(directory / "db") as target, contextlib.ExitStack() as ends:
        began_s = time.monotonic()
        if chosen.processes:
            etcd = etcd_server.EtcdServer.start(directory / "etcd")
            ends.callback(etcd.stop)
            kills = ProcessSweep(target, etcd.endpoint, directory)
        else:
            kills = FrozenSweep(target) if chosen.frozen else LifeSweep(target)
        ends.callback(kills.close)
        if isinstance(kills, ProcessSweep):
            await kills.begin()
        if isinstance(kills, FrozenSweep):
            deaths = await freezes(kills, chosen.every)
        else:
            deaths = await sweep(kills, chosen.every)
        words = ", ".join(f"{word} {count}" for word, count in kills.seen.most_common())
        what = "freezes" if chosen.frozen else "deaths"
        print(f"{deaths} {what}, each with equal contents, {time.monotonic() - began_s:.0f} s: {words}")


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="tests.crash.statement_kills", allow_abbrev=False)
    parser.add_argument("--every", type=int, default=1)
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--processes", action="store_true")
    either.add_argument("--frozen", action="store_true")
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(_main(parser.parse_args(arguments), Path(directory)))


if __name__ == "__main__":
    main(sys.argv[1:])

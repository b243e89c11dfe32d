"""No acknowledged prewrite is lost while pumps are killed under a client: real pumps, kill -9, the logs read.

    python -m tests.pumpclient.support.kills [--kills 50]

Two pumps; writers send prewrites and commits through one client all the time. One pump is killed, the
writers go on with the other, it is started again and used again, the other one is killed, and so on. In the
end the value log of each pump is read: every prewrite that was acknowledged is in one of them, and every
commit stands in a log that has its prewrite.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pumpclient
from binlog_playground.cluster.etcd_server import EtcdServer
from pump.log.log_file import OsLogDirectory
from pump.log.record import LogRecord
from pump.log.segment import Segment
from pumpclient.pumps.health import PumpState
from tests.pump.support.process import PumpProcess
from tests.waiting import PATIENCE_S, until
from tidb_binlog import binlog
from tidb_binlog.errors import Unavailable
from tidb_binlog.net.port import free_ports
from tidb_binlog.net.tls import TlsConfig
from tidb_binlog.upstream.standalone import StandaloneUpstream
from tidb_binlog.upstream_port import TimestampOracle

WRITERS = 8
OPTIONS = pumpclient.Options(retry_pause_s=0.02, finish_retry_pause_s=0.05, probe_interval_s=0.1)
Log = tuple[set[int], set[tuple[int, int]]]
"""Start timestamps of the prewrites, and (start_ts, commit_ts) of the commits, in one pump's value log."""


@dataclass
class Written:
    """What the writers were told."""

    prewrites: set[int] = field(default_factory=set)
    commits: set[tuple[int, int]] = field(default_factory=set)
    failures: int = 0
    longest_s: float = 0.0
    """Of a prewrite, from its call to its acknowledgement."""


class Writers:
    """Tasks that write until `stop`. Commits are delivered in the background, as TiDB does."""

    def __init__(self, client: pumpclient.PumpClient, oracle: TimestampOracle) -> None:
        self.written = Written()
        self._client = client
        self._oracle = oracle
        self._stopped = False
        self._commits: set[asyncio.Task[None]] = set()
        self._tasks = [asyncio.create_task(self._write()) for _ in range(WRITERS)]

    async def _write(self) -> None:
        while not self._stopped:
            start_ts, began_s = await self._oracle.timestamp(), time.monotonic()
            try:
                await self._client.write_prewrite(start_ts, b"key", b"value of %d" % start_ts)
            except pumpclient.WriteFailed:
                self.written.failures += 1
                continue
            self.written.longest_s = max(self.written.longest_s, time.monotonic() - began_s)
            self.written.prewrites.add(start_ts)
            task = asyncio.create_task(self._commit(start_ts))
            self._commits.add(task)
            task.add_done_callback(self._commits.discard)

    async def _commit(self, start_ts: int) -> None:
        commit_ts = await self._oracle.timestamp()
        if await self._client.write_commit(start_ts, commit_ts):
            self.written.commits.add((start_ts, commit_ts))

    async def more(self, count: int) -> None:
        """Until so many further prewrites are acknowledged."""
        wanted = len(self.written.prewrites) + count
        await until(lambda: len(self.written.prewrites) >= wanted)

    async def stop(self) -> Written:
        self._stopped = True
        await asyncio.gather(*self._tasks)
        await asyncio.gather(*self._commits)
        return self.written


def log_of(directory: Path) -> Log:
    """Everything in a pump's value log, every checksum verified."""
    prewrites: set[int] = set()
    commits: set[tuple[int, int]] = set()
    logs = OsLogDirectory(str(directory / "value"))
    for number, name in enumerate(sorted(name for name in logs.names() if name.endswith(".vlog"))):
        file = logs.open(name)
        try:
            for scanned in Segment(number, file, end=file.size()).scan(0, file.size()):
                for record in scanned.records:
                    _take(record, prewrites, commits)
        finally:
            file.close()
    return prewrites, commits


def _take(record: LogRecord, prewrites: set[int], commits: set[tuple[int, int]]) -> None:
    if record.tp == binlog.PREWRITE:
        prewrites.add(record.start_ts)
    elif record.tp == binlog.COMMIT:
        commits.add((record.start_ts, record.commit_ts))


def check(written: Written, logs: list[Log]) -> None:
    """Raises AssertionError naming what is lost or astray."""
    prewrites = set[int]().union(*(prewrites for prewrites, _ in logs))
    commits = set[tuple[int, int]]().union(*(commits for _, commits in logs))
    lost = written.prewrites - prewrites
    assert not lost, f"{len(lost)} acknowledged prewrites are in no log: {sorted(lost)[:5]}"
    lost_commits = written.commits - commits
    assert not lost_commits, f"{len(lost_commits)} acknowledged commits are in no log"
    for prewrites, commits in logs:
        astray = {start_ts for start_ts, _ in commits} - prewrites
        assert not astray, f"{len(astray)} commits have no prewrite beside them: {sorted(astray)[:5]}"


async def connected(endpoint: str, tls: TlsConfig | None = None) -> pumpclient.PumpClient:
    """As soon as pumps are registered."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with suppress(Unavailable):
                return await pumpclient.connect(endpoint, options=OPTIONS, tls=tls)
            await asyncio.sleep(0.02)


async def run(
    endpoint: str, directory: Path, kills: int, told: Callable[[str], None] = lambda _: None
) -> Written:
    """Raises AssertionError. Leaves no process behind."""
    upstream = await StandaloneUpstream.connect(endpoint)
    pumps = [
        PumpProcess(directory / name, endpoint, lambda: free_ports(1)[0], f"-node-id={name}")
        for name in ("pump-a", "pump-b")
    ]
    try:
        await asyncio.gather(*(pump.start_and_wait() for pump in pumps))
        async with await connected(endpoint) as client:
            written = await _kill(client, Writers(client, upstream.oracle), pumps, kills, told)
    finally:
        for pump in pumps:
            pump.end()
        await upstream.close()
    check(written, [log_of(pump.directory) for pump in pumps])
    return written


async def _kill(
    client: pumpclient.PumpClient,
    writers: Writers,
    pumps: list[PumpProcess],
    kills: int,
    told: Callable[[str], None],
) -> Written:
    def both_are_used() -> bool:
        return [pump.state for pump in client.pumps()] == [PumpState.USABLE, PumpState.USABLE]

    await until(both_are_used)
    for number in range(kills):
        await writers.more(50)
        pump = pumps[number % 2]
        pump.kill()
        await writers.more(50)
        await pump.start_and_wait()
        await until(both_are_used)
        told(f"kill {number + 1}: {len(writers.written.prewrites)} prewrites acknowledged so far")
    await writers.more(50)
    written: Written = await _in_time(writers.stop())
    assert not written.failures, f"{written.failures} prewrites failed with a pump alive"
    return written


async def _in_time(work: Awaitable[Written]) -> Written:
    async with asyncio.timeout(PATIENCE_S):
        return await work


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.pumpclient.support.kills", allow_abbrev=False)
    parser.add_argument("--kills", type=int, default=50)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="binlog-kills-") as name:
        etcd = EtcdServer.start(Path(name) / "etcd")
        try:
            written = asyncio.run(run(etcd.endpoint, Path(name), chosen.kills, print))
        finally:
            etcd.stop()
    print(
        f"{chosen.kills} kills: {len(written.prewrites)} prewrites and {len(written.commits)} commits "
        f"acknowledged, none lost; the longest prewrite took {written.longest_s * 1000:.0f} ms"
    )


if __name__ == "__main__":
    main()

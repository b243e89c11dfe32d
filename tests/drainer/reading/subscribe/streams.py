"""Streams: a live stream over scripted pumps in memory."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

from drainer.points.rows.snapshot_position import SnapshotPosition
from drainer.reading.subscribe.live_stream import LiveStream
from drainer.reading.subscribe.reader_position import ReaderPosition
from drainer.stream.pull.spill import SpillDirectory
from drainer.stream.rules.table_rules import TableFilter
from drainer.stream.schema.tracker import SchemaTracker
from drainer.stream.translate.translator import Translator
from tests.drainer.support import recorded
from tests.drainer.support.scripted_pump import (
    Connection,
    MemoryRegistry,
    ScriptedClient,
    ScriptedPump,
)
from tidb_binlog.clock import ManualClock
from tidb_binlog.errors import Unavailable
from tidb_binlog.tso import Ts
from tidb_binlog.wire import pump_pb2

FAR_TS = 1 << 60


class Upstream:
    """History and time of a recorded cluster."""

    cluster_id = 77

    def __init__(self, jobs: list[bytes]) -> None:
        self._jobs = {recorded.ddl_job.decode(job)["id"]: job for job in jobs}
        self.now_ts = FAR_TS
        self.history = self
        self.oracle = self

    async def job(self, job_id: int) -> bytes | None:
        return self._jobs.get(job_id)

    async def timestamp(self) -> Ts:
        return Ts(self.now_ts)


class MemoryPresence:
    """A name in a registry that never fails."""

    def __init__(self, stored_ts: int = 0) -> None:
        self.unbroken: int | None = 0
        self._left_ts = stored_ts
        self._position: ReaderPosition | None = None

    @property
    def stored_ts(self) -> int:
        return self._left_ts if self._position is None else self._position.position

    @property
    def stored_snapshot(self) -> str:
        return ""

    def begin(
        self, ts: int, notify: Callable[[], Awaitable[None]], snapshot: SnapshotPosition | None = None
    ) -> None:
        self._position = ReaderPosition(ts, snapshot)

    def given(self, ts: int, snapshot: SnapshotPosition | None = None) -> None:
        assert self._position is not None
        self._position.given(ts, snapshot)

    def passed(self, ts: int) -> None:
        assert self._position is not None
        self._position.passed(ts)

    def done(self, ts: int, snapshot: str = "") -> None:
        assert self._position is not None
        self._position.done(ts, snapshot)

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def store(self) -> bool:
        return True

    async def close(self) -> None:
        """Nothing is held."""


class LogPump:
    """Serves a log in small messages; large binlogs in parts; connections end when the dice say so."""

    def __init__(self, name: str, log: list[tuple[int, bytes]], rng: random.Random, *, old: bool) -> None:
        self.log = log
        self.scripted = ScriptedPump(f"{name}:1", serves_batches=not old)
        self._rng = rng
        self._old = old
        self._served: Connection | None = None
        self._todo: list[tuple[int, bytes]] = []

    def turn(self) -> None:
        """Serve a little."""
        connections = self.scripted.connections
        if not connections or not connections[-1].requests:
            return
        connection = connections[-1]
        if connection is not self._served:
            self._served = connection
            self._todo = [entry for entry in self.log if entry[0] > self._after(connection)]
            self._ended = False
        if self._rng.random() < 0.02:
            connection.fail(Unavailable("connection reset"))
            self._todo, self._ended = [], True
        elif self._todo:
            taken = [self._todo.pop(0) for _ in range(min(len(self._todo), self._rng.randint(1, 4)))]
            self._send(connection, taken)
        elif not self._ended:
            self._ended = True
            self._send(connection, [])

    def _after(self, connection: Connection) -> int:
        if self._old:
            return int(pump_pb2.PullBinlogReq.FromString(connection.requests[0]).startFrom.offset)
        return connection.batch_requests()[0].after_ts

    def _send(self, connection: Connection, entries: list[tuple[int, bytes]]) -> None:
        if self._old:
            for _, payload in entries:
                connection.send_entity(payload)
            if not entries:
                connection.send_entity(recorded_mark(FAR_TS - 1))
            return
        above = connection.batch_requests()[0].parts_above
        for ts, payload in entries:
            if len(payload) <= above:
                connection.send([payload], ts)
                continue
            for at in range(0, len(payload), 100):
                part = pump_pb2.Part(commit_ts=ts, size=len(payload), offset=at, data=payload[at : at + 100])
                reply = pump_pb2.PullBatchesResp(part=part, watermark=ts if at + 100 >= len(payload) else 0)
                connection.replies.put_nowait(reply.SerializeToString())
        if not entries:
            connection.send([], FAR_TS - 1)


def recorded_mark(ts: int) -> bytes:
    """A time mark, as an old pump stores one."""
    return recorded.binlog_pb2.Binlog(tp=1, start_ts=ts, commit_ts=ts).SerializeToString()


class Cluster:
    """Pumps with the logs of a scenario; a reader may be opened on it at any position."""

    def __init__(self, scenario: str, seed: int, directory: Path) -> None:
        self.rng = rng = random.Random(seed)
        self.jobs = recorded.jobs(scenario)
        logs = sorted((recorded.ROOT / scenario).glob("pulled*.jsonl.gz"))
        self.pumps = []
        for number, path in enumerate(logs):
            entries = recorded.pulled(scenario, path.name.removeprefix("pulled").removesuffix(".jsonl.gz"))
            old = rng.random() < 0.3
            self.pumps.append(
                LogPump(f"p{number}", [(one.commit_ts, one.payload) for one in entries], rng, old=old)
            )
        self.registry = MemoryRegistry(**{f"p{number}": "online" for number in range(len(logs))})
        self.directory = directory

    def client(self, address: str) -> ScriptedClient:
        return next(pump for pump in self.pumps if pump.scripted.address == address).scripted.client(address)

    def open(self, after_ts: int, presence: MemoryPresence | None = None) -> LiveStream:
        tracker = SchemaTracker.from_history(self.jobs, finished_ts=after_ts)
        stream = LiveStream(
            Upstream(self.jobs),  # type: ignore[arg-type]
            self.registry,  # type: ignore[arg-type]
            Translator(tracker, TableFilter()),
            after_ts=after_ts,
            clock=ManualClock(),
            connect=self.client,
            spill=SpillDirectory(str(self.directory), above_bytes=self.rng.choice((300, 1 << 20))),
            presence=presence,
            stop_ts=FAR_TS - 2,
        )
        stream.start()
        return stream

    async def serve(self) -> None:
        while True:
            for pump in self.pumps:
                pump.turn()
            await asyncio.sleep(0)

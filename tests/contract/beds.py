"""Downstreams for the contract of sinks: each opens a life of its sink, dies, is blocked, shows its rows.

`MemorySink` is the smallest sink that keeps the contract; what it has written is on a `Medium`, which stays.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.app import build_kafka
from drainer.checkpoint.savepoint import Savepoint
from drainer.ddl.policy import Policy
from drainer.mysql.connection import Target
from drainer.sink import Sink
from drainer.sink.background import Background
from drainer.sink.file import file_sink
from drainer.sink.file.archive import Archive
from drainer.sink.file.file_sink import FileSink, where_to_go_on
from drainer.sink.kafka.client import Client
from drainer.sink.kafka.settings import ClientSettings, SinkSettings
from drainer.sink.kafka.window import Mark
from drainer.sink.mysql.lane import LaneSettings
from drainer.sink.runner import Runner
from drainer.testing.sink_contract import Bed
from drainer.testing.stream import CLUSTER_ID, Rows, Stream
from drainer.txn import DELETE, INSERT, Ddl, Transaction
from tests.benchmarks.drainer.file_sink import value
from tests.drainer.support.apply_life import Life, Recording, clean
from tests.drainer.support.apply_life import run as run_sql
from tests.drainer.support.archive_life import payloads
from tests.drainer.support.basis_world import held
from tests.fakes.kafka import MockKafka
from tests.kafka_broker import KafkaBroker
from tidb_binlog.clock import SystemClock
from tidb_binlog.wire import pb_binlog_pb2 as pb
from tidb_binlog.wire import secondary_binlog_pb2 as obinlog


class MysqlBed:
    exactly_once = follows_ddl = True

    def __init__(self, target: Target) -> None:
        self._target = target

    async def open(self, stream: Stream) -> Runner[Any]:
        lane = LaneSettings(batch_rows=20, queue_bytes_max=1 << 12)
        self._life = Life(Recording(CLUSTER_ID, stream.jobs, stream.entries), self._target, lane=lane)
        return self._life.runner

    async def die(self) -> None:
        self._life.die()

    @contextlib.contextmanager
    def blocked(self) -> Iterator[None]:
        with held(self._target, "SELECT * FROM d.t FOR UPDATE", "SELECT * FROM d.u FOR UPDATE"):
            yield

    def rows(self, table: str) -> Rows:
        found = run_sql(self._target, f"SELECT id, v FROM d.{table} ORDER BY id, v")
        return [(int(number), str(text)) for number, text in found]


class FileBed:
    exactly_once = follows_ddl = True

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._directory = directory
        self._free = threading.Event()
        self._free.set()
        monkeypatch.setattr(file_sink, "BUFFERED_BYTES_MAX", 1 << 12)

    async def open(self, stream: Stream) -> Runner[Any]:
        savepoint = Savepoint(str(self._directory))
        stored = savepoint.load()
        self._archive = archive = Archive.open(
            str(self._directory), SystemClock(), cluster_id=1, stored_ts=stored.commit_ts if stored else 0
        )
        start = where_to_go_on(archive.last_ts, stored, 0)
        translates = stream.translator(start.commit_ts)
        self._sink = sink = FileSink(start, archive, savepoint, translates.route, Policy(), SystemClock())
        sync = archive.sync

        async def when_free(**options: bool) -> None:
            await asyncio.to_thread(self._free.wait)
            await sync(**options)

        archive.sync = when_free  # type: ignore[method-assign]
        return Runner(sink, translates, interval_s=0.01)

    async def die(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await self._sink.settled()  # its thread ends with it
        self._archive.let_go()

    @contextlib.contextmanager
    def blocked(self) -> Iterator[None]:
        self._free.clear()
        try:
            yield
        finally:
            self._free.set()

    def rows(self, table: str) -> Rows:
        """What a reader of the archive has who does what its records say."""
        found: Rows = []
        for payload in payloads(self._directory):
            record = pb.Binlog.FromString(payload)
            if b"DROP TABLE `%s`" % table.encode() in record.ddl_query:
                found.clear()
            for event in record.dml_data.events:
                if event.table_name == table:
                    columns = [pb.Column.FromString(column) for column in event.row]
                    old = tuple(value(one.value) for one in columns)
                    if event.tp != pb.Insert:
                        found.remove(old)  # type: ignore[arg-type]
                    if event.tp != pb.Delete:
                        new = tuple(value(one.changed_value or one.value) for one in columns)
                        found.append(new)  # type: ignore[arg-type]
        return sorted(found)


class KafkaBed:
    """Messages of one topic, obinlog, as a reader has them who does what they say."""

    exactly_once = follows_ddl = True

    def __init__(self, directory: Path, kafka: MockKafka | KafkaBroker) -> None:
        self._directory = directory
        self._kafka = kafka
        self._kafka.create("changes")

    async def open(self, stream: Stream) -> Runner[Any]:
        savepoint = Savepoint(str(self._directory))
        stored = savepoint.load()
        start = Mark(stored.commit_ts, 0) if stored else Mark(0, 0)
        line = build_kafka.Line()
        self._client = Client(ClientSettings(self._kafka.servers), line.answered, line.trouble)
        translates = stream.translator(start.commit_ts)
        sink = build_kafka.assembled(
            start,
            self._client,
            line,
            savepoint,
            translates.route,
            Policy(),
            SystemClock(),
            SinkSettings("changes", in_flight_bytes=1 << 12),
            data_dir=str(self._directory),
            past_ts=1 << 62,
        )
        return Runner(sink, translates, interval_s=0.01)

    async def die(self) -> None:
        await asyncio.to_thread(self._client.close, wait_s=0.0)

    @contextlib.contextmanager
    def blocked(self) -> Iterator[None]:
        self._kafka.go_down()
        try:
            yield
        finally:
            self._kafka.come_up()

    def rows(self, table: str) -> Rows:
        found: Rows = []
        for message in self._kafka.messages("changes"):
            binlog = obinlog.Binlog.FromString(message.value)
            if b"DROP TABLE `%s`" % table.encode() in binlog.ddl_data.ddl_query:
                found.clear()
            for part in binlog.dml_data.tables:
                if part.table_name == table:
                    for mutation in part.mutations:
                        if mutation.type != obinlog.Insert:
                            old = mutation.change_row if mutation.type == obinlog.Update else mutation.row
                            found.remove(_kafka_row(old))
                        if mutation.type != obinlog.Delete:
                            found.append(_kafka_row(mutation.row))
        return sorted(found)


def _kafka_row(row: Any) -> tuple[int, str]:
    number, text = row.columns
    return number.int64_value, text.string_value


class Medium:
    """What outlives a life: items in the order in which they were written, and the checkpoint."""

    def __init__(self) -> None:
        self.items: list[Transaction | Ddl] = []
        self.position = 0
        self.free = asyncio.Event()
        self.free.set()


class MemorySink(Sink):
    def __init__(self, medium: Medium) -> None:
        self.background = Background()
        self._medium = medium
        self._given: list[Transaction | Ddl] = []
        written_ts = medium.items[-1].commit_ts if medium.items else 0
        self._last_ts = self._resolved_ts = max(written_ts, medium.position)

    @property
    def start_ts(self) -> int:
        return self._resolved_ts

    @property
    def stored_ts(self) -> int:
        return self._medium.position

    @property
    def resolved_ts(self) -> int:
        return self._resolved_ts

    @property
    def handed_over_ts(self) -> int:
        return self._last_ts

    async def take(self, transaction: Transaction) -> Transaction | None:
        self._given.append(transaction)
        self._last_ts = transaction.commit_ts
        return transaction

    async def take_ddl(self, ddl: Ddl) -> None:
        self._given.append(ddl)
        self._last_ts = ddl.commit_ts

    def watermark(self, ts: int) -> None:
        self._last_ts = ts

    async def flush(self) -> None:
        await self._medium.free.wait()
        self._medium.items += self._given
        self._given = []
        self._resolved_ts = self._last_ts

    async def ready(self) -> None:
        await asyncio.sleep(0)

    async def save(self) -> None:
        self._medium.position = self._resolved_ts

    async def finish(self, *, broken: bool) -> None:
        if not broken:
            await self.flush()
        await self.save()

    async def close(self, *, finished: bool) -> bool:
        return finished


class MemoryBed:
    exactly_once = follows_ddl = True

    def __init__(self, sink: type[MemorySink] = MemorySink) -> None:
        self._medium = Medium()
        self._sink = sink

    async def open(self, stream: Stream) -> Runner[Any]:
        self._stream = stream
        sink = self._sink(self._medium)
        return Runner(sink, stream.translator(sink.start_ts), interval_s=0.01)

    async def die(self) -> None:
        pass

    @contextlib.contextmanager
    def blocked(self) -> Iterator[None]:
        self._medium.free.clear()
        try:
            yield
        finally:
            self._medium.free.set()

    def rows(self, table: str) -> Rows:
        found: Rows = []
        known = self._stream.rows_of
        for item in self._medium.items:
            if isinstance(item, Ddl):
                if item.query == f"DROP TABLE `{table}`":
                    found.clear()
                continue
            for events in item.tables:
                if events.table.name == table:
                    for kind, row in zip(events.kinds, events.rows, strict=True):
                        old, new = known[kind, row]
                        if kind != INSERT:
                            found.remove(old)
                        if kind != DELETE:
                            found.append(new)
        return sorted(found)


def _mysql(request: pytest.FixtureRequest) -> MysqlBed:
    server: MariaDbServer = request.getfixturevalue("mariadb")
    target = Target(server.host, server.port, server.user, server.password)
    clean(target)
    request.addfinalizer(lambda: clean(target))
    return MysqlBed(target)


def _file(request: pytest.FixtureRequest) -> FileBed:
    return FileBed(request.getfixturevalue("tmp_path"), request.getfixturevalue("monkeypatch"))


def _kafka(request: pytest.FixtureRequest) -> KafkaBed:
    mock = MockKafka()
    request.addfinalizer(mock.close)
    return KafkaBed(request.getfixturevalue("tmp_path"), mock)


def _kafka_broker(request: pytest.FixtureRequest) -> KafkaBed:
    return KafkaBed(request.getfixturevalue("tmp_path"), request.getfixturevalue("kafka_broker"))


BEDS: dict[str, Callable[[pytest.FixtureRequest], Bed]] = {
    "memory": lambda _request: MemoryBed(),
    "file": _file,
    "kafka": _kafka,
    "kafka broker": _kafka_broker,
    "mysql": _mysql,
}
NEEDS_SERVERS = ("kafka broker", "mysql")

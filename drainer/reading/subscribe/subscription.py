"""Subscription: the changes of a database as they are committed, for a program with an event loop.

    async with drainer.subscribe("127.0.0.1:2379", tables=["shop.*"], start="-10m", name="search") as stream:
        async for change in stream:
            ...
            await stream.done(change)

Owns    connections to the upstream, the registry and the pumps; a directory for large transactions; the name
Order   the name first, then the place where the stream begins: what is stored is held meanwhile
Holds   whatever is opened is closed at the end of the `async with`, however it ends
Never   chooses an event loop, handles a signal, configures logging

Tests  tests/integration/subscribe/test_subscribe.py, tests/drainer/reading/test_large_rows.py
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import InitVar, dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self

from drainer.changes.model import Ddl, R, Row, Transaction
from drainer.changes.row_reader import RowReader
from drainer.changes.row_types import RowTypeError, RowTypeOf, RowTypes
from drainer.points.rows.snapshot_position import SnapshotPosition, SnapshotRequest
from drainer.reading.errors import BinlogsLost, StreamEnded
from drainer.reading.large_rows import LargeRows
from drainer.reading.subscribe import stream_start, table_choice, ways
from drainer.reading.subscribe.live_stream import Before, Item, Large, LiveStream, Presence, went_back
from drainer.reading.subscribe.stream_start import NOW, Start
from drainer.reading.subscribe.ways import PumpRegistry
from drainer.stream.pull.spill import SpillDirectory
from drainer.stream.rules.rule_set import Rules
from drainer.stream.schema.tracker import SchemaTracker, is_system_schema
from drainer.stream.schema.upstream_schema import read_schema
from drainer.stream.translate.row_filter import REPAIR_HINT
from drainer.stream.translate.translator import Translator
from drainer.txn import Ddl as EncodedDdl
from tidb_binlog.clock import SystemClock
from tidb_binlog.errors import BinlogError, ConfigError, Corruption, Unavailable
from tidb_binlog.net.tls import TlsConfig
from tidb_binlog.rowcodec.row_error import RowError
from tidb_binlog.tso import Ts
from tidb_binlog.upstream import choice
from tidb_binlog.upstream.upstream_time import UpstreamTime
from tidb_binlog.upstream_port import Upstream

if TYPE_CHECKING:  # only a reader with a name listens for pumps
    from drainer.reading.subscribe.named_reader import ReaderAddress
    from drainer.stream.rules.row_rule import Where

Change = Transaction | Ddl


@dataclass(eq=False)
class EncodedStream:
    """A stream of encoded items over real connections: what `Subscription` and `binlogctl tail` stand on.

    `endpoint`: of PD, or of the etcd of a cluster without TiDB. `where`: a condition for the rows of every
    table; `typed`: names of tables that have a `row_type`. See `subscribe` for the rest.
    """

    endpoint: str
    tables: Iterable[str] = ()
    start: Start = None
    stop: Start = None
    name: str | None = None
    rules: InitVar[Mapping[str, Any] | None] = None
    tls: TlsConfig | None = None
    upstream: str = "auto"
    missing_ok: bool = False
    address: ReaderAddress | None = None
    spill_dir: str | None = None
    where: InitVar[Where | None] = None
    snapshot: Mapping[str, Any] | None = field(default=None, repr=False)  # has a password
    typed: Iterable[str] = ()

    def __post_init__(self, rules: Mapping[str, Any] | None, where: Where | None) -> None:
        self._patterns = table_choice.read_patterns(self.tables)
        self._rules: Rules = table_choice.choose(self._patterns, rules)
        if where is not None:
            self._rules = replace(self._rules, rows=self._rules.rows.with_where(where))
        self._upstream_sql = table_choice.read_upstream(self.snapshot) if self.snapshot is not None else None
        self._kind = choice.check_kind(self.upstream)
        self._way = ways.to(self.endpoint, self.tls)
        self._ends = contextlib.AsyncExitStack()  # what `close` closes
        self._clock = SystemClock()
        self._presence: Presence | None = None  # of a reader with a name, from `open` on
        self._live: LiveStream | None = None  # from `open` on

    # -- life ------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Raises what keeps the stream from beginning."""
        try:
            await self._open()
        except BaseException:
            await self._ends.aclose()
            raise

    async def _open(self) -> None:
        ends, way = self._ends, self._way
        upstream = await way.upstream(self._kind)
        ends.push_async_callback(upstream.close)
        time = UpstreamTime(upstream.oracle, self._clock)
        now_ts = await time.draw()
        registry = await way.registry()
        ends.push_async_callback(registry.close)
        reader: Presence | None = None
        if self.name is not None:
            reader = await way.reader(self.name, time, lambda: self.waits_for, self.address)
            ends.push_async_callback(reader.close)
        stored_ts = reader.stored_ts if reader is not None else 0
        place = stream_start.snapshot_place(
            self.start,
            reader.stored_snapshot if reader is not None else "",
            stored_ts,
            has_snapshot=self.snapshot is not None,
        )
        before: Before | None = None
        tracker: SchemaTracker | None = None
        if place is None:
            begin = self._start(stored_ts, now_ts)
        elif place.ts > now_ts:
            raise went_back(place.ts, now_ts)
        elif place.is_end:
            begin = place.ts
        else:
            before, tracker = await self._snapshot(upstream, place)
            begin, now_ts = before.begin.ts, max(now_ts, before.begin.ts)
            if before.is_empty:  # nobody reads at T: the upstream's garbage is held no longer
                await before.close()
                before = None
        try:
            after_ts = await self._held(registry, begin, now_ts)
        except BinlogsLost as error:
            if 0 < error.lowest <= stored_ts:  # it kept the last change, and the stream went on without one
                error.hint = (
                    f"{self.name} was done up to {stored_ts}: without a start it goes on there, and has"
                    " missed nothing unless its data is of before"
                )
            raise
        stop_ts = stream_start.position_of(self.stop, now_ts, what="stop") if self.stop is not None else None
        if stop_ts is not None and stop_ts < after_ts and not stored_ts:
            raise ConfigError(
                f"stop {self.stop} ({stop_ts}) lies before the start, {after_ts}", hint="give a later one"
            )
        if tracker is None:
            tracker = await read_schema(upstream.history, after_ts, 0)
        if not (self.missing_ok or stored_ts):  # one that goes on may have read a DROP of its table
            self._check_tables(tracker, after_ts)
        self._run(upstream, registry, time, tracker, reader, after_ts, stop_ts, before)

    def _run(
        self,
        upstream: Upstream,
        registry: PumpRegistry,
        time: UpstreamTime,
        tracker: SchemaTracker,
        presence: Presence | None,
        after_ts: Ts,
        stop_ts: Ts | None,
        before: Before | None,
    ) -> None:
        directory = os.path.join(
            self.spill_dir or tempfile.gettempdir(), f"drainer-reader-{os.getpid()}-{secrets.token_hex(4)}"
        )
        self._ends.callback(_remove, directory)
        self._presence = presence
        self._live = live = LiveStream(
            upstream,
            registry,
            Translator(tracker, self._rules),
            after_ts=after_ts,
            stop_ts=stop_ts,
            before=before,
            clock=time.clock,
            connect=self._way.client,
            spill=SpillDirectory(directory),
            presence=presence,
        )
        keeping = asyncio.create_task(time.run(), name="upstream time")
        self._ends.push_async_callback(_ended, keeping)
        self._ends.push_async_callback(live.close)
        live.start()

    async def close(self) -> None:
        """Idempotent."""
        await self._ends.aclose()

    # -- the beginning ---------------------------------------------------------------------------------

    async def _snapshot(self, upstream: Upstream, place: SnapshotPosition) -> tuple[Before, SchemaTracker]:
        assert self._upstream_sql is not None
        hold_name = f"drainer_snapshot_{self.name or secrets.token_hex(8)}"
        before, tracker = await self._way.snapshot(
            SnapshotRequest(self._upstream_sql, upstream, self._rules, place, hold_name, self.spill_dir)
        )
        self._ends.push_async_callback(before.close)
        return before, tracker

    def _start(self, stored_ts: Ts, now_ts: Ts) -> int | None:
        """The position that the stream begins after; None for the oldest one."""
        start = self.start
        if stored_ts and not isinstance(start, int):
            if stored_ts > now_ts:
                raise went_back(stored_ts, now_ts)
            return stored_ts
        return stream_start.position_of(NOW if start is None else start, now_ts)

    async def _held(self, registry: PumpRegistry, after_ts: int | None, now_ts: Ts) -> int:
        """Raises `BinlogsLost` where pumps do not reach so far."""
        if after_ts == now_ts:
            return now_ts
        return await stream_start.first_position(
            await registry.view(), self._way.asks(), after_ts, f'"{stream_start.OLDEST}" as the start'
        )

    def _check_tables(self, tracker: SchemaTracker, position: int) -> None:
        own_names = [name for name in tracker.names() if not is_system_schema(name[0])]
        names = [*own_names, *tracker.names_to_come()]
        table_choice.check_exist(self._patterns, names, position)
        table_choice.check_typed(self.typed, {self._rules.router.route(*name) for name in names}, position)

    # -- items -----------------------------------------------------------------------------------------

    @property
    def live(self) -> LiveStream:
        """Raises `StreamEnded` where the stream was not opened."""
        if self._live is None:
            raise StreamEnded(
                "the stream is not open", hint="use it in a `with`: async with drainer.subscribe(...)"
            )
        return self._live

    @property
    def waits_for(self) -> str:
        """What the stream waits for, in words; "" while it flows."""
        return self._live.waits_for if self._live is not None else "the schema of the upstream"

    @property
    def ended(self) -> BinlogError | None:
        """What ended the reader with this name: another process has it, or an operator's word."""
        return self._presence.ended if self._presence is not None else None

    @property
    def presence(self) -> Presence:
        """Raises `ConfigError` for a reader without a name."""
        if self._presence is None:
            raise ConfigError(
                "a reader without a name has no position to store",
                hint='give it one: subscribe(..., name="search-index")',
            )
        return self._presence


class Subscription(Generic[R]):
    """A stream of changes. Made by `subscribe`; open it with `async with`, read it with `async for`."""

    def __init__(self, encoded: EncodedStream, row_type: RowTypeOf[R] = None) -> None:
        self._encoded = encoded
        self._types = RowTypes[R](row_type)
        self._reader = RowReader()

    async def __aenter__(self) -> Self:
        await self._encoded.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[Transaction[R] | Ddl]:
        return self

    async def __anext__(self) -> Transaction[R] | Ddl:
        self.check()
        live = self._encoded.live
        item = live.ready() or await live.next()
        if item is None:
            raise StopAsyncIteration
        return self._change(item)

    async def take(self, most: int) -> list[Transaction[R] | Ddl]:
        """At least one change, and those that are here already, at most so many; [] at the end."""
        self.check()
        live = self._encoded.live
        item = await live.next()
        changes: list[Transaction[R] | Ddl] = []
        while item is not None:
            try:
                changes.append(self._change(item))
            except BinlogError:
                if changes:  # the next call raises it
                    break
                raise
            if len(changes) >= most or isinstance(item, Large):
                break
            try:
                item = live.ready()
            except Exception:  # the next call raises it
                break
        return changes

    def _change(self, item: Item) -> Transaction[R] | Ddl:
        if isinstance(item, Large):
            rows = LargeRows(item.commit_ts, self._rows(item))
            return Transaction(item.commit_ts, item.start_ts, rows, large=True, snapshot=item.snapshot)
        try:
            if isinstance(item, EncodedDdl):
                return self._reader.ddl(item)
            transaction: Transaction[Any] = self._reader.transaction(item)
            if not self._types.is_none:
                transaction.rows = [self._types.row(row) for row in transaction.rows]
            return transaction
        except RowError as error:
            raise self._broken(item.commit_ts, error) from None
        except RowTypeError as error:
            self._encoded.live.take_back(item.commit_ts, error)
            raise

    def _rows(self, large: Large) -> Iterator[Row[Any]]:
        types = self._types
        try:
            for piece in large.pieces:
                for events in piece.tables:
                    rows = self._reader.rows(events)
                    yield from rows if types.is_none else map(types.row, rows)
        except RowError as error:
            raise self._broken(large.commit_ts, error) from None
        except BinlogError as error:
            self._encoded.live.take_back(large.commit_ts, error)
            raise

    def _broken(self, commit_ts: Ts, error: RowError) -> Corruption:
        """The stream ends before what cannot be read: nothing that follows is given."""
        failure = Corruption(
            f"transaction with commit_ts {commit_ts}: {error.message}", hint=error.hint or REPAIR_HINT
        )
        self._encoded.live.take_back(commit_ts, failure)
        return failure

    # -- position --------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise what ended a reader with a name, if it has ended."""
        ended = self._encoded.ended
        if ended is not None:
            raise ended

    @property
    def position(self) -> int:
        """Everything at or below this commit timestamp was given, or is filtered. It rises without changes,
        too. 0 until all rows of a snapshot were given."""
        return self._encoded.live.position

    @property
    def waits_for(self) -> str:
        """What the stream waits for, in words; "" while it flows."""
        return self._encoded.waits_for

    async def done(self, change: Change, *, stored: bool = False) -> None:
        """This change and all before it are done: a reader of this name need not get them again.

        The position is stored within a fraction of a second; `stored=True` returns when it is. Raises
        `ConfigError` for a reader without a name, `Unavailable` where the registry did not take it, and
        `NameTaken` or `ReaderStopped` where this reader has ended.
        """
        presence = self._encoded.presence
        presence.done(change.commit_ts, change.snapshot if isinstance(change, Transaction) else "")
        if stored and not await presence.store():
            raise Unavailable(
                f"the position {change.commit_ts} is not stored: the registry does not answer",
                hint="go on: it is tried again all the time; only a crash before would repeat changes",
            )

    async def close(self) -> None:
        """End the stream. Idempotent; the `async with` does it."""
        await self._encoded.close()


def subscribe(
    endpoint: str,
    *,
    tables: Iterable[str] = (),
    start: Start = None,
    stop: Start = None,
    name: str | None = None,
    rules: Mapping[str, Any] | None = None,
    tls: TlsConfig | None = None,
    upstream: str = "auto",
    missing_ok: bool = False,
    address: ReaderAddress | None = None,
    spill_dir: str | None = None,
    row_type: RowTypeOf[R] = None,
    snapshot: Mapping[str, Any] | None = None,
) -> Subscription[R]:
    """The changes of a cluster, live and in order: transactions of rows, and DDL.

    `endpoint`: host:port of PD, or of the etcd of a cluster without TiDB; several separated by commas.
    `tables`: patterns like `"shop.*"`, `"!shop.tmp_*"`; none: all. One that fits no table is an error, unless
    `missing_ok`, and so is a name in `row_type`. `start`: where the stream begins, for a reader with a name
    its first one: later it goes on where it was done, unless `start` is a commit timestamp, a position that
    the program has kept; see `stream_start`. `stop`: a timestamp or time after which the stream ends, not
    before its start.
    `name`: a reader with a name has a position in the registry; pumps keep for it what it has not done.
    `rules`: keys of the Drainer's [syncer]. `upstream`: "auto", "tidb" or "standalone". `address`: where a
    named reader listens for pumps that join. `spill_dir`: large transactions wait in a directory below it.
    `row_type`: a dataclass, or a class of attrs or pydantic, of which `before` and `after` are objects; or
    classes by "database.table". `snapshot`: keys of the Drainer's [syncer.from], which say where the
    upstream's SQL server is: the rows that its tables have at one timestamp come first, in transactions with
    `snapshot`, then the stream from exactly there. It begins once, as `start` does; `start` of such a
    transaction's `snapshot` goes on behind it, `start=0` begins anew.

    Raises `ConfigError` for what cannot be; opening it raises `Unavailable`, and `drainer.reading.errors`.
    """
    return Subscription(
        EncodedStream(
            endpoint,
            tables,
            start,
            stop,
            name,
            rules,
            tls,
            upstream,
            missing_ok,
            address,
            spill_dir,
            snapshot=snapshot,
            typed=row_type if isinstance(row_type, Mapping) else (),
        ),
        row_type,
    )


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait({task})


def _remove(directory: str) -> None:
    """Its files have no names; it was only made if there was one."""
    with contextlib.suppress(OSError):
        os.rmdir(directory)

"""Transaction: rows collected for one commit, and the states it goes through.

Drives  nothing itself; a `Publisher` decides and reports
Owns    the rows, in memory, until the prewrite is acknowledged
Stops   leaving its `async with` commits, or rolls back when an exception passes; prepared, it asks the
        database whatever passes
Never   ends twice: after its end every call raises `TransactionOver`. Holds nothing up once it is dropped

    NEW -> OPEN -> PREWRITING -> PREWRITTEN -> PREPARED -> COMMITTED | ROLLED_BACK | ABANDONED | UNKNOWN
    OPEN and PREWRITTEN go to an end directly as well: without rows there is no binlog.
    PREWRITING: a pump may have the rows, whatever becomes of the answer. So no row follows, and if none comes
    the transaction is rolled back: a second prewrite with other rows would be another transaction.
    PREPARED: the application's database decides. `commit` says that it has committed, `roll_back` that it has
    not; left without either it is UNKNOWN, and the database is asked.
    UNKNOWN also: the connection broke while the commit was being decided.

Tests  tests/pumpclient/publish/test_publisher.py
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from enum import Enum, IntEnum
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from pumpclient.errors import InvalidBinlog, InvalidValue, SchemaChanged, TransactionLost, TransactionOver
from pumpclient.publish.row_values import Row, row_values, updated_values
from pumpclient.schema.catalog import Catalog, Fence, Table
from tidb_binlog.errors import BinlogError
from tidb_binlog.rowcodec.encoder import UnwritableValue
from tidb_binlog.tso import Ts
from tidb_binlog.wire import binlog_pb2

if TYPE_CHECKING:
    from pumpclient.publish.transaction_steps import TransactionSteps


class Kind(IntEnum):
    """What happened to a row; the numbers of the wire."""

    INSERT = 0
    UPDATE = 1
    DELETE = 4


class TransactionState(Enum):
    """How far a transaction is."""

    NEW = "new"
    OPEN = "open"
    PREWRITING = "prewriting"
    """Its rows are on their way to a pump."""
    PREWRITTEN = "prewritten"
    """A pump has its rows."""
    PREPARED = "prepared"
    """The program's own database decides now."""
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    ABANDONED = "abandoned"
    UNKNOWN = "unknown"


class Prewrite(Enum):
    """Where the prewrite of a transaction is, and so who has to learn its end."""

    NONE = "none"
    """No pump has acknowledged one: no pump has to."""
    STORED = "stored"
    """At a pump."""
    SKIPPED = "skipped"
    """Nowhere, and the client continues without (`ignore_error`): it counts the end, no pump waits for it."""

    @classmethod
    def of(cls, stored: bool) -> Prewrite:
        """What `PumpClient.write_prewrite` returned."""
        return cls.STORED if stored else cls.SKIPPED


_UNENDED: Final = (
    TransactionState.OPEN,
    TransactionState.PREWRITING,
    TransactionState.PREWRITTEN,
    TransactionState.PREPARED,
)


def entry_key(start_ts: Ts) -> bytes:
    """Prewrite key of a transaction without one: the name of its entry in the upstream."""
    return b"txn/%020d" % start_ts


class Transaction:
    """Made by `Publisher.transaction`; an async context manager."""

    def __init__(
        self, steps: TransactionSteps, *, ttl_s: float, schema_version: int | None, key: bytes
    ) -> None:
        self.state = TransactionState.NEW
        """How far it is."""
        self.start_ts = 0
        """0 before it began."""
        self.commit_ts = 0
        """0 before it is committed."""
        self.lost = False
        """Somebody rolled it back because its lease ran out; the next step raises `TransactionLost`."""
        self._steps = steps
        self._ttl_s = ttl_s
        self._key = key
        self._version = schema_version
        self._catalog: Catalog | None = None
        self._fence = Fence()
        self._prewrite = Prewrite.NONE
        self._value = binlog_pb2.PrewriteValue()
        self._mutations: dict[int, binlog_pb2.TableMutation] = {}

    async def begin(self) -> None:
        """Draw start_ts; entering the context manager does it. Raises `Unavailable`, `ClientClosed`."""
        self._expect(TransactionState.NEW)
        self.start_ts = await self._steps.begin(self._ttl_s, self)
        self._key = self._key or entry_key(self.start_ts)
        self._catalog = self._steps.catalog
        self._value.schema_version = self._catalog.version if self._version is None else self._version
        self.state = TransactionState.OPEN

    def add(self, table_id: int, kind: Kind, row: bytes) -> None:
        """Add one row event; events of a table keep the order of the calls.

        `row` is encoded by `tidb_binlog.rowcodec.encoder` for the schema version of the transaction. Raises
        `TransactionOver` after `prewrite` or the end.
        """
        self._expect(TransactionState.OPEN)
        if table_id <= 0:
            raise InvalidBinlog(f"table_id is {table_id}", hint="use the id of the table's DDL job")
        kind = Kind(kind)
        mutation = self._mutations.get(table_id)
        if mutation is None:
            mutation = self._mutations[table_id] = self._value.mutations.add(table_id=table_id)
        if kind is Kind.INSERT:
            mutation.inserted_rows.append(row)
        elif kind is Kind.UPDATE:
            mutation.updated_rows.append(row)
        else:
            mutation.deleted_rows.append(row)
        mutation.sequence.append(kind.value)  # type: ignore[arg-type]

    def insert(self, table: str | int, row: Row | bytes, *, rowid: int | None = None) -> None:
        """A row that is new: `insert("shop.orders", {"id": 1, "item": "pen"})`.

        `table` is one of the catalogue, "database.table"; or an id, with bytes from `RowEncoder.insert`.
        `row` may be an object of a dataclass, or of a class of attrs or pydantic, as that of `update` and
        `delete`.
        Columns left out have their default, or NULL. `rowid` is the row's number in a table without a
        primary key. Raises `InvalidDefinition` for what the table cannot hold, `InvalidValue` for a value
        that a strict server would refuse.
        """
        if isinstance(row, bytes):
            return self._add_encoded(table, Kind.INSERT, row)
        target = self._table(table)
        values = row_values(target.info, row)
        return self._add_row(target, Kind.INSERT, lambda: target.encoder.insert(values, rowid))

    def update(
        self, table: str | int, before: Row | bytes, after: Row | None = None, *, rowid: int | None = None
    ) -> None:
        """A row as it was and as it is now, all columns of both; or bytes from `RowEncoder.update`. Raises
        `InvalidDefinition` where the row after lacks a column that the row before has, and as `insert`."""
        if isinstance(before, bytes):
            return self._add_encoded(table, Kind.UPDATE, before)
        if after is None:
            raise InvalidBinlog("an update needs the row before and after", hint="pass both")
        target = self._table(table)
        old, new = updated_values(target.info, before, after)
        return self._add_row(target, Kind.UPDATE, lambda: target.encoder.update(old, new, rowid))

    def delete(self, table: str | int, row: Row | bytes, *, rowid: int | None = None) -> None:
        """A row that was removed, all columns of it; or bytes from `RowEncoder.delete`."""
        if isinstance(row, bytes):
            return self._add_encoded(table, Kind.DELETE, row)
        target = self._table(table)
        values = row_values(target.info, row, old=True)
        return self._add_row(target, Kind.DELETE, lambda: target.encoder.delete(values, rowid))

    def _add_encoded(self, table: str | int, kind: Kind, row: bytes) -> None:
        if isinstance(table, str):
            raise InvalidBinlog(f"bytes for table {table}", hint="pass the row as a mapping")
        self.add(table, kind, row)

    def _table(self, table: str | int) -> Table:
        self._expect(TransactionState.OPEN)
        assert self._catalog is not None
        if isinstance(table, int):
            raise InvalidBinlog(f"a mapping for table id {table}", hint='name the table: "database.table"')
        if self._version is not None:
            raise InvalidBinlog(
                "rows of the catalogue's tables in a transaction with a schema version of its own",
                hint="leave schema_version out",
            )
        return self._catalog.table(table)

    def _add_row(self, table: Table, kind: Kind, encode: Callable[[], bytes]) -> None:
        assert self._catalog is not None
        try:
            row = encode()
        except UnwritableValue as error:
            raise InvalidValue(error.message, hint=error.hint) from None
        self._fence.add(table, self._catalog)
        self.add(table.info.id, kind, row)

    async def prewrite(self) -> None:
        """Store the rows at a pump now instead of at the commit; no row may follow.

        Raises `WriteFailed`, `BinlogTooLarge`, `TransactionLost`; then, and cancelled, it is rolled back.
        """
        self._expect(TransactionState.OPEN)
        self.state = TransactionState.PREWRITING
        try:
            self._require_lease()
            if self._mutations:
                stored = await self._steps.client.write_prewrite(
                    self.start_ts, self._key, self._value.SerializeToString()
                )
                self._expect(TransactionState.PREWRITING)
                self._prewrite = Prewrite.of(stored)
        except BaseException:
            await self._roll_back_quietly()
            raise
        self.state = TransactionState.PREWRITTEN

    async def prepare(self) -> int:
        """Store the rows, draw the commit_ts and hand the decision to the application's database.

        Call it inside the database's own transaction, after its last statement (the mark in the outcome
        table among them) and before its COMMIT: the locks it holds there make the order of commit_ts that of
        the database. When it raises, the database's transaction must be rolled back: `WriteFailed`,
        `BinlogTooLarge`, `TransactionLost`, `SchemaChanged`, `Unavailable`, `ConfigError` (the publisher has
        no `outcomes`).
        """
        self._expect(TransactionState.OPEN, TransactionState.PREWRITTEN)
        try:
            if self.state is TransactionState.OPEN:
                await self.prewrite()
            self.commit_ts = await self._steps.prepare(
                self.start_ts, self._key, self._fence, self._prewrite, self._ttl_s
            )
        except TransactionLost:
            self.state = TransactionState.ROLLED_BACK
            raise
        except BaseException:
            await self._roll_back_quietly()
            raise
        self.state = TransactionState.PREPARED
        return self.commit_ts

    async def commit(self, *, deliver: bool = True) -> int:
        """Commit; commit_ts. It is final when this returns, and pumps learn it in the background.

        After `prepare` it says that the database has committed, waits for nothing and cannot fail. Without,
        the stream itself decides: `TransactionLost` (rolled back by others), `SchemaChanged`, `WriteFailed`
        or `BinlogTooLarge` (rolled back here), `OutcomeUnknown` (etcd did not answer). With `deliver=False`
        pumps get no end: they have to ask the upstream.
        """
        if self.state is TransactionState.PREPARED:
            self.state = TransactionState.COMMITTED
            self._steps.committed(self.start_ts, self.commit_ts, self._key, self._prewrite)
            return self.commit_ts
        if self.state is TransactionState.OPEN:
            await self.prewrite()
        self._expect(TransactionState.PREWRITTEN)
        self.state = TransactionState.UNKNOWN  # until the decision is known; cancelled here, it stays so
        try:
            self.commit_ts = await self._steps.commit(
                self.start_ts, self._key, self._fence, self._prewrite, deliver=deliver
            )
        except (TransactionLost, SchemaChanged):
            self.state = TransactionState.ROLLED_BACK
            raise
        self.state = TransactionState.COMMITTED
        return self.commit_ts

    def doubt(self) -> None:
        """After `prepare`: the application does not know whether its database committed (the connection broke
        in COMMIT). The database is asked, in the background and by `Publisher.settle`.
        """
        self._expect(TransactionState.PREPARED)
        self.state = TransactionState.UNKNOWN
        self._steps.doubt(self.start_ts)

    async def roll_back(self, *, deliver: bool = True) -> None:
        """Roll back; after `prepare` only when the database certainly has. With `deliver=False` pumps that
        have the rows get no end. Raises `Unavailable` when the upstream does not answer: the lease runs
        out then, or the database is asked, with the same effect.
        """
        self._expect(*_UNENDED)
        self.state = TransactionState.ROLLED_BACK
        await self._steps.roll_back(self.start_ts, self._key, self._prewrite, deliver=deliver)

    async def abandon(self) -> None:
        """Store the rows at a pump and vanish, as a process that dies does: nothing else is ever sent, and
        others end the transaction when its lease has run out: roll it back, or, prepared, ask its database.
        For demonstrations and tests.
        """
        if self.state is TransactionState.OPEN:
            await self.prewrite()
        self._expect(TransactionState.PREWRITTEN, TransactionState.PREPARED)
        self.state = TransactionState.ABANDONED
        self._steps.release(self.start_ts)

    async def __aenter__(self) -> Self:
        await self.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.state is TransactionState.PREPARED:
            self.doubt()
        elif self.state not in _UNENDED:
            return
        elif error is None:
            await self.commit()
        else:
            await self._roll_back_quietly()

    def __del__(self) -> None:
        if self.state in _UNENDED:
            self._steps.dropped(self.start_ts)

    async def _roll_back_quietly(self) -> None:
        """Roll back because of an error, which is the one to report; the lease runs out in any case."""
        with suppress(BinlogError):
            await self.roll_back()

    def _expect(self, *states: TransactionState) -> None:
        if self.state not in states:
            raise TransactionOver(
                f"transaction {self.start_ts} is {self.state.value}",
                hint="begin it with `async with`, and begin another one after its end",
            )

    def _require_lease(self) -> None:
        if self.lost:
            raise TransactionLost(
                f"transaction {self.start_ts} was rolled back by others: its lease ran out",
                hint="run it again, with a longer ttl_s if this process was just slow",
            )

"""Transaction: rows collected for one commit, and the states it goes through.

Drives  nothing itself; a `Publisher` decides and reports
Owns    the rows, in memory, until the prewrite is acknowledged
Stops   leaving its `async with` commits, or rolls back when an exception passes
Never   ends twice: after its end every call raises `TransactionOver`

    NEW -> OPEN -> PREWRITTEN -> COMMITTED | ROLLED_BACK | ABANDONED | UNKNOWN
    OPEN goes to an end directly as well: without rows there is no binlog.
    UNKNOWN: the connection broke while the commit was being decided.
"""

from __future__ import annotations

from contextlib import suppress
from enum import Enum, IntEnum
from types import TracebackType
from typing import Protocol, Self

from common.errors import BinlogError
from common.wire import binlog_pb2
from pumpclient.errors import InvalidBinlog, TransactionLost, TransactionOver


class Kind(IntEnum):
    """What happened to a row; the numbers of the wire."""

    INSERT = 0
    UPDATE = 1
    DELETE = 4


class TransactionState(Enum):
    NEW = "new"
    OPEN = "open"
    PREWRITTEN = "prewritten"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    ABANDONED = "abandoned"
    UNKNOWN = "unknown"


def entry_key(start_ts: int) -> bytes:
    """Prewrite key of a transaction without one: the name of its entry in the upstream."""
    return b"txn/%020d" % start_ts


class Prewriter(Protocol):
    async def write_prewrite(self, start_ts: int, key: bytes, value: bytes) -> bool: ...


class Steps(Protocol):
    """What a transaction needs of its publisher."""

    @property
    def client(self) -> Prewriter: ...

    async def begin(self, ttl_s: float, transaction: Transaction | None) -> int: ...

    async def commit(self, start_ts: int, key: bytes, *, prewritten: bool, deliver: bool = True) -> int: ...

    async def roll_back(
        self, start_ts: int, key: bytes, *, prewritten: bool, deliver: bool = True
    ) -> None: ...

    def release(self, start_ts: int) -> None: ...


class Transaction:
    """Made by `Publisher.transaction`; an async context manager."""

    def __init__(self, steps: Steps, *, ttl_s: float, schema_version: int, key: bytes) -> None:
        self.state = TransactionState.NEW
        self.start_ts = 0
        self.commit_ts = 0
        self.lost = False
        """Somebody rolled it back because its lease ran out; the next step raises `TransactionLost`."""
        self._steps = steps
        self._ttl_s = ttl_s
        self._key = key
        self._value = binlog_pb2.PrewriteValue(schema_version=schema_version)
        self._mutations: dict[int, binlog_pb2.TableMutation] = {}

    async def begin(self) -> None:
        """Draw start_ts; entering the context manager does it. Raises `Unavailable`, `ClientClosed`."""
        self._expect(TransactionState.NEW)
        self.start_ts = await self._steps.begin(self._ttl_s, self)
        self._key = self._key or entry_key(self.start_ts)
        self.state = TransactionState.OPEN

    def add(self, table_id: int, kind: Kind, row: bytes) -> None:
        """Add one row event; events of a table keep the order of the calls.

        `row` is encoded by `common.rowcodec.encoder` for the schema version of the transaction. Raises
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

    def insert(self, table_id: int, row: bytes) -> None:
        """`row` from `RowEncoder.insert`."""
        self.add(table_id, Kind.INSERT, row)

    def update(self, table_id: int, row: bytes) -> None:
        """`row` from `RowEncoder.update`: the old image and the new one."""
        self.add(table_id, Kind.UPDATE, row)

    def delete(self, table_id: int, row: bytes) -> None:
        """`row` from `RowEncoder.delete`."""
        self.add(table_id, Kind.DELETE, row)

    async def prewrite(self) -> None:
        """Store the rows at a pump now instead of at the commit; no row may follow.

        Raises `WriteFailed`, `BinlogTooLarge`, `TransactionLost`; the transaction is to be rolled back.
        """
        self._expect(TransactionState.OPEN)
        self._require_lease()
        if self._mutations:
            await self._steps.client.write_prewrite(self.start_ts, self._key, self._value.SerializeToString())
        self.state = TransactionState.PREWRITTEN

    async def commit(self, *, deliver: bool = True) -> int:
        """Commit; commit_ts. It is final when this returns, and pumps learn it in the background.

        With `deliver=False` they are not told: they have to ask the upstream. Raises `TransactionLost`
        (rolled back by others), `OutcomeUnknown` (etcd did not answer), `WriteFailed` or
        `BinlogTooLarge` (rolled back here).
        """
        if self.state is TransactionState.OPEN:
            try:
                await self.prewrite()
            except BaseException:
                await self._roll_back_quietly()
                raise
        self._expect(TransactionState.PREWRITTEN)
        self.state = TransactionState.UNKNOWN  # until the decision is known; cancelled here, it stays so
        try:
            self.commit_ts = await self._steps.commit(
                self.start_ts, self._key, prewritten=bool(self._mutations), deliver=deliver
            )
        except TransactionLost:
            self.state = TransactionState.ROLLED_BACK
            raise
        self.state = TransactionState.COMMITTED
        return self.commit_ts

    async def roll_back(self, *, deliver: bool = True) -> None:
        """Roll back. With `deliver=False` pumps that have the rows are not told. Raises `Unavailable`
        when the upstream does not answer: the lease runs out then, with the same effect.
        """
        self._expect(TransactionState.OPEN, TransactionState.PREWRITTEN)
        prewritten = self.state is TransactionState.PREWRITTEN and bool(self._mutations)
        self.state = TransactionState.ROLLED_BACK
        await self._steps.roll_back(self.start_ts, self._key, prewritten=prewritten, deliver=deliver)

    async def abandon(self) -> None:
        """Store the rows at a pump and vanish, as a process that dies does: nothing else is ever sent,
        and others roll the transaction back when its lease has run out. For demonstrations and tests.
        """
        if self.state is TransactionState.OPEN:
            await self.prewrite()
        self._expect(TransactionState.PREWRITTEN)
        self.state = TransactionState.ABANDONED
        self._steps.release(self.start_ts)

    async def __aenter__(self) -> Self:
        await self.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.state not in (TransactionState.OPEN, TransactionState.PREWRITTEN):
            return
        if error is None:
            await self.commit()
        else:
            await self._roll_back_quietly()

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

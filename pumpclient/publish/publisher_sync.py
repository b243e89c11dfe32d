"""Synchronous publisher: the same stream for programs without an event loop.

Owns    that thread
Stops   `close`, as `SyncPumpClient`; an interrupted call (Ctrl-C) is cancelled
Never   touches signals or the host's event loop

    outcomes = pumpclient.OutcomeTable(lambda: pymysql.connect(**ACCOUNT))
    with pumpclient.open_publisher_sync("127.0.0.1:2379", outcomes=outcomes) as publisher:
        with publisher.transaction() as txn:
            cursor.execute("INSERT INTO orders VALUES (1, 'pen')")
            txn.insert("shop.orders", {"id": 1, "item": "pen"})
            txn.commit_in(connection)

May be used from any number of threads at once, each transaction from one. A process that forks opens its
publisher after the fork.

Tests  tests/pumpclient/publish/test_publisher_schema_publishing.py
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from pumpclient.client_sync import loop_thread, opened_by
from pumpclient.errors import ClientClosed
from pumpclient.publish.outcome_table import Outcomes
from pumpclient.publish.publisher import LEASE_TTL_S, Publisher, open_publisher
from pumpclient.publish.statements import Statements
from pumpclient.publish.transaction import Transaction, TransactionState
from pumpclient.schema.catalog import Catalog
from tidb_binlog.process.loop_thread import BlockingFace, LoopThread, blocking, direct, on_loop
from tidb_binlog.tso import Ts


class SyncTransaction(BlockingFace[Transaction]):
    """`Transaction` with blocking methods. Made by `SyncPublisher.transaction`; a context manager."""

    def __init__(self, thread: LoopThread, transaction: Transaction, outcomes: Outcomes | None) -> None:
        super().__init__(thread, transaction)
        self._outcomes = outcomes

    begin = blocking(Transaction.begin)
    insert = direct(Transaction.insert)
    update = direct(Transaction.update)
    delete = direct(Transaction.delete)
    prepare = blocking(Transaction.prepare)
    roll_back = blocking(Transaction.roll_back)
    _commit = blocking(Transaction.commit)
    _doubt = on_loop(Transaction.doubt)
    _leave = blocking(Transaction.__aexit__)

    @property
    def start_ts(self) -> Ts:
        """See `Transaction.start_ts`."""
        return self._inner.start_ts

    @property
    def commit_ts(self) -> Ts:
        """See `Transaction.commit_ts`."""
        return self._inner.commit_ts

    @property
    def state(self) -> TransactionState:
        """See `Transaction.state`."""
        return self._inner.state

    def commit(self) -> int:
        """See `Transaction.commit`."""
        try:
            return self._commit()
        except ClientClosed:
            if self.state is not TransactionState.PREPARED:
                raise
            return self.commit_ts  # the database has committed; the next publisher asks it

    def doubt(self) -> None:
        """See `Transaction.doubt`."""
        with suppress(ClientClosed):  # the next publisher asks
            self._doubt()

    def commit_in(self, connection: Any) -> int:
        """Mark, prepare, commit the application's transaction on this DB-API connection, report; commit_ts.

        `connection` has an open transaction (so no autocommit) with the changes whose rows were added here;
        its outcome table is the publisher's. When this raises, that transaction is rolled back, unless its
        COMMIT itself failed: then the database is asked what it did, and what it says goes into the stream.
        """
        mark = getattr(self._outcomes, "mark", None)
        if mark is None:
            raise ClientClosed(
                "the publisher has no outcome table", hint="pass outcomes=OutcomeTable(...) when opening it"
            )
        try:
            mark(connection, self.start_ts)
            commit_ts = self.prepare()
        except BaseException:
            with suppress(Exception):  # the first error is the one to report
                connection.rollback()
            raise
        try:
            connection.commit()
        except BaseException:  # it may have taken place all the same, whatever the program makes of this
            self.doubt()
            raise
        self.commit()
        return commit_ts

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.state is TransactionState.PREPARED:
            self.doubt()
        else:
            self._leave(kind, error, trace)


class SyncPublisher(BlockingFace[Publisher], Statements[int]):
    """`Publisher` with blocking methods. Made by `open_publisher_sync`; use it in a `with`.

    `open_it` runs on the loop thread; the publisher it returns must be started.
    """

    def __init__(self, open_it: Callable[[], Awaitable[Publisher]]) -> None:
        thread = loop_thread()
        BlockingFace.__init__(self, thread, thread.open(open_it))
        Statements.__init__(self, lambda planner: thread.call(self._inner.publish(planner)))

    ddl = blocking(Publisher.ddl)
    settle = blocking(Publisher.settle)
    refresh = blocking(Publisher.refresh)
    flush = blocking(Publisher.flush)

    def transaction(self, *, ttl_s: float = LEASE_TTL_S, key: bytes = b"") -> SyncTransaction:
        """See `Publisher.transaction`."""
        return SyncTransaction(
            self._thread, self._inner.transaction(ttl_s=ttl_s, key=key), self._inner.outcomes
        )

    @property
    def catalog(self) -> Catalog:
        """See `Publisher.catalog`."""
        return self._inner.catalog

    def close(self, drain_s: float = 10.0) -> None:
        """See `Publisher.close`. Idempotent."""
        self._thread.close(self._inner.close(drain_s))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


open_publisher_sync = opened_by(open_publisher, SyncPublisher)

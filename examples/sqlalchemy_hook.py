"""A hook for SQLAlchemy: what a session inserts, changes and deletes goes into the stream, in the same
transaction, without a line of code where the objects are used.

    outcomes = OutcomeTable(engine.raw_connection)
    outcomes.create()
    publisher = pumpclient.open_publisher_sync("127.0.0.1:2379", outcomes=outcomes)
    publish_tables(publisher, Base, "shop")
    publish_sessions(sessions, Base, publisher, outcomes, "shop")  # sessions: a sessionmaker

    with sessions.begin() as session:
        session.add(Order(item="pen"))

Rows are read from the database around each statement of a flush, under its locks, so what is published is
what stands there, defaults and all. What the hook would not see is refused: statements behind the session's
back (`session.execute(update(...))`), savepoints, association tables that are not mapped, cascades in the
database.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, Table, and_, event, select, text
from sqlalchemy.dialects import mysql
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapper,
    ORMExecuteState,
    Session,
    SessionTransaction,
    attributes,
    object_session,
    sessionmaker,
)

from pumpclient import OutcomeTable, SyncPublisher, SyncTransaction, TransactionState, column

PUBLISHED = "published transaction"
BEFORE = "rows before their statement"

Row = dict[str, Any] | None


def publish_tables(publisher: SyncPublisher, base: type[DeclarativeBase], database: str) -> None:
    """The tables for the stream; nothing happens where they are published already."""
    publisher.create_database(database, if_not_exists=True)
    for table in base.metadata.sorted_tables:
        publisher.create_table(
            f"{database}.{table.name}",
            [
                column(one.name, one.type.compile(mysql.dialect()), nullable=bool(one.nullable))
                for one in table.columns
            ],
            primary_key=[one.name for one in table.primary_key.columns],
            if_not_exists=True,
        )


def publish_sessions(
    sessions: sessionmaker[Any],
    base: type[DeclarativeBase],
    publisher: SyncPublisher,
    outcomes: OutcomeTable,
    database: str,
) -> None:
    """Publish what the sessions of this sessionmaker do with objects of this base."""
    for mapper in base.registry.mappers:
        for relationship in mapper.relationships:
            if relationship.secondary is not None or relationship.post_update:
                raise NotImplementedError(f"{relationship} changes rows that the hook does not see")
    for table in base.metadata.sorted_tables:
        if any(key.ondelete or key.onupdate for key in table.foreign_key_constraints):
            raise NotImplementedError(f"{table} has a cascade in the database, which the hook does not see")
    hook = _Hook(sessions.class_, publisher, outcomes, database)
    for name in ("insert", "update", "delete"):
        event.listen(base, f"before_{name}", hook.before, propagate=True)
        event.listen(base, f"after_{name}", hook.after, propagate=True)
    for name in (
        "before_commit",
        "after_commit",
        "after_transaction_create",
        "after_transaction_end",
        "do_orm_execute",
    ):
        event.listen(sessions, name, getattr(hook, name))


class _Hook:
    def __init__(
        self, sessions: type[Session], publisher: SyncPublisher, outcomes: OutcomeTable, database: str
    ) -> None:
        self._sessions = sessions
        self._publisher = publisher
        self._outcomes = outcomes
        self._database = database

    # Around each INSERT, UPDATE and DELETE of a flush.

    def before(self, mapper: Mapper[Any], connection: Connection, target: Any) -> None:
        """The rows that are about to change or to go, locked and as they are."""
        session = object_session(target)
        if not isinstance(session, self._sessions):
            return
        if PUBLISHED not in session.info:
            transaction = self._publisher.transaction()
            transaction.begin()
            session.info[PUBLISHED] = transaction
        rows = session.info.setdefault(BEFORE, {})
        for table, key in _keys(mapper, target, former=True):
            rows[id(target), table] = _row(connection, table, key, lock=True)

    def after(self, mapper: Mapper[Any], connection: Connection, target: Any) -> None:
        """The rows as they are now."""
        session = object_session(target)
        if not isinstance(session, self._sessions):
            return
        transaction: SyncTransaction = session.info[PUBLISHED]
        for table, key in _keys(mapper, target, former=False):
            name = f"{self._database}.{table.name}"
            old, new = session.info[BEFORE].pop((id(target), table)), _row(connection, table, key)
            if old is None and new is not None:
                transaction.insert(name, new)
            elif old is not None and new is None:
                transaction.delete(name, old)
            elif old is not None and new is not None and old != new:
                transaction.update(name, old, new)

    # Around COMMIT.

    def before_commit(self, session: Session) -> None:
        """Behind the last statement, before COMMIT: the mark, and the commit_ts."""
        session.flush()
        transaction = session.info.get(PUBLISHED)
        if transaction is not None:
            self._outcomes.require_transaction(session.connection().connection)
            session.execute(text(self._outcomes.statement(transaction.start_ts)))
            transaction.prepare()

    def after_commit(self, session: Session) -> None:
        transaction = session.info.pop(PUBLISHED, None)
        if transaction is not None:
            transaction.commit()

    def after_transaction_end(self, session: Session, transaction: SessionTransaction) -> None:
        """What is still there has not committed, or its COMMIT failed and the database must be asked."""
        if transaction.parent is not None or PUBLISHED not in session.info:
            return
        published = session.info.pop(PUBLISHED)
        session.info.pop(BEFORE, None)
        if published.state is TransactionState.PREPARED:
            published.doubt()
        elif published.state in (TransactionState.OPEN, TransactionState.PREWRITTEN):
            published.roll_back()

    # What would change rows unseen.

    def after_transaction_create(self, session: Session, transaction: SessionTransaction) -> None:
        if transaction.nested:
            raise NotImplementedError("a savepoint cannot be published: rows it undoes are collected already")

    def do_orm_execute(self, state: ORMExecuteState) -> None:
        if state.is_insert or state.is_update or state.is_delete:
            raise NotImplementedError("change objects of the session: this statement cannot be published")


def _keys(mapper: Mapper[Any], target: Any, *, former: bool) -> Iterator[tuple[Table, list[Any]]]:
    """Table and primary key of an object, one or more tables; the key that it has now, or had before."""
    for table in mapper.tables:
        assert isinstance(table, Table)
        values = []
        for part in table.primary_key.columns:
            attribute = mapper.get_property_by_column(part).key
            history = attributes.get_history(target, attribute)
            values.append(history.deleted[0] if former and history.deleted else getattr(target, attribute))
        yield table, values


def _row(connection: Connection, table: Table, key: list[Any], *, lock: bool = False) -> Row:
    if None in key:  # the database gives it
        return None
    parts = table.primary_key.columns
    query = select(table).where(and_(*(part == value for part, value in zip(parts, key, strict=True))))
    found = connection.execute(query.with_for_update() if lock else query).mappings().first()
    return None if found is None else {part.name: found[part] for part in table.columns}

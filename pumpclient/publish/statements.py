"""Schema statements: what a program may say, the same for the asyncio and the synchronous face.

Each method publishes one change and gives its commit_ts, or 0 where `if_not_exists` found it there already.
Tables are named "database.table". Ids and schema versions are allotted by the catalogue in etcd; several
publishers may change it at once. All raise `InvalidDefinition` for what the catalogue does not allow, and
what `Publisher.ddl` raises.

The database that the program itself writes to is not touched: run the statement there as well. Publish what
adds before the first row that uses it, and what removes after the last one.

Tests  tests/pumpclient/publish/test_publisher_schema_publishing.py
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, TypeVar

from pumpclient.schema import catalog
from pumpclient.schema.catalog import Planner
from pumpclient.schema.table_definition import ColumnDefinition

R = TypeVar("R")


class Statements(Generic[R]):
    """`R` is int, or an awaitable of it."""

    def __init__(self, publish: Callable[[Planner], R]) -> None:
        self.publish = publish
        """Publish a change that a planner of `pumpclient.schema.catalog` makes; what the methods below do."""

    def create_database(self, name: str, *, if_not_exists: bool = False) -> R:
        """CREATE DATABASE; character set utf8mb4."""
        return self.publish(partial(catalog.create_database, name=name, if_not_exists=if_not_exists))

    def drop_database(self, name: str) -> R:
        """DROP DATABASE with all its tables."""
        return self.publish(partial(catalog.drop_database, name=name))

    def create_table(
        self,
        name: str,
        columns: Sequence[ColumnDefinition],
        *,
        primary_key: Sequence[str] = (),
        unique: Sequence[Sequence[str]] = (),
        if_not_exists: bool = False,
    ) -> R:
        """CREATE TABLE of columns made by `column`. Without a primary key, rows need a `rowid`.

        `unique` names the columns of each unique key. With `if_not_exists` a table of that name must have
        this definition.
        """
        return self.publish(
            partial(
                catalog.create_table,
                name=name,
                columns=columns,
                primary_key=primary_key,
                unique=unique,
                if_not_exists=if_not_exists,
            )
        )

    def drop_table(self, name: str) -> R:
        """DROP TABLE."""
        return self.publish(partial(catalog.drop_table, name=name))

    def truncate_table(self, name: str) -> R:
        """TRUNCATE TABLE."""
        return self.publish(partial(catalog.truncate_table, name=name))

    def rename_table(self, name: str, to: str) -> R:
        """RENAME TABLE inside its database; `to` has no database."""
        return self.publish(partial(catalog.rename_table, name=name, to=to))

    def add_column(self, name: str, column: ColumnDefinition) -> R:
        """ALTER TABLE ... ADD COLUMN, as the last one; nullable or with a default."""
        return self.publish(partial(catalog.add_column, name=name, column=column))

    def drop_column(self, name: str, column: str) -> R:
        """ALTER TABLE ... DROP COLUMN."""
        return self.publish(partial(catalog.drop_column, name=name, column=column))

    def add_index(self, name: str, index: str, columns: Sequence[str], *, unique: bool = False) -> R:
        """ALTER TABLE ... ADD KEY, or ADD UNIQUE KEY."""
        return self.publish(
            partial(catalog.add_index, name=name, index=index, columns=columns, unique=unique)
        )

    def drop_index(self, name: str, index: str) -> R:
        """ALTER TABLE ... DROP INDEX."""
        return self.publish(partial(catalog.drop_index, name=name, index=index))

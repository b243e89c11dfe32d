"""Positions: where a batch sink keeps how far it is.

    in a database   `PositionTable`: a row that moves in the transaction of the changes
    in a file       `PositionFile`: replaced whole and durably, after the data

Holds  a row is moved by who has read it last: of two programs that write with one name, one fails before it
       commits
"""

from __future__ import annotations

import os
import re
from typing import Any, Final, Protocol

from tidb_binlog import checked
from tidb_binlog.errors import ConfigError, Conflict, Corruption
from tidb_binlog.filesystem import replace_file

_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}(\.[A-Za-z_][A-Za-z0-9_]{0,62})?", re.ASCII)


class Cursor(Protocol):
    """Of any DB-API driver (PEP 249)."""

    def execute(self, statement: str, /) -> Any:
        """Run a statement."""
        ...

    def fetchone(self) -> Any:
        """Give the next row of its result, None after the last."""
        ...

    @property
    def rowcount(self) -> int:
        """How many rows it changed."""
        ...


class PositionTable:
    """One row of a table, `name` is its key: for any database that has a DB-API driver.

    `load` in `open`, and `move` in the transaction of each `write`, before it commits.
    """

    def __init__(self, table: str = "tidb_binlog_position", name: str = "drainer") -> None:
        for text, what in ((table, "table"), (name, "name")):
            if not _IDENTIFIER.fullmatch(text):
                raise ConfigError(
                    f"{text!r} is no {what} of a position", hint="use letters, digits and underscores"
                )
        self._table = table
        self._name = name
        self._position: int | None = None

    def load(self, cursor: Cursor) -> int:
        """The stored position, 0 for none. Makes table and row; the caller commits."""
        cursor.execute(
            f"CREATE TABLE IF NOT EXISTS {self._table}"
            " (name VARCHAR(128) PRIMARY KEY, position BIGINT NOT NULL)"
        )
        cursor.execute(f"SELECT position FROM {self._table} WHERE name = '{self._name}'")
        row = cursor.fetchone()
        if row is None:
            cursor.execute(f"INSERT INTO {self._table} (name, position) VALUES ('{self._name}', 0)")
        self._position = int(row[0]) if row is not None else 0
        return self._position

    def move(self, cursor: Cursor, position: int) -> None:
        """In the transaction of what was written. Raises `Conflict` where another program has moved it."""
        assert self._position is not None, "load() comes first"
        if position == self._position:
            return
        cursor.execute(
            f"UPDATE {self._table} SET position = {int(position)}"
            f" WHERE name = '{self._name}' AND position = {self._position}"
        )
        if cursor.rowcount != 1:
            raise Conflict(
                f"position {self._name} in {self._table} is not at {self._position} any more",
                hint="another program writes with this name: stop it, or give each its own",
            )
        self._position = position


class PositionFile:
    """A file that holds the position and a checksum."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)

    def load(self) -> int:
        """0 if there is no file. Raises `Corruption`."""
        try:
            with open(self._path, "rb") as file:
                text = checked.read_text(file.read(64).decode("ascii", "replace")).strip()
        except FileNotFoundError:
            return 0
        except ValueError:
            text = ""
        if not (text.isascii() and text.isdigit()):
            raise Corruption(f"{self._path} holds no position", hint="restore or remove it")
        return int(text)

    def save(self, position: int) -> None:
        """Durable when it returns; to be called after what was written is. Raises `OSError`."""
        replace_file(self._path, checked.text(f"{position}\n").encode())

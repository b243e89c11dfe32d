"""Live rows: what a database holds, in canonical form, read in chunks.

Drives  sessions of `drainer.sink.mysql`: time zone UTC, modes and isolation as the drainer's; reads only
Out     (key, row) of every row of a chunk, packed (`canonical.pack`)
Holds   a chunk is one statement, so it is one state of the table. All of them are one state only while
        nothing writes: the audit says so. A TiDB is read as it was at the timestamp of the audit
Never   shows the password: `Target` does not
Tests   tests/spark/audit/test_auditing.py
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any, Final

from drainer.changes import canonical
from drainer.changes.canonical import Canonical
from drainer.compare.verify.column_pairs import FORMS
from drainer.compare.verify.row_source import seen_at
from drainer.mysql.chunks.chunk import Chunk
from drainer.mysql.chunks.cut_key import key_to_copy
from drainer.mysql.chunks.splitter import Splitter
from drainer.mysql.chunks.table_size import table_size
from drainer.mysql.connection import Target, connect
from drainer.mysql.errors import SessionError, safe_text
from drainer.mysql.literal.downstream_column import DownstreamColumn
from drainer.mysql.literal.quoting import qualified, quote_name, string_literal
from drainer.mysql.rows.column_match import DownstreamTable
from drainer.mysql.rows.dialect import Dialect
from drainer.mysql.table_reader import is_absent, read_table
from tidb_binlog.errors import DownstreamError
from tidb_binlog.late_dataclass import dataclass, replace
from tidb_binlog.tso import Ts

THREE_BYTES: Final = frozenset({"utf8", "utf8mb3"})
_FOUR_BYTES: Final = 0xF0

_SAME: Final = {
    canonical.CHAR: canonical.TEXT,
    canonical.PADDED: canonical.BINARY,
    canonical.NUMBER: canonical.NAMES,
}


@dataclass(frozen=True, slots=True)
class LiveColumn:
    """A column as it is called downstream and the form in which it is compared."""

    name: str
    form: str


@dataclass(frozen=True, slots=True)
class LiveTable:
    """What is read of a table. `key`: places among `columns`, () for a table without key.

    `narrow`: those of the key whose character set there cannot hold every text, and whether it has the
    characters of three bytes. What it may not have is stored otherwise: as bytes, or as question marks.
    """

    number: int
    schema: str
    name: str
    columns: tuple[LiveColumn, ...]
    key: tuple[int, ...]
    narrow: tuple[tuple[int, bool], ...] = ()

    def passes_over(self, values: Sequence[Canonical]) -> bool:
        """Whether a row cannot be found by its key, on either side."""
        for place, three_bytes in self.narrow:
            value = values[place] or b""
            if three_bytes and (b"?" in value or max(value, default=0) >= _FOUR_BYTES):
                return True
            if not three_bytes and not value.isascii():
                return True
        return False


Part = tuple[LiveTable, Chunk]
"""Of a table, as `Reader.rows` takes it."""


def comparable(form: str, column: DownstreamColumn) -> bool:
    """Whether a column downstream is of a type that shows values of this form."""
    downstream_form = FORMS.get(column.type)
    downstream_form = _SAME.get(downstream_form, downstream_form) if downstream_form else None
    archive_form = _SAME.get(form, form)
    if downstream_form == archive_form or {downstream_form, archive_form} == {
        canonical.INTEGER,
        canonical.UNSIGNED,
    }:
        return True
    return archive_form == canonical.DOCUMENT and downstream_form == canonical.TEXT  # MariaDB's JSON


def at_snapshot(target: Target, at_ts: Ts) -> Target:
    """For a TiDB: sessions that read what it held at a timestamp. Others: the same."""
    with closing(connect(target)) as connection:
        return seen_at(target, at_ts) if connection.dialect is Dialect.TIDB else target


def data_bytes(target: Target, names: Iterable[tuple[str, str]]) -> int:
    """What tables of these names hold, about: as the database's own statistics have it."""
    try:
        with closing(connect(target)) as connection:
            return sum(table_size(connection, *name).size_bytes for name in set(names))
    except SessionError as error:
        raise _refused(error) from None


class Reader:
    """One session. `DownstreamError` when the database does not answer a query."""

    def __init__(self, target: Target) -> None:
        self._connection = connect(replace(target, read_timeout_s=None))

    def close(self) -> None:
        self._connection.close()

    def describe(self, schema: str, name: str) -> DownstreamTable | None:
        """A table as it is there; None if it is not, or is not shown."""
        return read_table(self._connection, schema, name)

    def check_absent(self, schema: str, name: str) -> None:
        """Of a table that `describe` does not find. Raises `DownstreamError` if it may be there."""
        if not is_absent(self._connection, schema, name):
            raise DownstreamError(
                f"the database to compare with does not show {schema}.{name}: the account has no right on it",
                hint="the account needs SELECT on every table that is compared",
            )

    def tables(self, schema: str) -> set[tuple[str, str]]:
        """Base tables of a database, in lower case."""
        rows = self._all(
            b"SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES"
            b" WHERE TABLE_TYPE='BASE TABLE' AND LOWER(TABLE_SCHEMA)=" + string_literal(schema.lower())
        )
        return {(str(row[0]).lower(), str(row[1]).lower()) for row in rows}

    def count(self, schema: str, name: str) -> int:
        """Rows of a table."""
        ((number,),) = self._all(b"SELECT COUNT(*) FROM " + qualified(schema, name))
        return int(number)

    def checkpoint(self) -> int:
        """Up to which commit_ts a drainer says that it has applied; 0 if none says so."""
        try:
            rows = self._all(b"SELECT JSON_VALUE(checkPoint, '$.commitTS') FROM tidb_binlog.checkpoint")
        except DownstreamError:
            return 0
        return int(rows[0][0]) if len(rows) == 1 and rows[0][0] else 0

    def cut(self, table: LiveTable, rows_wanted: int) -> list[Part]:
        """A table in parts of about so many rows."""
        described = self.describe(table.schema, table.name)
        if described is None:  # gone since it was matched: to read it says so
            return [(table, Chunk(0))]
        splitter = Splitter(described, key_to_copy(described), rows_wanted)
        try:
            return [(table, chunk) for chunk in splitter.chunks(self._connection)]
        except SessionError as error:
            raise _refused(error) from None

    def rows(self, part: Part) -> Iterator[tuple[bytes, bytes]]:
        """(key, row) of every row, packed."""
        table, chunk = part
        shown = b",".join(
            canonical.expression(quote_name(column.name), column.form) for column in table.columns
        )
        query = b"SELECT %b FROM %b%b" % (shown, qualified(table.schema, table.name), chunk.where())
        forms, key = [column.form for column in table.columns], table.key
        of_server, pack = canonical.of_server, canonical.pack
        for row in self._stream(query):
            values = [of_server(value, form) for value, form in zip(row, forms, strict=True)]
            if table.narrow and table.passes_over(values):
                continue
            packed = pack(values)
            yield (pack([values[place] for place in key]) if key else packed), packed

    def _stream(self, query: bytes) -> Iterator[tuple[bytes | None, ...]]:
        """Rows as the server prints them, never all at once."""
        try:
            yield from self._connection.stream_printed(query)
        except SessionError as error:
            raise _refused(error) from None
        finally:
            self._connection.rollback()

    def _all(self, query: bytes) -> list[tuple[Any, ...]]:
        try:
            return self._connection.rows(query)
        except SessionError as error:
            raise _refused(error) from None


def _refused(error: SessionError) -> DownstreamError:
    return DownstreamError(
        f"the database to compare with says {safe_text(error)}",
        hint="the account needs SELECT on every table that is compared",
    )

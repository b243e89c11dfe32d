"""Comparison: of one table, what of it can be compared with what a database or an image holds.

Out    the columns to compare and their forms, the key, the character sets that hold less; notes on the rest
Holds  what cannot be compared is named, column by column, with the reason
Tests  tests/spark/audit/test_auditing.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from drainer.changes import canonical
from drainer.changes.canonical import Canonical, form_of
from drainer.mysql.literal.charset import Charset
from drainer.mysql.literal.plan import compile_sql
from drainer.mysql.rows.column_match import DownstreamTable
from drainer.mysql.rows.dialect import Dialect
from drainer.spark.audit.rows.live_rows import THREE_BYTES, LiveColumn, LiveTable, comparable
from drainer.spark.audit.rows.projection import Projections
from drainer.txn import TableVersion
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.rowcodec.row_error import RowError
from tidb_binlog.table_info import Column

DATABASE: Final = "the database"
IMAGE: Final = "the image"


@dataclass(frozen=True, slots=True)
class Comparison:
    """How rows of one table are compared. `places` (among the projection's columns) are those compared.

    `whole`: the archive knows all rows, so that a row that only the other side has is one too many. Without
    it only rows that the archive has seen are compared. `side`: what holds the rows beside the archive's.
    """

    number: int
    table: str
    version: TableVersion
    whole: bool
    live: LiveTable
    places: tuple[int, ...]
    charsets: tuple[Charset | None, ...]
    side: str = DATABASE

    @property
    def keyed(self) -> bool:
        return bool(self.live.key)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.live.columns)

    def compared(self, values: Sequence[Canonical], absent: frozenset[int]) -> Compared | None:
        """A row of these columns; None where its key cannot find it. `absent`: places that are not known."""
        if self.live.passes_over(values):
            return None
        row = canonical.pack(values)
        key = canonical.pack([values[place] for place in self.live.key]) if self.keyed else row
        return Compared(key, row, absent.union(_outside(values, self.charsets)))


@dataclass(frozen=True, slots=True)
class Compared:
    """One row in compared form. `unknown`: places among the compared columns whose value is not known."""

    key: bytes
    row: bytes
    unknown: frozenset[int] = frozenset()


@dataclass(slots=True)
class RowReader:
    """Reads images of any definition of a table in compared form."""

    comparison: Comparison
    version_of: Callable[[int], TableVersion]
    projections: Projections = field(default_factory=Projections)

    def read(self, image: bytes, definition: int) -> Compared | None:
        """None for a row whose key or form is not known under the last definition. Raises `RowError`."""
        how = self.comparison
        projection = self.projections.of(self.version_of(definition), how.version)
        if projection is None:
            return None
        all_values = projection.values(image)
        values = [all_values[place] for place in how.places]
        absent = frozenset(n for n, place in enumerate(how.places) if place in projection.unknown)
        return how.compared(values, absent)


def _outside(values: Iterable[Canonical], charsets: Iterable[Charset | None]) -> Iterable[int]:
    """Places of text that the column there cannot hold as it is, and of bytes that are no text."""
    for place, (value, charset) in enumerate(zip(values, charsets, strict=True)):
        if charset is not None and value is not None and not (_is_text(value) and charset.holds(value)):
            yield place


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def plan(
    number: int,
    version: TableVersion,
    downstream: DownstreamTable,
    *,
    whole: bool,
    written: Iterable[TableVersion] = (),
    side: str = DATABASE,
) -> tuple[Comparison | None, list[str]]:
    """How to compare a table, None if it cannot be; and what is not compared, in words. `written` are all
    definitions that its rows have."""
    notes: list[str] = []
    try:
        sql = compile_sql(version.info)
    except RowError as error:
        return None, [f"its rows cannot be read: {error.message}"]
    columns = sorted(
        (column for column in version.info.columns if column.is_writable), key=lambda column: column.offset
    )
    places, live = [], []
    for place, column in enumerate(columns):
        downstream_column = downstream.column(column.name)
        form = form_of(column.type)
        if downstream_column is None:
            notes.append(f"column {column.name} is not in {side}")
        elif downstream_column.generated:
            notes.append(f"column {column.name} is computed by {side}")
        elif not comparable(form, downstream_column):
            notes.append(f"column {column.name} is {downstream_column.type} in {side}: another kind of value")
        else:
            places.append(place)
            live.append(LiveColumn(downstream_column.name, form))
    defined = {column.name.lower(): column for column in version.info.columns}
    for downstream_column in downstream.columns:
        column_here = defined.get(downstream_column.name.lower())
        if column_here is None:
            notes.append(f"column {downstream_column.name} is not in the archive's rows")
        elif column_here.generated:
            notes.append(f"column {downstream_column.name} is computed, from columns that are compared")
    key = _key_places([columns[place] for place in places], sql.key_columns)
    if key is None:
        return None, [*notes, "a column of its key cannot be compared"]
    if not key and not whole:
        return None, [*notes, "it has no key, and the archive does not go back to its creation"]
    name = ".".join(version.downstream)
    charsets = tuple(_charset(downstream, columns[place]) for place in places)
    narrow = tuple(
        (n, charset.name in THREE_BYTES)
        for n in key or range(len(live))
        if (charset := charsets[n]) is not None
    )
    live_table = LiveTable(number, downstream.schema, downstream.name, tuple(live), key, narrow)
    comparison = Comparison(number, name, version, whole, live_table, tuple(places), charsets, side)
    identity = key or tuple(range(len(live)))
    projections = Projections()
    for older in written:
        projection = projections.of(older, version)
        if projection is None or any(places[n] in projection.unknown for n in identity):
            what = "its key" if key else "a column of a table without key"
            return None, [*notes, f"{what} has another definition in older rows"]
    return comparison, notes


def _key_places(compared: list[Column], key: tuple[Column, ...]) -> tuple[int, ...] | None:
    ids = [column.id for column in compared]
    if not all(column.id in ids for column in key):
        return None
    return tuple(ids.index(column.id) for column in key)


def _charset(downstream: DownstreamTable, column: Column) -> Charset | None:
    target = downstream.column(column.name)
    if target is None or downstream.dialect is Dialect.TIDB or not Charset.is_narrow(target.charset):
        return None
    return Charset(target.charset, target.length)

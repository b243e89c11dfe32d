"""Which columns the images of a table's rows hold, and in which order.

    INSERT = handle, body        UPDATE = old body, new body        DELETE = body

Writers emit columns in table order, the hidden row id last. Readers here *expect* that order, because it is
fast to check, and fall back to `strict`, which takes any order.

Tests  tests/common/rowcodec/test_golden.py
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.rowcodec.row_error import UnsupportedTable
from tidb_binlog.table_info import ROWID_COLUMN_ID, WHOLE_COLUMN, Column, ColumnKind, SchemaState, TableInfo


class Image(Enum):
    """One of the four images of a row: the INSERT, the halves of an UPDATE, the DELETE."""

    INSERT = "insert"
    OLD = "old"
    NEW = "new"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Field:
    """A pair of the body as the writer orders it.

    `index` is the place among the writable columns, -1 for what is only skipped. `optional` fields may be
    absent without the row leaving the expected order.
    """

    id: int
    column: Column | None
    index: int
    optional: bool = False


@dataclass(frozen=True, slots=True)
class HandlePart:
    """One datum in front of an INSERT body; `index` -1: its column is not read from it."""

    column: Column | None
    index: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the columns of one table version lie. `columns` are the writable ones, in table order."""

    info: TableInfo
    columns: tuple[Column, ...]
    handle: tuple[HandlePart, ...]
    insert: tuple[Field, ...]
    half: tuple[Field, ...]
    delete: tuple[Field, ...]

    def name_of(self, column_id: int) -> str:
        for column in self.info.columns:
            if column.id == column_id:
                return column.name
        return "_tidb_rowid" if column_id == ROWID_COLUMN_ID else f"id {column_id}"

    @property
    def key_indexes(self) -> frozenset[int]:
        """Places of the handle's columns: these are never absent from an UPDATE or DELETE."""
        return frozenset(part.index for part in self.handle if part.index >= 0)


def _handle_parts(info: TableInfo, place: dict[int, int]) -> tuple[HandlePart, ...]:
    if info.pk_is_handle:
        column = info.handle_column
        assert column is not None
        return (HandlePart(column, place.get(column.id, -1)),)
    if not info.is_common_handle:
        return (HandlePart(None, -1),)
    return tuple(
        HandlePart(column, place.get(column.id, -1) if length == WHOLE_COLUMN else -1)
        for column, length in info.clustered_key
    )


def make_layout(info: TableInfo, null_if_absent: frozenset[int]) -> Layout:
    """`null_if_absent`: ids of the columns whose absence means NULL."""
    ordered = tuple(sorted(info.columns, key=lambda column: column.offset))
    columns = tuple(column for column in ordered if column.is_writable)
    for column in columns:
        if column.type.kind is ColumnKind.UNKNOWN:
            raise UnsupportedTable(
                f"column {column.name} of table {info.name} ({info.id}) has type {column.type.tp}, "
                "which binlog rows cannot hold",
                hint="exclude the table",
            )
    place = {column.id: index for index, column in enumerate(columns)}
    handle = _handle_parts(info, place)
    in_handle = {part.index for part in handle if part.index >= 0}
    only_in_handle = {info.handle_column.id} if info.handle_column is not None else set()

    def fields(*, inserting: bool, deleting: bool) -> Iterator[Field]:
        for column in ordered:
            index = place.get(column.id, -1)
            if inserting and column.id in only_in_handle:
                continue
            if column.is_virtual and not deleting:
                continue
            if index < 0:
                optional = inserting or deleting or column.state != SchemaState.PUBLIC
            else:
                optional = inserting and (column.id in null_if_absent or index in in_handle)
            yield Field(column.id, column, index, optional)
        if not (inserting or info.pk_is_handle or info.is_common_handle):
            yield Field(ROWID_COLUMN_ID, None, -1, optional=deleting)  # images of an archive lack it

    return Layout(
        info=info,
        columns=columns,
        handle=handle,
        insert=tuple(fields(inserting=True, deleting=False)),
        half=tuple(fields(inserting=False, deleting=False)),
        delete=tuple(fields(inserting=False, deleting=True)),
    )

"""Mirror: the form of a table that follows a table upstream row by row, and what becomes of it at a DDL.

Out    columns; for each column afterwards what it is of the table before
Holds  the columns are those upstream, in their types of a changelog, and `_invalid`. A column is known by its
       id, and by its name where its type was changed in a way that made TiDB write it anew
Never  converts a value in another way than the upstream did: a column whose values became others is refused
Tests  tests/drainer/lake/test_mirror.py
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import pyarrow as pa

from drainer.changes import canonical
from drainer.changes.ddl_effect import effect, sub_actions
from drainer.lake.changelog import Change, columns_of
from drainer.lake.evolution import holds
from drainer.lake.lake_table import Name, plain_type
from drainer.mysql.literal.plan import compile_sql
from drainer.reading.archive.views.changes import INVALID, ImageSide
from drainer.txn import INSERT, Ddl, TableVersion
from tidb_binlog.ddl_job import action_name
from tidb_binlog.errors import DownstreamError
from tidb_binlog.late_dataclass import dataclass, replace
from tidb_binlog.rowcodec.temporal import duration_text
from tidb_binlog.table_info import Column, ColumnKind, FieldType, TableInfo

_NOTHING: Final = b"\x00"
_HINT: Final = (
    "leave the table out (syncer.ignore-table), pass over the statement by a syncer.ddl-rule and correct the"
    " mirror by hand, or keep a changelog"
)


def schema_of(version: TableVersion) -> pa.Schema:
    """The columns of a mirror."""
    columns = [(column.name, column.type) for column in columns_of(version)]
    return pa.schema([*columns, (INVALID, pa.string())])


class MirrorRows:
    """Makes batches of the rows of a mirror."""

    def __init__(self, version: TableVersion) -> None:
        self.schema = schema_of(version)
        image = pa.struct([field for field in self.schema if field.name != INVALID])
        self._side = ImageSide("after", 3, pa.schema([("after", image)]), version)

    def batches(self, changes: Iterable[Change]) -> Iterator[pa.RecordBatch]:
        """One. Raises `RowError` for an image that cannot be right."""
        rows, invalid = [change.row for change in changes], dict[int, dict[str, Any]]()
        columns = self._side.array(rows, invalid).flatten()
        notes = [noted(invalid[at]) if at in invalid else None for at in range(len(rows))]
        yield pa.RecordBatch.from_arrays([*columns, pa.array(notes, pa.string())], schema=self.schema)


def noted(invalid: dict[str, Any]) -> str:
    """Of a row what its columns cannot hold."""
    return json.dumps({name.removeprefix("after."): value for name, value in invalid.items()})


def texts(values: pa.Array, form: str) -> list[bytes | None]:
    """A column as a server prints it. `form`: of `canonical`."""
    kind = values.type
    if pa.types.is_decimal(kind):
        return [None if value is None else format(value, "f").encode() for value in values.to_pylist()]
    if form == canonical.TIMES and pa.types.is_integer(kind):
        micros = values.to_pylist()
        return [None if micro is None else duration_text(micro * 1000, 6).encode() for micro in micros]
    if pa.types.is_float32(kind):
        values = values.cast(pa.float64())
    elif pa.types.is_timestamp(kind):
        values = values.cast(pa.timestamp("us"))  # in UTC, of either kind
    if plain_type(kind) != pa.binary():
        values = values.cast(pa.string())
    shown: list[bytes | None] = values.cast(pa.binary()).to_pylist()
    return shown


def key_of(version: TableVersion) -> tuple[Column, ...]:
    """The columns by which rows are told apart. Raises `DownstreamError` where there are none."""
    columns = compile_sql(version.info).key_columns
    if not columns:
        raise DownstreamError(
            f"table {'.'.join(version.downstream)} has no key: a mirror cannot tell its rows apart",
            hint="leave it out (syncer.ignore-table), or keep a changelog of it",
        )
    return columns


class Follow(NamedTuple):
    """What a column is of the table before: `former`, or `default` of one that is new."""

    name: str
    type: pa.DataType
    former: str = ""
    default: Any = None


@dataclass(frozen=True)
class Changed:
    """What a DDL made of the tables. `removed` are names downstream, `renamed` those before and after,
    `emptied` and `altered` the versions by now, with what their columns are of those before."""

    removed: tuple[Name, ...] = ()
    renamed: tuple[tuple[Name, Name], ...] = ()
    emptied: tuple[TableVersion, ...] = ()
    altered: tuple[tuple[TableVersion, tuple[Follow, ...]], ...] = ()


def changed(ddl: Ddl, before: Iterable[TableVersion], after: Iterable[TableVersion]) -> Changed:
    """Of the tables downstream. Raises `DownstreamError` for what no mirror can follow."""
    old, new = ({version.downstream: version for version in versions} for versions in (before, after))
    does = effect(ddl.action, sub_actions(ddl.job))
    if does.replaces_rows:
        raise _refused(ddl, "rows come or go with it of which no change tells")
    former_names = {version.id: name for name, version in old.items()}
    renamed, emptied, altered = dict[Name, Name](), [], []
    for name, version in new.items():
        was_called = former_names.get(
            version.id, name
        )  # another id under the same name: partitions made anew
        former = old.get(was_called)
        if former is None:
            continue
        if was_called != name:
            renamed[name] = was_called
        elif former.id != version.id and does.takes_rows_away:
            emptied.append(version)
        elif former.info != version.info and (columns := _follows(ddl, former, version)):
            altered.append((version, columns))
    removed = tuple(name for name in old if name not in new and name not in renamed.values())
    return Changed(removed, _in_turn(ddl, renamed), tuple(emptied), tuple(altered))


def _in_turn(ddl: Ddl, renamed: dict[Name, Name]) -> tuple[tuple[Name, Name], ...]:
    """Former and new names, so that none is taken before the table that had it has left it."""
    pairs, turns = dict(renamed), []
    while pairs:
        free = [new for new in pairs if new not in pairs.values()]
        if not free:
            raise _refused(ddl, "tables take each other's names")
        turns += [(pairs.pop(new), new) for new in free]
    return tuple(turns)


def _follows(ddl: Ddl, before: TableVersion, after: TableVersion) -> tuple[Follow, ...]:
    """Nothing where the columns are as they were."""
    if _key_ids(before) != _key_ids(after):
        raise _refused(ddl, "it changes the key by which rows are told apart")
    by_id = {column.id: column for column in columns_of(before)}
    kept = {column.id for column in columns_of(after)}
    by_name = {column.name.lower(): column for column in by_id.values() if column.id not in kept}
    types = {column.id: column.type for version in (before, after) for column in version.info.columns}
    present = by_id.keys() | {column.id for column in columns_of(after) if column.name.lower() in by_name}
    defaults = _defaults(ddl, after, present)
    follows = []
    for column in columns_of(after):
        former = by_id.get(column.id) or by_name.get(column.name.lower())
        if former is None:
            follows.append(Follow(column.name, column.type, default=defaults[column.name]))
        elif not holds(column.type, former.type):
            raise _refused(ddl, f"column {column.name} was {former.type} and is {column.type}")
        elif former.id != column.id and not _keeps_values(types[former.id], types[column.id]):
            raise _refused(ddl, f"values of column {column.name} may have become others")
        else:
            follows.append(Follow(column.name, column.type, former.name))
    same = [Follow(column.name, column.type, column.name) for column in by_id.values()]
    return () if follows == same else tuple(follows)


def _keeps_values(before: FieldType, after: FieldType) -> bool:
    """Whether values that TiDB wrote anew, since it had to, are what they were."""
    if before.kind is not after.kind:
        return False
    if before.kind is ColumnKind.DECIMAL:
        return before.fsp == after.fsp
    return before.kind in (ColumnKind.ENUM, ColumnKind.SET) and set(before.elems) <= set(after.elems)


def only_adds(columns: Iterable[Follow], present: Iterable[str]) -> bool:
    """Whether a table with columns of these names only gets further ones, that rows of before have no values
    in."""
    kept = [each.former for each in columns if each.former]
    return all(each.former == each.name if each.former else each.default is None for each in columns) and set(
        kept
    ) | {INVALID} == set(present)


def _key_ids(version: TableVersion) -> list[int]:
    return [column.id for column in compile_sql(version.info).key_columns]


def _defaults(ddl: Ddl, version: TableVersion, present: Iterable[int]) -> dict[str, Any]:
    """What rows hold in columns that are younger than they are."""
    former_ids = set(present)
    columns = [column for column in columns_of(version) if column.id not in former_ids]
    if not columns:
        return {}
    ids = {column.id for column in columns}
    added = [each for each in version.info.columns if each.id in ids]
    info = TableInfo(
        version.id, version.name, tuple(replace(each, offset=place) for place, each in enumerate(added))
    )
    younger = TableVersion(info, version.schema, version.name, version.version)
    schema = pa.schema([("after", pa.struct([(column.name, column.type) for column in columns]))])
    invalid: dict[int, dict[str, Any]] = {}
    rows = ImageSide("after", 3, schema, younger).array([(younger, INSERT, None, _NOTHING)], invalid)
    if invalid:
        raise _refused(ddl, f"rows of before get {noted(invalid[0])}, which no column here can hold")
    row: dict[str, Any] = rows[0].as_py()
    return row


def _refused(ddl: Ddl, why: str) -> DownstreamError:
    tables = ", ".join(".".join(name) for name in ddl.tables)
    return DownstreamError(
        f"DDL job {ddl.job_id} ({action_name(ddl.action)}) at commit_ts {ddl.commit_ts} on {tables}: a mirror"
        f" cannot follow it: {why}; statement: {ddl.query}",
        hint=_HINT,
    )

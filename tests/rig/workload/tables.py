"""Tables: definitions of them: immutable values, and the form of each as SQL and as TiDB's `TableInfo`.

A definition never changes; a DDL makes a new one from it (`with_column`, `with_index`, ...). Column and index
ids are given out as TiDB does: ascending inside a table, never used twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from tests.rig.workload.kinds import (
    ALL_KINDS,
    BIGINT,
    BIGINT_UNSIGNED,
    DATETIME,
    DECIMAL,
    DOUBLE,
    GBK,
    INT,
    LATIN1,
    TEXT,
    Kind,
    varchar,
)
from tidb_binlog import table_info as ti

NOT_NULL: Final = ti.FLAG_NOT_NULL
PRIMARY: Final = ti.FLAG_PRIMARY
UNIQUE_KEY: Final = 4
MULTIPLE_KEY: Final = 8
NO_DEFAULT: Final = 4096

HANDLE: Final = "handle"  # a single integer primary key is the row's handle
COMMON: Final = "common"  # a clustered primary key of another kind
ROWID: Final = "rowid"  # a hidden row id is the handle, whether there is a primary key or not


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `default` is text without quotes, None for NULL; `added`: rows older than it exist."""

    id: int
    name: str
    kind: Kind
    not_null: bool = False
    default: str | None = None
    added: bool = False

    def definition(self) -> str:
        text = f"`{self.name}` {self.kind.sql}"
        if self.not_null:
            text += " NOT NULL"
        if self.default is not None:
            text += f" DEFAULT '{self.default}'"
        return text


@dataclass(frozen=True, slots=True)
class Index:
    """A secondary index; a length of -1 means the whole column."""

    id: int
    name: str
    parts: tuple[tuple[str, int], ...]
    unique: bool = False

    def definition(self) -> str:
        columns = ", ".join(
            f"`{name}`" + (f"({length})" if length > 0 else "") for name, length in self.parts
        )
        return f"{'UNIQUE KEY' if self.unique else 'KEY'} `{self.name}` ({columns})"


@dataclass(frozen=True, slots=True)
class Table:
    """One version of a table's definition."""

    id: int
    schema: str
    name: str
    columns: tuple[Column, ...]
    primary: tuple[str, ...] = ()
    storage: str = ROWID
    indexes: tuple[Index, ...] = ()
    max_column_id: int = 0
    max_index_id: int = 0

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def position(self, name: str) -> int:
        return self.column_names.index(name)

    @property
    def unique_parts(self) -> tuple[tuple[str, tuple[tuple[int, int], ...]], ...]:
        """Every unique key, the primary one first: (name, ((column position, prefix length or -1), ...))."""
        keys = [("PRIMARY", tuple((name, -1) for name in self.primary))] if self.primary else []
        keys += [(index.name, index.parts) for index in self.indexes if index.unique]
        return tuple(
            (name, tuple((self.position(part), length) for part, length in parts)) for name, parts in keys
        )

    def with_column(self, name: str, kind: Kind, *, not_null: bool, default: str | None, after: str) -> Table:
        """Add a column after `after`, at the front for ""."""
        column = Column(self.max_column_id + 1, name, kind, not_null, default, added=True)
        at = 0 if after == "" else self.position(after) + 1
        columns = (*self.columns[:at], column, *self.columns[at:])
        return replace(self, columns=columns, max_column_id=column.id)

    def without_column(self, name: str) -> Table:
        assert name not in self.primary
        assert all(name not in dict(index.parts) for index in self.indexes)
        return replace(self, columns=tuple(column for column in self.columns if column.name != name))

    def with_kind(self, name: str, kind: Kind, *, anew: bool) -> Table:
        """`anew`: TiDB makes another column for the values; here it has no default and may be NULL."""
        new = Column(self.max_column_id + 1, name, kind, added=True)
        columns = (c if c.name != name else new if anew else replace(c, kind=kind) for c in self.columns)
        return replace(self, columns=tuple(columns), max_column_id=self.max_column_id + anew)

    def with_index(self, name: str, parts: tuple[tuple[str, int], ...], *, unique: bool) -> Table:
        index = Index(self.max_index_id + 1, name, parts, unique)
        return replace(self, indexes=(*self.indexes, index), max_index_id=index.id)

    def without_index(self, name: str) -> Table:
        return replace(self, indexes=tuple(index for index in self.indexes if index.name != name))

    def create_sql(self) -> str:
        """The statement as an application would send it: no schema name, TiDB's own words included."""
        parts = [column.definition() for column in self.columns]
        if self.primary:
            parts.append(
                f"PRIMARY KEY ({', '.join(f'`{name}`' for name in self.primary)}){self._clustering()}"
            )
        parts += [index.definition() for index in self.indexes]
        return f"CREATE TABLE `{self.name}` ({', '.join(parts)})"

    def _clustering(self) -> str:
        word = "NONCLUSTERED" if self.storage == ROWID else "CLUSTERED"
        return f" /*T![clustered_index] {word} */"

    def info(self) -> dict[str, Any]:
        """The definition as TiDB writes it into a DDL job."""
        document: dict[str, Any] = {
            "id": self.id,
            "name": _name(self.name),
            "charset": "utf8mb4",
            "collate": "utf8mb4_bin",
            "cols": [self._column_info(offset, column) for offset, column in enumerate(self.columns)],
            "index_info": self._indexes_info() or None,
        }
        document.update(_UNUSED_TABLE_KEYS)
        document.update(
            pk_is_handle=self.storage == HANDLE,
            is_common_handle=self.storage == COMMON,
            common_handle_version=int(self.storage == COMMON),
            max_col_id=self.max_column_id,
            max_idx_id=self.max_index_id,
        )
        return document

    def _column_info(self, offset: int, column: Column) -> dict[str, Any]:
        not_null = column.not_null or column.name in self.primary
        flags = NOT_NULL if not_null else 0
        if not_null and column.default is None:
            flags |= NO_DEFAULT
        if column.name in self.primary:
            flags |= PRIMARY
        for index in self.indexes:
            if index.parts[0][0] == column.name:
                flags |= UNIQUE_KEY if index.unique and len(index.parts) == 1 else MULTIPLE_KEY
        return {
            "id": column.id,
            "name": _name(column.name),
            "offset": offset,
            "origin_default": column.default if column.added else None,
            "origin_default_bit": None,
            "default": column.default,
            "default_bit": None,
            "default_is_expr": False,
            "generated_expr_string": "",
            "generated_stored": False,
            "dependences": None,
            "type": column.kind.field_type(flags),
            "state": ti.SchemaState.PUBLIC,
            "comment": "",
            "hidden": False,
            "change_state_info": None,
            "version": 2,
        }

    def _indexes_info(self) -> list[dict[str, Any]]:
        found = []
        if self.primary and self.storage != HANDLE:
            parts = tuple((name, -1) for name in self.primary)
            found.append(self._index_info(Index(1, "PRIMARY", parts, True), primary=True))
        return found + [self._index_info(index, primary=False) for index in self.indexes]

    def _index_info(self, index: Index, *, primary: bool) -> dict[str, Any]:
        return {
            "id": index.id,
            "idx_name": _name(index.name),
            "tbl_name": {"O": "", "L": ""},
            "idx_cols": [
                {"name": _name(name), "offset": self.position(name), "length": length}
                for name, length in index.parts
            ],
            "state": ti.SchemaState.PUBLIC,
            "backfill_state": 0,
            "comment": "",
            "index_type": 1,
            "is_unique": index.unique,
            "is_primary": primary,
            "is_invisible": False,
            "is_global": False,
            "mv_index": False,
        }


def _name(name: str) -> dict[str, str]:
    return {"O": name, "L": name.lower()}


_UNUSED_TABLE_KEYS: Final[dict[str, Any]] = {
    "constraint_info": None,
    "fk_info": None,
    "state": ti.SchemaState.PUBLIC,
    "pk_is_handle": False,
    "is_common_handle": False,
    "common_handle_version": 0,
    "comment": "",
    "auto_inc_id": 0,
    "auto_id_cache": 0,
    "auto_rand_id": 0,
    "max_col_id": 0,
    "max_idx_id": 0,
    "max_fk_id": 0,
    "max_cst_id": 0,
    "update_timestamp": 0,
    "ShardRowIDBits": 0,
    "max_shard_row_id_bits": 0,
    "auto_random_bits": 0,
    "auto_random_range_bits": 0,
    "pre_split_regions": 0,
    "partition": None,
    "compression": "",
    "view": None,
    "sequence": None,
    "Lock": None,
    "version": 5,
    "tiflash_replica": None,
    "is_columnar": False,
    "temp_table_type": 0,
    "cache_table_status": 0,
    "policy_ref_info": None,
    "stats_options": None,
    "exchange_partition_info": None,
    "ttl_info": None,
}


def new_table(
    table_id: int,
    schema: str,
    name: str,
    columns: tuple[tuple[str, Kind], ...],
    *,
    primary: tuple[str, ...] = (),
    storage: str = ROWID,
    unique: tuple[tuple[str, tuple[tuple[str, int], ...]], ...] = (),
    not_null: tuple[str, ...] = (),
) -> Table:
    """A table as CREATE TABLE makes it: column and index ids from 1 on."""
    made = tuple(
        Column(number, column, kind, column in not_null or column in primary)
        for number, (column, kind) in enumerate(columns, 1)
    )
    first_index = 2 if primary and storage != HANDLE else 1
    indexes = tuple(
        Index(number, key, parts, True) for number, (key, parts) in enumerate(unique, first_index)
    )
    return Table(
        table_id,
        schema,
        name,
        made,
        primary,
        storage,
        indexes,
        max_column_id=len(made),
        max_index_id=first_index - 1 + len(indexes),
    )


GENERAL_CI: Final = "utf8mb4_general_ci"
SHARD: Final = "shard"
"""A column whose value is the name of its table: rows of shards never collide in the table they share."""


def standing_tables(schema: str, ids: Iterator[int]) -> list[Table]:
    """The tables that exist for the whole demo: one for every kind of key, one with every column type."""
    return [
        new_table(
            next(ids),
            schema,
            "integer_key",
            (("id", INT), ("amount", DECIMAL), ("note", varchar(40))),
            primary=("id",),
            storage=HANDLE,
        ),
        new_table(
            next(ids),
            schema,
            "unsigned_key",
            (("id", BIGINT_UNSIGNED), ("note", varchar(40))),
            primary=("id",),
            storage=HANDLE,
        ),
        new_table(
            next(ids),
            schema,
            "composite_key",
            (("note", TEXT), ("a", INT), ("b", varchar(20)), ("amount", DOUBLE)),
            primary=("b", "a"),
            storage=COMMON,
        ),
        new_table(
            next(ids),
            schema,
            "ignored_case_key",
            (("name", varchar(20, GENERAL_CI)), ("amount", INT), ("note", varchar(40))),
            primary=("name",),
        ),
        new_table(
            next(ids),
            schema,
            "prefix_key",
            (("id", INT), ("code", varchar(20)), ("name", varchar(20, GENERAL_CI)), ("amount", INT)),
            primary=("id",),
            storage=HANDLE,
            unique=(("code_prefix", (("code", 3),)), ("name_prefix", (("name", 2),))),
        ),
        new_table(
            next(ids),
            schema,
            "latin1_key",
            (("note", varchar(40)), ("name", LATIN1), ("part", INT)),
            primary=("name", "part"),
        ),
        new_table(
            next(ids),
            schema,
            "gbk_key",
            (("id", INT), ("name", GBK), ("part", INT), ("code", LATIN1)),
            primary=("id",),
            storage=HANDLE,
            unique=(("name_part", (("name", -1), ("part", -1))), ("code_part", (("code", -1), ("part", -1)))),
        ),
        new_table(next(ids), schema, "no_key", (("a", INT), ("b", varchar(20)), ("c", DATETIME))),
        new_table(
            next(ids), schema, "all_types", (("id", BIGINT), *ALL_KINDS), primary=("id",), storage=HANDLE
        ),
        new_table(
            next(ids),
            schema,
            "evolving",
            (("id", INT), ("fixed", varchar(20)), ("wide", INT)),
            primary=("id",),
            storage=HANDLE,
        ),
    ]


SHARDS: Final = ("shard_1", "shard_2")
RECASTING: Final = "recasting"
"""The table whose columns get types that TiDB and other servers convert values to in different ways."""


def shards(schema: str, ids: Iterator[int]) -> list[Table]:
    """Two tables for one target downstream: one row key over both, and one other unique key."""
    columns = ((SHARD, varchar(20)), ("id", INT), ("code", INT), ("note", varchar(40)))
    unique = (("shard_code", ((SHARD, -1), ("code", -1))),)
    return [
        new_table(next(ids), schema, name, columns, primary=(SHARD, "id"), storage=COMMON, unique=unique)
        for name in SHARDS
    ]


def losing_table(schema: str, table_id: int, name: str = "losing_key") -> Table:
    """Of that name, it gets a unique key again and again, and loses it while rows come that break it."""
    columns = (("id", INT), ("code", INT), ("note", varchar(40)))
    return new_table(table_id, schema, name, columns, primary=("id",), storage=HANDLE)


SWAPPED: Final = ("swapped_1", "swapped_2")


def swapped(schema: str, ids: Iterator[int]) -> list[Table]:
    """Two tables that are alike and change places: no definition says that they have."""
    return [losing_table(schema, next(ids), name) for name in SWAPPED]


REFUSING: Final = "refusing"


def growing_table(schema: str, table_id: int, name: str) -> Table:
    """Rows are added only. While they come, where they go downstream is changed (`moving`), or whether they
    fit there (`refusing`)."""
    columns = (("id", BIGINT), ("note", varchar(40)))
    return new_table(table_id, schema, name, columns, primary=("id",), storage=HANDLE)


def probe_table(schema: str, table_id: int) -> Table:
    """The table whose newest row shows how far the Drainer is."""
    columns = (("id", BIGINT), ("sent_at", DATETIME))
    return new_table(table_id, schema, "lag_probe", columns, primary=("id",), storage=HANDLE)

"""Definition of a table as DDL needs it: everything of TiDB's TableInfo that a downstream can have.

Out    values: columns, keys, foreign keys, checks, partitions, view, sequence; only what is public
Never  reads rows or renders SQL; `tidb_binlog.table_info` is what rows are decoded with

Missing keys read as the zero of Go, unknown keys are ignored.
Tests  tests/drainer/ddl/derive/test_derive.py
"""

from __future__ import annotations

import base64
from typing import Any, Final

from tidb_binlog import table_info as ti
from tidb_binlog.errors import Corruption
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.rowcodec.defaults import year_of

PRIMARY: Final = "PRIMARY"


@dataclass(frozen=True, slots=True)
class Default:
    """What a column gets that a statement does not name. `bits` for BIT columns; `expression` is SQL text."""

    text: str = ""
    bits: bytes | None = None
    expression: bool = False

    @property
    def is_now(self) -> bool:
        return not self.expression and self.text.upper().startswith("CURRENT_TIMESTAMP")


@dataclass(frozen=True, slots=True)
class Column:
    """`origin` is what rows have that are older than the column."""

    id: int
    name: str
    type: ti.FieldType
    default: Default | None = None
    origin: Default | None = None
    generated: str = ""
    stored: bool = False
    comment: str = ""

    @property
    def nullable(self) -> bool:
        return not self.type.not_null

    @property
    def auto_increment(self) -> bool:
        return bool(self.type.flag & ti.FLAG_AUTO_INCREMENT)

    @property
    def on_update_now(self) -> bool:
        return bool(self.type.flag & ti.FLAG_ON_UPDATE_NOW)

    @property
    def is_text(self) -> bool:
        """It has a character set: a string that is not binary, an ENUM or a SET."""
        return self.type.tp in ti.STRING_TYPES | {ti.ENUM, ti.SET} and self.type.charset != "binary"


@dataclass(frozen=True, slots=True)
class Part:
    """Part of a key: a column with a prefix length (-1: all of it), or an expression."""

    column: str = ""
    length: int = -1
    expression: str = ""
    array: bool = False


@dataclass(frozen=True, slots=True)
class Key:
    """`name` is `PRIMARY` for the primary key."""

    name: str
    parts: tuple[Part, ...]
    unique: bool = False
    comment: str = ""
    invisible: bool = False

    @property
    def primary(self) -> bool:
        return self.name == PRIMARY

    @property
    def has_expressions(self) -> bool:
        return any(part.expression for part in self.parts)


@dataclass(frozen=True, slots=True)
class ForeignKey:
    name: str
    columns: tuple[str, ...]
    schema: str
    table: str
    referenced: tuple[str, ...]
    on_delete: str = ""
    on_update: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    expression: str
    enforced: bool = True


@dataclass(frozen=True, slots=True)
class Partition:
    id: int
    name: str
    less_than: tuple[str, ...] = ()
    values: tuple[tuple[str, ...], ...] = ()

    def listed(self, columns: int) -> str:
        """The values of a LIST partition of so many columns as SQL; "" for the default partition."""
        if self.values in ((), (("DEFAULT",),)):
            return ""
        return ",".join(
            f"({','.join(values)})" if columns > 1 else ",".join(values) for values in self.values
        )


@dataclass(frozen=True, slots=True)
class Partitioning:
    """`kind` is one of `tidb_binlog.table_info`'s PARTITION_*; by `columns`, or by one `expression`."""

    kind: int
    expression: str
    columns: tuple[str, ...]
    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class View:
    select: str
    algorithm: str = "UNDEFINED"
    security: str = "DEFINER"


@dataclass(frozen=True, slots=True)
class Sequence:
    start: int
    increment: int
    minimum: int
    maximum: int
    cache: int
    cycle: bool


@dataclass(frozen=True, slots=True)
class Definition:
    """A table, view or sequence. `options` is what only TiDB has: (name, clause for another TiDB or "")."""

    id: int
    columns: tuple[Column, ...] = ()
    keys: tuple[Key, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    checks: tuple[Check, ...] = ()
    partitioning: Partitioning | None = None
    charset: str = ""
    collate: str = ""
    comment: str = ""
    auto_increment: int = 0
    view: View | None = None
    sequence: Sequence | None = None
    temporary: bool = False
    clustered: bool = False
    options: tuple[tuple[str, str], ...] = ()
    by_name: dict[str, Column] = field(default_factory=dict, repr=False, compare=False)

    @property
    def is_table(self) -> bool:
        return self.view is None and self.sequence is None

    def column(self, name: str) -> Column | None:
        return self.by_name.get(name.lower())


def read(document: dict[str, Any]) -> Definition:
    """TableInfo JSON as a definition; raises `Corruption` for what is none."""
    try:
        return _read(document)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise Corruption(
            f"table definition {document.get('name')} cannot be read: missing or wrong {error}",
            hint="compare the job with `ADMIN SHOW DDL JOBS` of the upstream",
        ) from None


def _read(document: dict[str, Any]) -> Definition:
    all_columns = sorted(document.get("cols") or (), key=lambda column: int(column["offset"]))
    hidden = {str(column["name"]["O"]).lower(): column for column in all_columns if column.get("hidden")}
    columns = tuple(
        _column(column) for column in all_columns if _is_public(column) and not column.get("hidden")
    )
    keys = [_key(key, hidden) for key in document.get("index_info") or () if _is_public(key)]
    if document.get("pk_is_handle"):
        handle = next(column for column in columns if column.type.flag & ti.FLAG_PRIMARY)
        keys.insert(0, Key(PRIMARY, (Part(handle.name),), unique=True))
    return Definition(
        id=int(document["id"]),
        columns=columns,
        keys=tuple(sorted(keys, key=lambda key: not key.primary)),
        foreign_keys=tuple(
            _foreign_key(entry) for entry in document.get("fk_info") or () if _is_public(entry)
        ),
        checks=tuple(_check(entry) for entry in document.get("constraint_info") or () if _is_public(entry)),
        partitioning=_partitioning(document.get("partition")),
        charset=str(document.get("charset") or ""),
        collate=str(document.get("collate") or ""),
        comment=str(document.get("comment") or ""),
        auto_increment=int(document.get("auto_inc_id") or 0),
        view=_view(document.get("view")),
        sequence=_sequence(document.get("sequence")),
        clustered=bool(document.get("pk_is_handle") or document.get("is_common_handle")),
        temporary=bool(document.get("temp_table_type")),
        options=tuple(_options(document)),
        by_name={column.name.lower(): column for column in columns},
    )


def _is_public(document: dict[str, Any]) -> bool:
    return int(document.get("state", ti.SchemaState.PUBLIC)) == ti.SchemaState.PUBLIC


def _default(document: dict[str, Any], key: str, *, expression: bool) -> Default | None:
    bits, value = document.get(f"{key}_bit"), document.get(key)
    if bits is not None:
        return Default(bits=base64.b64decode(bits))
    return None if value is None else Default(str(value), expression=expression)


def _year(default: Default | None) -> Default | None:
    return Default(year_of(default.text)) if default is not None and default.text.isdecimal() else default


def _column(document: dict[str, Any]) -> Column:
    kind = ti.FieldType.from_json(document["type"])
    default = _default(document, "default", expression=bool(document.get("default_is_expr")))
    origin = _default(document, "origin_default", expression=False)
    if kind.tp == ti.YEAR:
        default, origin = _year(default), _year(origin)
    return Column(
        id=int(document["id"]),
        name=str(document["name"]["O"]),
        type=kind,
        default=None if kind.flag & ti.FLAG_NO_DEFAULT else default,
        origin=origin,
        generated=str(document.get("generated_expr_string") or ""),
        stored=bool(document.get("generated_stored")),
        comment=str(document.get("comment") or ""),
    )


def _key(document: dict[str, Any], hidden: dict[str, dict[str, Any]]) -> Key:
    parts = []
    for part in document.get("idx_cols") or ():
        name = str(part["name"]["O"])
        column = hidden.get(name.lower())
        if column is None:
            parts.append(Part(name, int(part.get("length", -1))))
        else:
            array = bool((column.get("type") or {}).get("Array"))
            parts.append(Part(expression=str(column["generated_expr_string"]), array=array))
    primary = bool(document.get("is_primary"))
    return Key(
        name=PRIMARY if primary else str(document["idx_name"]["O"]),
        parts=tuple(parts),
        unique=primary or bool(document.get("is_unique")),
        comment=str(document.get("comment") or ""),
        invisible=bool(document.get("is_invisible")),
    )


def _foreign_key(document: dict[str, Any]) -> ForeignKey:
    return ForeignKey(
        name=str(document["fk_name"]["O"]),
        columns=tuple(str(name["O"]) for name in document["cols"]),
        schema=str((document.get("ref_schema") or {}).get("O") or ""),
        table=str(document["ref_table"]["O"]),
        referenced=tuple(str(name["O"]) for name in document["ref_cols"]),
        on_delete=ti.FOREIGN_KEY_ACTIONS[int(document.get("on_delete") or 0)],
        on_update=ti.FOREIGN_KEY_ACTIONS[int(document.get("on_update") or 0)],
    )


def _check(document: dict[str, Any]) -> Check:
    name = document.get("constraint_name") or document.get("name") or {}
    return Check(str(name.get("O") or ""), str(document["expr_string"]), bool(document.get("enforced", True)))


def _partitioning(document: dict[str, Any] | None) -> Partitioning | None:
    if document is None or not document.get("enable", True):
        return None
    return Partitioning(
        kind=int(document["type"]),
        expression=str(document.get("expr") or ""),
        columns=tuple(str(name["O"]) for name in document.get("columns") or ()),
        partitions=tuple(
            Partition(
                id=int(entry["id"]),
                name=str(entry["name"]["O"]),
                less_than=tuple(map(str, entry.get("less_than") or ())),
                values=tuple(tuple(map(str, values)) for values in entry.get("in_values") or ()),
            )
            for entry in document.get("definitions") or ()
        ),
    )


def _view(document: dict[str, Any] | None) -> View | None:
    if document is None:
        return None
    return View(
        select=str(document["view_select"]),
        algorithm=("UNDEFINED", "MERGE", "TEMPTABLE")[int(document.get("view_algorithm") or 0)],
        security=("DEFINER", "INVOKER")[int(document.get("view_security") or 0)],
    )


def _sequence(document: dict[str, Any] | None) -> Sequence | None:
    if document is None:
        return None
    return Sequence(
        start=int(document["sequence_start"]),
        increment=int(document["sequence_increment"]),
        minimum=int(document["sequence_min_value"]),
        maximum=int(document["sequence_max_value"]),
        cache=int(document["sequence_cache_value"]) if document.get("sequence_cache") else 0,
        cycle=bool(document.get("sequence_cycle")),
    )


def _options(document: dict[str, Any]) -> list[tuple[str, str]]:
    bits, shards = document.get("auto_random_bits"), document.get("ShardRowIDBits")
    clauses = {
        "AUTO_RANDOM": bits and f"AUTO_RANDOM({bits}, {document.get('auto_random_range_bits') or 64})",
        "SHARD_ROW_ID_BITS": shards and f"SHARD_ROW_ID_BITS={shards}",
        "TTL": document.get("ttl_info") and "",
        "PLACEMENT POLICY": document.get("policy_ref_info") and "",
    }
    return [(name, clause) for name, clause in clauses.items() if clause == "" or clause]

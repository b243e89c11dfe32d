"""Compare: whether a table downstream has the columns and keys that a definition asks for.

Out    whether a column, a default, a key or the partitions are the same; all that differs, by its subject
Why    servers print the same thing differently: display widths, JSON as LONGTEXT, quoted defaults, `utf8`
       for utf8mb3. What cannot be compared by text (expressions) counts as the same
Tests  tests/drainer/ddl/derive/test_derive.py
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Final

from drainer.ddl.derive.definition import Column, Definition, Key, Partitioning
from drainer.ddl.derive.render import Server, fitting, partition_by, same_charset, type_of
from drainer.mysql.rows.dialect import Dialect
from tidb_binlog import table_info as ti
from tidb_binlog.late_dataclass import dataclass

TABLE: Final = "table"
VIEW: Final = "view"
SEQUENCE: Final = "sequence"

_WIDTH = re.compile(r"^(tinyint|smallint|mediumint|int|bigint|year)\(\d+\)")
_NUMBERS: Final = frozenset(
    {ti.TINY, ti.SHORT, ti.INT24, ti.LONG, ti.LONGLONG, ti.FLOAT, ti.DOUBLE, ti.DECIMAL, ti.YEAR}
)


@dataclass(frozen=True, slots=True)
class PresentColumn:
    """`type`, `default` and `extra` as information_schema has them (COLUMN_TYPE, COLUMN_DEFAULT, EXTRA)."""

    name: str
    type: str
    nullable: bool = True
    collation: str = ""
    default: str | None = None
    extra: str = ""
    comment: str = ""

    @property
    def generated(self) -> bool:
        words = self.extra.upper()
        return "GENERATED" in words.replace("DEFAULT_GENERATED", "") or "PERSISTENT" in words


@dataclass(frozen=True, slots=True)
class PresentKey:
    """Parts are (column in lower case or "" for an expression, prefix length or 0). `kind`: FULLTEXT, SPATIAL
    or another that has to be named when the key is made."""

    name: str
    parts: tuple[tuple[str, int], ...]
    unique: bool = False
    used: bool = True
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Present:
    """A table downstream. `partitions` are names in order, () when it has none; `bounds` what each may hold,
    as `bound_of` writes it; `partition_by` what decides, as `by_of` writes it, "" if it is not known."""

    kind: str = TABLE
    columns: tuple[PresentColumn, ...] = ()
    keys: tuple[PresentKey, ...] = ()
    foreign_keys: frozenset[str] = frozenset()
    checks: frozenset[str] = frozenset()
    partitions: tuple[str, ...] = ()
    bounds: tuple[str, ...] = ()
    partition_by: str = ""
    comment: str = ""
    collation: str = ""
    engine: str = ""

    def column(self, name: str) -> PresentColumn | None:
        lower = name.lower()
        return next((column for column in self.columns if column.name.lower() == lower), None)

    def key(self, name: str) -> PresentKey | None:
        lower = name.lower()
        return next((key for key in self.keys if key.name.lower() == lower), None)


def same_type(column: Column, present: PresentColumn, server: Server) -> bool:
    kind = type_of(column)
    if kind == "json" and server.dialect is Dialect.MARIADB:
        kind = "longtext"
    if kind.startswith(("enum(", "set(")):
        return present.type in (kind, kind.replace("\\\\", "\\"))
    if server.dialect is Dialect.TIDB:  # it shows neither ZEROFILL nor digits of which none is a fraction
        kind = re.sub(r"^(float|double)\(\d+,0\)", r"\1", kind.removesuffix(" zerofill"))
    return _normal(kind) == _normal(present.type)


def _normal(text: str) -> str:
    text = text.lower()
    return text if "zerofill" in text else _WIDTH.sub(r"\1", text)


def same_collation(column: Column, present: PresentColumn, server: Server) -> bool:
    if not column.is_text:
        return True
    _, collate = server.collation(column.type.charset, column.type.collate)
    return same_charset(collate) == same_charset(present.collation)


def same_column(column: Column, present: PresentColumn, server: Server) -> bool:
    """Type, collation, NULL, AUTO_INCREMENT, ON UPDATE, and whether it is generated; not the default."""
    extra = present.extra.lower()
    null_matters = not column.generated or server.dialect is not Dialect.MARIADB
    return (
        same_type(column, present, server)
        and same_collation(column, present, server)
        and (column.nullable == present.nullable or not null_matters)
        and column.auto_increment == ("auto_increment" in extra)
        and column.on_update_now == ("on update" in extra)
        and bool(column.generated) == present.generated
    )


def comparable(column: Column) -> bool:
    """Whether servers print its default so that it can be compared: not bytes, not an expression."""
    if column.default is not None and column.default.expression:
        return False
    return not (column.type.charset == "binary" and column.type.tp in ti.STRING_TYPES)


def same_default(column: Column, present: PresentColumn, server: Server) -> bool:
    """What is not `comparable` counts as the same."""
    default, text = column.default, present.default
    if server.dialect is Dialect.MARIADB and (text or "").upper() == "NULL":
        text = None  # it prints literals, others the value
    if column.generated or column.auto_increment or (default is not None and default.expression):
        return True
    if default is None or text is None:
        return default is None and text is None
    if default.is_now:
        return text.lower().startswith(("current_timestamp", "now("))
    if default.bits is not None:
        digits = re.sub(r"[^01]", "", text.removeprefix("b"))
        return int(digits or "0", 2) == int.from_bytes(default.bits, "big")
    if not comparable(column):
        return True
    text_there = _unquoted(text) if server.dialect is Dialect.MARIADB else text
    if server.dialect is Dialect.MYSQL and column.type.charset == "binary" and _BYTES.fullmatch(text):
        text_there = bytes.fromhex(text[2:]).decode("utf-8", "surrogateescape")  # an ENUM or a SET
    if column.type.tp in _NUMBERS:
        return _number(text_there) == _number(default.text)
    if column.type.tp in (ti.DATETIME, ti.TIMESTAMP, ti.TIME):
        return _second(text_there) == _second(default.text)
    if column.type.tp == ti.STRING:  # servers keep a CHAR without the blanks at its end
        return text_there.rstrip(" ") == default.text.rstrip(" ")
    return text_there == default.text


def _unquoted(text: str) -> str:
    """MariaDB prints a literal."""
    if len(text) >= 2 and text[0] == text[-1] == "'":
        return re.sub(r"'(')|\\(.)", lambda match: match[1] or _ESCAPED.get(match[2], match[2]), text[1:-1])
    return text


_BYTES: Final = re.compile("0x(?:[0-9A-F]{2})*")
_ESCAPED: Final = {"n": "\n", "r": "\r", "0": "\0"}


def _second(text: str) -> str:
    """Without the zeros at the end of a second's fraction."""
    return text.rstrip("0").rstrip(".") if "." in text else text


def _number(text: str) -> Decimal | str:
    try:
        return Decimal(text)
    except InvalidOperation:
        return text


def shape_of(key: Key, definition: Definition) -> tuple[bool, tuple[tuple[str, int], ...]]:
    """(unique, parts) as `PresentKey` has them: a prefix of the whole column is no prefix."""
    parts = []
    for part in key.parts:
        column = definition.column(part.column)
        length = max(part.length, 0)
        fixed = column is not None and column.type.tp in (ti.VARCHAR, ti.VAR_STRING, ti.STRING)
        if fixed and column is not None and length >= column.type.flen:
            length = 0
        parts.append((part.column.lower(), length))
    return key.unique, tuple(parts)


def same_key(key: Key, definition: Definition, present: PresentKey) -> bool:
    return shape_of(key, definition) == (present.unique, present.parts)


def bound_of(text: str) -> str:
    """A partition's bound without what servers write differently: blanks, quotes, character sets, bytes."""
    text = re.sub(r"(?i)\b(?:x'|0x)((?:[0-9a-f]{2})*)\b'?", _from_hex, text)
    text = re.sub(r"\b_\w+(?=\s*['\"])|[\s'\"`]", "", text)
    return re.sub("maxvalue", "MAXVALUE", text, flags=re.IGNORECASE)


def _from_hex(match: re.Match[str]) -> str:
    return bytes.fromhex(match[1]).decode("utf-8", "surrogateescape")


def by_of(text: str) -> str:
    """What decides in which partition a row is, without what servers write differently."""
    return re.sub(r"[\s`()]", "", text.lower()).replace("%", "mod")


def same_partitions(expected: Partitioning | None, present: Present) -> bool:
    """What decides, names in order, and what each may hold."""
    if expected is None:
        return not present.partitions
    if present.partition_by not in ("", by_of(partition_by(expected))):
        return False
    if present.partitions != tuple(partition.name for partition in expected.partitions):
        return False
    if expected.kind not in (ti.PARTITION_RANGE, ti.PARTITION_LIST) or not present.bounds:
        return True
    bounds = [
        bound_of(",".join(partition.less_than) or partition.listed(len(expected.columns)))
        for partition in expected.partitions
    ]
    if expected.kind == ti.PARTITION_RANGE:
        return list(present.bounds) == bounds
    return list(map(_values, present.bounds)) == list(map(_values, bounds))


def _values(bound: str) -> list[str]:
    """Of a LIST partition; servers put NULL first."""
    return sorted(re.split(r",(?![^(]*\))", bound))


def differences(definition: Definition, present: Present | None, server: Server) -> list[str]:
    """All that differs, each line with its subject: the table, engine, columns, partitions, or a column's,
    key's or check's name. What the downstream has besides does not count."""
    if present is None:
        return ["the table is not there"]
    definition = fitting(definition, server, [])
    lines = _columns(definition, present, server)
    for key in definition.keys:
        other = present.key(key.name)
        if other is None or not same_key(key, definition, other):
            lines.append(f"key {key.name} is not there")
    if not definition.is_table:
        return lines
    lines += [
        f"check {check.name} is not there"
        for check in definition.checks
        if check.enforced and check.name.lower() not in present.checks
    ]
    if not same_partitions(definition.partitioning, present):
        by = f" by {present.partition_by}" if present.partition_by else ""
        lines.append(f"partitions are {', '.join(present.partitions) or 'not there'}{by}")
    if present.engine and server.engines and present.engine.lower() not in server.engines:
        lines.append(f"engine is {present.engine}, which has no transactions")
    return lines


def _columns(definition: Definition, present: Present, server: Server) -> list[str]:
    lines = []
    for column in definition.columns:
        subject, other = f"column {column.name}", present.column(column.name)
        if other is None:
            lines.append(f"{subject} is not there")
        elif definition.is_table and not same_column(column, other, server):
            null = "NULL" if other.nullable else "NOT NULL"
            text = f"{subject} is {other.type} {other.collation} {null} {other.extra}"
            lines.append(" ".join(text.split()))
        elif definition.is_table and not same_default(column, other, server):
            lines.append(f"{subject} has another default")
    expected = [column.name.lower() for column in definition.columns]
    actual = [column.name.lower() for column in present.columns if definition.column(column.name)]
    if not lines and expected != actual:
        lines.append(f"columns are in the order {', '.join(actual)}")
    return lines

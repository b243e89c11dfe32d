"""Table definitions from words: column types as SQL writes them, to TiDB's `TableInfo` and to DDL text.

In     column("id", "bigint", nullable=False), ...; names of the primary key; unique keys
Out    `TableInfo` with ids given out as TiDB does, and the text of CREATE TABLE, ADD COLUMN, ADD INDEX
Holds  ids of columns and indexes ascend inside a table and are not used twice while it lives
Never  knows of generated columns, partitions, foreign keys: `InvalidDefinition` says what it does not know
Why    text: a Drainer gives its downstream the statement as well as the rows
Tests  tests/pumpclient/publish/test_publisher_schema_publishing.py
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from pumpclient.errors import InvalidDefinition
from pumpclient.schema.value_fit import Unfit, fit
from tidb_binlog import table_info as ti
from tidb_binlog.late_dataclass import dataclass, replace
from tidb_binlog.rowcodec.put import put_value
from tidb_binlog.table_info import Column, FieldType, Index, IndexColumn, TableInfo

UNSIGNED: Final = ti.FLAG_UNSIGNED
_TEXT: Final = ("utf8mb4", "utf8mb4_bin")

_INTEGERS: Final = {  # type code, display width signed and unsigned
    "tinyint": (ti.TINY, 4, 3),
    "smallint": (ti.SHORT, 6, 5),
    "mediumint": (ti.INT24, 9, 8),
    "int": (ti.LONG, 11, 10),
    "bigint": (ti.LONGLONG, 20, 20),
}
_BLOBS: Final = {
    "tiny": (ti.TINY_BLOB, 255),
    "": (ti.BLOB, 65535),
    "medium": (ti.MEDIUM_BLOB, 16777215),
    "long": (ti.LONG_BLOB, 4294967295),
}
_ALIASES: Final = {
    "integer": "int",
    "bool": "tinyint(1)",
    "boolean": "tinyint(1)",
    "numeric": "decimal",
    "real": "double",
    "double precision": "double",
}
_TYPE: Final = re.compile(
    r"(?P<word>[a-z]+(?: precision)?)\s*(?:\((?P<arguments>.*)\))?\s*(?P<unsigned>unsigned)?"
    r"\s*(?:collate\s+(?P<collate>[a-z0-9_]+))?",
    re.I | re.S,
)
_STRINGS: Final = re.compile(r"\s*'((?:[^']|'')*)'\s*(?:,|$)")


@dataclass(frozen=True, slots=True)
class ColumnDefinition:
    """One column as `create_table` and `add_column` take it. Made by `column`."""

    name: str
    sql_type: str
    type: FieldType
    nullable: bool = True
    default: str | None = None

    def text(self) -> str:
        """As in CREATE TABLE."""
        words = [f"{quoted(self.name)} {self.sql_type}"]
        if not self.nullable:
            words.append("NOT NULL")
        if self.default is not None:
            words.append("DEFAULT " + string(self.default))
        return " ".join(words)


def column(
    name: str, sql_type: str, *, nullable: bool = True, default: str | None = None
) -> ColumnDefinition:
    """A column: `column("price", "decimal(10,2)", nullable=False)`.

    Types: integers (unsigned), decimal, float, double, bit, year, date, datetime, timestamp, time, char,
    varchar, text, binary, varbinary, blob, json, enum, set; text is utf8mb4, with COLLATE if wanted.
    `default` is text without quotes. Raises `InvalidDefinition`.
    """
    if not name or len(name) > 64 or name.strip() != name or "\0" in name:
        raise InvalidDefinition(f"{name!r} cannot name a column")
    text = " ".join(sql_type.split()) if "'" not in sql_type else sql_type.strip()
    kind = FieldType.from_json(field_type(text).to_json())  # as it is read back from a job
    if default is not None:
        try:
            put_value(kind, fit(kind, default))
        except (Unfit, ValueError) as error:
            raise InvalidDefinition(f"column {name} cannot have this default: {error}") from None
    return ColumnDefinition(name, text if "'" in text else text.upper(), kind, nullable, default)


def field_type(text: str) -> FieldType:
    """TiDB's type of a column type in SQL. Raises `InvalidDefinition`."""
    match = _TYPE.fullmatch(_ALIASES.get(text.lower(), text))
    if match is None:
        raise InvalidDefinition(f"{text!r} is not a column type", hint="write it as in SQL: varchar(40)")
    word, arguments = match["word"].lower(), match["arguments"]
    word = _ALIASES.get(word, word)
    if match["unsigned"] and word not in (*_INTEGERS, "decimal", "float", "double"):
        raise InvalidDefinition(f"{text!r}: only numbers are unsigned")
    if word in ("enum", "set"):
        return _listed(text, word, arguments, match["collate"])
    numbers = _numbers(text, arguments)
    kind = _number_type(word, numbers, bool(match["unsigned"])) or _time_type(word, numbers)
    if kind is None:
        return _string_type(text, word, numbers, match["collate"])
    if match["collate"]:
        raise InvalidDefinition(f"{text!r}: only text has a collation")
    return kind


def _numbers(text: str, arguments: str | None) -> list[int]:
    try:
        return [int(part) for part in arguments.split(",")] if arguments is not None else []
    except ValueError:
        raise InvalidDefinition(f"{text!r}: numbers are expected in brackets") from None


def _number_type(word: str, numbers: list[int], unsigned: bool) -> FieldType | None:
    flag = UNSIGNED if unsigned else 0
    if word in _INTEGERS:
        tp, signed_width, unsigned_width = _INTEGERS[word]
        width = numbers[0] if numbers else unsigned_width if unsigned else signed_width
        return FieldType(tp, flag, width, 0)
    if word == "decimal":
        digits, scale = (*numbers, *(10, 0)[len(numbers) :])
        return FieldType(ti.DECIMAL, flag, digits, scale)
    if word == "float":
        return FieldType(ti.FLOAT, flag, 12, -1)
    if word == "double":
        return FieldType(ti.DOUBLE, flag, 22, -1)
    if word == "bit":
        return FieldType(ti.BIT, UNSIGNED, numbers[0] if numbers else 1, 0)
    if word == "year":
        return FieldType(ti.YEAR, UNSIGNED | ti.FLAG_ZEROFILL, 4, 0)
    return None


def _time_type(word: str, numbers: list[int]) -> FieldType | None:
    digits = numbers[0] if numbers else 0
    more = digits + 1 if digits else 0
    if word == "date":
        return FieldType(ti.DATE, ti.FLAG_BINARY, 10, 0)
    if word in ("datetime", "timestamp"):
        return FieldType(
            ti.DATETIME if word == "datetime" else ti.TIMESTAMP, ti.FLAG_BINARY, 19 + more, digits
        )
    if word == "time":
        return FieldType(ti.TIME, ti.FLAG_BINARY, 10 + more, digits)
    return None


def _string_type(text: str, word: str, numbers: list[int], collate: str | None) -> FieldType:
    length = numbers[0] if numbers else None
    charset, collation = _TEXT[0], (collate or _TEXT[1]).lower()
    if not collation.startswith("utf8mb4_"):
        raise InvalidDefinition(f"{text!r}: text is utf8mb4", hint="use a utf8mb4 collation")
    if word in ("char", "binary"):
        length = 1 if length is None else length
    elif word in ("varchar", "varbinary") and length is None:
        raise InvalidDefinition(f"{text!r} needs a length", hint=f"write {word}(40)")
    if word in ("char", "varchar"):
        tp = ti.STRING if word == "char" else ti.VARCHAR
        return FieldType(tp, 0, length or 0, 0, charset, collation)
    if word in ("binary", "varbinary"):
        return FieldType(
            ti.STRING if word == "binary" else ti.VARCHAR, ti.FLAG_BINARY, length or 0, 0, "binary", "binary"
        )
    if word.endswith("text") and word[:-4] in _BLOBS:
        tp, size = _BLOBS[word[:-4]]
        return FieldType(tp, 0, size, 0, charset, collation)
    if word.endswith("blob") and word[:-4] in _BLOBS:
        tp, size = _BLOBS[word[:-4]]
        return FieldType(tp, ti.FLAG_BINARY, size, 0, "binary", "binary")
    if word == "json":
        return FieldType(ti.JSON, ti.FLAG_BINARY, 4294967295, 0, "binary", "binary")
    raise InvalidDefinition(f"{text!r} is not a column type that can be published")


def _listed(text: str, word: str, arguments: str | None, collate: str | None) -> FieldType:
    elements: list[str] = []
    rest = arguments or ""
    while rest:
        match = _STRINGS.match(rest)
        if match is None:
            raise InvalidDefinition(f"{text!r}: strings in quotes are expected in brackets")
        elements.append(match[1].replace("''", "'"))
        rest = rest[match.end() :]
    if not elements:
        raise InvalidDefinition(f"{text!r} has no values")
    lengths = [len(element) for element in elements]
    width = max(lengths) if word == "enum" else sum(lengths) + len(lengths) - 1
    tp = ti.ENUM if word == "enum" else ti.SET
    return FieldType(tp, 0, width, 0, _TEXT[0], (collate or _TEXT[1]).lower(), tuple(elements))


# Tables ---------------------------------------------------------------------------------------------------


def table(
    name: str,
    columns: Sequence[ColumnDefinition],
    primary_key: Sequence[str] = (),
    unique: Iterable[Sequence[str]] = (),
) -> TableInfo:
    """A table without an id yet. Raises `InvalidDefinition`."""
    if not columns:
        raise InvalidDefinition(f"table {name} has no column")
    info = TableInfo(0, name, ())
    for number, definition in enumerate(columns, 1):
        info = with_column(info, definition, number, on_create=True, in_key=definition.name in primary_key)
    for key in primary_key:
        column_named(info, key)
    is_handle = len(primary_key) == 1 and column_named(info, primary_key[0]).type.tp in ti.INTEGER_TYPES - {
        ti.YEAR
    }
    info = replace(info, pk_is_handle=is_handle, is_common_handle=bool(primary_key) and not is_handle)
    if info.is_common_handle:
        info = with_index(info, "PRIMARY", primary_key, 1, unique=True, primary=True)
    for parts in unique:
        info = with_index(info, "_".join(parts), parts, len(info.indexes) + 1, unique=True)
    return info


def column_named(info: TableInfo, name: str) -> Column:
    """Raises `InvalidDefinition`."""
    for column in info.columns:
        if column.name.lower() == name.lower():
            return column
    raise InvalidDefinition(f"table {info.name} has no column {name}")


def with_column(
    info: TableInfo, new: ColumnDefinition, number: int, *, on_create: bool = False, in_key: bool = False
) -> TableInfo:
    """The table with one more column, the last, whose id is `number`. Raises `InvalidDefinition`."""
    if any(column.name.lower() == new.name.lower() for column in info.columns):
        raise InvalidDefinition(f"table {info.name} has a column {new.name} already")
    flags = (ti.FLAG_PRIMARY if in_key else 0) | (ti.FLAG_NOT_NULL if in_key or not new.nullable else 0)
    added = Column(
        id=number,
        name=new.name,
        offset=len(info.columns),
        type=replace(new.type, flag=new.type.flag | flags),
        default=new.default,
        origin_default=None if on_create else new.default,
    )
    return replace(info, columns=(*info.columns, added))


def without_column(info: TableInfo, name: str) -> TableInfo:
    """The table without a column that no key needs. Raises `InvalidDefinition`."""
    gone = column_named(info, name)
    if gone.type.flag & ti.FLAG_PRIMARY or any(
        part.name == gone.name for index in info.indexes for part in index.columns
    ):
        raise InvalidDefinition(
            f"column {name} of table {info.name} is part of a key", hint="drop the key first"
        )
    if len(info.columns) == 1:
        raise InvalidDefinition(f"column {name} is the only one of table {info.name}")
    left = [column for column in info.columns if column is not gone]
    columns = tuple(replace(column, offset=offset) for offset, column in enumerate(left))
    offsets = {column.name: column.offset for column in columns}
    indexes = tuple(
        replace(index, columns=tuple(replace(part, offset=offsets[part.name]) for part in index.columns))
        for index in info.indexes
    )
    return replace(info, columns=columns, indexes=indexes)


def with_index(
    info: TableInfo, name: str, parts: Sequence[str], number: int, *, unique: bool, primary: bool = False
) -> TableInfo:
    """The table with one more index, whose id is `number`. Raises `InvalidDefinition`."""
    if not parts:
        raise InvalidDefinition(f"index {name} of table {info.name} has no column")
    if any(index.name.lower() == name.lower() for index in info.indexes):
        raise InvalidDefinition(f"table {info.name} has an index {name} already")
    columns_named = [column_named(info, part) for part in parts]
    columns = tuple(IndexColumn(column.name, column.offset) for column in columns_named)
    return replace(info, indexes=(*info.indexes, Index(number, name, columns, unique, primary)))


def without_index(info: TableInfo, name: str) -> TableInfo:
    """The table without an index. Raises `InvalidDefinition`."""
    left = tuple(index for index in info.indexes if index.name.lower() != name.lower() or index.primary)
    if len(left) == len(info.indexes):
        raise InvalidDefinition(f"table {info.name} has no index {name}")
    return replace(info, indexes=left)


# Text -----------------------------------------------------------------------------------------------------


def quoted(name: str) -> str:
    """A name in back quotes."""
    return "`" + name.replace("`", "``") + "`"


def string(value: str) -> str:
    """A value in quotes."""
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"


def create_text(info: TableInfo, columns: Sequence[ColumnDefinition], primary_key: Sequence[str]) -> str:
    """CREATE TABLE of `table(...)` with the same columns and key."""
    parts = [column.text() for column in columns]
    if primary_key:
        words = ", ".join(quoted(name) for name in primary_key)
        parts.append(f"PRIMARY KEY ({words})")
    parts += [index_text(index) for index in info.indexes if not index.primary]
    return f"CREATE TABLE {quoted(info.name)} ({', '.join(parts)})"


def index_text(index: Index) -> str:
    """As in CREATE TABLE and ALTER TABLE ADD."""
    words = ", ".join(quoted(part.name) for part in index.columns)
    return f"{'UNIQUE KEY' if index.unique else 'KEY'} {quoted(index.name)} ({words})"

"""Table definitions as TiDB writes them into DDL jobs (`TableInfo` JSON of `parser/model`).

Values only. Missing keys read as the zero of Go, unknown keys are ignored.
"""

from __future__ import annotations

import base64
from enum import Enum, IntEnum
from typing import Annotated, Any, Final

import msgspec

from tidb_binlog.errors import Corruption
from tidb_binlog.foreign_document import ready
from tidb_binlog.late_dataclass import dataclass, field

# Type codes of the MySQL protocol.
TINY: Final = 1
SHORT: Final = 2
LONG: Final = 3
FLOAT: Final = 4
DOUBLE: Final = 5
NULL: Final = 6
TIMESTAMP: Final = 7
LONGLONG: Final = 8
INT24: Final = 9
DATE: Final = 10
TIME: Final = 11
DATETIME: Final = 12
YEAR: Final = 13
NEWDATE: Final = 14
VARCHAR: Final = 15
BIT: Final = 16
JSON: Final = 0xF5
DECIMAL: Final = 0xF6
ENUM: Final = 0xF7
SET: Final = 0xF8
TINY_BLOB: Final = 0xF9
MEDIUM_BLOB: Final = 0xFA
LONG_BLOB: Final = 0xFB
BLOB: Final = 0xFC
VAR_STRING: Final = 0xFD
STRING: Final = 0xFE

INTEGER_BITS: Final = {TINY: 8, SHORT: 16, INT24: 24, LONG: 32, LONGLONG: 64}
LONG_BYTES: Final = {
    TINY_BLOB: (1 << 8) - 1,
    BLOB: (1 << 16) - 1,
    MEDIUM_BLOB: (1 << 24) - 1,
    LONG_BLOB: (1 << 32) - 1,
}
"""Most bytes of a text or binary string whose length is in its type's name."""
INTEGER_TYPES: Final = frozenset({TINY, SHORT, LONG, LONGLONG, INT24, YEAR})
STRING_TYPES: Final = frozenset({VARCHAR, VAR_STRING, STRING, TINY_BLOB, MEDIUM_BLOB, LONG_BLOB, BLOB})
TIME_TYPES: Final = frozenset({TIMESTAMP, DATETIME, DATE, NEWDATE})

FLAG_NOT_NULL: Final = 1
FLAG_PRIMARY: Final = 2
FLAG_UNSIGNED: Final = 32
FLAG_ZEROFILL: Final = 64
FLAG_BINARY: Final = 128
FLAG_AUTO_INCREMENT: Final = 512
FLAG_NO_DEFAULT: Final = 4096
FLAG_ON_UPDATE_NOW: Final = 8192

PARTITION_RANGE: Final = 1
PARTITION_HASH: Final = 2
PARTITION_LIST: Final = 3

FOREIGN_KEY_ACTIONS: Final = ("", "RESTRICT", "CASCADE", "SET NULL", "NO ACTION", "SET DEFAULT")
"""By the number that a definition holds."""


class SchemaState(IntEnum):
    """TiDB's states of a column, index, table or database, in which a DDL job moves it step by step."""

    NONE = 0
    DELETE_ONLY = 1
    WRITE_ONLY = 2
    WRITE_REORGANIZATION = 3
    DELETE_REORGANIZATION = 4
    PUBLIC = 5


ROWID_COLUMN_ID: Final = -1
WHOLE_COLUMN: Final = -1


class ColumnKind(Enum):
    """Columns whose values are stored, read and written alike; widths and digits are in the type."""

    SIGNED = "signed integer"
    UNSIGNED = "unsigned integer"
    YEAR = "year"  # stored as a signed integer whatever its flag says
    BIT = "bit"
    FLOAT = "float"
    DOUBLE = "double"
    DECIMAL = "decimal"
    TEXT = "text"
    BINARY = "binary string"
    ENUM = "enum"
    SET = "set"
    DATE = "date"
    DATETIME = "datetime"
    TIMESTAMP = "timestamp"
    TIME = "time"
    JSON = "json"  # and the array of a multi-valued index, which is stored as JSON
    UNKNOWN = "unknown"

    # By identity, as members compare: kinds are keys of the dictionaries that values are written by.
    __hash__ = object.__hash__


INTEGER_KINDS: Final = frozenset({ColumnKind.SIGNED, ColumnKind.UNSIGNED, ColumnKind.YEAR})
STRING_KINDS: Final = frozenset({ColumnKind.TEXT, ColumnKind.BINARY})
DATE_AND_TIME_KINDS: Final = frozenset({ColumnKind.DATE, ColumnKind.DATETIME, ColumnKind.TIMESTAMP})

_KINDS: Final = {
    FLOAT: ColumnKind.FLOAT,
    DOUBLE: ColumnKind.DOUBLE,
    DECIMAL: ColumnKind.DECIMAL,
    TIMESTAMP: ColumnKind.TIMESTAMP,
    DATETIME: ColumnKind.DATETIME,
    DATE: ColumnKind.DATE,
    NEWDATE: ColumnKind.DATE,
    TIME: ColumnKind.TIME,
    YEAR: ColumnKind.YEAR,
    BIT: ColumnKind.BIT,
    JSON: ColumnKind.JSON,
    ENUM: ColumnKind.ENUM,
    SET: ColumnKind.SET,
}


_Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class _Name(msgspec.Struct, gc=False):
    """How names are spelled; these are the documents with Go's types, null reads as zero."""

    O: str  # noqa: E741


class _FieldType(msgspec.Struct, gc=False):
    Tp: _Int64
    Flag: _Int64 | None = 0
    Flen: _Int64 | None = -1
    Decimal: _Int64 | None = -1
    Charset: str | None = ""
    Collate: str | None = ""
    Elems: list[str] | None = None
    Array: bool | None = False


class _Column(msgspec.Struct, gc=False):
    id: _Int64
    name: _Name
    offset: _Int64
    type: _FieldType
    state: _Int64 = SchemaState.PUBLIC
    origin_default: Any = None
    origin_default_bit: str | None = None
    default: Any = None
    generated_expr_string: str | None = ""
    generated_stored: bool | None = False
    hidden: bool | None = False
    version: _Int64 | None = 0


class _IndexColumn(msgspec.Struct, gc=False):
    name: _Name
    offset: _Int64
    length: _Int64 = WHOLE_COLUMN


class _Index(msgspec.Struct, gc=False):
    idx_name: _Name
    id: _Int64 | None = 0
    idx_cols: list[_IndexColumn] | None = None
    is_unique: bool | None = False
    is_primary: bool | None = False
    state: _Int64 = SchemaState.PUBLIC


class _Table(msgspec.Struct, gc=False):
    id: _Int64
    name: _Name
    cols: list[_Column] | None = None
    index_info: list[_Index] | None = None
    pk_is_handle: bool | None = False
    is_common_handle: bool | None = False
    charset: str | None = ""
    collate: str | None = ""
    view: Any = None
    sequence: Any = None
    fk_info: Any = None


def _name(name: str) -> dict[str, str]:
    return {"O": name, "L": name.lower()}


@dataclass(frozen=True, slots=True)
class FieldType:
    """Type of a column. `flen` and `decimal` are -1 where unspecified; `kind` follows from the rest."""

    tp: int
    flag: int = 0
    flen: int = -1
    decimal: int = -1
    charset: str = ""
    collate: str = ""
    elems: tuple[str, ...] = ()
    array: bool = False
    kind: ColumnKind = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", self._kind())

    def _kind(self) -> ColumnKind:
        if self.array:
            return ColumnKind.JSON
        if self.tp in STRING_TYPES:
            return ColumnKind.BINARY if self.charset == "binary" else ColumnKind.TEXT
        if self.tp in INTEGER_TYPES and self.tp != YEAR:
            return ColumnKind.UNSIGNED if self.unsigned else ColumnKind.SIGNED
        return _KINDS.get(self.tp, ColumnKind.UNKNOWN)

    @property
    def unsigned(self) -> bool:
        """Whether it counts from zero."""
        return bool(self.flag & FLAG_UNSIGNED)

    @property
    def not_null(self) -> bool:
        """Whether NULL is refused."""
        return bool(self.flag & FLAG_NOT_NULL)

    @property
    def is_binary_string(self) -> bool:
        """Whether values are bytes without a character set."""
        return self.tp in STRING_TYPES and self.charset == "binary"

    @property
    def fsp(self) -> int:
        """Digits after the second; -1 in the definition means none."""
        return max(self.decimal, 0)

    def to_json(self) -> dict[str, Any]:
        """Write it as TiDB does."""
        return {
            "Tp": self.tp,
            "Flag": self.flag,
            "Flen": self.flen,
            "Decimal": self.decimal,
            "Charset": self.charset or "binary",
            "Collate": self.collate or "binary",
            "Elems": list(self.elems) or None,
            "Array": self.array,
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> FieldType:
        """Read what TiDB writes of it into a DDL job. Raises `ValueError`."""
        return cls.of(msgspec.convert(document, ready(_FieldType)))

    @classmethod
    def of(cls, read: _FieldType) -> FieldType:
        """What a document holds."""
        return cls(
            tp=read.Tp,
            flag=read.Flag or 0,
            flen=-1 if read.Flen is None else read.Flen,
            decimal=-1 if read.Decimal is None else read.Decimal,
            charset=read.Charset or "",
            collate=read.Collate or "",
            elems=tuple(read.Elems or ()),
            array=bool(read.Array),
        )


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `origin_default` is what rows older than the column hold, `default` what new ones get."""

    id: int
    name: str
    offset: int
    type: FieldType
    state: int = SchemaState.PUBLIC
    origin_default: str | None = None
    origin_default_bit: bytes | None = None
    default: str | None = None
    generated: str = ""
    generated_stored: bool = False
    hidden: bool = False
    version: int = 2

    @property
    def is_virtual(self) -> bool:
        """Whether it is computed when it is read, and stored nowhere."""
        return bool(self.generated) and not self.generated_stored

    @property
    def is_writable(self) -> bool:
        """Public, not generated and not hidden: what a statement downstream may name."""
        return self.state == SchemaState.PUBLIC and not self.generated and not self.hidden

    def to_json(self) -> dict[str, Any]:
        """Write it as TiDB does."""
        bits = self.origin_default_bit
        return {
            "id": self.id,
            "name": _name(self.name),
            "offset": self.offset,
            "origin_default": self.origin_default,
            "origin_default_bit": None if bits is None else base64.b64encode(bits).decode(),
            "default": self.default,
            "generated_expr_string": self.generated,
            "generated_stored": self.generated_stored,
            "type": self.type.to_json(),
            "state": self.state,
            "hidden": self.hidden,
            "version": self.version,
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Column:
        """Read what TiDB writes of it into a DDL job. Raises `ValueError`."""
        return cls.of(msgspec.convert(document, ready(_Column)))

    @classmethod
    def of(cls, read: _Column) -> Column:
        """What a document holds."""
        bits = read.origin_default_bit
        return cls(
            id=read.id,
            name=read.name.O,
            offset=read.offset,
            type=FieldType.of(read.type),
            state=read.state,
            origin_default=None if read.origin_default is None else str(read.origin_default),
            origin_default_bit=None if bits is None else base64.b64decode(bits),
            default=None if read.default is None else str(read.default),
            generated=read.generated_expr_string or "",
            generated_stored=bool(read.generated_stored),
            hidden=bool(read.hidden),
            version=read.version or 0,
        )


@dataclass(frozen=True, slots=True)
class IndexColumn:
    """Part of an index: column by offset in the table; `length` in characters, -1 for the whole column."""

    name: str
    offset: int
    length: int = WHOLE_COLUMN


@dataclass(frozen=True, slots=True)
class Index:
    """One index; `state` as a column has it."""

    id: int
    name: str
    columns: tuple[IndexColumn, ...]
    unique: bool
    primary: bool
    state: int = SchemaState.PUBLIC

    def to_json(self) -> dict[str, Any]:
        """Write it as TiDB does."""
        return {
            "id": self.id,
            "idx_name": _name(self.name),
            "idx_cols": [
                {"name": _name(part.name), "offset": part.offset, "length": part.length}
                for part in self.columns
            ],
            "is_unique": self.unique,
            "is_primary": self.primary,
            "state": self.state,
        }

    @classmethod
    def of(cls, read: _Index) -> Index:
        """What a document holds."""
        return cls(
            id=read.id or 0,
            name=read.idx_name.O,
            columns=tuple(IndexColumn(part.name.O, part.offset, part.length) for part in read.idx_cols or ()),
            unique=bool(read.is_unique),
            primary=bool(read.is_primary),
            state=read.state,
        )


@dataclass(frozen=True, slots=True)
class TableInfo:
    """One version of a table's definition.

    `pk_is_handle`: a single integer primary key is the row's handle. `is_common_handle`: the (clustered)
    primary index is. Neither: rows carry a hidden `_tidb_rowid` (column id -1).
    """

    id: int
    name: str
    columns: tuple[Column, ...]
    indexes: tuple[Index, ...] = ()
    pk_is_handle: bool = False
    is_common_handle: bool = False
    charset: str = "utf8mb4"
    collate: str = "utf8mb4_bin"
    is_view: bool = False
    is_sequence: bool = False
    has_foreign_keys: bool = False

    @property
    def handle_column(self) -> Column | None:
        """The integer primary key column of a `pk_is_handle` table."""
        if not self.pk_is_handle:
            return None
        for column in self.columns:
            if column.type.flag & FLAG_PRIMARY:
                return column
        raise Corruption(f"table {self.name} ({self.id}) says pk_is_handle but has no primary key column")

    @property
    def primary_index(self) -> Index | None:
        """The primary key, where it is an index."""
        return next((index for index in self.indexes if index.primary), None)

    @property
    def clustered_key(self) -> tuple[tuple[Column, int], ...]:
        """Column and length, in characters, of each part of an `is_common_handle` table's key; of others
        none. Raises `Corruption`."""
        if not self.is_common_handle:
            return ()
        index, by_offset = self.primary_index, {column.offset: column for column in self.columns}
        if index is None or any(part.offset not in by_offset for part in index.columns):
            raise Corruption(
                f"table {self.name} ({self.id}) has a clustered primary key, but no index on its columns"
            )
        return tuple((by_offset[part.offset], part.length) for part in index.columns)

    @property
    def unique_indexes(self) -> tuple[Index, ...]:
        """Public unique indexes, the primary one (if it is an index) first."""
        unique = [index for index in self.indexes if index.unique and index.state == SchemaState.PUBLIC]
        return tuple(sorted(unique, key=lambda index: not index.primary))

    def to_json(self) -> dict[str, Any]:
        """The definition as a DDL job carries it; for programs that publish their own schema changes."""
        return {
            "id": self.id,
            "name": _name(self.name),
            "charset": self.charset,
            "collate": self.collate,
            "cols": [column.to_json() for column in self.columns],
            "index_info": [index.to_json() for index in self.indexes],
            "state": SchemaState.PUBLIC,
            "pk_is_handle": self.pk_is_handle,
            "is_common_handle": self.is_common_handle,
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> TableInfo:
        """Read what TiDB writes of it into a DDL job. Raises `Corruption`."""
        try:
            read = msgspec.convert(document, ready(_Table))
            return cls(
                id=read.id,
                name=read.name.O,
                columns=tuple(map(Column.of, read.cols or ())),
                indexes=tuple(map(Index.of, read.index_info or ())),
                pk_is_handle=bool(read.pk_is_handle),
                is_common_handle=bool(read.is_common_handle),
                charset=read.charset or "",
                collate=read.collate or "",
                is_view=read.view is not None,
                is_sequence=read.sequence is not None,
                has_foreign_keys=bool(read.fk_info),
            )
        except ValueError as error:
            name = document.get("name", {}) if isinstance(document, dict) else {}
            raise Corruption(f"table definition {name} cannot be read: {error}") from None

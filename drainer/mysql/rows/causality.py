"""Causality: which lane applies a change, so that changes that depend on each other stay in order.

Out    the number of the lane
Holds  two changes that the downstream could see as touching the same row or the same unique value always
       go to the same lane, and for a given number of lanes it is always the same one: exactly-once rests
       on it, because a restarted lane skips by its own stored position
Why    a lane needs to wait for another lane only if one change can have keys in two lanes. Tables where
       that could be (secondary unique keys), tables whose key the server compares by rules that are not
       known here (floating point, prefixes, text under a collation with contractions) and tables
       without a key are pinned to one lane by table; all others have exactly one key, so no change ever
       waits for a lane other than its own. Measured on InnoDB, spreading tables with moving unique values
       deadlocks at every isolation level, so nothing is lost by pinning them.

What two keys of text are is the downstream's to say: a `Collation` has what its server answered. Upstream's
collation has no part in it.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Container, Iterable, Sequence
from enum import Enum, IntEnum, auto
from hashlib import blake2b
from typing import Final

from drainer.mysql.literal.downstream_column import DownstreamColumn
from drainer.mysql.literal.keys import find_keys
from drainer.mysql.literal.literals import column_sql
from drainer.mysql.rows.column_match import DownstreamTable, KeyPart, UniqueKey
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.rowcodec.layout import Layout
from tidb_binlog.table_info import (
    BIT,
    DATETIME,
    DECIMAL,
    DOUBLE,
    ENUM,
    FLOAT,
    INTEGER_TYPES,
    SET,
    STRING,
    STRING_TYPES,
    TIME,
    TIME_TYPES,
    TIMESTAMP,
    WHOLE_COLUMN,
    YEAR,
    Column,
    Index,
    TableInfo,
)


class Spread(Enum):
    """How a table's changes are spread over lanes."""

    BY_KEY = auto()  # exact keys: the identity bytes decide
    BY_PADDED_KEY = auto()  # text under a binary collation: equal but for trailing blanks is equal
    BY_COLLATED_KEY = auto()  # text under others: what the collation takes for equal
    BY_TABLE = auto()


class Equality(IntEnum):
    """When two values of a key column are one key; each takes everything for equal that the former does."""

    EXACT = 0
    PADDED = 1
    COLLATED = 2
    LOOSE = 3


_SPREADS: Final = {
    Equality.EXACT: Spread.BY_KEY,
    Equality.PADDED: Spread.BY_PADDED_KEY,
    Equality.COLLATED: Spread.BY_COLLATED_KEY,
    Equality.LOOSE: Spread.BY_TABLE,
}
_INTEGERS: Final = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint"})
_TEXTS: Final = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext"})
_BYTES: Final = frozenset({"varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
_SAME: Final = {BIT: "bit", ENUM: "enum", SET: "set"}
_WHOLE_CHARSETS: Final = frozenset({"utf8mb4", "latin1"})
_ROUTED: Final = 1 << 62


def other_unique_indexes(info: TableInfo, own: Index | None) -> list[Index]:
    """Unique indexes besides that of the row key (`own`, None for an integer handle)."""
    return [index for index in info.unique_indexes if index is not own]


def equality_upstream(column: Column, length: int = WHOLE_COLUMN) -> Equality:
    """When the upstream takes two values of a key column for one key; `length` is the prefix."""
    if length != WHOLE_COLUMN or column.type.tp in (FLOAT, DOUBLE) or column.type.array:
        return Equality.LOOSE
    if column.type.tp in STRING_TYPES and not column.type.is_binary_string:
        # Coarser than 0900_bin is, which costs nothing: its keys seldom differ in blanks at their end only.
        return Equality.PADDED if column.type.collate.endswith("_bin") else Equality.LOOSE
    return Equality.EXACT


def equality_downstream(
    column: Column,
    theirs: DownstreamColumn,
    length: int | None = None,
    collations: Container[str] = frozenset(),
) -> Equality:
    """When the downstream takes two values of an upstream column, stored there, for one key; `collations`
    are those of which it is known what they take for equal."""
    if length is not None and (not theirs.length or length < theirs.length):
        return Equality.LOOSE
    if not _holds_all(column, theirs):
        return Equality.LOOSE
    if theirs.type in _TEXTS:
        if not is_binary(theirs):
            return Equality.COLLATED if theirs.collation in collations else Equality.LOOSE
        return Equality.PADDED if _drops_blanks(theirs) else Equality.EXACT
    return Equality.EXACT


def equality_of_rows(layout: Layout, left_out: frozenset[int] = frozenset()) -> Equality:
    """When the upstream takes two row keys for one; exact where nothing identifies a row."""
    columns = [column_sql(column, place) for place, column in enumerate(layout.columns)]
    key = find_keys(layout, columns, left_out).row
    if key is None:
        return Equality.EXACT
    return _coarsest([columns[place].column for place in key.places], key.index)


def is_binary(theirs: DownstreamColumn) -> bool:
    """Texts of the column differ where their bytes do, but for blanks at the end."""
    return theirs.collation in ("", "binary") or theirs.collation.endswith("_bin")


def _lengths(key: Sequence[Column], own: Index | None) -> list[int]:
    return [part.length for part in own.columns] if own is not None else [WHOLE_COLUMN] * len(key)


def _coarsest(key: Sequence[Column], own: Index | None) -> Equality:
    return max(map(equality_upstream, key, _lengths(key, own)))


def _pads(collation: str) -> bool:
    """Whether blanks at the end of a text do not count: so it is in all collations but newer ones."""
    return not (collation == "binary" or "_nopad_" in collation or "_0900_" in collation)


def _drops_blanks(theirs: DownstreamColumn) -> bool:
    """Texts that differ in blanks at their end are one key. CHAR has none there, whatever its collation."""
    return theirs.type in _TEXTS and (theirs.type == "char" or _pads(theirs.collation))


def _holds_all(column: Column, theirs: DownstreamColumn) -> bool:
    """Two different values of the upstream column are two different values in the downstream one."""
    kind = column.type
    if kind.tp in INTEGER_TYPES:
        # To a YEAR, 70 and 1970 are one year.
        return theirs.type in (*_INTEGERS, "decimal") or (kind.tp == YEAR and theirs.type == "year")
    if kind.is_binary_string:
        return theirs.type in _BYTES or (theirs.type == "binary" and kind.tp == STRING)
    if kind.tp in STRING_TYPES:
        return theirs.type in _TEXTS and (
            theirs.charset in _WHOLE_CHARSETS or _charset(theirs.charset) == _charset(kind.charset)
        )
    if kind.tp == DECIMAL:
        return theirs.type == "decimal" and theirs.digits >= kind.fsp
    if kind.tp in TIME_TYPES:
        return theirs.type in ("date", "datetime", "timestamp") and (
            theirs.digits >= kind.fsp and (theirs.type != "date" or kind.tp not in _WITH_TIME)
        )
    if kind.tp == TIME:
        return theirs.type == "time" and theirs.digits >= kind.fsp
    return _SAME.get(kind.tp) == theirs.type


_WITH_TIME: Final = frozenset({TIMESTAMP, DATETIME})


def _charset(name: str) -> str:
    return "utf8" if name == "utf8mb3" else name


def _collation(name: str) -> str:
    return re.sub(r"^utf8(mb3|mb4)?_", "utf8_", name)


def _keeps_blanks(column: Column) -> bool:
    """A text with a blank at its end is another key upstream than the one without."""
    kind = column.type
    is_text = kind.tp in STRING_TYPES and not kind.is_binary_string
    return is_text and kind.tp != STRING and not _pads(kind.collate)


def may_merge(column: Column, length: int, theirs: DownstreamColumn, part: KeyPart) -> bool:
    """Whether two keys of the upstream may be one key downstream."""
    here = equality_downstream(column, theirs, part.length)
    upstream = equality_upstream(column, length)
    if _keeps_blanks(column) and _drops_blanks(theirs):
        return True
    if here <= upstream and here is not Equality.LOOSE:
        return False
    if here is not Equality.LOOSE or upstream is not Equality.LOOSE:
        return True
    # Both are loose: they must be loose in the same way.
    if (part.length or WHOLE_COLUMN) < length or (part.length is not None and length == WHOLE_COLUMN):
        return True
    if column.type.tp in (FLOAT, DOUBLE):
        return theirs.type != ("float" if column.type.tp == FLOAT else "double")
    if not _holds_all(column, theirs):
        return True
    collation = column.type.collate
    return _collation(collation) != _collation(theirs.collation) and not theirs.collation.endswith("_bin")


@dataclass(frozen=True, slots=True)
class KeyFacts:
    """What the unique keys of both sides mean for a table's changes.

    `others`: keys exist besides the one that identifies rows, so that two rows may compete for a value.
    `unique`: the row key is a unique key downstream, as fine as upstream's: writing a key hits its row.
    """

    spread: Spread
    others: bool
    unique: bool


def collations_of(downstream: DownstreamTable) -> frozenset[str]:
    """Of what has to be known which texts they take for equal, for rows of the table to be spread."""
    if len(downstream.unique_keys) != 1:
        return frozenset()
    names = downstream.unique_keys[0].columns
    keyed = [column for column in downstream.columns if column.name.lower() in names]
    return frozenset(column.collation for column in keyed if not is_binary(column))


def key_facts(
    info: TableInfo,
    key: Sequence[Column],
    own: Index | None,
    downstream: DownstreamTable | None = None,
    collations: Container[str] = frozenset(),
) -> KeyFacts:
    """A pure function of the definitions on both sides; without `downstream` both are taken for the same.

    `key` are the columns that identify a row (none if nothing does), `own` their index.
    """
    if not key:
        return KeyFacts(Spread.BY_TABLE, others=False, unique=False)
    lengths = _lengths(key, own)
    others = bool(other_unique_indexes(info, own))
    if downstream is None:
        spread = Spread.BY_TABLE if others else _SPREADS[_coarsest(key, own)]
        return KeyFacts(spread, others, unique=True)
    names = frozenset(column.name.lower() for column in key)
    same = [theirs for theirs in downstream.unique_keys if theirs.columns == names]
    others = others or len(same) < len(downstream.unique_keys)
    unique = False
    equality = max(map(_equality_by_value, key, lengths))
    for theirs in same:
        equality = max(equality, *_equalities(key, theirs, downstream, collations))
        unique = unique or not _merges(key, lengths, theirs, downstream)
    for column in key:
        counterpart = downstream.column(column.name)
        if counterpart is None:
            return KeyFacts(Spread.BY_TABLE, others, unique=False)
        equality = max(equality, equality_downstream(column, counterpart, None, collations))
    if any(_merges(key, lengths, theirs, downstream) for theirs in same):
        unique = False
    return KeyFacts(Spread.BY_TABLE if others else _SPREADS[equality], others, unique)


def _equality_by_value(column: Column, length: int) -> Equality:
    """As upstream's, but for the collation of a text: it says nothing of what is one row downstream."""
    equality = equality_upstream(column, length)
    is_text = column.type.tp in STRING_TYPES and length == WHOLE_COLUMN and not column.type.array
    return Equality.PADDED if is_text and equality is Equality.LOOSE else equality


def _equalities(
    key: Iterable[Column], theirs: UniqueKey, downstream: DownstreamTable, collations: Container[str]
) -> Iterable[Equality]:
    parts = {part.column.lower(): part for part in theirs.parts if part.column}
    for column in key:
        counterpart = downstream.column(column.name)
        assert counterpart is not None
        yield equality_downstream(column, counterpart, parts[column.name.lower()].length, collations)


def _merges(
    key: Sequence[Column], lengths: Sequence[int], theirs: UniqueKey, downstream: DownstreamTable
) -> bool:
    parts = {part.column.lower(): part for part in theirs.parts if part.column}
    for column, length in zip(key, lengths, strict=True):
        counterpart = downstream.column(column.name)
        assert counterpart is not None
        if may_merge(column, length, counterpart, parts[column.name.lower()]):
            return True
    return False


def fold_id_of(table_id: int, target: tuple[str, str] | None) -> int:
    """What makes rows rows of one table: its id, or where several go to one, the name downstream."""
    if target is None:
        return table_id
    name = b"%b\0%b" % (target[0].lower().encode(), target[1].lower().encode())
    return _ROUTED | int.from_bytes(blake2b(name, digest_size=7).digest(), "little")


def lane_of_table(table_id: int, lanes: int) -> int:
    """Lane of a pinned table, by its fold id."""
    return zlib.crc32(table_id.to_bytes(8, "little", signed=True)) % lanes


def lane_of_key(table_id: int, key: bytes, lanes: int) -> int:
    """Lane of a row key; the table takes part so that equal small keys of many tables spread."""
    return zlib.crc32(key, table_id & 0xFFFFFFFF) % lanes

"""The keys of a table: which columns identify a row, which unique values it holds besides.

Tests  tests/drainer/mysql/literal/test_plan.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from drainer.mysql.literal.collation import Collation
from drainer.mysql.literal.literals import ColumnSql, column_sql
from drainer.mysql.literal.quoting import quote_name
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.rowcodec.layout import Layout
from tidb_binlog.rowcodec.row_error import RowError
from tidb_binlog.table_info import (
    DECIMAL,
    DOUBLE,
    FLOAT,
    INTEGER_TYPES,
    STRING,
    STRING_TYPES,
    WHOLE_COLUMN,
    FieldType,
    Index,
)

Values = Sequence[Any]  # raw values of all writable columns


@dataclass(frozen=True, slots=True)
class Key:
    """Columns of one unique key, as places among the writable columns, with both canonical forms.

    `coarse` is that of binary collations.
    """

    index: Index | None  # None: the integer handle
    places: tuple[int, ...]
    exact: tuple[Canonical, ...]
    coarse: tuple[Canonical, ...]
    strings: tuple[bool, ...]
    integers: bool  # all columns are integers: the identity is their digits

    def identity(self, values: Values) -> bytes:
        """Exact canonical bytes; `RowError` for a NULL, which no row key holds."""
        return self._joined(values, self.exact)

    def lane_form(self, values: Values) -> bytes:
        """Coarse canonical bytes."""
        return self._joined(values, self.coarse)

    def has_null(self, values: Values) -> bool:
        return any(values[place] is None for place in self.places)

    def _joined(self, values: Values, forms: tuple[Canonical, ...]) -> bytes:
        if self.has_null(values):
            raise RowError("NULL in the key of a row")
        if len(self.places) == 1:
            return forms[0](values[self.places[0]])
        return b",".join(
            sized(form(values[place])) if string else form(values[place])
            for place, form, string in zip(self.places, forms, self.strings, strict=True)
        )


def _key(index: Index | None, parts: Sequence[tuple[int, int]], columns: Sequence[ColumnSql]) -> Key:
    kinds = [columns[place].column.type for place, _ in parts]
    return Key(
        index=index,
        places=tuple(place for place, _ in parts),
        exact=tuple(identity_of(kind) for kind in kinds),
        coarse=tuple(lane_form_of(kind, None) for kind in kinds),
        strings=tuple(kind.tp in STRING_TYPES for kind in kinds),
        integers=all(kind.tp in INTEGER_TYPES for kind in kinds),
    )


def _usable_parts(layout: Layout, index: Index, unknown: frozenset[int]) -> list[tuple[int, int]] | None:
    """(place, prefix length) of an index's columns; None if one of them cannot be read from every image."""
    by_offset = {column.offset: column for column in layout.info.columns}
    place = {column.id: n for n, column in enumerate(layout.columns)}
    parts = []
    for part in index.columns:
        column = by_offset.get(part.offset)
        if column is None or column.id not in place or column.id in unknown:
            return None
        parts.append((place[column.id], part.length))
    return parts or None


@dataclass(frozen=True, slots=True)
class Keys:
    """`row` identifies a row, None if nothing does. `others` are the unique keys besides.

    `opaque`: a unique index on generated columns exists, whose values are not known here.
    """

    row: Key | None
    others: tuple[Key, ...]
    opaque: bool


def find_keys(layout: Layout, columns: Sequence[ColumnSql], unknown: frozenset[int] = frozenset()) -> Keys:
    """Row key: the integer handle, else the first unique index (primary first) without nullable columns.

    `unknown` are ids of columns that the downstream does not have: a key with one of them is none there.
    """
    row: Key | None = None
    others: list[Key] = []
    opaque = False
    handle = layout.info.handle_column
    if handle is not None and layout.handle[0].index >= 0 and handle.id not in unknown:
        row = _key(None, [(layout.handle[0].index, WHOLE_COLUMN)], columns)
    for index in layout.info.unique_indexes:
        parts = _usable_parts(layout, index, unknown)
        if parts is None:
            opaque = True
            continue
        key = _key(index, parts, columns)
        not_null = index.primary or all(columns[place].column.type.not_null for place in key.places)
        if row is None and not_null:
            row = key
        elif not (index.primary and row is not None and row.places == key.places):
            others.append(key)
    return Keys(row, tuple(others), opaque)


def row_key_places(layout: Layout, left_out: frozenset[int] = frozenset()) -> tuple[int, ...]:
    """Places of the columns that identify a row among those that are not left out; () if nothing does."""
    columns = [column_sql(column, place) for place, column in enumerate(layout.columns)]
    key = find_keys(layout, columns, left_out).row
    return key.places if key is not None else ()


# Longer conditions take MySQL more time for each key.
_ALTERNATIVES_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class KeyList:
    """How a condition on several keys is written. `literal` makes of raw values what stands for one key.

    `names` of a list `(a,b) IN ((1,'x'),..)`; without them the literals are alternatives, `(a=1 AND b='x')`.
    """

    literal: Callable[[Values], bytes]
    names: bytes = b""

    @property
    def rows_max(self) -> int:
        """Keys of one condition, 0 for any number."""
        return 0 if self.names else _ALTERNATIVES_MAX

    @property
    def size_bytes(self) -> int:
        """Of a condition without its literals; a joint included."""
        return len(self.names) + 6

    @property
    def joint_bytes(self) -> int:
        return 1 if self.names else 4

    def condition(self, literals: Iterable[bytes]) -> bytes:
        if not self.names:
            return b" OR ".join(literals)
        return b"%b IN (%b)" % (self.names, b",".join(literals))

    def shown(self, literal: bytes) -> bytes:
        """One key, for people."""
        return b"%b = %b" % (self.names, literal) if self.names else literal


def key_list(key: Key, columns: Sequence[ColumnSql], *, alternatives: bool) -> KeyList:
    """With `alternatives`, keys of several columns are no list of rows.

    MySQL before 5.7 reads the whole table for a list of rows, and 8.0 takes longer and longer for each row of
    it (measured); for alternatives they use the key.
    """
    compares = [columns[place].compare for place in key.places]
    names = [quote_name(columns[place].column.name) for place in key.places]
    if len(names) == 1:
        place, compare = key.places[0], compares[0]
        return KeyList(lambda values: compare(values[place]), names[0])
    pairs = list(zip(key.places, compares, strict=True))
    template = b",".join([b"%b"] * len(names))
    if alternatives:
        template = b" AND ".join(name.replace(b"%", b"%%") + b"=%b" for name in names)
    template = b"(%b)" % template
    return KeyList(
        lambda values: template % tuple([compare(values[place]) for place, compare in pairs]),
        b"" if alternatives else b"(%b)" % b",".join(names),
    )


# When are two key values the same? Canonical bytes of raw column values, in two strengths. *Identity* is
# exact: equal bytes mean equal values, whatever image they came from. *Lane form* is coarse: values that the
# server may take for equal (trailing blanks, case and accents where a `collation` says so) have equal bytes;
# values it keeps apart may collide, which costs parallelism and nothing else. The reverse must never happen.

Canonical = Callable[[Any], bytes]


def number(value: int) -> bytes:
    return b"%d" % value


def floating(value: float) -> bytes:
    return repr(value + 0.0).encode()  # -0.0 + 0.0 is 0.0


def decimal(text: bytes) -> bytes:
    """1.50 and 1.5 are one number."""
    return text.rstrip(b"0").rstrip(b".") if b"." in text else text


def _char(raw: bytes) -> bytes:
    return raw.rstrip(b" ")


def _as_is(raw: bytes) -> bytes:
    return raw


def identity_of(kind: FieldType) -> Canonical:
    """Exact canonical form of raw values (see `literals`) of a type."""
    if kind.tp in STRING_TYPES:
        return _char if kind.tp == STRING and not kind.is_binary_string else _as_is
    if kind.tp in (FLOAT, DOUBLE):
        return floating
    if kind.tp == DECIMAL:
        return decimal
    return _number_or_text


def _number_or_text(raw: int | bytes) -> bytes:
    return b"%d" % raw if isinstance(raw, int) else raw


def lane_form_of(kind: FieldType, collation: Collation | None) -> Canonical:
    """Coarse canonical form of raw values; `collation` is the one downstream, None if it is binary."""
    if collation is not None:
        return collation.form
    return _char if kind.tp in STRING_TYPES and not kind.is_binary_string else identity_of(kind)


def sized(raw: bytes) -> bytes:
    """Self-delimiting form, for keys of several columns."""
    return b"%d:%b" % (len(raw), raw)

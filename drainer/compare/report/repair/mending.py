"""Mending: the statements that put one row downstream right.

Out    statements that take rows away, statements that write, or why no statement helps
Holds  a statement finds a row only as the comparison saw it: every value is compared, by its bytes and not by
       a collation. What was changed since, or was mended already, stays: a repair can be made twice
Order  all removals of a table go before its writes: rows may have exchanged the values of a unique key

    missing       INSERT, unless a row of this key is there
    extra         DELETE
    changed       UPDATE of the columns that differ; DELETE and INSERT if one of them belongs to a key. Times
                  that do not differ are named, too: the server would set one ON UPDATE
    without key   so many copies are added or taken away, if there are as many as were seen

A row has columns that only the downstream has, or that were not compared: they are kept, so that a row that
changed in a key is updated, too, and another row in its way is an error of the server's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from drainer.compare.verify.result import ComparedColumn, How, Kind, RowDifference, TableResult, Values
from drainer.mysql.literal.literals import ENUM_ZERO, NULL
from drainer.mysql.literal.quoting import qualified, quote_name, text_is
from drainer.mysql.rows.dialect import Dialect
from tidb_binlog.late_dataclass import dataclass

_TEXTS: Final = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext"})
_TIMES: Final = frozenset({"timestamp", "datetime"})
_DATES: Final = frozenset({*_TIMES, "date"})
_ONE_KEY: Final = "several rows upstream have what is one key downstream: correct its columns there"
_COMPUTED: Final = "the downstream computes {} by an expression of its own: correct it with ALTER TABLE"


@dataclass(frozen=True, slots=True)
class Mending:
    """`is_lax`: a value is one that no strict session takes. `refused`: what no statement mends, or ""."""

    removals: tuple[bytes, ...] = ()
    writes: tuple[bytes, ...] = ()
    is_lax: bool = False
    refused: str = ""


def mending(table: TableResult, difference: RowDifference, dialect: Dialect) -> Mending:
    """What is to be done for one row."""
    rows = _Rows(table, dialect)
    copies = difference.copies
    if (
        copies is not None
        and difference.kind is Kind.MISSING
        and any(column.is_key for column in rows.columns)
    ):
        return Mending(refused=_ONE_KEY)
    if copies is not None:
        return rows.copies(difference, *copies)
    if difference.kind is Kind.MISSING:
        assert difference.upstream is not None
        return rows.written((), difference.upstream)
    assert difference.downstream is not None
    removal = rows.removal(difference.downstream)
    if difference.kind is Kind.EXTRA:
        return Mending((removal,))
    assert difference.upstream is not None
    named = difference.columns
    computed = [column.name for column in rows.columns if column.is_generated and column.name in named]
    wrong = [column for column in rows.columns if column.name in named and not column.is_generated]
    if not wrong:
        return Mending(refused=_COMPUTED.format(", ".join(computed)))
    # What is computed follows the columns that are put right; if not, the next comparison says so.
    keeps = any(column.how is How.NOT_COMPARED and not column.is_generated for column in table.columns)
    if any(column.is_key or column.is_unique for column in wrong) and not keeps:
        return rows.written((removal,), difference.upstream)
    return rows.changed(difference.upstream, difference.downstream, wrong)


class _Rows:
    """Statements on one table."""

    def __init__(self, table: TableResult, dialect: Dialect) -> None:
        self._name = qualified(*table.downstream)
        self._dialect = dialect
        self._all = table.columns
        self.columns = table.row_columns
        self._list = b",".join(quote_name(column.name) for column in self.columns if not column.is_generated)

    def removal(self, seen: Values) -> bytes:
        return b"DELETE FROM %b WHERE %b" % (self._name, self._as_seen(seen))

    def written(self, removals: tuple[bytes, ...], row: Values) -> Mending:
        keys = [
            b"%b=%b" % (quote_name(column.name), value)
            for column, value in zip(self.columns, row, strict=True)
            if column.is_key
        ]
        insert = b"INSERT INTO %b (%b) SELECT %b FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM %b WHERE %b)" % (
            self._name,
            self._list,
            self._values(row),
            self._name,
            b" AND ".join(keys),
        )
        return Mending(removals, (insert,), self._is_lax(row))

    def changed(self, row: Values, seen: Values, wrong: Sequence[ComparedColumn]) -> Mending:
        value_of = dict(zip(self.columns, row, strict=True))
        sets = [
            b"%b=%b" % (quote_name(column.name), exact(column.type, value_of[column])) for column in wrong
        ]
        named = {column.name for column in wrong}
        kept = [
            quote_name(column.name)
            for column in self._all
            if column.type in _TIMES and column.name not in named and not column.is_generated
        ]
        sets += [b"%b=%b" % (name, name) for name in kept]
        update = b"UPDATE %b SET %b WHERE %b" % (self._name, b", ".join(sets), self._as_seen(seen))
        is_lax = any(exact(column.type, value_of[column]) == ENUM_ZERO for column in wrong)
        return Mending((), (update,), is_lax or self._may_hide(seen))

    def copies(self, difference: RowDifference, upstream: int, downstream: int) -> Mending:
        row = difference.upstream if difference.upstream is not None else difference.downstream
        assert row is not None
        count = abs(upstream - downstream)
        matches = self._as_seen(row)
        # A derived table: MySQL refuses to change a table that a subquery of the statement reads directly.
        as_many = b"%d=(SELECT c FROM (SELECT COUNT(*) AS c FROM %b WHERE %b) AS seen)" % (
            downstream,
            self._name,
            matches,
        )
        if upstream < downstream:
            removal = b"DELETE FROM %b WHERE %b AND %b LIMIT %d" % (self._name, matches, as_many, count)
            return Mending((removal,))
        so_many = b" UNION ALL ".join([b"SELECT 1"] * count)
        insert = b"INSERT INTO %b (%b) SELECT %b FROM (%b) AS copies WHERE %b" % (
            self._name,
            self._list,
            self._values(row),
            so_many,
            as_many,
        )
        return Mending((), (insert,), self._is_lax(row))

    def _may_hide(self, row: Values) -> bool:
        """Whether a strict session may not find it: see `drainer.mysql.session.run`."""
        dates = (value for column, value in zip(self.columns, row, strict=True) if column.type in _DATES)
        return self._dialect is Dialect.TIDB and any(b"-00" in value for value in dates)

    def _is_lax(self, row: Values) -> bool:
        pairs = zip(self.columns, row, strict=True)
        no_element = any(exact(column.type, value) == ENUM_ZERO for column, value in pairs)
        return no_element or self._may_hide(row)

    def _values(self, row: Values) -> bytes:
        pairs = zip(self.columns, row, strict=True)
        return b",".join(exact(column.type, value) for column, value in pairs if not column.is_generated)

    def _as_seen(self, seen: Values) -> bytes:
        pairs = list(zip(self.columns, seen, strict=True))
        # By these the server finds the row; whether it is the one that was seen the others decide.
        keys = [b"%b=%b" % (quote_name(column.name), value) for column, value in pairs if column.is_key]
        exactly = (
            is_exactly(quote_name(column.name), column.type, value, self._dialect) for column, value in pairs
        )
        return b" AND ".join([*keys, *exactly])


def is_exactly(name: bytes, kind: str, value: bytes, dialect: Dialect) -> bytes:
    """True for exactly this value of a column of that type, byte by byte. `name` is quoted."""
    if value == NULL:
        return b"%b IS NULL" % name
    if kind == "json" and dialect is not Dialect.MARIADB:
        return b"%b<=>CAST(%b AS JSON)" % (name, value)
    if kind in _TEXTS or kind == "json":
        return text_is(name, value)
    if kind == "year" and value.isdigit():
        return b"%b<=>'%04d'" % (name, int(value))
    return b"%b<=>%b" % (name, exact(kind, value))


def exact(kind: str, value: bytes) -> bytes:
    """The literal to write. A number with a point is a DECIMAL of 30 digits at most, unless it has an
    exponent; an ENUM without an element is shown as an empty text or as 0."""
    if kind == "enum" and value in (b"''", b"0"):
        return ENUM_ZERO
    is_plain = kind in ("float", "double") and value[-1:].isdigit() and b"e" not in value.lower()
    return value + b"e0" if is_plain else value

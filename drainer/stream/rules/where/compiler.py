"""Compiler of `where`: an expression and a table version to functions of encoded rows.

Out    for an INSERT and a DELETE row whether it is in the set, for an UPDATE row whether it was and is
Holds  only the columns that the expression names are decoded, in one pass. Numbers keep every digit; dates
       and times are packed integers; text is its raw bytes, compared by its collation. TRUE is in the set,
       FALSE and NULL are not, as in MySQL. Functions are generated from the checked expression, never from
       its text: constants are names in them
Never  takes a column that the table lacks or a comparison that has no sure answer: `ConfigError` names rule,
       column and table. Converts as MySQL does where people are surprised: text to number, number to text,
       number to date (`Unlike`)

An expression with `before.` or `after.` is about the change, not about the row: `was` and `is` are the same
then. Other columns are those after the change, of a DELETE those before it; what an INSERT has not before,
and a DELETE not after, is NULL.
"""

from __future__ import annotations

import calendar
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from enum import Enum
from functools import cached_property
from typing import Any, Final

from drainer.stream.rules.where.expression import (
    And,
    Between,
    ColumnRef,
    Compare,
    Condition,
    In,
    IsNull,
    Like,
    Literal,
    LiteralKind,
    Not,
    Operand,
    Or,
    Side,
    operands,
)
from drainer.stream.rules.where.text_order import BYTES, ORDERS, TextOrder, like
from tidb_binlog.errors import ConfigError
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.rowcodec.codegen import Conversion, Shape
from tidb_binlog.rowcodec.datum import read_duration, read_packed_time
from tidb_binlog.rowcodec.decimals import read_decimal
from tidb_binlog.rowcodec.plan import RowReaders
from tidb_binlog.rowcodec.source import Source
from tidb_binlog.rowcodec.temporal import pack_datetime, parse_duration
from tidb_binlog.rowcodec.values import RAW, set_reader, set_text
from tidb_binlog.table_info import DATE_AND_TIME_KINDS, Column, ColumnKind, FieldType, TableInfo

_DATE_TEXT: Final = re.compile(
    r"\d{4}-\d{1,2}-\d{1,2}(?:[ T]\d{1,2}:\d{1,2}(?::\d{1,2}(?:\.\d{1,6})?)?)?", re.ASCII
)
_TIME_TEXT: Final = re.compile(r"-?\d{1,3}:\d{1,2}:\d{1,2}(?:\.\d{1,6})?", re.ASCII)
# From here on not every whole number is a float, and servers answer differently from statement to statement.
_WHOLE_FLOATS_END: Final = 2.0**53


class ValueClass(Enum):
    """What is compared in one way."""

    EXACT = "an exact number"
    YEAR = "a YEAR"
    FLOAT = "a floating-point number"
    TEXT = "a text"
    BYTES = "a binary string"
    MOMENT = "a date or time of a day"
    DURATION = "a TIME"
    ENUM = "an ENUM"
    SET = "a SET"
    JSON = "JSON"


_CLASSES: Final = {
    ColumnKind.SIGNED: ValueClass.EXACT,
    ColumnKind.UNSIGNED: ValueClass.EXACT,
    ColumnKind.YEAR: ValueClass.YEAR,
    ColumnKind.BIT: ValueClass.EXACT,
    ColumnKind.FLOAT: ValueClass.FLOAT,
    ColumnKind.DOUBLE: ValueClass.FLOAT,
    ColumnKind.DECIMAL: ValueClass.EXACT,
    ColumnKind.TEXT: ValueClass.TEXT,
    ColumnKind.BINARY: ValueClass.BYTES,
    ColumnKind.ENUM: ValueClass.ENUM,
    ColumnKind.SET: ValueClass.SET,
    ColumnKind.DATE: ValueClass.MOMENT,
    ColumnKind.DATETIME: ValueClass.MOMENT,
    ColumnKind.TIMESTAMP: ValueClass.MOMENT,
    ColumnKind.TIME: ValueClass.DURATION,
    ColumnKind.JSON: ValueClass.JSON,
}
NUMBERS: Final = frozenset({ValueClass.EXACT, ValueClass.YEAR, ValueClass.FLOAT})
TEXTS: Final = frozenset({ValueClass.TEXT, ValueClass.BYTES})
ELEMENTS: Final = frozenset({ValueClass.ENUM, ValueClass.SET})


class Unlike(Exception):
    """A literal that does not go with a column: what it is, and what to write instead."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.what, self.hint = what, hint


def class_of(field_type: FieldType) -> ValueClass:
    """Says how values of a type are compared."""
    return _CLASSES[field_type.kind]


def _read_decimal(b: bytes, i: int) -> tuple[Decimal, int]:
    text, end = read_decimal(b, i)
    return Decimal(text), end


_ALIKE: Final = {
    **RAW,
    ColumnKind.DECIMAL: Conversion(Shape.CALL, "", _read_decimal),
    **dict.fromkeys(DATE_AND_TIME_KINDS, Conversion(Shape.UNSIGNED, "u", read_packed_time)),
    ColumnKind.TIME: Conversion(Shape.CALL, "", read_duration),
}


def comparable_conversion(column: Column, place: int) -> Conversion:
    """How the column's datums become values that compare."""
    if column.type.kind is ColumnKind.SET:
        return Conversion(Shape.CALL, "", set_reader(column.type))
    return _ALIKE[column.type.kind]


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal in a column's form. `as_float`: the column's values are to be compared as floats."""

    value: Any
    as_float: bool = False


def constant(literal: Literal, field_type: FieldType) -> Constant:
    """Raises `Unlike`. Elements of ENUM and SET by name are texts, by number numbers."""
    kind, value = class_of(field_type), literal.value
    if kind is ValueClass.JSON:
        raise Unlike("JSON, of which only IS NULL is known", "use python = ... for what is inside")
    if kind in NUMBERS or (kind in ELEMENTS and literal.kind is LiteralKind.NUMBER):
        return _number(literal, kind)
    if kind in TEXTS or kind in ELEMENTS:
        if literal.kind is LiteralKind.BYTES:
            assert isinstance(value, bytes)
            return Constant(value)
        if literal.kind is LiteralKind.TEXT:
            return Constant(str(value).encode())
        raise Unlike(f"compared with {literal.kind.value}", "write a text in quotes: 'abc'")
    if kind is ValueClass.DURATION:
        return Constant(_duration(literal))
    return Constant(_moment(literal))


def _number(literal: Literal, kind: ValueClass) -> Constant:
    value = literal.value
    if literal.kind is not LiteralKind.NUMBER or isinstance(value, str | bytes | None):
        raise Unlike(f"compared with {literal.kind.value}", "write the number without quotes")
    if kind is ValueClass.YEAR and not (value == 0 or value >= 100):
        raise Unlike(f"a YEAR, compared with {value}", "write years with four digits")
    if isinstance(value, float) and kind is not ValueClass.FLOAT and abs(value) >= _WHOLE_FLOATS_END:
        raise Unlike(
            f"compared with {literal}, which stands for several whole numbers", "write all its digits"
        )
    if kind is ValueClass.FLOAT or isinstance(value, float):
        return Constant(float(value), as_float=True)
    return Constant(value)


def _moment(literal: Literal) -> int:
    text = str(literal.value)
    hint = "write '2024-05-01' or '2024-05-01 10:00:00', a TIMESTAMP in UTC"
    if literal.kind not in (LiteralKind.TEXT, LiteralKind.DATE, LiteralKind.TIMESTAMP):
        raise Unlike(f"compared with {literal.kind.value}", hint)
    if not _DATE_TEXT.fullmatch(text) or (literal.kind is LiteralKind.DATE and len(text) > len("2024-05-01")):
        raise Unlike(f"compared with {text!r}, which is no date or time", hint)
    try:
        packed = pack_datetime(text)
    except ValueError:
        raise Unlike(f"compared with {text!r}, which is no date or time", hint) from None
    year, month = divmod(packed >> 46, 13)
    if month and packed >> 41 & 31 > calendar.monthrange(year or 4, month)[1]:
        raise Unlike(f"compared with {text!r}, a day that does not exist", hint)
    return packed


def _duration(literal: Literal) -> int:
    text = str(literal.value)
    if literal.kind not in (LiteralKind.TEXT, LiteralKind.TIME):
        raise Unlike(f"compared with {literal.kind.value}", "write '10:00:00'")
    if not _TIME_TEXT.fullmatch(text):
        raise Unlike(f"compared with {text!r}, which is no TIME", "write '10:00:00'")
    try:
        return parse_duration(text)
    except ValueError:
        raise Unlike(f"compared with {text!r}, which is no TIME", "it ends at 838:59:59") from None


_PYTHON: Final = {"=": "==", "<=>": "==", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_FLIPPED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_TESTS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_EQUALITIES: Final = ("==", "!=")


@dataclass(frozen=True, slots=True)
class Truth:
    """Two pieces of source, each complete in itself."""

    true: str
    false: str


UNKNOWN: Final = Truth("False", "False")


@dataclass(frozen=True, slots=True)
class Term:
    """A column as the generated function has it. `local` is None where the row cannot hold it."""

    local: str
    column: Column

    @property
    def kind(self) -> ValueClass:
        """Says how values of the column are compared."""
        return class_of(self.column.type)


@dataclass(slots=True)
class Comparisons:
    """Makes source of comparisons; `names` are what it uses."""

    names: dict[str, Any] = field(default_factory=dict)

    def name(self, value: Any) -> str:
        """A name for a value."""
        name = f"c{len(self.names)}"
        self.names[name] = value
        return name

    # -- conditions --------------------------------------------------------------------------------

    def compare(
        self, op: str, left: Term | Literal, right: Term | Literal, *, as_float: bool = False
    ) -> Truth:
        """Writes `left op right`. Raises `Unlike`."""
        if isinstance(left, Literal):
            if isinstance(right, Literal):
                raise Unlike("two values are compared", "one side of a comparison is a column")
            return self.compare(_FLIPPED.get(op, op), right, left, as_float=as_float)
        if isinstance(right, Literal):
            return self._with_literal(op, left, right, as_float)
        test = self._columns(_PYTHON[op], left, right, as_float)
        some_null = f"{left.local} is None or {right.local} is None"
        if op == "<=>":
            both = f"({left.local} is {right.local} if {some_null} else {test})"
            return Truth(both, f"(not {both})")
        none_null = f"{left.local} is not None and {right.local} is not None"
        return Truth(f"({none_null} and {test})", f"({none_null} and not {test})")

    def _with_literal(self, op: str, left: Term, right: Literal, as_float: bool) -> Truth:
        local = left.local
        if right.kind is LiteralKind.NULL:
            return self.is_null(left, negated=False) if op == "<=>" else UNKNOWN
        test = self._literal(_PYTHON[op], left, right, as_float)
        true = f"({local} is not None and {test})"
        if op == "<=>":
            return Truth(true, f"(not {true})")
        return Truth(true, f"({local} is not None and not {test})")

    def is_null(self, term: Term, *, negated: bool) -> Truth:
        """Writes `IS NULL`, or `IS NOT NULL`."""
        true, false = f"({term.local} is None)", f"({term.local} is not None)"
        return Truth(false, true) if negated else Truth(true, false)

    def in_list(self, left: Term, items: Sequence[Term | Literal]) -> Truth:
        """`left IN (items)`. Values that are looked up in the same way become one set."""
        sets: dict[str, set[Any]] = {}
        others, nulls = [], False
        for item in items:
            if isinstance(item, Literal) and item.kind is LiteralKind.NULL:
                nulls = True
            elif isinstance(item, Literal):
                key, value = self._lookup(left, item)
                sets.setdefault(key, set()).update(value)
            else:
                others.append(self.compare("=", left, item))
        lookups = " or ".join(f"{key} in {self.name(frozenset(values))}" for key, values in sets.items())
        true = [f"({left.local} is not None and ({lookups}))"] if lookups else []
        false = [f"({left.local} is not None and not ({lookups}))"] if lookups else []
        if nulls:
            false = ["False"]
        true += [truth.true for truth in others]
        false += [truth.false for truth in others]
        return Truth(f"({' or '.join(true) or 'False'})", f"({' and '.join(false)})")

    def like(self, term: Term, condition: Like) -> Truth:
        """Writes `LIKE`, which only binary collations have here. Raises `Unlike`."""
        kind, order = term.kind, None
        if kind in TEXTS or kind in ELEMENTS:
            order = _order_of(term.column)
        if order is None:
            raise Unlike(f"{kind.value}, and LIKE is about texts", "compare it with =, <, BETWEEN")
        if not order.is_binary:
            raise Unlike(
                f"of the collation {order.name}, and LIKE is for binary collations",
                "compare it with =, < or IN, or write python = ...; utf8mb4_bin and BINARY columns have LIKE",
            )
        test = like(condition.pattern, condition.escape, of_bytes=kind is ValueClass.BYTES)
        if kind is ValueClass.ENUM:
            source = self._of_elements(term, test)
        else:
            source = f"{self.name(test)}({self._set_text(term) if kind is ValueClass.SET else term.local})"
        guard = f"{term.local} is not None"
        return Truth(f"({guard} and {source})", f"({guard} and not {source})")

    # -- a column and a literal ----------------------------------------------------------------------

    def _literal(self, op: str, left: Term, right: Literal, as_float: bool) -> str:
        kind = left.kind
        value = constant(right, left.column.type)
        if kind in TEXTS:
            return self._text(op, left.local, _order_of(left.column), value.value)
        if kind in ELEMENTS and isinstance(value.value, bytes):
            order = _order_of(left.column)
            if kind is ValueClass.SET:
                return self._text(op, self._set_text(left), order, value.value)
            key, test = order.key(value.value), _TESTS[op]
            if op in _EQUALITIES:
                key = order.equality_key(value.value)
                return self._of_elements(left, lambda raw: test(order.equality_key(raw), key))
            return self._of_elements(left, lambda raw: test(order.order(order.key(raw), key), 0))
        if as_float or value.as_float:
            return f"{_as_float(left)} {op} {self.name(float(value.value))}"
        return f"{left.local} {op} {self.name(value.value)}"

    def _text(self, op: str, source: str, order: TextOrder, raw: bytes) -> str:
        if op in _EQUALITIES:
            return f"{self._equality_key(source, order)} {op} {self.name(order.equality_key(raw))}"
        key = self.name(order.key(raw))
        return f"{self.name(order.order)}({self.name(order.key)}({source}), {key}) {op} 0"

    def _equality_key(self, source: str, order: TextOrder) -> str:
        if order.is_binary:  # raw bytes are their own key
            return source if order.blank is None else f"{source}.rstrip({self.name(order.blank)})"
        return f"{self.name(order.equality_key)}({source})"

    def _lookup(self, left: Term, item: Literal) -> tuple[str, set[Any]]:
        """How a value of the column is looked up, and what equals the literal there."""
        kind = left.kind
        value = constant(item, left.column.type)
        if kind in TEXTS or (kind is ValueClass.SET and isinstance(value.value, bytes)):
            order = _order_of(left.column)
            source = left.local if kind in TEXTS else self._set_text(left)
            return f"{self._shared(order)}({source})", {order.equality_key(value.value)}
        if kind is ValueClass.ENUM and isinstance(value.value, bytes):
            order = _order_of(left.column)
            key = order.equality_key(value.value)
            elements = enumerate(_elements(left.column))
            return self._number_of(left), {n for n, raw in elements if order.equality_key(raw) == key}
        return (_as_float(left), {value.value}) if value.as_float else (left.local, {value.value})

    def _shared(self, order: TextOrder) -> str:
        """One name for the key function of an order, so that values of one list share a set."""
        name = f"key_{order.name}"
        self.names[name] = order.equality_key
        return name

    def _of_elements(self, term: Term, holds: Callable[[bytes], bool]) -> str:
        numbers = frozenset(n for n, raw in enumerate(_elements(term.column)) if holds(raw))
        return f"{self._number_of(term)} in {self.name(numbers)}"

    def _number_of(self, term: Term) -> str:
        """The number of an ENUM; one beyond its elements is the empty text, as 0 is."""
        return f"({term.local} if {term.local} <= {len(term.column.type.elems)} else 0)"

    def _set_text(self, term: Term) -> str:
        field_type = term.column.type
        return f"{self.name(lambda mask: set_text(field_type, mask).encode())}({term.local})"

    # -- two columns ----------------------------------------------------------------------------------

    def _columns(self, op: str, left: Term, right: Term, as_float: bool) -> str:
        kinds = {left.kind, right.kind}
        if kinds <= NUMBERS:
            if as_float or ValueClass.FLOAT in kinds:
                return f"({_as_float(left)} {op} {_as_float(right)})"
            return f"({left.local} {op} {right.local})"
        if kinds <= TEXTS and len(kinds) == 1:
            order, other = _order_of(left.column), _order_of(right.column)
            if order is not other:
                raise Unlike(
                    f"compared with {right.column.name}, of the collation {other.name}, not {order.name}",
                    "MySQL refuses some of these: compare each with a value, or use python = ...",
                )
            if op in _EQUALITIES:
                key = self._shared(order)
                return f"({key}({left.local}) {op} {key}({right.local}))"
            key = self.name(order.key)
            return f"({self.name(order.order)}({key}({left.local}), {key}({right.local})) {op} 0)"
        if kinds in ({ValueClass.MOMENT}, {ValueClass.DURATION}):
            return f"({left.local} {op} {right.local})"
        same_elements = left.column.type.elems == right.column.type.elems
        if kinds <= ELEMENTS and len(kinds) == 1 and same_elements and op in _EQUALITIES:
            return f"({left.local} {op} {right.local})"
        raise Unlike(
            f"{left.kind.value}, compared with {right.column.name}, {right.kind.value}",
            "compare columns of one kind, or use python = ...",
        )


def _as_float(term: Term) -> str:
    return term.local if term.kind is ValueClass.FLOAT else f"float({term.local})"


def _elements(column: Column) -> list[bytes]:
    """Texts by number; 0 is the empty text."""
    return [b"", *(text.encode() for text in column.type.elems)]


def _order_of(column: Column) -> TextOrder:
    if class_of(column.type) is ValueClass.BYTES:
        return BYTES
    collation = column.type.collate or "utf8mb4_bin"
    if collation == "binary":
        return BYTES
    order = ORDERS.get(collation)
    if order is None:
        raise Unlike(
            f"of the collation {collation}, whose order is not known here",
            "known are the binary, general_ci, unicode_ci and 0900_ai_ci collations; use python = ...",
        )
    return order


_OLD, _NEW, _NOWHERE = "o", "v", "x"
Sides = Mapping[Side, str]
"""Prefixes of the locals that hold the columns of each side; those of `_NOWHERE` are NULL."""
_INSERTED: Final[Sides] = {Side.OWN: _NEW, Side.AFTER: _NEW, Side.BEFORE: _NOWHERE}
_DELETED: Final[Sides] = {Side.OWN: _NEW, Side.AFTER: _NOWHERE, Side.BEFORE: _NEW}
_CHANGED: Final[Sides] = {Side.OWN: _NEW, Side.AFTER: _NEW, Side.BEFORE: _OLD}
_WAS: Final[Sides] = {Side.OWN: _OLD}
_IS: Final[Sides] = {Side.OWN: _NEW}


class RowCondition:
    """The condition of one table version. All functions raise `RowError` for a row that cannot be right."""

    def __init__(self, condition: Condition, info: TableInfo, label: str, table: str) -> None:
        self._condition = condition
        self._label, self._table = label, table
        self._readers = RowReaders(info, comparable_conversion)
        self._places = {
            column.name.lower(): place for place, column in enumerate(self._readers.layout.columns)
        }
        self._info = info
        self.refs = [operand for operand in operands(condition) if isinstance(operand, ColumnRef)]
        self.is_about_change: bool = any(ref.side is not Side.OWN for ref in self.refs)
        self.truth(Comparisons(), _CHANGED)  # what is wrong is said now

    # -- functions of rows ---------------------------------------------------------------------------

    @cached_property
    def insert(self) -> Callable[[bytes], bool]:
        """Whether an INSERT row is in the set."""
        result = _Result(self, _INSERTED)
        slow = result.slow("new = read(b)", self._readers.strict.insert)
        # What may be absent is absent for sure only if all of the row is as expected.
        whole = any(entry.optional and entry.index in result.new for entry in self._readers.layout.insert)
        return self._readers.of_insert(result.new, result.lines, slow, whole=whole, extra=result.names)

    @cached_property
    def delete(self) -> Callable[[bytes], bool]:
        """Whether a DELETE row was in the set."""
        result = _Result(self, _DELETED)
        slow = result.slow("new = read(b)", self._readers.strict.delete)
        return self._readers.of_delete(result.new, result.lines, slow, whole=False, extra=result.names)

    @cached_property
    def update(self) -> Callable[[bytes], tuple[bool, bool, int]]:
        """Whether an UPDATE row was in the set and is in it now; the offset of its second half."""
        sides = (_CHANGED,) if self.is_about_change else (_WAS, _IS)
        result = _Result(self, *sides, more="split")
        slow = result.slow("old, new, split = read(b)", self._readers.strict.update)
        return self._readers.of_update(
            result.old, result.new, result.lines, slow, whole=False, extra=result.names
        )

    # -- source --------------------------------------------------------------------------------------

    def truth(self, comparisons: Comparisons, sides: Sides) -> Truth:
        """Source of the whole condition; `sides` says in which locals columns are."""
        return self._source(self._condition, comparisons, sides)

    def _source(self, condition: Condition, comparisons: Comparisons, sides: Sides) -> Truth:
        match condition:
            case And(parts) | Or(parts):
                truths = [self._source(part, comparisons, sides) for part in parts]
                true, false = (" and ", " or ") if isinstance(condition, And) else (" or ", " and ")
                return Truth(
                    f"({true.join(truth.true for truth in truths)})",
                    f"({false.join(truth.false for truth in truths)})",
                )
            case Not(inner):
                return _negated(self._source(inner, comparisons, sides))
            case _:
                return self._predicate(condition, comparisons, lambda operand: self._term(operand, sides))

    def _term(self, operand: Operand, sides: Sides) -> Term | Literal:
        if isinstance(operand, Literal):
            return operand
        place = self.place(operand)
        return Term(f"{sides[operand.side]}{place}", self._readers.layout.columns[place])

    def _predicate(
        self,
        condition: Compare | Between | In | Like | IsNull,
        comparisons: Comparisons,
        term: Callable[[Operand], Any],
    ) -> Truth:
        try:
            if isinstance(condition, Compare):
                return comparisons.compare(condition.op, term(condition.left), term(condition.right))
            operand = term(condition.operand)
            if isinstance(condition, Between):
                truth = _between(comparisons, operand, term(condition.low), term(condition.high))
            elif isinstance(operand, Literal):
                raise Unlike("a value is asked about", "a condition is about columns")
            elif isinstance(condition, In):
                truth = comparisons.in_list(operand, [term(item) for item in condition.items])
            elif isinstance(condition, Like):
                truth = comparisons.like(operand, condition)
            else:
                return comparisons.is_null(operand, negated=condition.negated)
            return _negated(truth) if condition.negated else truth
        except Unlike as error:
            raise self._unlike(condition, error) from None

    def _unlike(self, condition: Condition, error: Unlike) -> ConfigError:
        names = [operand.name for operand in operands(condition) if isinstance(operand, ColumnRef)]
        column = f"column {self._table}.{names[0]} is " if names else ""
        return ConfigError(f"{self._label}: {condition}: {column}{error.what}", hint=error.hint)

    def place(self, ref: ColumnRef) -> int:
        """Place of a column among those that rows hold. Raises `ConfigError`."""
        number = self._places.get(ref.name.lower())
        if number is not None:
            return number
        raise missing_column(self._label, ref.name, self._table, self._info)


class _Result:
    """Statements after the values were read, what they use, and the same for rows of an odd form."""

    def __init__(self, of: RowCondition, *answers: Sides, more: str = "") -> None:
        comparisons = Comparisons()
        places: dict[str, set[int]] = {_OLD: set(), _NEW: set(), _NOWHERE: set()}
        for sides in answers:
            for ref in of.refs:
                places[sides[ref.side]].add(of.place(ref))
        truths = list(dict.fromkeys(of.truth(comparisons, sides).true for sides in answers))
        if more:  # of a change both are one
            truths = [truths[0], truths[-1], more]
        self.old, self.new = places[_OLD], places[_NEW]
        self.names: Mapping[str, Any] = comparisons.names
        self.lines = [*(f"{_NOWHERE}{place} = None" for place in sorted(places[_NOWHERE]))]
        self.lines.append(f"return {', '.join(truths)}")

    def slow(self, read_line: str, read: Callable[[bytes], Any]) -> Callable[..., Any]:
        """The same answer from values of the strict reader."""
        source = Source("slow")
        source.names.update(self.names, read=read)
        source.add(0, "def slow(b):")
        source.add(1, read_line)
        source.add(1, *(f"{_OLD}{place} = old[{place}]" for place in sorted(self.old)))
        source.add(1, *(f"{_NEW}{place} = new[{place}]" for place in sorted(self.new)))
        source.add(1, *self.lines)
        return source.compile()


def _negated(truth: Truth) -> Truth:
    return Truth(truth.false, truth.true)


def _between(comparisons: Comparisons, operand: Any, low: Any, high: Any) -> Truth:
    """`low <= operand AND operand <= high`; one floating-point number makes all three such."""
    if isinstance(operand, Term) and operand.kind in ELEMENTS and _are_mixed(low, high):
        raise Unlike(f"{operand.kind.value} between a text and a number", "give both as texts, or as numbers")
    as_float = any(_is_float(value) for value in (operand, low, high))
    above = comparisons.compare(">=", operand, low, as_float=as_float)
    below = comparisons.compare("<=", operand, high, as_float=as_float)
    return Truth(f"({above.true} and {below.true})", f"({above.false} or {below.false})")


def _are_mixed(low: Term | Literal, high: Term | Literal) -> bool:
    kinds = {value.kind for value in (low, high) if isinstance(value, Literal)}
    return LiteralKind.NUMBER in kinds and len(kinds) > 1


def _is_float(value: Term | Literal) -> bool:
    if isinstance(value, Term):
        return value.kind is ValueClass.FLOAT
    return value.kind is LiteralKind.NUMBER and isinstance(value.value, float)


def missing_column(label: str, name: str, table: str, info: TableInfo) -> ConfigError:
    """A rule names a column that the rows of a table do not hold."""
    for column in info.columns:
        if column.name.lower() == name.lower() and column.generated:
            return ConfigError(
                f"{label} names {table}.{name}, a generated column, which rows need not hold",
                hint="name the columns that it is made of",
            )
    names = ", ".join(column.name for column in _shown(info.columns))
    return ConfigError(
        f"{label} names column {name}, which {table} does not have",
        hint=f"it has {names}; correct the rule, or narrow its db-name and tbl-name",
    )


def _shown(columns: Sequence[Column]) -> list[Column]:
    return sorted((column for column in columns if column.is_writable), key=lambda column: column.offset)

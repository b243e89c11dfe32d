"""Comparison of `where`: two operands to Python source that is true, or false, as MySQL's comparison is.

In     terms: a column's local with its type, or a literal
Out    `Truth`: source that holds where the comparison is TRUE, and source where it is FALSE; where neither
       holds, it is NULL
Holds  constants are names in the generated function, never text of the rule
Never  compares classes that MySQL would convert: `Unlike`

Tests  tests/drainer/stream/rules/where/test_compiler.py
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from drainer.stream.rules.where.column_values import (
    ELEMENTS,
    NUMBERS,
    TEXTS,
    Unlike,
    ValueClass,
    class_of,
    constant,
)
from drainer.stream.rules.where.expression import Like, Literal, LiteralKind
from drainer.stream.rules.where.text_order import BYTES, ORDERS, TextOrder, like_bytes
from tidb_binlog.rowcodec.values import set_text
from tidb_binlog.table_info import Column

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
        found = " or ".join(f"{key} in {self.name(frozenset(values))}" for key, values in sets.items())
        true = [f"({left.local} is not None and ({found}))"] if found else []
        false = [f"({left.local} is not None and not ({found}))"] if found else []
        if nulls:
            false = ["False"]
        true += [truth.true for truth in others]
        false += [truth.false for truth in others]
        return Truth(f"({' or '.join(true) or 'False'})", f"({' and '.join(false)})")

    def like(self, term: Term, condition: Like) -> Truth:
        kind = term.kind
        if kind not in (ValueClass.TEXT, ValueClass.BYTES, *ELEMENTS):
            raise Unlike(f"{kind.value}, and LIKE is about texts", "compare it with =, <, BETWEEN")
        order = _order_of(term.column)
        binary = kind is ValueClass.BYTES
        like = (like_bytes if binary else order.like)(condition.pattern, condition.escape)
        if kind is ValueClass.ENUM:
            test = self._of_elements(term, like)
        elif kind is ValueClass.SET:
            test = f"{self.name(like)}({self._set_text(term)})"
        else:
            test = f"{self.name(like)}({term.local})"
        guard = f"{term.local} is not None"
        return Truth(f"({guard} and {test})", f"({guard} and not {test})")

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
        if order.key is BYTES.key:  # raw bytes are their own key
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

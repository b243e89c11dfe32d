"""Expressions of `where`: what the parser makes of their text, and what rules are compiled from.

Values only. The text of an expression is canonical SQL: read again, it gives the same expression.

Tests  tests/drainer/stream/rules/where/test_parser.py
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Final

COMPARISONS: Final = ("=", "<=>", "<>", "<", "<=", ">", ">=")


class Side(Enum):
    """Which image of a row a column is read from. OWN: the image that the condition is asked about."""

    OWN = ""
    BEFORE = "before"
    AFTER = "after"


class LiteralKind(Enum):
    NUMBER = "a number"
    TEXT = "a text"
    BYTES = "bytes"
    DATE = "a DATE"
    TIME = "a TIME"
    TIMESTAMP = "a TIMESTAMP"
    NULL = "NULL"


_TYPED: Final = (LiteralKind.DATE, LiteralKind.TIME, LiteralKind.TIMESTAMP)


@dataclass(frozen=True, slots=True)
class ColumnRef:
    name: str
    side: Side = Side.OWN

    def __str__(self) -> str:
        name = "`" + self.name.replace("`", "``") + "`"
        return name if self.side is Side.OWN else f"{self.side.value}.{name}"


@dataclass(frozen=True, slots=True)
class Literal:
    """`value`: int or Decimal (exact), float (written with an exponent), str, bytes, or None."""

    kind: LiteralKind
    value: int | Decimal | float | str | bytes | None

    def __str__(self) -> str:
        value = self.value
        if value is None:
            return "NULL"
        if isinstance(value, str):
            quoted = "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"
            return f"{self.kind.name} {quoted}" if self.kind in _TYPED else quoted
        if isinstance(value, bytes):
            return f"x'{value.hex()}'"
        if isinstance(value, float):
            text = repr(value)
            return text if "e" in text else f"{text}e0"
        if isinstance(value, Decimal):
            text = format(value, "f")
            return text if "." in text else f"{text}."
        return str(value)


Operand = ColumnRef | Literal


@dataclass(frozen=True, slots=True)
class Compare:
    op: str
    left: Operand
    right: Operand

    def __str__(self) -> str:
        return f"{self.left} {self.op} {self.right}"


@dataclass(frozen=True, slots=True)
class Between:
    operand: Operand
    low: Operand
    high: Operand
    negated: bool = False

    def __str__(self) -> str:
        return f"{self.operand} {_not(self.negated)}BETWEEN {self.low} AND {self.high}"


@dataclass(frozen=True, slots=True)
class In:
    operand: Operand
    items: tuple[Operand, ...]
    negated: bool = False

    def __str__(self) -> str:
        return f"{self.operand} {_not(self.negated)}IN ({', '.join(map(str, self.items))})"


@dataclass(frozen=True, slots=True)
class Like:
    """`escape` "" is none."""

    operand: Operand
    pattern: str
    escape: str = "\\"
    negated: bool = False

    def __str__(self) -> str:
        pattern = Literal(LiteralKind.TEXT, self.pattern)
        escape = "" if self.escape == "\\" else f" ESCAPE {Literal(LiteralKind.TEXT, self.escape)}"
        return f"{self.operand} {_not(self.negated)}LIKE {pattern}{escape}"


@dataclass(frozen=True, slots=True)
class IsNull:
    operand: Operand
    negated: bool = False

    def __str__(self) -> str:
        return f"{self.operand} IS {_not(self.negated)}NULL"


@dataclass(frozen=True, slots=True)
class Not:
    inner: Condition

    def __str__(self) -> str:
        return f"NOT ({self.inner})"


@dataclass(frozen=True, slots=True)
class And:
    """Two or more; so `Or`."""

    parts: tuple[Condition, ...]

    def __str__(self) -> str:
        return " AND ".join(f"({part})" for part in self.parts)


@dataclass(frozen=True, slots=True)
class Or:
    parts: tuple[Condition, ...]

    def __str__(self) -> str:
        return " OR ".join(f"({part})" for part in self.parts)


Condition = Compare | Between | In | Like | IsNull | Not | And | Or


def _not(negated: bool) -> str:
    return "NOT " if negated else ""


def operands(condition: Condition) -> tuple[Operand, ...]:
    """All columns and literals, in the order of the text."""
    match condition:
        case Compare(_, left, right):
            return left, right
        case Between(operand, low, high):
            return operand, low, high
        case In(operand, items):
            return operand, *items
        case Like(operand) | IsNull(operand):
            return (operand,)
        case Not(inner):
            return operands(inner)
        case And(parts) | Or(parts):
            return tuple(one for part in parts for one in operands(part))

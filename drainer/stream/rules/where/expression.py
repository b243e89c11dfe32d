"""Expressions of `where`: a condition as values, and the parser that makes them of its text.

In     a condition in MySQL's words and precedence: OR below AND below NOT below the comparisons
Out    an expression, whose text is canonical SQL: read again, it gives the same expression
Holds  what is not in the grammar is an error with its place: nothing is evaluated here, and no text of it
       reaches anything that does
Why    a rule is read where a configuration is checked, so its errors name the character

    condition  := and (OR and)*           and := not (AND not)*           not := NOT not | predicate
    predicate  := ( condition ) | operand comparison operand | operand IS [NOT] NULL
                | operand [NOT] BETWEEN operand AND operand | operand [NOT] IN ( operand, ... )
                | operand [NOT] LIKE 'pattern' [ESCAPE 'character']
    operand    := [before. | after.] column | number | 'text' | x'hex' | DATE 'text' | TIME 'text'
                | TIMESTAMP 'text' | TRUE | FALSE | NULL

Tests  tests/drainer/stream/rules/where/test_parser.py
"""

from __future__ import annotations

import re
from decimal import Decimal
from enum import Enum
from typing import Final, NoReturn

from tidb_binlog.errors import ConfigError
from tidb_binlog.late_dataclass import dataclass

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


_TYPED: Final = {"DATE": LiteralKind.DATE, "TIME": LiteralKind.TIME, "TIMESTAMP": LiteralKind.TIMESTAMP}


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
            return f"{self.kind.name} {quoted}" if self.kind in _TYPED.values() else quoted
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
            return tuple(operand for part in parts for operand in operands(part))


LENGTH_MAX: Final = 64 * 1024
DEPTH_MAX: Final = 40
_DIGITS_MAX: Final = 65
_SCALE_MAX: Final = 30
_GRAMMAR: Final = "docs/row-rules.md has the grammar"

_TOKEN: Final = re.compile(
    r"""(?P<space>\s+)
    | (?P<hex>[xX]'[0-9A-Fa-f]*')
    | (?P<number>(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?)(?![\w$])
    | (?P<word>[^\W\d][\w$]*|\$[\w$]*)
    | (?P<name>`(?:[^`]|``)+`)
    | (?P<text>'(?:[^'\\]|''|\\.)*'|"(?:[^"\\]|""|\\.)*")
    | (?P<sign><=>|<=|>=|<>|!=|[-+(),.=<>])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPES: Final = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
_WORDS: Final = frozenset(
    {"AND", "OR", "NOT", "IN", "IS", "LIKE", "BETWEEN", "ESCAPE", "NULL", "TRUE", "FALSE"}
)
NULL: Final = Literal(LiteralKind.NULL, None)


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    at: int

    @property
    def word(self) -> str:
        """A word of the grammar in upper case, a sign as it is, "" for all else."""
        if self.kind == "word":
            return self.text.upper()
        return self.text if self.kind == "sign" else ""


def parse(text: str, label: str = "where") -> Condition:
    """Raises `ConfigError`, which begins with `label` and names the character."""
    return _Parser(text, label).whole()


class _Parser:
    def __init__(self, text: str, label: str) -> None:
        self._label = label
        self._at = 0
        self._depth = 0
        if len(text) > LENGTH_MAX:
            raise ConfigError(f"{label} has {len(text)} characters", hint=f"{LENGTH_MAX} are the most")
        self._tokens = self._read(text)

    def _read(self, text: str) -> list[_Token]:
        tokens, at = [], 0
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                self._fail(
                    at, f"cannot be read: {text[at : at + 20]!r}", "texts are in '...', names in `...`"
                )
            if match.lastgroup != "space":
                tokens.append(_Token(str(match.lastgroup), match[0], at))
            at = match.end()
        return [*tokens, _Token("end", "", len(text))]

    def _fail(self, at: int, what: str, hint: str = _GRAMMAR) -> NoReturn:
        raise ConfigError(f"{self._label}: at character {at + 1}: {what}", hint=hint)

    @property
    def _token(self) -> _Token:
        return self._tokens[self._at]

    def _next(self) -> _Token:
        token = self._token
        self._at += 1
        return token

    def _take(self, *words: str) -> bool:
        """Whether these words come next; then they are taken."""
        here = self._tokens[self._at : self._at + len(words)]
        if [token.word for token in here] != list(words):
            return False
        self._at += len(words)
        return True

    def _expect(self, word: str) -> None:
        if not self._take(word):
            self._unexpected(f"`{word}`")

    def _unexpected(self, expected: str, hint: str = _GRAMMAR) -> NoReturn:
        token = self._token
        actual = f"`{token.text}`" if token.text else "the end"
        self._fail(token.at, f"{expected} is expected, not {actual}", hint)

    def whole(self) -> Condition:
        condition = self._or()
        if self._token.kind != "end":
            self._unexpected("AND, OR or the end")
        return condition

    def _or(self) -> Condition:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            self._fail(self._token.at, f"more than {DEPTH_MAX} levels of parentheses and NOT")
        parts = [self._and()]
        while self._take("OR"):
            parts.append(self._and())
        self._depth -= 1
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _and(self) -> Condition:
        parts = [self._not()]
        while self._take("AND"):
            parts.append(self._not())
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _not(self) -> Condition:
        if not self._take("NOT"):
            return self._predicate()
        self._depth += 1
        if self._depth > DEPTH_MAX:
            self._fail(self._token.at, f"more than {DEPTH_MAX} levels of parentheses and NOT")
        inner = self._not()
        self._depth -= 1
        return Not(inner)

    def _predicate(self) -> Condition:
        if self._take("("):
            condition = self._or()
            self._expect(")")
            return condition
        operand = self._operand()
        if self._take("IS"):
            negated = self._take("NOT")
            self._expect("NULL")
            return IsNull(operand, negated)
        negated = self._take("NOT")
        if self._take("BETWEEN"):
            low = self._operand()
            self._expect("AND")
            return Between(operand, low, self._operand(), negated)
        if self._take("IN"):
            return In(operand, self._items(), negated)
        if self._take("LIKE"):
            return self._like(operand, negated)
        if negated:
            self._unexpected("BETWEEN, IN or LIKE")
        op = "<>" if self._token.word == "!=" else self._token.word
        if op not in COMPARISONS:
            self._unexpected("a comparison", "a condition compares: `active = 1`, `name LIKE 'a%'`")
        self._next()
        return Compare(op, operand, self._operand())

    def _items(self) -> tuple[Operand, ...]:
        self._expect("(")
        items = [self._operand()]
        while self._take(","):
            items.append(self._operand())
        self._expect(")")
        return tuple(items)

    def _like(self, operand: Operand, negated: bool) -> Like:
        pattern = self._text("a pattern in quotes")
        escape = "\\"
        if self._take("ESCAPE"):
            at = self._token.at
            escape = self._text("a character in quotes")
            if len(escape) > 1:
                self._fail(at, "ESCAPE takes one character, or '' for none")
        return Like(operand, pattern, escape, negated)

    def _text(self, expected: str) -> str:
        if self._token.kind != "text":
            self._unexpected(expected)
        return _unquoted(self._next().text)

    def _operand(self) -> Operand:
        sign = self._token
        if sign.word in ("-", "+"):
            self._next()
            if self._token.kind != "number":
                self._unexpected("a number", "there is no arithmetic: compare a column with a value")
            return self._number("-" if sign.word == "-" else "")
        if sign.kind == "number":
            return self._number("")
        if sign.kind == "text":
            return Literal(LiteralKind.TEXT, _unquoted(self._next().text))
        if sign.kind == "hex":
            return self._hex()
        return self._column_or_word()

    def _hex(self) -> Literal:
        token = self._next()
        if len(token.text) % 2 == 0:
            self._fail(token.at, "an odd number of hexadecimal digits")
        return Literal(LiteralKind.BYTES, bytes.fromhex(token.text[2:-1]))

    def _number(self, sign: str) -> Literal:
        token = self._next()
        text = sign + token.text
        if "e" in text.lower():
            value = float(text)
            if value - value:
                self._fail(token.at, f"{text} is too large a number")
            return Literal(LiteralKind.NUMBER, value)
        whole, _, fraction = token.text.partition(".")
        if len(whole.lstrip("0")) + len(fraction) > _DIGITS_MAX or len(fraction) > _SCALE_MAX:
            self._fail(token.at, f"{text} has more than {_DIGITS_MAX} digits, or {_SCALE_MAX} decimals")
        return Literal(LiteralKind.NUMBER, Decimal(text) if "." in text else int(text))

    def _column_or_word(self) -> Operand:
        token = self._next()
        word = token.word
        if token.kind == "word":
            if word in _TYPED and self._token.kind == "text":
                return Literal(_TYPED[word], _unquoted(self._next().text))
            if word in ("TRUE", "FALSE"):
                return Literal(LiteralKind.NUMBER, int(word == "TRUE"))
            if word == "NULL":
                return NULL
        if token.kind not in ("word", "name") or word in _WORDS:
            self._at -= 1
            self._unexpected("a column or a value")
        if self._token.text != ".":
            return ColumnRef(_name(token))
        if token.kind == "name" or word.lower() not in (Side.BEFORE.value, Side.AFTER.value):
            self._fail(token.at, f"{token.text} is neither `before` nor `after`", "write the column alone")
        self._next()
        column = self._token
        if column.kind not in ("word", "name"):
            self._unexpected("a column")
        self._next()
        return ColumnRef(_name(column), Side(word.lower()))


def _name(token: _Token) -> str:
    return token.text[1:-1].replace("``", "`") if token.kind == "name" else token.text


def _unquoted(text: str) -> str:
    quote, inside = text[0], text[1:-1]
    return re.sub(
        r"\\(.)|" + quote * 2,
        lambda match: quote if match[1] is None else _ESCAPES.get(match[1], match[1]),
        inside,
        flags=re.DOTALL,
    )

"""Parser of `where`: text round trips, precedence, and every refusal with its place."""

from __future__ import annotations

import contextlib
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drainer.stream.rules.where.expression import (
    COMPARISONS,
    DEPTH_MAX,
    LENGTH_MAX,
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
    Or,
    Side,
    operands,
    parse,
)
from tidb_binlog.errors import ConfigError

ONE = Literal(LiteralKind.NUMBER, 1)
A, B, C = (Compare("=", ColumnRef(name), ONE) for name in "abc")

COLUMNS = st.builds(ColumnRef, st.text(min_size=1, max_size=8), st.sampled_from(Side))
LITERALS = st.one_of(
    st.builds(Literal, st.just(LiteralKind.NUMBER), st.integers(-(10**64), 10**64)),
    st.builds(
        Literal,
        st.just(LiteralKind.NUMBER),
        st.decimals(allow_nan=False, allow_infinity=False, places=5, min_value=-(10**20), max_value=10**20),
    ),
    st.builds(Literal, st.just(LiteralKind.NUMBER), st.floats(allow_nan=False, allow_infinity=False)),
    st.builds(Literal, st.just(LiteralKind.TEXT), st.text(max_size=12)),
    st.builds(Literal, st.just(LiteralKind.BYTES), st.binary(max_size=6)),
    st.builds(
        Literal, st.sampled_from([LiteralKind.DATE, LiteralKind.TIME, LiteralKind.TIMESTAMP]), st.text()
    ),
    st.just(Literal(LiteralKind.NULL, None)),
)
OPERANDS = st.one_of(COLUMNS, LITERALS)
PREDICATES = st.one_of(
    st.builds(Compare, st.sampled_from(COMPARISONS), OPERANDS, OPERANDS),
    st.builds(Between, OPERANDS, OPERANDS, OPERANDS, st.booleans()),
    st.builds(In, OPERANDS, st.lists(OPERANDS, min_size=1, max_size=4).map(tuple), st.booleans()),
    st.builds(Like, OPERANDS, st.text(max_size=6), st.text(max_size=1), st.booleans()),
    st.builds(IsNull, OPERANDS, st.booleans()),
)
CONDITIONS = st.recursive(
    PREDICATES,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(And, st.lists(inner, min_size=2, max_size=3).map(tuple)),
        st.builds(Or, st.lists(inner, min_size=2, max_size=3).map(tuple)),
    ),
    max_leaves=8,
)


@settings(max_examples=150)
@given(CONDITIONS)
def test_the_text_of_an_expression_reads_as_the_expression(condition: Condition) -> None:
    again = parse(str(condition))
    assert again == condition
    assert list(map(repr, operands(again))) == list(map(repr, operands(condition)))  # 1 is not 1.0 here


@settings(max_examples=150)
@given(st.text(alphabet="ab1'\"`\\ ()=<>.,-xX%", max_size=30) | st.text(max_size=30))
def test_any_text_is_an_expression_or_one_error(text: str) -> None:
    with contextlib.suppress(ConfigError):
        assert parse(str(parse(text))) == parse(text)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a=1 or b=1 and c=1", Or((A, And((B, C))))),
        ("not a=1 and b=1", And((Not(A), B))),
        ("not (a=1 and b=1)", Not(And((A, B)))),
        ("not not a=1", Not(Not(A))),
        ("a=1 and (b=1 and c=1)", And((A, And((B, C))))),
        ("A Between 1 And 1 And b=1", And((Between(ColumnRef("A"), ONE, ONE), B))),
    ],
)
def test_precedence_is_the_servers(text: str, wanted: Condition) -> None:
    assert parse(text) == wanted


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("'it''s'", "it's"),
        ('"say ""x"""', 'say "x"'),
        (r"'a\'b\\c\n\t\0\Z\q'", "a'b\\c\n\t\0\x1aq"),
        (r"'50\%\_'", r"50\%\_"),
        ("''", ""),
        ("x'00fF'", b"\x00\xff"),
        ("1.50", Decimal("1.50")),
        (".5", Decimal("0.5")),
        ("-7", -7),
        ("+7", 7),
        ("1e3", 1000.0),
        ("true", 1),
        ("FALSE", 0),
        ("null", None),
    ],
)
def test_literals(text: str, value: Any) -> None:
    condition = parse(f"a = {text}")
    assert isinstance(condition, Compare)
    assert isinstance(condition.right, Literal)
    assert (condition.right.value, type(condition.right.value)) == (value, type(value))


def test_columns_and_their_sides() -> None:
    assert operands(parse("before.a <> After.`b``c`")) == (
        ColumnRef("a", Side.BEFORE),
        ColumnRef("b`c", Side.AFTER),
    )
    assert operands(parse("before = 1"))[0] == ColumnRef("before")
    assert operands(parse("`and` = 1"))[0] == ColumnRef("and")
    assert operands(parse("date = 1"))[0] == ColumnRef("date")
    assert operands(parse("größe = 1"))[0] == ColumnRef("größe")


@pytest.mark.parametrize(
    ("text", "place", "what"),
    [
        ("", 1, "not the end"),
        ("a", 2, "a comparison is expected"),
        ("a = ", 5, "a column or a value is expected"),
        ("a = 1 b", 7, "AND, OR or the end is expected, not `b`"),
        ("(a = 1", 7, "`)` is expected"),
        ("a = b + 1", 7, "not `+`"),
        ("a = -b", 6, "a number is expected"),
        ("db.a = 1", 1, "db is neither `before` nor `after`"),
        ("a in ()", 7, "a column or a value"),
        ("a like b", 8, "a pattern in quotes"),
        ("a like 'x' escape 'ab'", 19, "ESCAPE takes one character"),
        ("a is 1", 6, "`NULL` is expected"),
        ("a not = 1", 7, "BETWEEN, IN or LIKE is expected"),
        ("a = 'open", 5, "cannot be read"),
        ("a = 1; drop table t", 6, "cannot be read"),
        ("a = 1abc", 5, "cannot be read"),
        ("a = x'abc'", 5, "an odd number"),
        ("a = 1e999", 5, "too large"),
        ("a = " + "9" * 66, 5, "more than 65 digits"),
        ("a = 0." + "0" * 31, 5, "30 decimals"),
        ("(" * (DEPTH_MAX + 1) + "a = 1", DEPTH_MAX + 1, f"more than {DEPTH_MAX} levels"),
        ("not " * (DEPTH_MAX + 1) + "a = 1", 4 * DEPTH_MAX + 1, f"more than {DEPTH_MAX} levels"),
        ("before. = 1", 9, "a column is expected"),
    ],
)
def test_what_is_not_in_the_grammar_is_named_with_its_place(text: str, place: int, what: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse(text, "`row-rule` 2: where")
    assert raised.value.message.startswith("`row-rule` 2: where: at character ")
    assert what in raised.value.message
    assert f"character {place}:" in raised.value.message
    assert raised.value.hint


def test_a_text_without_end_is_refused() -> None:
    with pytest.raises(ConfigError, match=f"has {LENGTH_MAX + 1} characters"):
        parse(" " * (LENGTH_MAX + 1))

"""Name patterns: wildcards against a matcher written differently, and expressions as Go reads them."""

from __future__ import annotations

import itertools
import re

import pytest

from drainer.stream.rules.name_pattern import Source, Wildcard, expression


def naive(pattern: str, name: str) -> bool:
    """One character of the pattern after the other, as the Go selector inserts them."""
    if not pattern:
        return not name
    if pattern[0] == "*":
        return True
    end = pattern.find("]")
    if pattern[0] == "[" and end > 0:
        inside = pattern[1:end]
        negated = len(inside) > 1 and inside[0] == "!"
        inside = inside[1:] if negated else inside
        members = set()
        while inside:
            if len(inside) >= 3 and inside[1] == "-":
                members |= {chr(code) for code in range(ord(inside[0]), ord(inside[2]) + 1)}
                inside = inside[3:]
            else:
                members.add(inside[0])
                inside = inside[1:]
        return bool(name) and ((name[0] in members) != negated) and naive(pattern[end + 1 :], name[1:])
    return bool(name) and pattern[0] in ("?", name[0]) and naive(pattern[1:], name[1:])


def test_wildcards_equal_the_naive_matcher() -> None:
    names = ["".join(parts) for size in range(4) for parts in itertools.product("ab-!", repeat=size)]
    names += ["[", "]", "[a", "b]", "*"]
    tried = 0
    for size in range(6):
        for parts in itertools.product("ab?[]!-", repeat=size):
            if size == 5 and parts[0] != "[":
                continue
            for pattern in ("".join(parts), "".join(parts) + "*"):
                if len(pattern) > 5:
                    continue
                wildcard = Wildcard.of(pattern)
                for name in names[:: 1 if size < 4 else 7]:
                    assert wildcard.matches(name) == naive(pattern, name), (pattern, name)
                    tried += 1
    assert tried > 100_000


@pytest.mark.parametrize("pattern", ["*a", "a*b", "**", "[a]*?"])
def test_a_star_is_the_last_character_or_an_error(pattern: str) -> None:
    with pytest.raises(ValueError, match="only the last character"):
        Wildcard.of(pattern)


@pytest.mark.parametrize(
    ("schema", "table", "name", "matches"),
    [
        ("db*", "t?", ("db1", "tx"), True),
        ("DB*", "T?", ("db1", "TX"), True),
        ("db", "", ("db", "any"), True),
        ("db", "", ("db", ""), True),
        ("db", "*", ("db", ""), True),
        ("db", "t*", ("db", ""), False),
        ("db", "t", ("dbx", "t"), False),
        ("a.c", "t", ("abc", "t"), False),
    ],
)
def test_sources(schema: str, table: str, name: tuple[str, str], matches: bool) -> None:
    assert Source.of(schema, table).matches(*name) == matches


def test_case_counts_when_told() -> None:
    assert not Source.of("Db", "T", case_sensitive=True).matches("db", "t")
    assert Source.of("Db", "T", case_sensitive=True).matches("Db", "T")


@pytest.mark.parametrize(
    ("text", "found", "not_found"),
    [
        (r"^a[[:digit:]]$", "A7", "ax"),
        (r"^[^[:alpha:]_]", "7x", "x7"),
        (r"b\z", "ab", "ab\n"),
        (r"a\\z", "a\\z", "a"),
        (r"DROP\s+INDEX", "alter table t drop  index i", "dropindex"),
    ],
)
def test_expressions_read_as_go_does(text: str, found: str, not_found: str) -> None:
    assert expression(text).search(found)
    assert not expression(text).search(not_found)


@pytest.mark.parametrize("text", ["(", r"\pL", "[[a-z]", "a(?i)b", r"\Qa\E"])
def test_what_python_would_read_otherwise_is_an_error(text: str) -> None:
    with pytest.raises(re.error):
        expression(text)

"""Name pattern: how rules say which names they mean. Two languages, one for each family of keys.

*Wildcards* (`table-migrate-rule.source`): `*` at the end, `?` for one character, `[a-z]` and `[!x]` for one
character of a set; a `[` without its `]` is itself. A rule whose table pattern is empty is about the whole
database: every table in it and the database itself.

*Expressions* (`replicate-do-*`, `ignore-*`, `column-rule`, and `ignore-sql`): regular expressions as Go reads
them, without regard to case. What Python reads otherwise is translated (`[[:alpha:]]`, `\\z`) or is an error.

The keys that a rule may have are checked here, too, with errors that say what was meant.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tidb_binlog.errors import ConfigError
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.similar import similar

_POSIX: Final = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": r"\x00-\x7f",
    "blank": r"\t ",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\t\n\v\f\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}
_GO_ONLY: Final = re.compile(r"\[:(?P<posix>\w+):\]|(?P<end>\\z)|\\.", re.DOTALL)


def expression(text: str) -> re.Pattern[str]:
    """A regular expression, case-insensitive; `re.error` says what is wrong with it."""
    translated = _GO_ONLY.sub(_as_python, text)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        try:
            return re.compile(translated, re.IGNORECASE)
        except FutureWarning as warning:
            raise re.error(f"ambiguous: {warning}") from None


def _as_python(match: re.Match[str]) -> str:
    if match["posix"]:
        return _POSIX.get(match["posix"], match[0])
    return r"\Z" if match["end"] else match[0]


@dataclass(frozen=True, slots=True)
class Wildcard:
    """One pattern for a whole name."""

    text: str
    _compiled: re.Pattern[str]

    @classmethod
    def of(cls, text: str) -> Wildcard:
        """Raises `ValueError` for a `*` that is not the last character."""
        return cls(text, re.compile(_translate(text), re.DOTALL))

    def matches(self, name: str) -> bool:
        """Says whether the whole name fits."""
        return self._compiled.fullmatch(name) is not None


def _translate(text: str) -> str:
    parts = []
    at = 0
    while at < len(text):
        character = text[at]
        end = text.find("]", at + 1) if character == "[" else -1
        if character == "*":
            if at != len(text) - 1:
                raise ValueError(f"in {text!r} only the last character may be `*`")
            parts.append(".*")
        elif character == "?":
            parts.append(".")
        elif end > 0:
            parts.append(_set(text[at + 1 : end]))
            at = end
        else:
            parts.append(re.escape(character))
        at += 1
    return "".join(parts)


def _set(inside: str) -> str:
    """One character of `a-z_`, or with a leading `!` any other one. `!` alone means itself."""
    negated = inside.startswith("!") and inside != "!"
    characters = inside[1:] if negated else inside
    ranges = []
    at = 0
    while at < len(characters):
        first = last = characters[at]
        if characters[at + 1 : at + 2] == "-" and at + 2 < len(characters):
            last = characters[at + 2]
            at += 2
        if first <= last:
            ranges.append(f"{re.escape(first)}-{re.escape(last)}")
        at += 1
    if not ranges:
        return "." if negated else "(?!)"
    return f"[{'^' if negated else ''}{''.join(ranges)}]"


@dataclass(frozen=True, slots=True)
class Source:
    """Which tables a migrate rule is about; compared in lower case unless `case_sensitive`."""

    schema: Wildcard
    table: Wildcard
    case_sensitive: bool = False

    @classmethod
    def of(cls, schema: str, table: str, *, case_sensitive: bool = False) -> Source:
        """Raises `ValueError` for a pattern that is none."""
        if not case_sensitive:
            schema, table = schema.lower(), table.lower()
        return cls(Wildcard.of(schema), Wildcard.of(table), case_sensitive)

    @property
    def key(self) -> tuple[str, str]:
        """Tells two rules for the same tables."""
        return self.schema.text, self.table.text

    @property
    def is_database(self) -> bool:
        """The rule has no table pattern."""
        return not self.table.text

    def matches(self, schema: str, table: str) -> bool:
        """`table` "" asks for the database itself, which `*` matches too."""
        if not self.case_sensitive:
            schema, table = schema.lower(), table.lower()
        return self.schema.matches(schema) and (self.is_database or self.table.matches(table))


def known_keys(label: str, table: Mapping[str, Any], keys: Sequence[str]) -> None:
    """Raises `ConfigError` for a key that is not known."""
    for key in table:
        if key not in keys:
            near = similar(key, keys)
            raise ConfigError(
                f"{label} has an unknown key {key}",
                hint=f"did you mean {near}?" if near else f"known: {', '.join(keys)}",
            )


def texts(label: str, key: str, value: Any) -> tuple[str, ...]:
    """A list of texts. Raises `ConfigError`."""
    if not isinstance(value, list | tuple) or not all(isinstance(entry, str) for entry in value):
        raise ConfigError(f"{label}: {key} is not a list of texts", hint=f'write {key} = ["...", "..."]')
    return tuple(value)


def names_tables(label: str, rule: Mapping[str, Any]) -> None:
    """Raises `ConfigError` for a rule that does not say which tables it is about."""
    for key in ("db-name", "tbl-name"):
        if not isinstance(rule.get(key), str):
            raise ConfigError(f"{label} has no {key}", hint="say which tables it is about")

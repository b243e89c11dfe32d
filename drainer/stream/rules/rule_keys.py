"""Keys of a rule: what the tables of a configuration may hold, with errors that say what was meant.

Tests  tests/drainer/stream/rules/test_rule_set.py
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from tidb_binlog.errors import ConfigError


def known_keys(label: str, table: Mapping[str, Any], known: Sequence[str]) -> None:
    """Raises `ConfigError` for a key that is not known."""
    for key in table:
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1)
            raise ConfigError(
                f"{label} has an unknown key {key}",
                hint=f"did you mean {close[0]}?" if close else f"known: {', '.join(known)}",
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

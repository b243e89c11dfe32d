"""Configuration, changes: what of a file that is read again a running daemon takes, and what waits.

In     the settings in force, those of the file as it is now
Out    which options changed, apart by whether they are declared `live`; the settings that follow
Holds  every option that differs is in exactly one of the two, under the name that a user gave it by
Tests  tests/common/config/test_changes.py
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, TypeVar

from tidb_binlog.config.declaring import options

C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class Changes:
    """Keys by name of field: options that a reload takes, and options that need a restart."""

    live: dict[str, str]
    fixed: dict[str, str]


def changes(before: Any, after: Any, also_fixed: Collection[str] = ()) -> Changes:
    """What differs. `also_fixed`: live options that are not in this daemon as it is set up."""
    changed = Changes({}, {})
    for name, entry in options(type(before)).items():
        if getattr(before, name) != getattr(after, name):
            takes = entry.live and name not in also_fixed
            (changed.live if takes else changed.fixed)[name] = entry.key or f"-{entry.flag}"
    return changed


def following(before: C, after: C, changed: Changes) -> C:
    """What is in force once the live options are taken. Raises `ConfigError` where they do not go together
    with the ones that stay."""
    mixed: Any = dataclasses.replace(
        before,  # type: ignore[type-var]
        **{name: getattr(after, name) for name in changed.live},
    )
    validate: Callable[[], None] | None = getattr(mixed, "validate", None)
    if changed.live and validate is not None:
        validate()
    return mixed  # type: ignore[no-any-return]

"""Python rule: a function of the user's that sees every row of a table (`python` of `[[syncer.row-rule]]`).

    def clean(row: drainer.Row) -> drainer.Row | None:
        row.after["email"] = row.after["email"].lower()
        return row                     # None: the row is left out

In     `module:function`, importable by the process
Out    the function
Why    imported when the rules are read, so that a name that is wrong is said where the configuration is
Never  passes over what the function raises
Tests  tests/drainer/translate/test_row_edit.py
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field

from common.errors import ConfigError
from drainer.changes.model import Row

RowFunction = Callable[[Row], Row | None]


@dataclass(frozen=True, slots=True)
class PythonRule:
    """`name` is what the rule says."""

    label: str
    name: str
    function: RowFunction = field(compare=False, repr=False)

    @classmethod
    def of(cls, label: str, name: str) -> PythonRule:
        """Raises `ConfigError` for a function that cannot be had."""
        place = f"{label}: python"
        module, colon, attribute = name.partition(":")
        if not (module and colon and attribute):
            raise ConfigError(f"{place} is {name!r}", hint='write python = "module:function"')
        try:
            function = getattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"{place}: there is no module {error.name}",
                hint="install it where this program is, or have PYTHONPATH name its directory",
            ) from None
        except AttributeError:
            raise ConfigError(f"{place}: {module} has no {attribute}", hint="correct the name") from None
        except Exception as error:
            raise ConfigError(
                f"{place}: {module} cannot be imported: {type(error).__name__}: {error}", hint="correct it"
            ) from None
        if not callable(function):
            raise ConfigError(
                f"{place}: {name} is no function", hint="it takes a row and returns it, or None"
            )
        return cls(place, name, function)

    def apply(self, row: Row, commit_ts: int) -> Row | None:
        """What the function makes of a row. Raises `ConfigError` with rule, table and transaction."""
        table, kind = str(row.table), row.kind
        try:
            found = self.function(row)
        except Exception as error:
            raise self.failed(f"raised {type(error).__name__}: {error}", table, commit_ts) from error
        if found is not None and (not isinstance(found, Row) or found.kind != kind or not _is_whole(found)):
            what = found.kind if isinstance(found, Row) else type(found).__name__
            raise self.failed(f"made {what} of {kind}", table, commit_ts)
        return found

    def failed(self, what: str, table: str, commit_ts: int) -> ConfigError:
        return ConfigError(
            f"{self.label}: {self.name} {what}, for a row of {table} in the transaction with commit_ts"
            f" {commit_ts}",
            hint="correct the function and start again: no row was passed over",
        )


def _is_whole(row: Row) -> bool:
    return (row.before is None) == (row.kind == "insert") and (row.after is None) == (row.kind == "delete")

"""Python rule: a function of the user's that sees every row of a table (`python` of `[[syncer.row-rule]]`).

    def clean(row: drainer.Row) -> drainer.Row | None:
        row.after["email"] = row.after["email"].lower()
        return row                     # None: the row is left out

Out    the function, and a digest of its module's source
Holds  a module whose file is another one than before is run anew, beside the one that is in use: functions
       in force stay what they are. What it imports is read once
Why    imported when the rules are read, so that a name that is wrong is said where the configuration is
Never  passes over what the function raises
Tests  tests/drainer/stream/translate/test_row_edit.py
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Final

from drainer.changes.model import Row
from tidb_binlog.errors import ConfigError
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.tso import Ts

RowFunction = Callable[[Row], Row | None]
_MODULES: Final[dict[str, tuple[ModuleType, str]]] = {}
"""Modules as they were read last, with the digest of their source."""


@dataclass(frozen=True, slots=True)
class PythonRule:
    """`name` is what the rule says. `source`: digest of the module's file; "" where there is none."""

    label: str
    name: str
    function: RowFunction = field(compare=False, repr=False)
    source: str = ""

    @classmethod
    def of(cls, label: str, name: str) -> PythonRule:
        """Raises `ConfigError` for a function that cannot be had."""
        place = f"{label}: python"
        module, colon, attribute = name.partition(":")
        if not (module and colon and attribute):
            raise ConfigError(f"{place} is {name!r}", hint='write python = "module:function"')
        try:
            loaded, source = _loaded(module)
            function = getattr(loaded, attribute)
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
        return cls(place, name, function, source)

    def apply(self, row: Row, commit_ts: Ts) -> Row | None:
        """What the function makes of a row. Raises `ConfigError` with rule, table and transaction."""
        table, kind = str(row.table), row.kind
        try:
            result = self.function(row)
        except Exception as error:
            raise self.failed(f"raised {type(error).__name__}: {error}", table, commit_ts) from error
        if result is not None and (
            not isinstance(result, Row) or result.kind != kind or not _is_whole(result)
        ):
            what = result.kind if isinstance(result, Row) else type(result).__name__
            raise self.failed(f"made {what} of {kind}", table, commit_ts)
        return result

    def failed(self, what: str, table: str, commit_ts: Ts) -> ConfigError:
        """Makes the error that stops the drainer before the row."""
        return ConfigError(
            f"{self.label}: {self.name} {what}, for a row of {table} in the transaction with commit_ts"
            f" {commit_ts}",
            hint="correct the function and start again: no row was passed over",
        )


def _loaded(name: str) -> tuple[ModuleType, str]:
    """A module as its file is now, and the digest of that. Raises whatever its import raises."""
    before = _MODULES.get(name)
    spec = importlib.util.find_spec(name) if before is None else before[0].__spec__
    path = Path(spec.origin) if spec is not None and spec.has_location and spec.origin else None
    raw = path.read_bytes() if path is not None and path.suffix == ".py" else b""
    digest = hashlib.sha256(raw).hexdigest()[:16] if raw else ""
    if before is None:
        _MODULES[name] = importlib.import_module(name), digest
    elif before[1] != digest:
        assert spec is not None
        fresh = importlib.util.module_from_spec(spec)
        exec(compile(raw, str(path), "exec"), fresh.__dict__)  # a stored .pyc may be of the same second
        _MODULES[name] = fresh, digest
    return _MODULES[name]


def _is_whole(row: Row) -> bool:
    return (row.before is None) == (row.kind == "insert") and (row.after is None) == (row.kind == "delete")

"""Configuration, declaring: the fields of a daemon's frozen dataclass, with their keys, flags and kinds.

Holds  a value has the type of its kind: what is given as text, or in the file, becomes that or a `ValueError`
       that says what is expected
Tests  tests/common/config/test_loading.py
"""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any, Final, Literal

from tidb_binlog import quantities
from tidb_binlog.errors import ConfigError
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.observe import log

OptionKind = Literal[
    "str",
    "path",
    "texts",
    "int",
    "float",
    "bool",
    "size",
    "duration",
    "retention",
    "list",
    "ints",
    "table",
    "tables",
]
_KIND_OF: Final[dict[type, OptionKind]] = {str: "str", int: "int", float: "float", bool: "bool"}
_METADATA: Final = "option"
URI: Final = "[A-Za-z][A-Za-z0-9+.-]*://"
_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "false", "FALSE", "False"})


@dataclass(frozen=True, slots=True)
class Option:
    """Where one field comes from, how its text is read, and all that its users are told of it.

    `written` is the default as a user would write it. The rest is as `option` has it.
    """

    key: str | None
    flag: str | None
    help: str
    kind: OptionKind
    secret: bool
    deprecated: bool
    written: Any
    more: str
    unit: str
    live: bool
    starter: bool
    example: str
    go_default: Any
    choices: tuple[Any, ...]
    suggested: tuple[str, ...]
    least: float | None
    above: float | None
    most: float | None
    keys: tuple[str, ...]


def option(
    default: Any,
    *,
    key: str | None,
    flag: str | None = None,
    help: str,
    kind: OptionKind | None = None,
    secret: bool = False,
    deprecated: bool = False,
    more: str = "",
    unit: str = "",
    live: bool = False,
    starter: bool = False,
    example: str = "",
    go_default: Any = None,
    choices: tuple[Any, ...] = (),
    suggested: tuple[str, ...] = (),
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    keys: tuple[str, ...] = (),
) -> Any:
    """A field of a config dataclass.

    `key` is the (dotted) TOML key, `flag` the command line's name. Without a kind it is that of the default:
    a text, a number or a truth value. Others: `path` is one of this machine, not a URI, `size` becomes bytes,
    `duration` and `retention` seconds, `list` a tuple of texts, `texts` one text or such a tuple, `ints` of
    numbers or their texts, `table` a dict, `tables` a tuple of dicts (the last three only in the file;
    default None: empty; annotate a table as `Mapping`). The default may be written as a user would.

    `help` is the line of `-h`, without a full stop; `more` the sentences that the reference has after it, and
    `example` lines of TOML that it shows. `unit`: what a bare number counts, where the kind does not say it.
    `live`: a reload (SIGHUP) changes it in the running daemon. `starter`: it is in the short file that users
    copy. `deprecated`: accepted for old files, not in the help. `go_default`: what the Go program's shipped
    file has; in a file it counts as not set, and the class's field `go_defaults` names this field then.

    `choices`, `least`, `above`, `most`: what the value may be, by `check_limits`; numbers are those that the
    field holds. `suggested`: values that an editor offers, among others. `keys`: those that each table of
    `tables`, or of a `table` by names, may have; its reader refuses others.
    """
    kind = kind or _KIND_OF[type(default)]
    is_secret = secret or log.is_secret_key(key or flag or "")
    entry = Option(
        key,
        flag,
        help,
        kind,
        is_secret,
        deprecated,
        default,
        more,
        unit,
        live,
        starter,
        example,
        go_default,
        choices,
        suggested,
        least,
        above,
        most,
        keys,
    )
    if isinstance(default, str | int | float) and kind in ("size", "duration", "retention"):
        default = convert(kind, default)
    if kind in ("list", "ints") and not isinstance(default, tuple):
        default = tuple(default)
    metadata = {_METADATA: entry}
    if kind == "table":
        return dataclasses.field(
            default_factory=lambda: dict(default or {}), metadata=metadata, repr=not entry.secret
        )
    if kind == "tables":
        return dataclasses.field(default_factory=tuple, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata, repr=not entry.secret)


def options(cls: type[Any]) -> dict[str, Option]:
    """The options of a config class by field name."""
    return {
        field.name: field.metadata[_METADATA]
        for field in dataclasses.fields(cls)
        if _METADATA in field.metadata
    }


def defaults(cls: type[Any]) -> dict[str, Any]:
    """The default of each option by field name, as the field holds it."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(cls):
        if _METADATA in field.metadata:
            make = field.default_factory
            values[field.name] = field.default if make is dataclasses.MISSING else make()
    return values


def check_limits(config: Any, of: type[Any]) -> None:
    """Raise `ConfigError` for an option that the class `of` itself declares, if its value is none of its
    choices or out of its range."""
    for name, entry in options(of).items():
        if name not in of.__annotations__:
            continue
        value = getattr(config, name)
        if entry.choices:
            expected = "" if value in entry.choices else f"one of {', '.join(map(repr, entry.choices))}"
        else:
            expected = _range_missed(entry, value)
        if expected:
            shown = f"{value:g}" if isinstance(value, float) else repr(value)
            raise ConfigError(f"{entry.key or f'-{entry.flag}'} is {shown}", hint=f"it must be {expected}")


def _range_missed(entry: Option, value: Any) -> str:
    """What is expected; empty if the value is that."""
    if entry.above is not None and not value > entry.above:
        return f"at least {entry.above + 1:g}" if isinstance(value, int) else f"above {entry.above:g}"
    if entry.least is not None and not value >= entry.least:
        return f"at least {entry.least:g}"
    if entry.most is not None and not value <= entry.most:
        return f"at most {entry.most:.0f}"
    return ""


def table_notes(cls: type[Any]) -> dict[str, str]:
    """What config classes say of whole tables of the file, in their class variables `table_notes`."""
    notes: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        notes |= vars(base).get("table_notes", {})
    return notes


def variable(env_prefix: str, flag: str) -> str:
    """The environment variable that stands for a flag."""
    return f"{env_prefix.rstrip('_')}_{flag.upper().replace('-', '_')}"


_EXPECTED: Final[dict[str, str]] = {
    "str": "a text in quotes is expected",
    "path": "a path of this machine is expected, no URI",
    "texts": "a text, or a list of texts, is expected",
    "int": "a whole number is expected",
    "float": "a number is expected",
    "bool": "true or false is expected",
    "size": 'a size like "10 GiB" is expected',
    "duration": 'a duration like "1m30s" is expected',
    "retention": 'days as a whole number, or a duration like "12h", are expected',
    "list": "a list is expected",
    "ints": "a list is expected",
    "table": "a table is expected",
    "tables": "a list of tables is expected",
}


def convert(kind: OptionKind, value: Any) -> Any:
    """A file's (or default's) value as the field holds it; `ValueError` says what is expected."""
    expected = _EXPECTED[kind]
    is_int = isinstance(value, int) and not isinstance(value, bool)
    if kind == "str" and isinstance(value, str):
        return value
    if kind == "path" and isinstance(value, str) and not re.match(URI, value):
        return value
    if kind == "texts" and isinstance(value, str):
        return value
    if kind == "texts" and isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    if kind == "int" and is_int:
        return value
    if kind == "float" and (is_int or isinstance(value, float)):
        return _finite(float(value))
    if kind == "bool" and isinstance(value, bool):
        return value
    if kind == "size" and (is_int or isinstance(value, str)):
        return quantities.size_bytes(value)
    if kind == "duration" and (is_int or isinstance(value, str | float)):
        return quantities.duration_s(value)
    if kind == "retention" and (is_int or isinstance(value, str)):
        return quantities.retention_s(value)
    if kind in ("list", "ints") and isinstance(value, list):
        if kind == "ints" and not all(isinstance(item, str | int) for item in value):
            raise ValueError("a list of texts or whole numbers is expected")
        if kind == "list" and not all(isinstance(item, str) for item in value):
            raise ValueError("a list of texts is expected")
        return tuple(value)
    if kind == "table" and isinstance(value, dict):
        return value
    if kind == "tables" and isinstance(value, list) and all(isinstance(item, dict) for item in value):
        return tuple(value)
    raise ValueError(expected)


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(_EXPECTED["float"])
    return value


def convert_text(kind: OptionKind, text: str) -> Any:
    """A value given on the command line or in the environment."""
    if kind == "bool":
        if text in _TRUE or text in _FALSE:
            return text in _TRUE
        raise ValueError(_EXPECTED["bool"])
    if kind in ("int", "float"):
        try:
            return int(text, 0) if kind == "int" else _finite(float(text))
        except ValueError:
            raise ValueError(_EXPECTED[kind]) from None
    if kind == "list":
        return tuple(item.strip() for item in text.split(",") if item.strip())
    if kind in ("ints", "table", "tables"):
        raise ValueError("this can only be set in the file")
    return convert(kind, text)

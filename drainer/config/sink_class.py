"""Sink class: the class behind `db-type = "python:package.module:Class"`, or the name of an entry point.

Out    the class, once it is known that it can be used: what it is called with fits its methods, and it takes
       its options. `ConfigError` in one line otherwise
Holds  two kinds of classes: batch sinks (`drainer.sink.batch.protocol`), and those that implement the whole
       port (`drainer.sink`), which are known by their method `take`
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from tidb_binlog.errors import ConfigError
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.observe.printable import one_line
from tidb_binlog.similar import similar

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints

PREFIX: Final = "python:"
GROUP: Final = "tidb_binlog.sinks"
KEY: Final = "syncer.db-type"
BATCH_METHODS: Final[Mapping[str, tuple[str, ...]]] = {
    "write": ("items", "position"),
    "open": (),
    "close": (),
}
"""What a batch sink is called with; `write` alone is needed."""
PORT_METHODS: Final[Mapping[str, tuple[str, ...]]] = {
    "take": ("transaction",),
    "take_ddl": ("ddl",),
    "watermark": ("ts",),
    "flush": (),
    "ready": (),
    "save": (),
}
"""What the port needs; of `finish` and `close` the arguments have names."""
PORT_ENDS: Final[Mapping[str, str]] = {"finish": "broken", "close": "finished"}


@dataclass(frozen=True, slots=True)
class SinkClass:
    """`name` is as an operator wrote it, without the prefix. `is_port`: it implements the whole port."""

    name: str
    of: type[Any]
    is_port: bool


def names() -> list[str]:
    """Of the sinks that installed packages bring."""
    return sorted({entry.name for entry in _installed()})


def find(db_type: str) -> SinkClass | None:
    """None for a name that nobody brings. Raises `ConfigError`."""
    if db_type.startswith(PREFIX):
        name = db_type.removeprefix(PREFIX)
        return _checked(name, _loaded(name))
    entries = [entry for entry in _installed() if entry.name == db_type]
    if len({entry.value for entry in entries}) > 1:
        raise ConfigError(
            f"{KEY} {db_type} is brought by {len(entries)} packages: {', '.join(map(_origin, entries))}",
            hint=f'name the class: {KEY} = "{PREFIX}package.module:Class"',
        )
    return _checked(db_type, _loaded(entries[0].value)) if entries else None


def check_options(sink: SinkClass, options: Mapping[str, Any]) -> None:
    """A batch sink takes its options, or says what is wrong with them. Raises `ConfigError`."""
    if sink.is_port:
        return
    try:
        sink.of(dict(options))
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(
            f"the sink {sink.name} does not take its options: {_words(error)}",
            hint="correct [syncer.to.options]",
        ) from None


def _installed() -> EntryPoints:
    from importlib.metadata import entry_points  # for a sink that is not ours alone

    return entry_points(group=GROUP)


def _origin(entry: EntryPoint) -> str:
    return f"{entry.dist.name if entry.dist else '?'} ({entry.value})"


def _loaded(name: str) -> Any:
    module_name, _, class_name = name.partition(":")
    if not (class_name.isidentifier() and all(part.isidentifier() for part in module_name.split("."))):
        raise ConfigError(f"{KEY} is {PREFIX}{name}", hint=f'write "{PREFIX}package.module:Class"')
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        is_missing = isinstance(error, ModuleNotFoundError) and module_name.startswith(str(error.name))
        raise ConfigError(
            f"the sink {name} cannot be imported: {_words(error)}",
            hint="install its package beside the drainer, or name its directory in PYTHONPATH"
            if is_missing
            else f"correct {module_name}; `python -c 'import {module_name}'` shows more",
        ) from None
    loaded = getattr(module, class_name, None)
    if loaded is None:
        near = similar(class_name, vars(module))
        raise ConfigError(
            f"{module_name} has no class {class_name}",
            hint=f"did you mean {near}?" if near else f"correct {KEY}",
        )
    return loaded


def _checked(name: str, sink: Any) -> SinkClass:
    if not isinstance(sink, type):
        raise ConfigError(
            f"the sink {name} is no class, but of type {type(sink).__name__}", hint=f"correct {KEY}"
        )
    is_port = hasattr(sink, "take")
    if is_port:
        for method, keyword in PORT_ENDS.items():
            _check_method(name, sink, method, (), (keyword,))
        for method, arguments in PORT_METHODS.items():
            _check_method(name, sink, method, arguments)
    else:
        for method, arguments in BATCH_METHODS.items():
            if method == "write" or hasattr(sink, method):
                _check_method(name, sink, method, arguments)
        _check_attributes(name, sink)
    _check_method(name, sink, "__init__", ("context",) if is_port else ("options",))
    return SinkClass(name, sink, is_port)


def _check_method(
    name: str, sink: type[Any], method: str, arguments: tuple[str, ...], keywords: tuple[str, ...] = ()
) -> None:
    function = getattr(sink, method, None)
    call = f"{method}({', '.join((*arguments, *(f'{keyword}=...' for keyword in keywords)))})"
    if not callable(function):
        raise ConfigError(f"the sink {name} has no method {call}", hint="docs/sinks.md says what it needs")
    try:
        inspect.signature(function).bind(None, *arguments, **dict.fromkeys(keywords))
    except TypeError as error:
        raise ConfigError(
            f"the sink {name} cannot be called with {call}: {error}", hint="docs/sinks.md says what it needs"
        ) from None


def _check_attributes(name: str, sink: type[Any]) -> None:
    for attribute in ("batch_rows", "batch_bytes"):
        value = getattr(sink, attribute, 1)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ConfigError(
                f"{attribute} of the sink {name} is {value!r}", hint="a whole number from 1 on is expected"
            )
    retriable = getattr(sink, "retriable", ())
    if not isinstance(retriable, tuple) or not all(
        isinstance(kind, type) and issubclass(kind, BaseException) for kind in retriable
    ):
        raise ConfigError(
            f"retriable of the sink {name} is {retriable!r}", hint="a tuple of exception classes is expected"
        )


def _words(error: BaseException) -> str:
    return one_line(f"{type(error).__name__}: {error}")

"""What the signatures of a library's public names show is public: a program can write down the type of
whatever it is given or has to give.

Walked are functions; a class's fields, properties and methods; its constructor, unless its docstring says
what makes it. Of a class that the foundation (`tidb_binlog`) lends only fields and constructor count: its
methods are for the daemons.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
import typing
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any

import pytest

OWN = ("tidb_binlog", "pumpclient", "drainer", "pump")
NONE_BELONGS = ("tidb_binlog.tso", "tidb_binlog.wire.")
"""`Ts` is a plain number."""


@cache
def names_for_types(module: str) -> dict[str, Any]:
    """Those of a module, with what it imports for type checkers alone."""
    loaded = sys.modules[module]
    names = dict(vars(loaded))
    for block in ast.parse(inspect.getsource(loaded)).body:
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING":
            for statement in block.body:
                if isinstance(statement, ast.ImportFrom):
                    source = importlib.import_module(statement.module or "")
                    names |= {
                        alias.asname or alias.name: getattr(source, alias.name) for alias in statement.names
                    }
                elif isinstance(statement, ast.Import):
                    names |= {
                        alias.asname or alias.name: importlib.import_module(alias.name)
                        for alias in statement.names
                    }
    return names


def classes(shown: Any) -> Iterator[type]:
    """Those of this project in a type."""
    if isinstance(shown, (list, tuple)):
        for part in shown:
            yield from classes(part)
    elif (origin := typing.get_origin(shown)) is not None:
        yield from classes(origin)
        yield from classes(typing.get_args(shown))
    elif isinstance(shown, type) and shown.__module__.partition(".")[0] in OWN:
        yield shown


def signatures(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Everything with types that a name shows."""
    if not isinstance(value, type):
        yield name, value
        return
    lent = value.__module__.startswith("tidb_binlog.")
    for each in value.__mro__:
        if each.__module__.partition(".")[0] in OWN and vars(each).get("__annotations__"):
            yield name, each
    made = "Made by" in (inspect.getdoc(value) or "")
    for member in dir(value):
        if member.startswith("_") and (member != "__init__" or made):
            continue
        if lent and member != "__init__":
            continue
        function = inspect.getattr_static(value, member)
        function = (
            function.fget if isinstance(function, property) else getattr(function, "__func__", function)
        )
        if inspect.isfunction(function) and function.__module__.partition(".")[0] in OWN:
            yield f"{name}.{member}", function


def hidden(library: ModuleType) -> Iterator[str]:
    """Each place that shows a class which the library does not export."""
    public = {name: getattr(library, name) for name in library.__all__}
    for name, value in public.items():
        for place, shown in signatures(name, value):
            types = inspect.get_annotations(shown)
            names = names_for_types(shown.__module__)
            for part, text in types.items():
                if part.startswith("_"):
                    continue
                scope = names | {each.__name__: each for each in getattr(shown, "__type_params__", ())}
                whole = eval(text, scope) if isinstance(text, str) else text
                for each in classes(whole):
                    if each not in public.values() and not each.__module__.startswith(NONE_BELONGS):
                        yield f"{place}: {part} is of {each.__module__}.{each.__name__}"


@pytest.mark.parametrize("library", ["drainer", "pumpclient"])
def test_what_signatures_show_is_public(library: str) -> None:
    assert sorted(set(hidden(importlib.import_module(library)))) == []

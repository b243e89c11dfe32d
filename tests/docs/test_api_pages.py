"""The API reference names all that is public, once, and each of it says what it is."""

from __future__ import annotations

import importlib
import inspect
import re
from collections import Counter
from types import ModuleType
from typing import Any

import drainer
import pumpclient
from tests.architecture.source import ROOT
from tests.cases import case

PAGES = {path.name: path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs" / "api").glob("*.md"))}
NAMED = Counter(name for text in PAGES.values() for name in re.findall(r"^::: (\S+)$", text, re.M))
PUBLIC = {f"{package.__name__}.{name}" for package in (drainer, pumpclient) for name in package.__all__}


def found(name: str) -> Any:
    """A module, or what a module has."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        module, _, last = name.rpartition(".")
        return getattr(importlib.import_module(module), last)


def undocumented(cls: type[Any]) -> list[str]:
    """Public methods and properties of its own without a docstring; a test's name says what it is."""
    missing = []
    for name, value in vars(cls).items():
        function = getattr(value, "fget", None) or getattr(value, "__func__", value)
        if not name.startswith(("_", "test_")) and inspect.isfunction(function) and not function.__doc__:
            missing.append(name)
    return missing


def test_every_public_name_is_in_one_page() -> None:
    assert PUBLIC - set(NAMED) == set()
    assert {name for name, times in NAMED.items() if times > 1} == set()
    assert "mkdocstrings:" in (ROOT / "mkdocs.yml").read_text()


def test_what_is_named_is_there_and_has_a_docstring() -> None:
    for name in sorted(NAMED):
        with case(name):
            thing = found(name)
            told = thing.__doc__ or ""
            # a dataclass without a docstring is given its signature as one
            assert told.strip(), name
            assert not told.startswith(f"{name.rpartition('.')[2]}("), name
            if inspect.isclass(thing):
                assert undocumented(thing) == []
            elif not isinstance(thing, ModuleType):
                assert callable(thing)

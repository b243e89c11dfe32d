"""What no program uses is not kept for its tests: each function, class and method is named by code or docs.

By name alone, so that of two with one name neither is found. Not asked for are members that a library calls
(its class has them), members of public classes, and the playground, which the rig (`tests/rig`) extends.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.architecture.source import PACKAGES, ROOT, Module, modules

WORD = re.compile(r"[A-Za-z_]\w+")
PUBLIC = ("pumpclient", "pumpclient.testing", "drainer", "drainer.testing", "binlog_testing")
ASKED_BY_TESTS_OF_BOUNDS = {"receive_held", "send_queued"}
"""Sums of `door.limits.Budget`: every test of a limit looks that nothing is left."""


def used(tree: ast.AST) -> Iterator[str]:
    """Names that code uses; also words of texts, by which some are looked up, but not of docstrings."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.keyword(arg=str(name)):
                yield name
            case ast.Constant(value=str(text)) if id(node) not in docstrings:
                yield from WORD.findall(text)


def defined(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Class, "" outside of one, and name."""
    for owner in (tree, *(node for node in tree.body if isinstance(node, ast.ClassDef))):
        for node in owner.body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield owner.name if isinstance(owner, ast.ClassDef) else "", node.name


@cache
def public_names() -> frozenset[str]:
    packages = [importlib.import_module(package) for package in PUBLIC]
    return frozenset(name for package in packages for name in getattr(package, "__all__", vars(package)))


def is_of_others(module: Module, owner: str, name: str) -> bool:
    """Whether a program of others names it: a member of a public class, or one that a library's class has."""
    if any(each in public_names() for each in (owner, name)):
        return True
    bases = getattr(importlib.import_module(module.name), owner).__mro__[1:] if owner else ()
    return any(name in vars(base) for base in bases if base.__module__.partition(".")[0] not in PACKAGES)


def pages() -> Iterator[Path]:
    for folder in ("docs", "examples", "tools"):
        yield from (ROOT / folder).rglob("*.md")
        yield from (ROOT / folder).rglob("*.py")


def test_what_no_program_uses_is_not_there() -> None:
    names = {word for path in pages() for word in WORD.findall(path.read_text())}
    where = defaultdict(list)
    for module in modules():
        names.update(used(module.tree))
        if not module.name.startswith("binlog_playground"):
            for owner, name in defined(module.tree):
                where[name].append((module, owner))
    dead = [
        f"{module.name}.{owner}.{name}"
        for name in where.keys() - names - ASKED_BY_TESTS_OF_BOUNDS
        for module, owner in where[name]
        if not name.startswith(("__", "test_")) and not is_of_others(module, owner, name)
    ]
    assert not dead, "\n".join(sorted(dead))

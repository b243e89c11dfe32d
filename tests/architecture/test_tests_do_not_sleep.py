"""Tests that start no processes wait for no time: they look again by `tests.waiting`, or time is virtual."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from tests.architecture.source import ROOT, Module, modules_of_tests

REAL = {"integration", "crash", "rig", "benchmarks"}
"""Rooms of real processes."""
WAITS = ("tests.waiting", "tests.fakes")
PASSES = re.compile(r"sleep\((?!0\))")
SLEEPS = {"time.sleep", "asyncio.sleep", "sleep"}


def test_only_tests_of_real_processes_sleep() -> None:
    wrong = [
        f"{module.path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"
        for module in modules_of_tests()
        if PASSES.search(module.text) and module.room not in REAL and not module.name.startswith(WAITS)
        for node in sleeps(module.tree)
        if not is_real(module, frozenset())
    ]
    assert not wrong, "\n".join(wrong)


def is_real(module: Module, above: frozenset[str]) -> bool:
    """Whether all of it stands in such a room or has the marker, or only such modules import it."""
    if module.room in REAL or is_marked(module.tree.body):
        return True
    if module.path.name.startswith(("test_", "conftest")):
        return False
    users = [other for other in users_of(module.name) if other.name not in above]
    return bool(users or above) and all(is_real(other, above | {module.name}) for other in users)


@cache
def users_of(name: str) -> tuple[Module, ...]:
    package, _, last = name.rpartition(".")
    likely = (other for other in modules_of_tests() if package in other.text and last in other.text)
    return tuple(other for other in likely if other.name != name and name in other.imports())


def is_marked(body: list[ast.stmt]) -> bool:
    return any(
        isinstance(statement, ast.Assign)
        and ast.unparse(statement.targets[0]) == "pytestmark"
        and "pytest.mark.integration" in ast.unparse(statement.value)
        for statement in body
    )


def sleeps(node: ast.AST) -> Iterator[ast.Call]:
    """Calls in which time passes, but those of a test that has the marker."""
    for child in ast.iter_child_nodes(node):
        decorators = getattr(child, "decorator_list", ())
        if any("pytest.mark.integration" in ast.unparse(decorator) for decorator in decorators):
            continue
        if isinstance(child, ast.Call) and _name(child) in SLEEPS and not is_zero(child):
            yield child
        yield from sleeps(child)


def _name(call: ast.Call) -> str:
    return ast.unparse(call.func) if isinstance(call.func, ast.Attribute | ast.Name) else ""


def is_zero(call: ast.Call) -> bool:
    return isinstance(argument := call.args[0], ast.Constant) and argument.value == 0


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("async def f(): await asyncio.sleep(0)", 0),
        ("async def f(): await asyncio.sleep(0.01)", 1),
        ("def f():\n    while not x: time.sleep(POLL_S)", 1),
        ("@pytest.mark.integration\ndef test_it(): time.sleep(1)", 0),
        ("patch.setattr(asyncio, 'sleep', other)", 0),
    ],
)
def test_what_a_sleep_is(text: str, count: int) -> None:
    assert len(list(sleeps(ast.parse(text)))) == count

"""What a DDL job does is written by name (`ActionType`), never as a number: codes say nothing to a reader."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

import pytest

from tests.architecture.source import modules

CODES = "tidb_binlog.ddl_job"
CODES_END = 100
ACTIONS = ("action", "ddl_action")
ASKS = re.compile(rf"{CODES.rpartition('.')[2]}|action", re.I)
"""What a text has that names one; others need not be parsed."""
OTHER_NUMBERS = ("_TAG_", "_JAVA_")
"""Beginnings of constants in modules about jobs that are numbers of something else."""


def is_code(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int and 0 <= node.value < CODES_END


def is_action(node: ast.AST) -> bool:
    """`action`, `ddl.action`, `job.action`, `head.action` and their like."""
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name.lower().lstrip("_") in ACTIONS


def codes_in(node: ast.AST | None, constants: Mapping[str, ast.AST]) -> Iterator[ast.AST]:
    """Codes that an expression is or consists of: by a constant's name, in a set or tuple, as keys."""
    if is_code(node):
        assert node is not None
        yield node
    elif isinstance(node, ast.Name) and node.id in constants:
        yield from codes_in(constants[node.id], {})
    elif isinstance(node, ast.Tuple | ast.List | ast.Set):
        parts = [list(codes_in(one, constants)) for one in node.elts]
        yield from (code for part in parts for code in part) if all(parts) else ()
    elif isinstance(node, ast.Dict):
        for one in (*node.keys, *node.values):
            yield from codes_in(one, constants)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        if node.func.id in ("frozenset", "set", "tuple", "range"):
            for one in node.args:
                yield from codes_in(one, constants)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub | ast.BitOr):
        for side in (node.left, node.right):
            yield from () if is_code(side) else codes_in(side, constants)


def assigned(tree: ast.Module) -> dict[str, ast.AST]:
    """Constants of a module by name."""
    found: dict[str, ast.AST] = {}
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else ()
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            targets = [node.target]
        for target in targets:
            assert isinstance(node, ast.Assign | ast.AnnAssign)
            assert node.value is not None
            if isinstance(target, ast.Name):
                found[target.id] = node.value
            elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                for one, value in zip(target.elts, node.value.elts, strict=True):
                    if isinstance(one, ast.Name):
                        found[one.id] = value
    return found


def asked(tree: ast.Module) -> Iterator[ast.AST]:
    """Codes with which an action is compared, under which it is looked up, or that are given as one."""
    constants = assigned(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = (node.left, *node.comparators)
            if any(map(is_action, sides)):
                for side in sides:
                    yield from codes_in(side, constants)
        elif isinstance(node, ast.Subscript) and is_action(node.slice):
            yield from codes_in(node.value, constants)
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and any(map(is_action, node.args)):
                yield from codes_in(node.func.value, constants)
            for word in node.keywords:
                if word.arg in ACTIONS:
                    yield from codes_in(word.value, constants)
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("action"):
            for inner in ast.walk(node):
                if isinstance(inner, ast.Return):
                    value = inner.value
                    yield from codes_in(value.body if isinstance(value, ast.IfExp) else value, constants)


def tables(tree: ast.Module) -> Iterator[ast.AST]:
    """Codes in sets, tuples and dictionaries that a module has as constants."""
    for name, value in assigned(tree).items():
        if not is_code(value) and not name.startswith(OTHER_NUMBERS):
            yield from codes_in(value, {})


def bare_codes(tree: ast.Module, *, of_jobs: bool) -> list[int]:
    found = [*asked(tree), *(tables(tree) if of_jobs else ())]
    return sorted({node.lineno for node in found})  # type: ignore[attr-defined]


def test_no_bare_action_codes() -> None:
    wrong = {
        module.name: lines
        for module in modules()
        if module.name != CODES
        if ASKS.search(module.text)
        if (lines := bare_codes(module.tree, of_jobs=CODES in module.imports()))
    }
    assert not wrong, "numbers where ActionType has names"


@pytest.mark.parametrize(
    "text",
    [
        "if ddl.action == 3: pass",
        "if job.action in (5, 6): pass",
        "Ddl(1, action=4)",
        "def action_of(query):\n    return 11 if query else 0",
        "_CREATE, _DROP = 3, 4\nif ddl.action == _DROP: pass",
        "_CREATE, _DROP = 3, 4\nif ddl.action in (_CREATE, _DROP): pass",
        "_DROPS = frozenset({4, 24})",
        "_UPDATES: Final = frozenset(range(5, 68)) - frozenset((11, 14))",
        "_ACTIONS = {('CREATE', 'TABLE'): 3}",
        "_WHY = {27: 'locks'}\n_WHY.get(action)",
        "_WHY = {27: 'locks'}\n_WHY[ddl.action]",
        "RESTORED: Final = 60\nwhat = ENDS if statement.action == RESTORED else EMPTIES",
    ],
)
def test_it_finds_codes(text: str) -> None:
    assert bare_codes(ast.parse(text), of_jobs=True)

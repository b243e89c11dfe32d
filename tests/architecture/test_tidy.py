"""Rooms stay small and have names that say what they hold."""

from __future__ import annotations

import ast

import pytest

from tests.architecture.source import Module, modules

LINES_MAX = 450
FUNCTION_LINES_MAX = 75
BANNED = {"utils", "util", "helpers", "helper", "misc", "base", "manager", "types", "common_types"}


@pytest.mark.parametrize("module", modules(), ids=lambda module: module.name)
def test_tidy(module: Module) -> None:
    assert module.name.rpartition(".")[2] not in BANNED
    assert module.lines <= LINES_MAX, f"{module.name} has {module.lines} lines"
    if module.lines:
        assert ast.get_docstring(module.tree), f"{module.name} does not say what it is"
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            assert lines <= FUNCTION_LINES_MAX, f"{module.name}.{node.name} has {lines} lines"

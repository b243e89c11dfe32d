"""Tests do not lean on each other: what several modules need lies in modules that hold no tests."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.source import ROOT


def trees(named: str) -> Iterator[tuple[Path, ast.Module]]:
    """Those modules whose text has it; others need not be parsed."""
    for path in sorted((ROOT / "tests").rglob("*.py")):
        text = path.read_text()
        if re.search(named, text, re.M):
            yield path, ast.parse(text)


def imported(node: ast.AST) -> Iterator[str]:
    """Each name that an import statement may load as a module."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "tests":
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_only_one_place_takes_modules_away() -> None:
    """What is done by hand leaves packages without their modules for a test of elsewhere."""
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path, tree in trees("sys.modules")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("monkeypatch.")
        if [ast.unparse(argument) for argument in node.args[:1]] == ["sys.modules"]
        if path.name != "missing.py"
    ]
    assert not wrong, "\n".join(wrong)


def test_nothing_is_imported_from_a_module_of_tests() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {name}"
        for path, tree in trees(r"^ *(from tests|import tests)\b.*\btest_|^ *from tests\b[\w. ]*import \(")
        for node in ast.walk(tree)
        for name in imported(node)
        if name.startswith("tests.") and any(part.startswith("test_") for part in name.split("."))
    ]
    assert not wrong, "\n".join(wrong)

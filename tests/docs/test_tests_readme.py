"""tests/README.md: it has every room, fixture and place that there is, and names nothing that is not."""

from __future__ import annotations

import ast
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.architecture.source import ROOT

TESTS = ROOT / "tests"
PAGE = (TESTS / "README.md").read_text()
NAMES = set(re.findall(r"`([^`\n]+)`", PAGE))
CONFTESTS = (*sorted(TESTS.rglob("conftest.py")), TESTS / "downstreams.py")


def fixtures(path: Path) -> list[str]:
    """Those that a test asks for by name."""
    return [
        node.name
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and not node.name.startswith("_")
        and any(ast.unparse(decorator).startswith("pytest.fixture") for decorator in node.decorator_list)
    ]


@pytest.mark.parametrize("path", CONFTESTS, ids=lambda path: str(path.relative_to(TESTS)))
def test_each_fixture_is_named_with_its_room(path: Path) -> None:
    room = str(path.parent.relative_to(TESTS))
    for name in fixtures(path):
        rows = [line for line in PAGE.splitlines() if f"`{name}`" in line and line.startswith("|")]
        assert any(room == "." or f"`{room}`" in row for row in rows), f"{name} of {room}"


def test_each_room_and_each_place_to_build_on_is_named() -> None:
    rooms = {path.name for path in TESTS.iterdir() if path.is_dir() and not path.name.startswith("_")}
    folders = {str(path.relative_to(ROOT)) for path in TESTS.rglob("support") if any(path.glob("*.py"))}
    assert rooms - {"fakes"} <= NAMES
    assert folders | {"tests/fakes"} <= NAMES


def test_what_is_named_is_there() -> None:
    paths = [name for name in re.findall(r"\btests/[\w/.*]+", PAGE) if "*" not in name]
    absent = [name for name in paths if not (ROOT / name).exists()]
    modules = [name.removeprefix("python -m ") for name in NAMES if name.startswith("python -m tests")]
    absent += [name for name in modules if find_spec(name) is None]
    assert paths
    assert modules
    assert not absent


def test_markers_are_those_of_the_project() -> None:
    settings = (ROOT / "pyproject.toml").read_text()
    (markers,) = re.findall(r"^markers = \[\n(.*?)^\]", settings, re.M | re.S)
    assert re.findall(r'"(\w+):', markers) == ["integration"]
    assert "There is one marker, `integration`" in PAGE

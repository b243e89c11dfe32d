"""Modules and folders stay small, have names that say what they hold, and their tests are found by path."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.architecture.source import PACKAGES, ROOT, Module, modules

LINES_MAX = 450
FUNCTION_LINES_MAX = 75
MODULES_MAX = 20  # of one folder
TESTS_LINE = re.compile(r"^Tests\s+(\S.*)$", re.MULTILINE)
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


def folders() -> list[Path]:
    """Every folder with modules, of the product and of the tests."""
    files = [path for top in (*PACKAGES, "tests") for path in (ROOT / top).rglob("*.py")]
    return sorted({path.parent.relative_to(ROOT) for path in files})


@pytest.mark.parametrize("folder", folders(), ids=str)
def test_folders_are_small(folder: Path) -> None:
    written = [path for path in (ROOT / folder).glob("*.py") if not path.name.startswith("__init__")]
    assert len(written) <= MODULES_MAX, f"{folder} has {len(written)} modules"


def mirrored(module: Module) -> Path:
    """Where the test of a module stands, without `test_` and the ending: tests/spark for drainer/spark."""
    parts = module.path.relative_to(ROOT).with_suffix("").parts
    return Path("tests", *(("spark", *parts[2:]) if parts[:2] == ("drainer", "spark") else parts))


@pytest.mark.parametrize(
    "module",
    [one for one in modules() if not one.path.name.startswith("__")],
    ids=lambda module: module.name,
)
def test_the_test_of_a_module_is_found(module: Module) -> None:
    """By the module's path, or by the line `Tests` of its docstring."""
    place = mirrored(module)
    folder = ROOT / place.parent
    if (folder / f"test_{place.name}.py").exists() or any(folder.glob(f"test_{place.name}_*.py")):
        return
    line = TESTS_LINE.search(ast.get_docstring(module.tree) or "")
    assert line, f"{module.name}: neither {place.parent}/test_{place.name}.py nor a line `Tests  PATH`"
    for path in line.group(1).split(","):
        assert (ROOT / path.strip()).is_file(), f"{module.name}: its tests {path.strip()} do not exist"


@pytest.mark.parametrize("module", modules(), ids=lambda module: module.name)
def test_a_logger_s_name_does_not_hang_on_its_file(module: Module) -> None:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("log.get", "logging.getLogger"):
            assert "__name__" not in ast.unparse(node), f"{module.name}: operators filter by a logger's name"

"""Modules and folders stay small, have names that say what they hold, and their tests are found by path."""

from __future__ import annotations

import ast
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.source import PACKAGES, ROOT, Module, modules

LINES_MAX = 700
FUNCTION_LINES_MAX = 75
MODULES_MAX = 20  # of one folder
TESTS_LINE = re.compile(r"^Tests\s+(\S.*)$", re.MULTILINE)
BANNED = {"utils", "util", "helpers", "helper", "misc", "base", "manager", "types", "common_types"}
SAY_NOTHING = {"found", "one", "known", "made", "wanted", "there"}
NAMES_NOTHING = re.compile(rf"\b({'|'.join(SAY_NOTHING)})\b")
SAY_NOTHING_MAX = 5  # keys of log lines, which operators filter by


def test_modules_and_functions_are_small_and_say_what_they_are() -> None:
    wrong = [line for module in modules() for line in untidy(module)]
    assert not wrong, "\n".join(wrong)


def untidy(module: Module) -> Iterator[str]:
    if module.name.rpartition(".")[2] in BANNED:
        yield f"{module.name}: a name that says nothing"
    if module.lines > LINES_MAX:
        yield f"{module.name} has {module.lines} lines"
    if module.lines and not ast.get_docstring(module.tree):
        yield f"{module.name} does not say what it is"
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                yield f"{module.name}.{node.name} has {lines} lines"


def test_names_say_what_a_value_is() -> None:
    """Not that it was found, or is one of several: `transaction`, `seen_tables`."""
    uses = [use for module in modules() for use in says_nothing(module)]
    assert len(uses) <= SAY_NOTHING_MAX, "\n".join(uses)


def says_nothing(module: Module) -> Iterator[str]:
    if not NAMES_NOTHING.search(module.text):
        return
    with module.path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type == tokenize.NAME and token.string in SAY_NOTHING:
                yield f"{module.path.relative_to(ROOT)}:{token.start[0]}: {token.line.strip()}"


def test_folders_are_small() -> None:
    files = [path for top in (*PACKAGES.values(), ROOT / "tests") for path in top.rglob("*.py")]
    counts = Counter(path.parent for path in files if not path.name.startswith("__init__"))
    wrong = [f"{folder} has {count} modules" for folder, count in counts.items() if count > MODULES_MAX]
    assert not wrong, "\n".join(wrong)


def mirrored(module: Module) -> Path:
    """Where the test of a module stands, without `test_` and the ending: tests/spark for drainer/spark."""
    parts = module.path.relative_to(ROOT).with_suffix("").parts
    if parts[:2] == ("drainer", "spark"):
        return Path("tests", "spark", *parts[2:])
    return Path("tests", *(part for part in parts if part != "tidb_binlog"))


def test_the_test_of_a_module_is_found() -> None:
    """By the module's path, or by the line `Tests` of its docstring."""
    wrong = [f"{module.name}: {line}" for module in modules() if (line := no_test(module))]
    assert not wrong, "\n".join(wrong)


def no_test(module: Module) -> str:
    place = mirrored(module)
    folder = ROOT / place.parent
    if module.path.name.startswith("__") or (folder / f"test_{place.name}.py").exists():
        return ""
    if any(folder.glob(f"test_{place.name}_*.py")):
        return ""
    line = TESTS_LINE.search(ast.get_docstring(module.tree) or "")
    if line is None:
        return f"neither {place.parent}/test_{place.name}.py nor a line `Tests  PATH`"
    gone = [path.strip() for path in line.group(1).split(",") if not (ROOT / path.strip()).is_file()]
    return f"its tests {', '.join(gone)} do not exist" if gone else ""


def test_a_logger_s_name_does_not_hang_on_its_file() -> None:
    """Operators filter by it."""
    for module in modules():
        for node in module.nodes if "__name__" in module.text else ():
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("log.get", "logging.getLogger"):
                assert "__name__" not in ast.unparse(node), module.name

"""Sessions raise errors of the project: to catch those of PyMySQL catches nothing, and only a race shows it.

Tests and examples are searched, too: a test that waits for a table meets the error on slow machines alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.architecture.source import PACKAGES, ROOT

CLIENT = "pymysql"
ADAPTERS = ("drainer/mysql/connection.py", "tests/sim/downstream.py")  # below which no error is of ours


def dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def caught(source: str) -> Iterator[str]:
    """`class:line` of every handler in a module that is for an error of PyMySQL."""
    tree = ast.parse(source)
    names = {CLIENT}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == CLIENT:
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {a.asname for a in node.names if a.asname and a.name.split(".")[0] == CLIENT}
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and node.type is not None:
            for one in node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]:
                if dotted(one).split(".")[0] in names:
                    yield f"{dotted(one)}:{node.lineno}"


def test_nobody_else_catches_errors_of_pymysql() -> None:
    folders = [*PACKAGES.values(), ROOT / "examples", ROOT / "tests"]
    found = {
        str(path.relative_to(ROOT)): errors
        for path in sorted(path for folder in folders for path in folder.rglob("*.py"))
        if str(path.relative_to(ROOT)) not in ADAPTERS
        and CLIENT in (source := path.read_text())
        and (errors := list(caught(source)))
    }
    assert not found, found


@pytest.mark.parametrize(
    "handler", ["pymysql.err.MySQLError", "(OSError, pymysql.Error)", "err.MySQLError", "MySQLError"]
)
def test_a_handler_is_found(handler: str) -> None:
    imports = "import pymysql\nfrom pymysql import err\nfrom pymysql.err import MySQLError\n"
    assert list(caught(f"{imports}try:\n    pass\nexcept {handler}:\n    pass\n"))

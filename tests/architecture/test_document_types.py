"""msgspec reads into a type that is `ready`, on whichever thread: another may end the process there."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.architecture.source import modules


def wrong(tree: ast.Module) -> Iterator[int]:
    """Lines that read into a type which another thread may have begun to use."""
    at_import = {id(node) for node in outside_functions(tree)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        if not name.startswith("msgspec."):
            continue
        if name.endswith(".Decoder"):
            is_ready = id(node) in at_import
        elif name.endswith((".decode", ".convert")):
            form = next((each.value for each in node.keywords if each.arg == "type"), None)
            form = form or (node.args[1] if len(node.args) > 1 else None)
            is_ready = form is None or (isinstance(form, ast.Call) and ast.unparse(form.func) == "ready")
        else:
            is_ready = True
        if not is_ready:
            yield node.lineno


def outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from outside_functions(child)


def test_each_type_is_ready() -> None:
    found = {
        module.name: lines
        for module in modules()
        if module.name != "tidb_binlog.foreign_document"
        if "msgspec" in module.text
        if (lines := list(wrong(module.tree)))
    }
    assert not found, found


@pytest.mark.parametrize(
    ("source", "is_wrong"),
    [
        ("msgspec.convert(x, Form)", True),
        ("msgspec.json.decode(x, type=Form)", True),
        ("def f(): return msgspec.json.Decoder(Form)", True),
        ("read = msgspec.json.Decoder(Form).decode", False),
        ("msgspec.convert(x, ready(Form))", False),
        ("msgspec.json.decode(x)", False),
    ],
)
def test_what_is_wrong_is_seen(source: str, is_wrong: bool) -> None:
    assert bool(list(wrong(ast.parse(source)))) is is_wrong

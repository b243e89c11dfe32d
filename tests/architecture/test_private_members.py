"""Private members of the product's objects are named by the tests of their own module alone.

What another module's test reaches for by a name with `_` breaks when that name changes, and shows what no
program sees. The tests of a module are those that its line `Tests` names, and those that have its own name:
`door/server/listener.py` has `test_listener.py` and `test_listener_limits.py`.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache

from tests.architecture.source import ROOT, Module, modules, modules_of_tests

REACHES = re.compile(r"(?<!self)(?<!cls)\._[a-z]|import .*\b_[a-z]|^    _[a-z]\w+,$", re.I | re.M)
"""What a text has that names one; others need not be parsed."""
NAMED_TUPLE = {"_replace", "_asdict", "_fields", "_make"}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in NAMED_TUPLE


def defined_in(module: Module) -> Iterator[str]:
    """Functions, classes, variables and attributes, however deep."""
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


@cache
def definers() -> dict[str, set[Module]]:
    """The product's modules by the private names that they define."""
    found = defaultdict(set)
    for module in modules():
        for name in filter(is_private, defined_in(module)):
            found[name].add(module)
    return found


@cache
def own_tests(module: Module) -> re.Pattern[str]:
    """Paths of a module's own tests."""
    parts = module.path.relative_to(ROOT).with_suffix("").parts
    *rooms, stem = ("common", *parts[2:]) if parts[0] == "common" else parts
    named = re.findall(r"tests/[\w/]+(?:\.py)?", ast.get_docstring(module.tree) or "")
    ours = rf"tests/{'/'.join(rooms)}/test_{stem}(_\w+)?\.py"
    return re.compile("|".join([ours, *map(re.escape, named)]))


def reached_for(test: Module) -> list[tuple[int, str]]:
    """Line and name of each private member that is not the test's own module's."""
    path, own = test.path.relative_to(ROOT).as_posix(), set(defined_in(test))
    return [
        (line, name)
        for line, name in named_in(test.tree)
        if is_private(name) and name not in own
        if (homes := definers().get(name)) and not any(own_tests(home).match(path) for home in homes)
    ]


def named_in(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Attributes but those of a test's own object, and what is imported by name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") not in ("self", "cls"):
            yield node.lineno, node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, alias.name) for alias in node.names)


def test_private_members_are_named_by_the_tests_of_their_module_alone() -> None:
    reaching = [test for test in modules_of_tests() if REACHES.search(test.text)]
    found = {test.path.relative_to(ROOT).as_posix(): reached_for(test) for test in reaching}
    assert not {path: members for path, members in found.items() if members}, (
        "look at it by a public name, or test it with its module"
    )

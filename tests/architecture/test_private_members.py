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
LEFT: dict[str, int] = {
    "tests/deploy/binlogctl/commands/test_position.py": 1,
    "tests/deploy/binlogctl/commands/test_restore.py": 2,
    "tests/deploy/binlogctl/doctor/test_examination.py": 1,
    "tests/deploy/binlogctl/test_binlogctl_page.py": 1,
    "tests/drainer/app/test_build_own.py": 1,
    "tests/drainer/changes/test_ddl_effect.py": 6,
    "tests/drainer/config/test_downstream_places.py": 1,
    "tests/drainer/ddl/convert/schema.py": 3,
    "tests/drainer/ddl/derive/test_derive.py": 1,
    "tests/drainer/ddl/run/test_meaning.py": 1,
    "tests/drainer/mysql/test_addresses_mariadb.py": 2,
    "tests/drainer/reading/subscribe/test_named_reader.py": 2,
    "tests/drainer/reading/test_large_rows.py": 1,
    "tests/drainer/sink/batch/test_batched_sink.py": 6,
    "tests/drainer/sink/file/test_archive.py": 0,
    "tests/drainer/sink/file/test_archive_disk.py": 1,
    "tests/drainer/sink/mysql/test_lane_feed.py": 2,
    "tests/drainer/stream/pull/pump_model.py": 3,
    "tests/drainer/stream/pull/test_large_txn.py": 1,
    "tests/drainer/stream/schema/test_history_reader.py": 1,
    "tests/drainer/stream/translate/test_translator_recorded.py": 1,
    "tests/drainer/support/apply_life.py": 2,
    "tests/drainer/test_surface.py": 1,
    "tests/promises/test_promises.py": 1,
    "tests/pumpclient/publish/test_publisher.py": 1,
    "tests/pumpclient/publish/test_publisher_crashes.py": 3,
    "tests/pumpclient/publish/test_publisher_outcome_model.py": 1,
    "tests/pumpclient/publish/test_schema_publishing.py": 2,
    "tests/pumpclient/publish/test_settlement_doubt.py": 4,
    "tests/pumpclient/send/test_write_model.py": 5,
    "tests/pumpclient/support/publisher_world.py": 2,
    "tests/pumpclient/test_client.py": 1,
}
"""How often, by file, until there is a public way. A number only falls, and nothing is added."""


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in NAMED_TUPLE


def defined_in(module: Module) -> Iterator[str]:
    """Functions, classes, variables and attributes, however deep."""
    for node in ast.walk(module.tree):
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


@cache
def members_by_path() -> dict[str, list[tuple[int, str]]]:
    found = {
        test.path.relative_to(ROOT).as_posix(): reached_for(test)
        for test in modules_of_tests()
        if REACHES.search(test.text)
    }
    return {path: members for path, members in found.items() if members}


def test_private_members_are_named_by_the_tests_of_their_module_alone() -> None:
    more = {path: members for path, members in members_by_path().items() if len(members) > LEFT.get(path, 0)}
    assert not more, "look at it by a public name, or test it with its module"


def test_what_is_left_only_falls() -> None:
    now = {path: len(members) for path, members in members_by_path().items()}
    fewer = {path: now.get(path, 0) for path, number in LEFT.items() if now.get(path, 0) < number}
    assert not fewer, "take these numbers into LEFT, and what has none out of it"

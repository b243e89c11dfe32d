"""The library as a guest: what it exports, what it imports, what it leaves alone."""

from __future__ import annotations

import ast
import importlib
import inspect
import pickle
import re
import subprocess
import sys
import typing
from pathlib import Path

import pytest

import pumpclient
from pumpclient import errors
from tests.cases import case
from tests.docs.pages import PUBLISH
from tidb_binlog.errors import BinlogError, Conflict, Rejected, Unavailable

ROOT = Path(pumpclient.__file__).parent
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in ROOT.rglob("*.py")
    if path.stem != "__init__"
)


def test_all_is_the_public_surface_and_nothing_is_public_by_accident() -> None:
    assert pumpclient.__all__ == sorted(pumpclient.__all__)
    public = {
        name
        for name, value in vars(pumpclient).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert public == set(pumpclient.__all__)


def test_everything_public_is_documented() -> None:
    for name in pumpclient.__all__:
        with case(name):
            value = getattr(pumpclient, name)
            assert inspect.getdoc(value), name
            if (
                inspect.isclass(value)
                and value.__module__.startswith("pumpclient.")
                and not issubclass(value, Exception)
            ):
                for method, function in inspect.getmembers(value, inspect.isfunction):
                    if not method.startswith("_") and function.__module__.startswith("pumpclient."):
                        protocol = name in ("PumpDirectory", "WritableUpstream")
                        assert protocol or inspect.getdoc(function), f"{name}.{method}"


@pytest.mark.parametrize("name", ["connect", "open_publisher"])
def test_a_blocking_counterpart_says_where_it_is_and_what_it_returns(name: str) -> None:
    asynchronous, blocking = getattr(pumpclient, name), getattr(pumpclient, f"{name}_sync")
    assert pickle.loads(pickle.dumps(blocking)) is blocking
    shown, told = inspect.signature(blocking), inspect.signature(asynchronous)
    assert shown.parameters == told.parameters
    for returned in (shown.return_annotation, typing.get_type_hints(blocking)["return"]):
        assert returned.__name__ == f"Sync{told.return_annotation}"
    assert typing.get_type_hints(asynchronous)["return"].__name__ == told.return_annotation


def test_every_error_is_drawn_in_the_tree_with_its_class() -> None:
    drawn = errors.__doc__ or ""
    for name, value in vars(errors).items():
        if inspect.isclass(value) and value.__module__ == errors.__name__:
            assert issubclass(value, BinlogError)
            line = next(line for line in drawn.splitlines() if f"─ {name}" in line)
            for parent in (Unavailable, Rejected, Conflict):
                assert (f"({parent.__name__})" in line) == issubclass(value, parent), name
            if name != "PumpClientError":
                assert name in pumpclient.__all__


def test_the_errors_on_the_page_about_publishing_can_be_caught() -> None:
    named = re.findall(r"^\| `([\w.]+)\.(\w+)` \|", PUBLISH.text, re.M)
    assert len(named) > 5
    for module, name in named:
        assert issubclass(getattr(importlib.import_module(module), name), BinlogError), name


def imports_of(path: Path) -> set[str]:
    found: set[str] = set()
    for statement in ast.walk(ast.parse(path.read_text())):
        if isinstance(statement, ast.Import):
            found |= {alias.name for alias in statement.names}
        elif isinstance(statement, ast.ImportFrom) and statement.module:
            found.add(statement.module)
            found |= {f"{statement.module}.{alias.name}" for alias in statement.names}
    return found


CORES = [
    "schema.catalog",
    "schema.table_definition",
    "publish.row_values",
    "schema.ddl_job",
    "pumps.selector",
    "pumps.health",
    "send.write_policy",
    "pumps.roster",
    "options",
    "send.batching",
    "send.skipping",
]
NEVER_IN_CORES = ["asyncio", "socket", "os", "time", "threading", "logging", "grpc", "signal", "random"]
NEVER = [
    "pump",
    "drainer",
    "deploy",
    "uvloop",
    "signal",
    "tidb_binlog.process.daemon",
    "tidb_binlog.config",
    "tidb_binlog.observe.log",
    "tidb_binlog.observe.metrics",
]


def test_no_daemon_code_is_imported() -> None:
    for module in [*MODULES, "__init__"]:
        with case(module):
            for name in imports_of(ROOT / f"{module.replace('.', '/')}.py"):
                assert not any(name == banned or name.startswith(f"{banned}.") for banned in NEVER), name


@pytest.mark.parametrize("module", CORES)
def test_cores_are_pure(module: str) -> None:
    for name in imports_of(ROOT / f"{module.replace('.', '/')}.py"):
        assert name.split(".")[0] not in NEVER_IN_CORES, name


def test_every_room_says_what_it_is() -> None:
    for module in MODULES:
        with case(module):
            assert importlib.import_module(f"pumpclient.{module}").__doc__


def test_importing_changes_nothing_in_the_process() -> None:
    """No handler, no level, no signal, no loop policy, no thread; and no daemon is loaded."""
    program = """
import asyncio, logging, signal, sys, threading
before = [signal.getsignal(number) for number in signal.valid_signals()]
policy = type(asyncio.get_event_loop_policy())
import pumpclient, pumpclient.testing
assert [signal.getsignal(number) for number in signal.valid_signals()] == before
assert type(asyncio.get_event_loop_policy()) is policy
assert logging.root.handlers == [] and logging.root.level == logging.WARNING
own = logging.getLogger("pumpclient")
assert own.handlers == [] and own.level == logging.NOTSET and own.propagate
assert threading.active_count() == 1
loaded = {name.split(".")[0] for name in sys.modules}
assert not loaded & {"pump", "drainer", "deploy", "uvloop", "plyvel", "plyvel_next", "pymysql"}, loaded
assert "tidb_binlog.process.daemon" not in sys.modules
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=ROOT.parent
    )
    assert done.returncode == 0, done.stderr

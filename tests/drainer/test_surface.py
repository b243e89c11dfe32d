"""The reading library as a guest: what `drainer` exports, and that importing it costs nothing."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import drainer
from tests.cases import case

ROOT = Path(drainer.__file__).parent
TREE = ast.parse((ROOT / "__init__.py").read_text())


def typed() -> dict[str, str]:
    """Names and their modules as type checkers see them."""
    (block,) = (node for node in TREE.body if isinstance(node, ast.If) and isinstance(node.test, ast.Name))
    return {
        alias.name: statement.module or ""
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }


def test_all_names_are_typed_and_come_from_where_their_types_do() -> None:
    assert drainer.__all__ == sorted(drainer.__all__)
    assert sorted(typed()) == drainer.__all__
    loaded = {name: module for module, names in drainer._MODULES.items() for name in names.split()}
    assert loaded == typed()


def test_everything_public_is_there_and_documented() -> None:
    for name in drainer.__all__:
        with case(name):
            value = getattr(drainer, name)
            assert inspect.getdoc(value), name
            assert name in dir(drainer)
            if inspect.isclass(value) and value.__module__.startswith("drainer."):
                for method, function in inspect.getmembers(value, inspect.isfunction):
                    assert method.startswith("_") or inspect.getdoc(function), f"{name}.{method}"


def test_type_checkers_see_no_name_that_is_not_there() -> None:
    """A `__getattr__` for them would make anything of anything."""
    assert not any(isinstance(node, ast.FunctionDef) and node.name == "__getattr__" for node in TREE.body)


def test_what_programs_catch_is_public() -> None:
    """All that a stream may raise, and their root."""
    for error in (drainer.Unavailable, drainer.Rejected, drainer.Corruption, drainer.ConfigError):
        assert issubclass(error, drainer.BinlogError)
    for error in (drainer.ReadingError, drainer.NameTaken, drainer.ReaderStopped, drainer.NotGiven):
        assert issubclass(error, drainer.BinlogError)


def test_errors_of_libraries_name_no_flag_of_a_command() -> None:
    for package in (
        "common/tidb_binlog/etcd",
        "common/tidb_binlog/upstream",
        "drainer/reading",
        "pumpclient",
    ):
        for path in (ROOT.parent / package).rglob("*.py"):
            assert "--pd-urls" not in path.read_text(), path


def test_what_is_not_public_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="module 'drainer' has no attribute 'Rwo'"):
        drainer.Rwo  # noqa: B018
    with pytest.raises(ImportError):
        exec("from drainer import Rwo")


def run(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=ROOT.parent
    )
    assert done.returncode == 0, done.stderr


def test_importing_it_loads_nothing_else() -> None:
    run(
        """
import sys
before = set(sys.modules) | {"__future__", "importlib", "importlib._bootstrap", "typing"}
import importlib, typing
standard = set(sys.modules)
import drainer
assert set(sys.modules) - standard - before == {"drainer"}, set(sys.modules) - standard - before
"""
    )


def test_the_values_of_rows_load_neither_daemon_nor_network() -> None:
    run(
        """
import logging, signal, sys, threading
before = [signal.getsignal(number) for number in signal.valid_signals()]
from drainer import Column, Ddl, Row, Table, Transaction
assert [signal.getsignal(number) for number in signal.valid_signals()] == before
assert logging.root.handlers == [] and threading.active_count() == 1
heavy = {"asyncio", "grpc", "uvloop", "aetcd", "pymysql", "pyarrow", "confluent_kafka", "pyspark", "fastavro"}
loaded = {name.partition(".")[0] for name in sys.modules}
assert not loaded & heavy, loaded & heavy
"""
    )

"""The programs and tests of docs/testing.md pass as they stand, with the plugin of the package."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.architecture.source import ROOT
from tests.docs.pages import Page
from tests.waiting import PATIENCE_S

PAGE = Page("docs/testing.md")
PATHS = os.pathsep.join(str(ROOT / directory) for directory in ("", "common", "deploy"))


TYPED = """
from dataclasses import dataclass
from typing import Any, assert_type

import drainer


@dataclass
class Order:
    id: int


async def objects() -> None:
    async with drainer.subscribe("etcd:2379", row_type=Order) as stream:
        async for change in stream:
            if isinstance(change, drainer.Transaction):
                for row in change.rows:
                    assert_type(row.after, Order | None)


def plain() -> None:
    with drainer.subscribe_sync("etcd:2379") as stream:
        for change in stream:
            if isinstance(change, drainer.Transaction):
                for row in change.rows:
                    assert_type(row.after, dict[str, Any] | None)
"""
"""What a type checker knows of rows."""


def test_the_tests_of_the_page_pass(tmp_path: Path) -> None:
    names = ("counter.py", "test_counter.py", "test_people.py")
    for name, code in zip(names, PAGE.blocks("python"), strict=True):
        (tmp_path / name).write_text(code)
    (tmp_path / "typed.py").write_text(TYPED)
    environ = {**os.environ, "PYTHONPATH": PATHS}
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "binlog_testing.plugin", "-p", "no:cacheprovider"]
    done = subprocess.run(
        pytest, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "7 passed" in done.stdout
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", *names, "typed.py"],
        cwd=tmp_path,
        env={
            **environ,
            "MYPYPATH": PATHS.partition(os.pathsep)[2],
            "MYPY_CACHE_DIR": str(ROOT / ".mypy_cache"),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_plugin_is_one_of_pytest() -> None:
    (point,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"][
        "pytest11"
    ].items()
    assert point == ("binlog_testing.plugin", "binlog_testing.plugin")
    plugin = importlib.metadata.EntryPoint(*point, "pytest11").load()
    assert plugin.binlog_cluster


def test_the_page_names_what_the_cluster_has() -> None:
    from binlog_testing import BinlogCluster

    for name in re.findall(r"binlog_cluster\.(\w+)", PAGE.text):
        assert hasattr(BinlogCluster(), name), name

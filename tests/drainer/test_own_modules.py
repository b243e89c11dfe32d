"""A program with modules of its own that are called as ours are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def run(directory: Path, program: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """As a script of that directory, which Python searches first."""
    script = directory / "program.py"
    script.write_text(program)
    return subprocess.run(
        [sys.executable, *flags, str(script)], capture_output=True, text=True, check=False, cwd=directory
    )


@pytest.mark.parametrize("place", ["common/__init__.py", "common.py"])
@pytest.mark.parametrize("first", ["", "import tidb_binlog\n"])
def test_a_module_common_is_named_in_one_line(tmp_path: Path, place: str, first: str) -> None:
    own = tmp_path / place
    own.parent.mkdir(exist_ok=True)
    own.write_text("VALUE = 1\n")
    done = run(tmp_path, f"{first}import drainer\ndrainer.subscribe")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"ImportError: drainer needs its own package `common`, and {own} is in the way: rename it, or put it"
        " into a package of your own"
    )


def test_a_directory_common_without_code_is_not_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "common").mkdir()
    done = run(tmp_path, "import drainer\nprint(drainer.subscribe.__name__)")
    assert (done.returncode, done.stdout) == (0, "subscribe\n"), done.stderr


def test_a_module_deploy_does_no_harm(tmp_path: Path) -> None:
    own = tmp_path / "deploy"
    own.mkdir()
    (own / "__init__.py").write_text("VALUE = 1\n")
    done = run(tmp_path, "import deploy, drainer\nprint(deploy.VALUE, drainer.subscribe.__name__)")
    assert (done.returncode, done.stdout) == (0, "1 subscribe\n"), done.stderr


def test_in_a_package_of_its_own_a_module_is_not_in_the_way(tmp_path: Path) -> None:
    own = tmp_path / "program" / "common.py"
    own.parent.mkdir()
    own.write_text("VALUE = 1\n")
    (own.parent / "__init__.py").write_text("")
    (tmp_path / "start.py").write_text("import program.common, drainer\nprint(drainer.subscribe.__name__)")
    done = subprocess.run(
        [sys.executable, "start.py"], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert (done.returncode, done.stdout) == (0, "subscribe\n"), done.stderr

"""What `make test` says of types and tests, with programs that do as they are told in place of its own."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def made(directory: Path, programs: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """`make test` over these programs, shell scripts by name."""
    shutil.copy(ROOT / "Makefile", directory)
    (directory / "deploy").mkdir()
    (directory / ".venv" / "bin").mkdir(parents=True)
    for name in ("pyproject.toml", "deploy/install.sh", ".venv/.ready", ".venv/.ready-spark"):
        (directory / name).touch()
    for name, script in programs.items():
        program = directory / ".venv" / "bin" / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    return subprocess.run(
        ["make", "test"],
        cwd=directory,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("mypy", "python", "says"),
    [("true", "true", ""), ("exit 1", "true", "types are not right"), ("true", "exit 5", "Error 5")],
    ids=["all is right", "types are not", "a test is not"],
)
def test_types_and_tests_are_both_needed(mypy: str, python: str, says: str, tmp_path: Path) -> None:
    done = made(tmp_path, {"ruff": "true", "mypy": mypy, "python": python})
    assert (done.returncode == 0) is (not says), done.stdout + done.stderr
    assert says in done.stderr


def test_who_interrupts_the_tests_ends_the_types_too(tmp_path: Path) -> None:
    """The shell that waits gets the signal that the tests get, and what it put behind ignores it."""
    mypy = "echo $$ >types; exec sleep 3600"
    python = "while ! [ -s types ]; do :; done; kill -INT $PPID"
    done = made(tmp_path, {"ruff": "true", "mypy": mypy, "python": python})
    assert done.returncode != 0
    assert "types are not right" in done.stderr


def test_who_ends_make_ends_the_tests_in_order(tmp_path: Path) -> None:
    """They are interrupted, so that they end their servers, and waited for."""
    mypy = "echo $$ >types; exec sleep 3600 >/dev/null 2>&1"
    python = f"""exec >/dev/null 2>&1 {sys.executable} -c '
import os, pathlib, select, signal
def end(*_):
    pathlib.Path("ended").touch()
    os._exit(2)
signal.signal(signal.SIGINT, end)
shell = os.getppid()
while not os.path.exists("types") or not os.path.getsize("types"):
    pass
make = pathlib.Path(f"/proc/{{shell}}/stat").read_text().split()[3]
os.kill(int(make), signal.SIGTERM)
while os.getppid() == shell:
    select.select([], [], [], 0.01)
'
"""
    done = made(tmp_path, {"ruff": "true", "mypy": mypy, "python": python})
    assert done.returncode == -signal.SIGTERM, done.stdout + done.stderr
    assert (tmp_path / "ended").exists()
    assert not Path(f"/proc/{(tmp_path / 'types').read_text().strip()}").exists()

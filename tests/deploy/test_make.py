"""What `make test` says of types and tests, with programs that do as they are told in place of its own."""

from __future__ import annotations

import shutil
import subprocess
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

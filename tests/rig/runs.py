"""Runs of the playground and of the rig as processes; nothing of them is left behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig import ROOT

PLAYGROUND = "binlog_playground"
RIG = "tests.rig"
DEADLINE_S = 1200


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    """For everything temporary: what a run leaves behind is seen there, and by its path in /proc."""
    # A path of pytest's own is too long for MariaDB's Unix socket.
    directory = Path(f"/tmp/pg-{os.getpid()}-{time.monotonic_ns() % 10**9}")
    directory.mkdir()
    try:
        yield directory
        assert processes_of(directory) == []
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def processes_of(directory: Path) -> list[str]:
    """Command lines of all running processes that mention the directory."""
    lines = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if str(directory) in line:
                lines.append(line)
    return lines


def start(scratch: Path, module: str, *arguments: str, **environ: str) -> subprocess.Popen[str]:
    """One of both with its arguments, whose temporary directory is `scratch`."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(scratch), **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(scratch: Path, module: str, *arguments: str, **environ: str) -> tuple[int, str, str]:
    """The same until it ends: exit status, what it printed, and to stderr."""
    process = start(scratch, module, *arguments, **environ)
    try:
        out, err = process.communicate(timeout=DEADLINE_S)
    except subprocess.TimeoutExpired:
        process.terminate()
        out, err = process.communicate()
        raise AssertionError(f"no end after {DEADLINE_S} s: {out}\n{err}") from None
    return process.returncode, out, err

"""Executors are pinned, whichever of their threads and processes end meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.benchmarks.spark import child


def test_what_has_ended_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    argv = [sys.executable, "-c", "input()", "CoarseGrainedExecutorBackend"]
    listed = os.listdir
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as executor:
        gone = subprocess.Popen(["true"])
        gone.wait()
        monkeypatch.setattr(
            child, "tree", lambda root=0: [gone.pid, executor.pid] if root else [executor.pid]
        )
        monkeypatch.setattr(
            os, "listdir", lambda path: [*listed(path), str(gone.pid)] if "/task" in path else listed(path)
        )
        child.pin_executors()
        assert os.sched_getaffinity(executor.pid) == {max(os.sched_getaffinity(0))}
        executor.communicate(b"\n")

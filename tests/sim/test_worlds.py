"""Worlds of some seeds keep every promise; a seed is one world; faults that are planted are found."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.architecture.source import ROOT
from tests.sim.mutants import MUTANTS

DEADLINE_S = 900


def worlds(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.sim", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


@pytest.mark.timeout(DEADLINE_S)
def test_worlds_hold_and_a_seed_is_one_world() -> None:
    one = worlds("--seeds", "6")
    assert one.returncode == 0, one.stdout + one.stderr
    again = worlds("--seed", "6")
    assert one.stdout.splitlines()[5] == again.stdout.splitlines()[0], "to the byte"


@pytest.mark.timeout(DEADLINE_S)
@pytest.mark.parametrize("name", ["ack-before-sync", "mark-passes-open-prewrites"])
def test_what_is_planted_is_found(name: str) -> None:
    """The whole list takes a while: see `tests.sim.mutants`."""
    found = worlds("--mutant", name, "--seeds", "10")
    assert found.returncode == 1, (MUTANTS[name].fault, found.stdout, found.stderr)
    assert "BROKEN" in found.stdout

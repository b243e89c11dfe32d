"""Worlds of some seeds keep every promise; a seed is one world; planted faults are found, and shrunk."""

from __future__ import annotations

import shlex
import subprocess
import sys

import pytest

from tests.architecture.source import ROOT
from tests.docs.pages import Page
from tests.sim.mutants import MUTANTS
from tests.sim.shrinking import Size, shrink, way

DEADLINE_S = 900
SOME, ONE, PLANTED = (
    shlex.split(shlex.split(line)[2].removeprefix("ARGS="))
    for line in Page("docs/proof.md").commands()
    if line.startswith("make sim")
)

KINDS = ("kill_pump", "cut", "reset", "slow_disk", "large_rows")
LOST = "reader-1 was given 17 without [12, 13], committed before it came (at 3.100 s)"
LONG = ("--hours", "0.01", "--faults-s", "2", "--pumps", "1", "--programs", "1", "--readers", "1")
"""One rest: retention, a kill and cuts over 40 minutes."""
QUICK = (
    *("--pumps", "1", "--programs", "1", "--readers", "1", "--faults-s", "10", "--without"),
    "stop_pump,close,join,compact,slow_disk,fail_disk,fill_disk,slow_etcd,kill_reader,kill_app,together,"
    "rollbacks,large_rows,rot,rot_index,kill_at_index,kill_pump,slow_messages,cut,reset",
)


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
    some = worlds(*SOME)
    assert some.returncode == 0, some.stdout + some.stderr
    (line,) = [line for line in worlds(*ONE).stdout.splitlines() if line.startswith("seed ")]
    assert line in some.stdout.splitlines(), "to the byte"


@pytest.mark.timeout(DEADLINE_S)
@pytest.mark.parametrize("world", ["tidb", "archive"])
def test_worlds_of_a_kind_hold_and_a_seed_is_one_world(world: str) -> None:
    some = worlds("--world", world, "--seeds", "1", "--first", "39")
    assert some.returncode == 0, some.stdout + some.stderr
    one = worlds("--world", world, "--seed", "39").stdout
    (line,) = [line for line in one.splitlines() if line.startswith("seed ")]
    assert line in some.stdout.splitlines(), "to the byte"


@pytest.mark.timeout(DEADLINE_S)
def test_a_world_of_hours_holds_and_a_seed_is_one_world() -> None:
    some, one = (worlds("--seed", "7", *LONG) for _ in range(2))
    assert some.returncode == 0, some.stdout + some.stderr
    assert some.stdout.splitlines()[0] == one.stdout.splitlines()[0], "to the byte"


@pytest.mark.timeout(DEADLINE_S)
@pytest.mark.integration
def test_worlds_with_a_drainer_hold_and_a_seed_is_one_world() -> None:
    some = worlds("--world", "drainer", "--seeds", "1", "--first", "14")
    assert some.returncode == 0, some.stdout + some.stderr
    one = worlds("--world", "drainer", "--seed", "14").stdout
    (line,) = [line for line in one.splitlines() if line.startswith("seed ")]
    assert line in some.stdout.splitlines(), "to the byte, on another MariaDB"


@pytest.mark.timeout(DEADLINE_S)
@pytest.mark.parametrize("name", [PLANTED[1], "mark-passes-open-prewrites"])
def test_what_is_planted_is_found(name: str) -> None:
    """The whole list takes a while: see `tests.sim.mutants`."""
    found = worlds("--mutant", name, *PLANTED[2:])
    assert found.returncode == 1, (MUTANTS[name].fault, found.stdout, found.stderr)
    assert "BROKEN" in found.stdout


@pytest.mark.timeout(DEADLINE_S)
def test_a_world_with_a_planted_fault_is_shrunk() -> None:
    broke = worlds("--mutant", PLANTED[1], "--shrink", *QUICK)
    assert broke.returncode == 1, broke.stdout + broke.stderr
    *_, command = broke.stdout.splitlines()
    again = worlds(*shlex.split(command.partition("tests.sim")[2]))
    assert command.startswith("breaks, too: ")
    assert "BROKEN" in again.stdout, (command, again.stdout, again.stderr)


def test_what_a_fault_does_not_need_is_left_out() -> None:
    """It needs a kill, 10 seconds and two Pumps, and shows with each third seed."""

    def run(size: Size, seed: int) -> str:
        needed = "kill_pump" not in size.without and size.faults_s >= 10 and size.pumps == 2
        if not needed:
            return "p1 does not stop (at 3.000 s)"
        return LOST.replace("17", str(seed)) if seed % 3 == 0 else ""

    found = list(shrink(Size(), KINDS, range(7, 12), LOST, run))
    size, seed = found[-1]
    assert size == Size(2, 1, 1, 10.0, without=frozenset(KINDS[1:]))
    assert seed == 9
    assert all(way(run(*each)) == way(LOST) for each in found)
    said = " --programs 1 --readers 1 --faults-s 10.0 --without cut,large_rows,reset,slow_disk"
    assert size.options() == said


def test_what_cannot_be_smaller_stays() -> None:
    assert not list(shrink(Size(), KINDS, (1,), LOST, lambda size, seed: ""))


def test_a_way_is_the_promise_whatever_it_was_with() -> None:
    other = "reader-2 was given 9 without [1], committed before it came (at 70.000 s)"
    assert way(LOST) == way(other) != way("p1 does not stop (at 3.000 s)")

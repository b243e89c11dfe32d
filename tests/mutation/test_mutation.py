"""The campaign of a small core: its tests see every slip."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

from tests.architecture.source import ROOT, modules
from tests.mutation.cores import CORES, EQUIVALENT
from tests.mutation.mutants import mutants


def test_every_slip_in_a_small_core_is_seen() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.mutation", "queue_state"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "15 of 15 killed" in run.stdout


def test_a_mutant_differs_in_one_place_and_the_next_one_begins_with_the_whole() -> None:
    source = "def f(a, b):\n    if a < 1 and b:\n        g()\n    metrics.X.inc(a - 1)\n    return a + b\n"
    assert {f"{mutant.line} {mutant}" for mutant in mutants(source)} == {
        "2 f: a < 1 and b  ->  a < 1 or b",
        "2 f: a < 1  ->  a <= 1",
        "2 f: 1  ->  2",
        "3 f: g()  ->  pass",
        "5 f: return a + b  ->  return None",
        "5 f: a + b  ->  a - b",
    }


def test_what_is_listed_as_equivalent_is_one_mutant_of_its_core() -> None:
    """Or a slip that no test sees would be taken for it."""
    paths = {module.name: module.path for module in modules()}
    for core, listed in EQUIVALENT.items():
        found = Counter(map(str, mutants(paths[CORES[core][0]].read_text())))
        assert {text: found[text] for text in listed} == dict.fromkeys(listed, 1), core

"""Findings: counted, listed up to a limit, summed up in the exit code."""

from __future__ import annotations

from drainer.spark.audit.checks.chain_rule import BROKEN
from drainer.spark.audit.checks.findings import (
    CHAINS,
    CONTENTS,
    COVERAGE,
    LISTED_MAX,
    Finding,
    Findings,
    exit_code,
)


def test_findings_are_all_counted_and_listed_up_to_a_limit() -> None:
    found = Findings()
    found.extend(Finding(CHAINS, BROKEN, "d.t", "", str(n)) for n in range(LISTED_MAX + 7))
    assert (found.total, len(found.listed)) == (LISTED_MAX + 7, LISTED_MAX)


def test_the_exit_code_says_which_checks_found_something() -> None:
    wrong = Findings()
    wrong.add(Finding(CHAINS, BROKEN, "d.t", ""))
    assert exit_code({COVERAGE: Findings(), CHAINS: Findings()}) == 0
    assert exit_code({COVERAGE: Findings(), CHAINS: wrong}) == 18
    assert exit_code({COVERAGE: wrong, CHAINS: wrong, CONTENTS: wrong}) == 23

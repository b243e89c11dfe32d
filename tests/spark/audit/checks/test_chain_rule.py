"""A history without a change, or with one twice, breaks the chain of its row."""

from __future__ import annotations

from dataclasses import replace

from drainer.spark.audit.checks.chain_rule import BROKEN, KEPT, LOST
from drainer.spark.audit.rows.row_steps import RowStep
from tests.spark.support.audit_world import Walk, walk


def test_a_lost_an_altered_and_a_doubled_change_break_chains() -> None:
    whole = walk("multi-pump")
    update = next(
        n for n, one in enumerate(whole.steps) if one.before and one.after and _later(whole, n) is not None
    )
    lost = replace(whole, steps=[*whole.steps[:update], *whole.steps[update + 1 :]])
    assert [kind for _, kind in lost.wrong()] == [BROKEN]
    insert = next(n for n, one in enumerate(whole.steps) if one.before is None and _later(whole, n))
    unborn = replace(whole, steps=[*whole.steps[:insert], *whole.steps[insert + 1 :]])
    assert [kind for _, kind in unborn.wrong()] == [LOST]
    again = whole.steps[insert]._replace(commit_ts=whole.steps[insert].commit_ts + 1)
    doubled = replace(whole, steps=[*whole.steps[: insert + 1], again, *whole.steps[insert + 1 :]])
    assert [kind for _, kind in doubled.wrong()] == [KEPT]


def _later(whole: Walk, place: int) -> RowStep | None:
    """A later step of the same row that finds it there."""
    one = whole.steps[place]
    later = (
        each for each in whole.steps[place + 1 :] if (each.definition, each.key) == (one.definition, one.key)
    )
    found = next(later, None)
    return found if found is not None and found.before != one.before else None

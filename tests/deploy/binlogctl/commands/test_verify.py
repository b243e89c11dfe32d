"""binlogctl verify: what it asks for, what it shows, what it ends with."""

from __future__ import annotations

from pathlib import Path

import pytest

from binlogctl.cli import command_line
from binlogctl.cli.command_line import Call
from binlogctl.cli.commands import DIFFERS, DONE, NOT_COMPARABLE
from binlogctl.commands import verify
from drainer.compare.verify.result import State, TableResult, Verification
from drainer.compare.verify.verifying import Progress
from tidb_binlog.errors import FlagError


def call(*argv: str) -> Call:
    found = command_line.parse(["verify", *argv], {})
    assert isinstance(found, Call)
    return found


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ((), "needs -drainer-config"),
        (("-rate", "-5"), "rate is -5"),
        (("-retries", "-1"), "retries is -1"),
        (("-workers", "0"), "workers is 0"),
        (("-at-rest", "-repair-now"), "for a Drainer that runs"),
        (("-mirror", "/lake"), "/lake is no lake"),
        (("-mirror", "delta:///lake", "-repair", "FILE"), "neither -image nor -repair"),
        (("-mirror", "delta:///lake", "-rate", "9"), "-mirror goes without -rate"),
        (("-mirror", "delta:///lake", "-retries", "0"), "-mirror goes without -retries"),
        (("-image", "DIR", "-state", "none"), "-image goes without -state"),
        (("-image", "DIR", "-workers", "1"), "-image goes without -workers"),
    ],
)
async def test_what_makes_no_sense_is_said_before_anything_is_asked(argv: tuple[str, ...], said: str) -> None:
    with pytest.raises(FlagError, match=said):
        await verify.run(call(*argv))


@pytest.mark.parametrize(
    ("states", "code"),
    [
        ([State.EQUAL], DONE),
        ([State.EQUAL, State.NOT_COMPARABLE], NOT_COMPARABLE),
        ([State.DIFFERS, State.NOT_COMPARABLE], DIFFERS),
        ([], NOT_COMPARABLE),
    ],
)
def test_the_exit_code_is_that_of_the_worst_table(states: list[State], code: int) -> None:
    tables = tuple(TableResult((("s", "t"),), ("s", "t"), state) for state in states)
    assert verify.code(Verification("up", "down", 1, 0, 0.0, 1.0, tables)) == code


def test_the_line_says_how_far_it_is() -> None:
    now = Progress("shop.a", 1, 3, 400_000, 1_000_000, 0, 0)
    assert verify.line(now, 2.0) == (
        "verify: 1 of 3 tables, at shop.a: 400,000 rows (40%), 200,000 rows/s, about 3 s left"
    )
    later = Progress("shop.a", 2, 3, 5, 0, 1, 1)
    assert verify.line(later, 1.0) == (
        "verify: 2 of 3 tables, at shop.a: 5 rows, 5 rows/s, 1 tables differ so far, looking again"
    )


def test_progress_is_kept_where_it_is_asked_for(tmp_path: Path) -> None:
    assert verify._state("", str(tmp_path)) == tmp_path / verify.STATE
    assert verify._state("", str(tmp_path / "elsewhere")) is None
    assert verify._state("mine", str(tmp_path)) == Path("mine")
    assert verify._state("none", str(tmp_path)) is None

"""binlogctl load: what it asks for, and what it shows."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from binlogctl.cli import command_line
from binlogctl.cli.command_line import Call
from binlogctl.commands import load
from drainer.points.load.counters import COPYING, Counters, Progress
from drainer.points.load.load import Estimate, Loaded, TableEstimate
from drainer.points.load.shown import line, print_done, print_estimate
from tidb_binlog.errors import FlagError


def call(*argv: str) -> Call:
    found = command_line.parse(["load", *argv], {})
    assert isinstance(found, Call)
    return found


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ((), "needs -drainer-config"),
        (("-drainer-config", "x.toml", "-rate", "-5"), "rate is -5"),
        (("-tables", "shop.*", "-append"), "-append and -tables are two ways"),
        (("-give-up", "-tables", "shop.*"), "-give-up stands alone"),
        (("-give-up", "-rate", "5"), "-give-up stands alone"),
        (("-give-up", "-to", "archive"), "-give-up stands alone"),
        (("-tables", "shop.*", "-rate", "-5"), "rate is -5"),
        (("-tables", "shop.*", "-dry-run"), "-dry-run and -tables are two ways"),
        (("-tables", "shop.*", "-drainer-config", "x.toml"), "-drainer-config and -tables are two ways"),
        (("-tables", "shop.*", "-to", "archive", "-dir", "x"), "-to archive and -tables are two ways"),
    ],
)
async def test_what_makes_no_sense_is_said_before_anything_is_asked(argv: tuple[str, ...], said: str) -> None:
    with pytest.raises(FlagError, match=said):
        await load.run(call(*argv))


@pytest.mark.parametrize(
    ("last", "decisions", "given_up"),
    [
        ({"given_up": True}, [], True),
        ({"given_up": False}, ["give up"], False),
        ({}, ["load"], False),
        ({}, ["give up", "load"], True),
    ],
)
async def test_a_load_that_was_given_up_is_known_though_the_drainer_was_started_again(
    last: dict[str, Any], decisions: list[str], given_up: bool
) -> None:
    async def ask(method: str, path: str, body: str = "") -> dict[str, Any]:
        assert (method, path) == ("GET", "/ddl/7")
        return {"decisions": [{"action": action} for action in decisions]}

    assert await load._was_given_up(ask, 7, last) == given_up


async def test_who_interrupts_it_is_told_that_the_drainer_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = asyncio.Event()

    async def ask(method: str, path: str, body: str = "") -> dict[str, Any]:
        if method == "GET":
            asked.set()
        return {"job_id": 7, "joining": [{"job_id": 7, "tables": ["d.t"], "state": "rows are loaded"}]}

    async def drainer(_: Call) -> tuple[str, load.Ask]:
        return "drainer-1", ask

    monkeypatch.setattr(load, "_drainer", drainer)
    task = asyncio.create_task(load.run(call("-tables", "d.*")))
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert "drainer drainer-1 goes on with the load: `binlogctl load -give-up" in capsys.readouterr().err


def test_two_modes_are_one_too_many() -> None:
    with pytest.raises(FlagError, match="two ways"):
        load._mode(call("-replace", "-append"))


def test_the_line_says_table_rows_rate_and_time_left() -> None:
    now = Progress(COPYING, 1, 3, 500_000, 400_000, 0, 1_000_000, 40, 90 << 20, "shop.orders")
    assert line(now, 4.0) == (
        "load: copying, at shop.orders: 500,000 rows (50% of about 1,000,000), 100,000 rows/s, 90 MiB,"
        " about 5 s left"
    )
    assert line(Progress(), 0.0) == "load: preparing"


def test_counters_begin_again_at_another_timestamp() -> None:
    counters = Counters()
    counters.begin(5, {"shop.a": 700, "shop.b": 300})
    counters.count_stored("shop.a", 100)
    counters.copied("shop.a", 200, 4096, compared=False)
    counters.copied("shop.b", 50, 0, compared=True)
    now = counters.view()
    assert (now.rows, now.rows_here, now.rows_compared, now.chunks) == (350, 200, 50, 2)
    assert now.share == 0.35
    counters.begin(6, {"shop.a": 700, "shop.b": 300})
    assert (counters.view().ts, counters.view().rows) == (6, 0)


def test_a_dry_run_and_the_end_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    tables = (TableEstimate("shop.a", "copy.a", 1_000_000, 10 << 20, 50, ""),)
    print_estimate(Estimate(7, tables, 1, 0, 30.0), as_json=False)
    print_done(Loaded(408012454863044609, 1, 20, 0, 2.0, ("shop.a: key k",)), "binlogctl", "Go on.")
    shown = capsys.readouterr()
    assert "copy.a" in shown.out
    assert "1,000,000" in shown.out
    assert "about 30 s" in shown.out
    assert "20 rows in 2.0 s (10 rows/s)" in shown.out
    assert "lacks: shop.a: key k" in shown.err

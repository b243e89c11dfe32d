"""Shown: what a first copy says of itself to people: before, while it runs, at its end.

Out    standard error while it runs: one line that is written over on a terminal, elsewhere a line now and
       then. Standard output before and afterwards
Never  says anything while a program reads what is shown (`quiet`)
Tests  tests/deploy/binlogctl/commands/test_load.py
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import sys
from collections.abc import AsyncIterator
from typing import Final

from drainer.points.load.counters import Counters, Progress
from drainer.points.load.load import Estimate, Loaded
from tidb_binlog import time_text
from tidb_binlog.clock import SystemClock
from tidb_binlog.observe import show

LINE_EVERY_S: Final = 10.0
SHOW_EVERY_S: Final = 0.5
_MEBI: Final = 1 << 20


@contextlib.asynccontextmanager
async def shown(counters: Counters, program: str, *, quiet: bool) -> AsyncIterator[None]:
    """While the block runs it is shown how far the load is."""
    if quiet:
        yield
        return
    task = asyncio.create_task(_show(counters, program))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _show(counters: Counters, program: str) -> None:
    clock = SystemClock()
    began_s = clock.monotonic_s()
    if not sys.stderr.isatty():
        note = ""
        while True:
            await asyncio.sleep(LINE_EVERY_S)
            now = counters.view()
            if now.note and now.note != note:
                show.print_warning(f"{program}: {now.note}")
            note = now.note
            show.print_warning(line(now, clock.monotonic_s() - began_s))
    terminal = show.TerminalLine()
    try:
        while True:
            await asyncio.sleep(SHOW_EVERY_S)
            terminal.show(line(counters.view(), clock.monotonic_s() - began_s))
    finally:
        terminal.clear()


def line(now: Progress, elapsed_s: float) -> str:
    """One line: how much is done, how fast, how long it will take."""
    if not now.ts:
        return f"load: {now.note or now.stage}"
    rate = now.rows_here / elapsed_s if elapsed_s > 0 else 0.0
    compared = f", {now.rows_compared:,} compared" if now.rows_compared else ""
    share = now.share
    done = "" if share is None else f" ({share:.0%} of about {now.rows_expected:,})"
    at = f", at {now.table}" if now.table and now.stage == "copying" else ""
    return (
        f"load: {now.stage}{at}: {now.rows:,} rows{done}{compared}, {rate:,.0f} rows/s,"
        f" {now.size_bytes / _MEBI:,.0f} MiB{_left(now, elapsed_s)}"
    )


def _left(now: Progress, elapsed_s: float) -> str:
    """Nothing before there is enough to tell by."""
    done = now.rows_here + now.rows_compared
    rest = now.rows_expected - now.rows
    if not done or rest <= 0 or elapsed_s < 1:
        return ""
    return f", about {_duration(rest * elapsed_s / done)} left"


def _duration(seconds: float) -> str:
    whole = int(seconds)
    if whole < 120:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 7200 else f"{whole / 3600:.1f} h"


def print_estimate(estimate: Estimate, *, as_json: bool) -> None:
    """What would be copied."""
    if as_json:
        show.print_json(dataclasses.asdict(estimate))
        return
    rows = [
        (
            table.name,
            table.target if table.target != table.name else "",
            f"{table.rows:,}",
            f"{table.size_bytes / _MEBI:,.1f}",
            table.chunks,
            table.way,
        )
        for table in estimate.tables
    ]
    headings = ("table", "goes to", "rows, about", "MiB", "chunks", "")
    show.print_table(f"{len(estimate.tables)} tables", headings, rows)
    total = sum(table.rows for table in estimate.tables)
    size = sum(table.size_bytes for table in estimate.tables) / _MEBI
    others = f", {estimate.views} views, {estimate.sequences} sequences"
    show.print_lines(
        f"about {total:,} rows, {size:,.1f} MiB{others}; about {_duration(estimate.seconds)}."
        " Users and grants are not copied. Nothing was written."
    )


def print_done(done: Loaded, program: str, what_next: str) -> None:
    """What was copied, and what comes next."""
    for name in done.missing:
        show.print_warning(f"{program}: the downstream lacks: {name}")
    checkpoint = f"checkpoint: {done.ts} ({time_text.utc(done.ts)}). {what_next}"
    if done.before:
        show.print_lines("loaded already, nothing is left to do", checkpoint)
        return
    rate = done.rows / done.seconds if done.seconds > 0 else 0.0
    compared = f", {done.compared:,} compared and equal" if done.compared else ""
    show.print_lines(
        f"loaded {done.tables} tables: {done.rows:,} rows in {done.seconds:.1f} s"
        f" ({rate:,.0f} rows/s){compared}",
        checkpoint,
    )

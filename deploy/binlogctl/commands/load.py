"""binlogctl load: copies what the upstream has into the downstream, so that a Drainer goes on from there.

Drives  `drainer.points.load` with a Drainer's configuration
Holds   the same command goes on after whatever ended it. Progress is one line that is written over on a
        terminal, a line now and then elsewhere
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from binlogctl.cli.command_line import Call
from binlogctl.cli.commands import DONE, JSON
from binlogctl.net import drainer_file
from tidb_binlog import time_text
from tidb_binlog.clock import SystemClock
from tidb_binlog.errors import ConfigError, FlagError
from tidb_binlog.observe import log, show

if TYPE_CHECKING:
    from drainer.config.options import DrainerConfig
    from drainer.points.load.counters import Counters, Progress
    from drainer.points.load.load import Estimate, Loaded
    from drainer.points.load.reconcile import Mode

DATABASE: Final = "database"
ARCHIVE: Final = "archive"
LINE_EVERY_S: Final = 10.0
SHOW_EVERY_S: Final = 0.5
_MEBI: Final = 1 << 20


async def run(call: Call) -> int:
    """Raises `FlagError`, and whatever ends a load."""
    from drainer.points.load.load import Load, estimate

    given = call.settings
    if given.rate < -1:
        raise FlagError(f"rate is {given.rate}", hint="rows a second, 0: without a limit")
    to_archive = _to_archive(call)
    settings = drainer_file.read(given.drainer_config, "load")
    log.setup("error", stream=sys.stderr)
    if to_archive:
        return await _to_image(call, settings)
    mode = _mode(call)
    async with drainer_file.cluster(settings) as (upstream, nodes):
        if given.dry_run:
            expected = await estimate(settings, upstream, nodes, mode=mode, rate_rows=max(given.rate, 0))
            _print_estimate(expected, call.output)
            return DONE
        load = Load(settings, upstream, nodes, mode=mode, rate_rows=max(given.rate, 0))
        async with _shown(load.counters, quiet=call.output == JSON):
            done = await load.run()
    _print_done(done, call.output)
    return DONE


def _to_archive(call: Call) -> bool:
    given = call.settings
    if given.to not in (DATABASE, ARCHIVE):
        raise FlagError(f"-to is {given.to!r}", hint=f"{DATABASE} or {ARCHIVE}")
    if given.to == DATABASE:
        if given.directory:
            raise FlagError("-dir is for -to archive", hint="leave it away, or write -to archive")
        return False
    if not given.directory:
        raise FlagError("-to archive needs -dir", hint="name a new directory for the image")
    if given.replace or given.append:
        raise FlagError("-replace and -append are for databases", hint="an image takes a new directory")
    return True


async def _to_image(call: Call, settings: DrainerConfig) -> int:
    from drainer.places.file_system import EXTRA_HINT

    try:
        from drainer.places.place import Place
        from drainer.points.dump.dump import Dump
        from drainer.points.dump.dump_directory import NEEDS
    except ModuleNotFoundError as error:
        raise ConfigError(f"{error.name} is not installed", hint=EXTRA_HINT) from None
    given = call.settings
    Place(given.directory).require("-dir", NEEDS)
    async with drainer_file.cluster(settings) as (upstream, _):
        dump = Dump(settings, upstream, given.directory, rate_rows=max(given.rate, 0))
        if given.dry_run:
            _print_estimate(await dump.plan(), call.output)
            return DONE
        async with _shown(dump.counters, quiet=call.output == JSON):
            done = await dump.run()
    if call.output == JSON:
        show.print_json(dataclasses.asdict(done))
        return DONE
    kept = f", {done.kept:,} of an earlier run" if done.kept else ""
    show.print_lines(
        f"image of {done.tables} tables in {done.directory}: {done.rows:,} rows in {done.seconds:.1f} s"
        f"{kept}",
        f"at {done.ts} ({time_text.utc(done.ts)}). An archive that has all after it restores any later time.",
    )
    return DONE


def _mode(call: Call) -> Mode:
    from drainer.points.load.reconcile import Mode

    if call.settings.replace and call.settings.append:
        raise FlagError("-replace and -append are two ways", hint="leave one of them away")
    if call.settings.replace:
        return Mode.REPLACE
    return Mode.APPEND if call.settings.append else Mode.NEW


# Progress ------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _shown(counters: Counters, *, quiet: bool) -> AsyncIterator[None]:
    """While the block runs it is shown how far the load is."""
    if quiet:
        yield
        return
    task = asyncio.create_task(_show(counters))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _show(counters: Counters) -> None:
    clock = SystemClock()
    began_s = clock.monotonic_s()
    if not sys.stderr.isatty():
        note = ""
        while True:
            await asyncio.sleep(LINE_EVERY_S)
            now = counters.view()
            if now.note and now.note != note:
                show.print_warning(f"binlogctl: {now.note}")
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


# Ends ----------------------------------------------------------------------------------------------------


def _print_estimate(estimate: Estimate, output: str) -> None:
    if output == JSON:
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


def _print_done(done: Loaded, output: str) -> None:
    if output == JSON:
        show.print_json(dataclasses.asdict(done))
        return
    for name in done.missing:
        show.print_warning(f"binlogctl: the downstream lacks: {name}")
    checkpoint = (
        f"checkpoint: {done.ts} ({time_text.utc(done.ts)}). Start the Drainer: it goes on from there."
    )
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

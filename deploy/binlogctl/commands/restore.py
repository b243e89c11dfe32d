"""binlogctl restore: a database as it was at a time, from an image or a backup and the archive after it.

Holds   the same command goes on after whatever ended it. A signal ends it after the rows that were begun
Tests   tests/deploy/binlogctl/commands/test_restore.py
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from binlogctl.cli.command_line import Call, check_path
from binlogctl.cli.commands import DIFFERS, DONE, JSON
from binlogctl.net import drainer_file
from tidb_binlog import time_text
from tidb_binlog.clock import SystemClock
from tidb_binlog.errors import ConfigError, FlagError
from tidb_binlog.observe import log, show
from tidb_binlog.tso import Ts

if TYPE_CHECKING:
    from drainer.points.restore.options import RestoreOptions
    from drainer.points.restore.restoring import Outcome
    from drainer.reparo.ordered_records import Seen

LINE_EVERY_S: Final = 10.0
SHOW_EVERY_S: Final = 0.5


async def run(call: Call) -> int:
    """Raises `FlagError`, and whatever ends a restore."""
    from drainer.places.file_system import EXTRA_HINT

    try:
        from drainer.points.restore.restoring import Restoration
    except ModuleNotFoundError as error:
        raise ConfigError(f"{error.name} is not installed", hint=EXTRA_HINT) from None
    asked_for = options(call)
    log.setup("error", stream=sys.stderr)
    stop = asyncio.Event()
    progress = _Progress(quiet=call.output == JSON)
    restoration = await asyncio.to_thread(Restoration, asked_for, stop, progress.say, progress.watch)
    if call.settings.dry_run:
        planned = await asyncio.to_thread(restoration.plan)
        _print(planned, call.output, planned.planned())
        return DONE
    with _signals(stop):
        try:
            done = await restoration.run()
        finally:
            await progress.end()
    _print(done, call.output, done.lines())
    return DONE if done.is_equal else DIFFERS


def options(call: Call) -> RestoreOptions:
    """Raises `FlagError`, `ConfigError`."""
    from drainer.points.restore.options import RestoreOptions

    given = call.settings
    if given.rate < -1:
        raise FlagError(f"rate is {given.rate}", hint="row changes a second, 0: without a limit")
    now_s, zone = SystemClock().wall_s(), time_text.zone(given.time_zone)
    return RestoreOptions(
        drainer_file.read(given.drainer_config, "restore"),
        given.image,
        _backup_ts(given.backup, now_s, call) if given.backup else 0,
        given.archive,
        time_text.parse(given.until, now_s, zone) if given.until else 0,
        max(given.rate, 0),
        beside_drainer=given.beside_drainer,
    )


def _backup_ts(text: str, now_s: float, call: Call) -> Ts:
    """Of a dump of Dumpling, a backup of BR, or as it is said."""
    from drainer.checkpoint import backup_position

    check_path("-backup", text)
    if not os.path.isdir(text):
        return time_text.parse(text, now_s, time_text.zone(call.settings.time_zone))
    is_dump = os.path.exists(os.path.join(text, backup_position.DUMPLING_NAME))
    return (backup_position.of_dumpling if is_dump else backup_position.of_br)(text).ts


@contextlib.contextmanager
def _signals(stop: asyncio.Event) -> Iterator[None]:
    """The first one ends it in order."""
    loop, numbers = asyncio.get_running_loop(), (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, stop.set)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def _print(outcome: Outcome, output: str, lines: list[str]) -> None:
    if output == JSON:
        show.print_lines(outcome.to_json())
        return
    show.print_lines(*lines)


class _Progress:
    """One line that is written over on a terminal, a line now and then elsewhere."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._task: asyncio.Task[None] | None = None
        self._step = ""

    def say(self, line: str) -> None:
        self._step = line
        if not self._quiet:
            show.print_warning(f"binlogctl: {line}")

    def watch(self, seen: Seen, rows: Callable[[], int]) -> None:
        if self._task is not None:
            self._task.cancel()
        if not self._quiet:
            self._task = asyncio.create_task(_show(seen, rows))

    async def end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task


async def _show(seen: Seen, rows: Callable[[], int]) -> None:
    clock = SystemClock()
    began_s, terminal = clock.monotonic_s(), show.TerminalLine() if sys.stderr.isatty() else None
    try:
        while True:
            await asyncio.sleep(SHOW_EVERY_S if terminal is not None else LINE_EVERY_S)
            shown = line(seen, rows(), clock.monotonic_s() - began_s)
            terminal.show(shown) if terminal is not None else show.print_warning(shown)
    finally:
        if terminal is not None:
            terminal.clear()


def line(seen: Seen, rows: int, elapsed_s: float) -> str:
    """How much is read, how fast rows go out, how long it will take."""
    share = min(1.0, seen.bytes / seen.bytes_all) if seen.bytes_all else 0.0
    rate = rows / elapsed_s if elapsed_s > 0 else 0.0
    left = f", about {elapsed_s * (1 - share) / share:,.0f} s left" if 0 < share < 1 else ""
    return f"restore: {share:.0%} read, {rows:,} rows ({rate:,.0f}/s){left}"

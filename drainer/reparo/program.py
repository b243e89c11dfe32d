"""Program of reparo: an archive is printed, counted, or applied to a database.

Out    the changes on standard output or in the database; a summary; an exit code
Stops  at a signal what was begun is committed, and the same command goes on from there; a second signal ends
       the process at once, which loses nothing either

Exit codes: see `drainer.reparo.options.USAGE`, which `-h` shows.

Tests  tests/drainer/reparo/test_process.py
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from typing import Final, NoReturn

from drainer.reading.archive.files.segments import Survey
from drainer.reparo.options import ENV_PREFIX, JSON, PRINT, ReparoConfig
from drainer.reparo.ordered_records import Seen, surveyed
from drainer.reparo.summary import Summary, show_progress
from drainer.reparo.viewing import Viewer
from tidb_binlog.clock import SystemClock
from tidb_binlog.config import loading
from tidb_binlog.observe import log
from tidb_binlog.observe.show import print_lines, print_warning
from tidb_binlog.process import daemon

logger = log.get("drainer.reparo")

SIGNALS: Final = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)


class _Stop:
    """Set by the first signal; a second one ends the process."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    def __call__(self) -> None:
        if self.event.is_set():
            os._exit(daemon.EXIT_FORCED)
        self.event.set()


async def run(argv: list[str]) -> int:
    """Do what the command line says."""
    config = loading.load(ReparoConfig, argv, os.environ, program="reparo", env_prefix=ENV_PREFIX)
    log.setup(config.log_level, config.log_file, stream=sys.stderr)
    for remark in config.remarks():
        logger.warning(remark)
    stop = _Stop()
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, stop)
    archive = await asyncio.to_thread(surveyed, config)
    daemon.settle()
    if config.applies and not config.dry_run:
        summary = await _apply(config, archive, stop)
    else:
        viewer = Viewer(config, archive, stop.event.is_set)
        work = viewer.count_all if config.dry_run else lambda: viewer.print_all(sys.stdout.buffer)
        try:
            summary = await asyncio.to_thread(work)
        except BrokenPipeError:  # `| head` has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
    _show(config, summary)
    return 0


async def _apply(config: ReparoConfig, archive: Survey, stop: _Stop) -> Summary:
    from drainer.reparo.applying import Application  # a client of databases, which printing does without

    showing: list[asyncio.Task[None]] = []
    application = Application(config, archive, stop.event)

    def watch(seen: Seen, rows: Callable[[], int]) -> None:
        showing.append(asyncio.create_task(show_progress(seen, rows, SystemClock().monotonic_s)))

    try:
        return await application.run(watch)
    finally:
        for task in showing:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def _show(config: ReparoConfig, summary: Summary) -> None:
    """Of what was printed, on standard error: the changes are on standard output."""
    is_printed = config.dest_type == PRINT and not config.dry_run
    lines = [summary.to_json()] if config.output == JSON else summary.lines()
    for line in lines:
        (print_warning if is_printed else print_lines)(line)


def main() -> NoReturn:
    """Start the program."""
    daemon.main("reparo", run)

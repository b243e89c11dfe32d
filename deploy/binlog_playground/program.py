"""Program: entry point of `binlog-playground`; how a run ends, whatever happens, and with which status.

Tests  tests/deploy/binlog_playground/test_run.py
"""

from __future__ import annotations

import asyncio
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import uvloop

from binlog_playground import options as command_line
from binlog_playground import result
from binlog_playground.check.live_view import LiveView
from binlog_playground.cluster import mariadb
from binlog_playground.cluster.cluster import Cluster
from binlog_playground.options import Options
from binlog_playground.run import Run
from tidb_binlog.clock import SystemClock
from tidb_binlog.errors import BinlogError

EQUAL: Final = 0
DIFFERENT: Final = 1
COULD_NOT_RUN: Final = 2
INTERRUPTED: Final = 130
C = TypeVar("C", bound=Cluster)
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> None:
    """Run and exit with the documented status."""
    options = command_line.parse(sys.argv[1:])
    sys.exit(supervise(lambda: Cluster(SystemClock(), usual_ports=options.keep), lambda c: demo(options, c)))


async def demo(options: Options, cluster: Cluster) -> int:
    """The demo on a cluster that is not started yet; 0 if downstream equals upstream."""
    with LiveView(quiet=options.json) as view:
        work = Run(options, cluster, view, SystemClock())
        report = await work.demo()
    if options.json:
        print(result.json_text(result.document(report, work.statistics, options.seed)))
    else:
        print("\n".join(result.lines(report, work.statistics)), flush=True)
    if options.keep:
        await keep(cluster)
    return EQUAL if report.equal else DIFFERENT


async def keep(cluster: Cluster) -> None:
    """Leave everything running until a signal comes."""
    print("\n".join(result.kept_lines(cluster)), file=sys.stderr, flush=True)
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        pass  # this is how it is meant to end


def supervise(make: Callable[[], C], work: Callable[[C], Awaitable[int]]) -> int:
    """Do some work on a cluster; its exit status. Ends every process that was started, whatever happens."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_supervise(make, work))


async def _supervise(make: Callable[[], C], work: Callable[[C], Awaitable[int]]) -> int:
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, task.cancel)
    try:
        mariadb.programs()  # say what is missing before anything is made
        cluster = make()
    except (BinlogError, OSError) as error:
        return _could_not_run(error)
    status, clean = COULD_NOT_RUN, False
    try:
        status = await work(cluster)
        clean = True
    except asyncio.CancelledError:
        status = INTERRUPTED
        print("interrupted: ending all processes", file=sys.stderr)
    except BaseExceptionGroup as group:
        cause = _first_cause(group)
        if not isinstance(cause, Exception):
            raise
        status = _could_not_run(cause)
    except Exception as error:
        status = _could_not_run(error)
    finally:
        for number in SIGNALS:  # from here on nothing may keep us from cleaning up
            loop.add_signal_handler(number, lambda: None)
        await cluster.close()
        cluster.stop(at_once=not clean)
        logs = cluster.remove(keep_logs=status in (DIFFERENT, COULD_NOT_RUN))
        if logs is not None:
            print(f"logs: {logs}", file=sys.stderr)
    return status


def _first_cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error of ours inside a group of failures; the first one if there is none."""
    causes: list[BaseException] = []
    pending: list[BaseException] = [group]
    while pending:
        error = pending.pop(0)
        if isinstance(error, BaseExceptionGroup):
            pending.extend(error.exceptions)
        else:
            causes.append(error)
    return next((cause for cause in causes if isinstance(cause, BinlogError)), causes[0])


def _could_not_run(error: Exception) -> int:
    """Print why; the exit status."""
    if not isinstance(error, BinlogError | OSError):  # our own mistake, not a difference
        traceback.print_exception(error)
    print(f"binlog-playground: {error}", file=sys.stderr)
    return COULD_NOT_RUN

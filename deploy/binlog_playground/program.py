"""Entry point of `binlog-playground`.

Tests  tests/deploy/binlog_playground/test_run.py
"""

from __future__ import annotations

import asyncio
import sys

import uvloop

from binlog_playground import options as command_line
from binlog_playground import result
from binlog_playground.begin import Begin
from binlog_playground.check.live_view import LiveView
from binlog_playground.cluster import mariadb
from binlog_playground.cluster.cluster import Cluster
from binlog_playground.exit_status import (
    COULD_NOT_RUN,
    DIFFERENT,
    EQUAL,
    INTERRUPTED,
    SIGNALS,
    first_cause,
    report_failure,
)
from binlog_playground.options import Options
from tidb_binlog.clock import SystemClock
from tidb_binlog.errors import BinlogError, ConfigError


def main() -> None:
    """Run and exit with the documented status."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        sys.exit(runner.run(run(command_line.parse(sys.argv[1:]))))


async def run(options: Options) -> int:
    """One run; its exit status. Ends every process it started, whatever happens."""
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, task.cancel)
    try:
        if options.replay is not None and not options.replay.is_dir():
            raise ConfigError(f"{options.replay} is not a directory", hint="give a recorded scenario")
        mariadb.programs()  # say what is missing before anything is made
        cluster = Cluster(SystemClock(), usual_ports=options.keep)
    except (BinlogError, OSError) as error:
        return report_failure(error)
    status, clean = COULD_NOT_RUN, False
    try:
        status = await _run(options, cluster)
        clean = True
    except asyncio.CancelledError:
        status = INTERRUPTED
        print("interrupted: ending all processes", file=sys.stderr)
    except BaseExceptionGroup as group:
        cause = first_cause(group)
        if not isinstance(cause, Exception):
            raise
        status = report_failure(cause)
    except Exception as error:
        status = report_failure(error)
    finally:
        for number in SIGNALS:  # from here on nothing may keep us from cleaning up
            loop.add_signal_handler(number, lambda: None)
        await cluster.close()
        cluster.stop(at_once=not clean)
        logs = cluster.remove(keep_logs=status in (DIFFERENT, COULD_NOT_RUN))
        if logs is not None:
            print(f"logs: {logs}", file=sys.stderr)
    return status


async def _run(options: Options, cluster: Cluster) -> int:
    with LiveView(quiet=options.json) as view:
        work = Begin(options, cluster, view, SystemClock())
        if options.load:
            report = await work.begin()
        else:
            report = await (work.demo() if options.replay is None else work.replay(options.replay))
    subscribed = work.subscribed
    if options.json:
        print(result.result_json(report, work.statistics, options, subscribed))
    else:
        print("\n".join(result.lines(report, work.statistics, subscribed)), flush=True)
    if options.keep:
        await _keep(cluster)
    return EQUAL if report.equal and (subscribed is None or subscribed.equal) else DIFFERENT


async def _keep(cluster: Cluster) -> None:
    """Leave everything running until a signal comes."""
    print("\n".join(result.kept_lines(cluster)), file=sys.stderr, flush=True)
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        pass  # this is how it is meant to end

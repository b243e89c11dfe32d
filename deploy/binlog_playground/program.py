"""Program: entry point of `binlog-playground`; how a run ends, whatever happens, and with which status.

Tests  tests/deploy/binlog_playground/test_run.py
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar

import uvloop

from binlog_playground import options as command_line
from binlog_playground.check.live_view import LiveView
from binlog_playground.check.statistics import Statistics, quantile
from binlog_playground.check.verify import Report
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
        print(json_text(document(report, work.statistics, options.seed)))
    else:
        print("\n".join(lines(report, work.statistics)), flush=True)
    if options.keep:
        await keep(cluster)
    return EQUAL if report.equal else DIFFERENT


async def keep(cluster: Cluster) -> None:
    """Leave everything running until a signal comes."""
    print("\n".join(kept_lines(cluster)), file=sys.stderr, flush=True)
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


# Result: what a run prints at its end: text from figures, and how to look at a cluster that stays.

DIFFERENCES_MAX: Final = 1000


def lines(
    report: Report, statistics: Statistics, reasons: Mapping[str, str] = MappingProxyType({})
) -> list[str]:
    """Differences, limits with their `reasons`, what was not compared, the verdict and the summary."""
    text = [str(difference) for difference in report.differences[:DIFFERENCES_MAX]]
    if len(report.differences) > DIFFERENCES_MAX:
        text.append(f"... and {len(report.differences) - DIFFERENCES_MAX} more differences")
    for name, count in sorted(report.limited.items()):
        text.append(f"limit of the downstream, {count} rows: {name} ({reasons[name]})")
    if report.not_compared:
        names = ", ".join(report.not_compared)
        text.append(f"not compared: {len(report.not_compared)} views and sequences: {names}")
    if report.equal:
        text.append(f"verified: {report.tables} tables, {report.rows_identical} rows identical")
    else:
        text.append(
            f"DIFFERENT: {len(report.differences)} differences in {report.tables} tables,"
            f" {report.rows_identical} rows identical"
        )
    return [*text, summary(statistics)]


def kept_lines(cluster: Cluster) -> list[str]:
    """How to look at a cluster that stays: commands to paste, addresses, files."""
    server, endpoint = cluster.mariadb, cluster.etcd_endpoint
    program = Path(sys.executable).with_name("binlogctl")
    if program.is_relative_to(Path.cwd()):
        program = program.relative_to(Path.cwd())
    config = f" -drainer-config {cluster.config_of(cluster.drainer.name)}" if cluster.drainer else ""
    return [
        f"status:   {program} status -pd-urls {endpoint}",
        f"rows:     {program} tail -from oldest -pd-urls {endpoint}",
        f"doctor:   {program} doctor -pd-urls {endpoint}{config}",
        f"MariaDB:  mariadb -h {server.host} -P {server.port} -u {server.user} -p{server.password}",
        f"etcd:     {endpoint}",
        *(
            f"{node.name + ':':9} {node.address}, status page http://{node.address}/"
            for node in cluster.nodes
        ),
        f"files:    {cluster.directory}",
        "Ctrl-C ends everything",
    ]


def summary(statistics: Statistics) -> str:
    """Rates and lag in one line."""
    told = []
    if statistics.replayed:
        told.append(f"{statistics.replayed} recorded binlogs in {statistics.replay_s:.1f} s")
    if statistics.transactions:
        transactions_per_s, rows_per_s = statistics.overall_rates()
        told += [
            f"{statistics.transactions} transactions ({transactions_per_s:.0f}/s)",
            f"{statistics.rows} row changes ({rows_per_s:.0f}/s)",
            f"{statistics.ddl} DDL",
            f"{statistics.rolled_back} rolled back",
        ]
    if statistics.lag_s:
        told.append(f"lag p50 {statistics.lag_ms(0.5):.0f} ms, p99 {statistics.lag_ms(0.99):.0f} ms")
    if statistics.quiet_lag_s:
        told.append(f"quiet: {quantile(statistics.quiet_lag_s, 0.5):.1f} s behind")
    if statistics.first_row_s:
        told.append(f"first row after {statistics.first_row_s:.1f} s")
    return "summary: " + ", ".join(told or ["nothing was measured"])


def document(report: Report, statistics: Statistics, seed: int) -> dict[str, Any]:
    """The whole result, for JSON."""
    transactions_per_s, rows_per_s = statistics.overall_rates()
    return {
        "equal": report.equal,
        "tables": report.tables,
        "rows_identical": report.rows_identical,
        "differences": [str(difference) for difference in report.differences],
        "limited": dict(report.limited),
        "not_compared": report.not_compared,
        "transactions": statistics.transactions,
        "rows": statistics.rows,
        "transactions_per_s": round(transactions_per_s, 1),
        "rows_per_s": round(rows_per_s, 1),
        "rolled_back": statistics.rolled_back,
        "ddl": statistics.ddl,
        "replayed": statistics.replayed,
        "replay_s": round(statistics.replay_s, 2),
        "lag_p50_ms": round(statistics.lag_ms(0.5), 1),
        "lag_p99_ms": round(statistics.lag_ms(0.99), 1),
        "quiet_lag_s": round(quantile(statistics.quiet_lag_s, 0.5), 3),
        "first_row_s": round(statistics.first_row_s, 2),
        "seed": seed,
    }


def json_text(document: Mapping[str, Any]) -> str:
    """One JSON object in one line."""
    return json.dumps(document, ensure_ascii=False)

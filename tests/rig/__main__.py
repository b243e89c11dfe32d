"""`python -m tests.rig`: a run, compared row by row; what it prints and its exit status."""

from __future__ import annotations

import sys
from typing import Any

from binlog_playground import program
from binlog_playground.check.live_view import LiveView
from binlog_playground.check.verify import Report
from binlog_playground.program import DIFFERENT, EQUAL, keep, supervise
from tests.rig.begin import Begin
from tests.rig.cluster import RigCluster
from tests.rig.joining import Joining
from tests.rig.options import RigOptions, parse
from tests.rig.workload.limits import MARIADB, MISPLACED, MISPLACED_REASON
from tests.rig.workload.statistics import RigStatistics
from tidb_binlog.clock import SystemClock
from tidb_binlog.errors import ConfigError

REASONS = {MISPLACED: MISPLACED_REASON, **{limit.name: limit.reason for limit in MARIADB}}


def main() -> None:
    """Run and exit with the playground's documented status."""
    options = parse(sys.argv[1:])

    def cluster() -> RigCluster:
        if options.replay is not None and not options.replay.is_dir():
            raise ConfigError(f"{options.replay} is not a directory", hint="give a recorded scenario")
        return RigCluster(SystemClock(), usual_ports=options.keep)

    sys.exit(supervise(cluster, lambda cluster: run(options, cluster)))


async def run(options: RigOptions, cluster: RigCluster) -> int:
    """One run on a cluster that is not started yet; 0 if all that was compared is equal."""
    with LiveView(quiet=options.json) as view:
        runs = Joining if options.load and options.chaos else Begin
        work = runs(options, cluster, view, SystemClock())
        if options.load:
            report = await work.begin()
        else:
            report = await (work.demo() if options.replay is None else work.replay(options.replay))
    equal = report.equal and (work.subscribed is None or work.subscribed.equal)
    if options.json:
        document = program.document(report, work.statistics, options.seed)
        print(program.json_text(document | more(work.statistics, work.subscribed) | {"equal": equal}))
    else:
        *told, summary = program.lines(report, work.statistics, REASONS)
        told += subscriber_lines(work.statistics, work.subscribed)
        faults = [f"{count} times {fault}" for fault, count in sorted(work.statistics.faults.items())]
        print("\n".join([*told, ", ".join([summary, *faults])]), flush=True)
    if options.keep:
        await keep(cluster)
    return EQUAL if equal else DIFFERENT


def more(statistics: RigStatistics, subscribed: Report | None) -> dict[str, Any]:
    """What a result has besides the demo's."""
    return {
        "subscriber": subscribed
        and {
            "equal": subscribed.equal,
            "tables": subscribed.tables,
            "rows_identical": subscribed.rows_identical,
            "rows": statistics.subscribed,
            "differences": [str(difference) for difference in subscribed.differences],
        },
        "abandoned": statistics.abandoned,
        "type_changes": statistics.type_changes,
        "shard_ddl": statistics.shard_ddl,
        "kills": statistics.kills,
        "faults": dict(statistics.faults),
    }


def subscriber_lines(statistics: RigStatistics, subscribed: Report | None) -> list[str]:
    """What became of the subscribing program's tables."""
    if subscribed is None:
        return []
    verdict = "verified" if subscribed.equal else f"DIFFERENT: {len(subscribed.differences)} differences,"
    return [
        *(f"subscriber: {difference}" for difference in subscribed.differences[: program.DIFFERENCES_MAX]),
        f"subscriber {verdict}: {subscribed.tables} tables, {subscribed.rows_identical} rows identical after"
        f" {statistics.subscribed} row changes",
    ]


if __name__ == "__main__":
    main()

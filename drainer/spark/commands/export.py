"""binlog-spark export: value logs of pumps as a file archive, in commit order.

Tests   tests/spark/test_readme_spark.py
"""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import asdict
from typing import Final

from drainer.places.place import READ, Place
from drainer.reading.archive.decode import ddl_history
from drainer.spark import arguments
from drainer.spark.driver import TaskProgress
from drainer.spark.export import NEEDS, export
from tidb_binlog import time_text
from tidb_binlog.clock import SystemClock
from tidb_binlog.observe import show

HELP: Final = """\
turn the value logs of pumps into a file archive, in commit order

    binlog-spark export --from PUMP_DIR --from PUMP_DIR --ddl-history JOBS --to ARCHIVE_DIR

Give the data directories (or copies) of all pumps of the cluster: what only one of them has is in the archive
only if it is given. The pumps may run: what lies after a transaction that may still come is left for the
next time. Done again, it continues after what is there; a Drainer with db-type = "file" can continue from it
as well. The history is one DDL job a line, as JSON.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--from",
        dest="pumps",
        required=True,
        action="append",
        metavar="DIR",
        help="of a pump; may come again",
    )
    parser.add_argument(
        "--ddl-history", default="", metavar="FILE", help="DDL jobs (default: ddl_jobs.jsonl beside the logs)"
    )
    parser.add_argument("--to", required=True, metavar="DIR", help="of the archive; or a URI (s3://, gs://)")
    arguments.add_file_system(parser)
    parser.add_argument(
        "--finished",
        action="store_true",
        help="write all there is: the pumps have ended. What came later all the same would be left out",
    )
    arguments.add_output(parser)


def run(args: argparse.Namespace) -> int:
    Place(args.to).require("--to", NEEDS)
    pumps = [arguments.place(args, each, "--from", READ) for each in args.pumps]
    with TaskProgress("export"):
        history = ddl_history.load(pumps[0], arguments.history_file(args.ddl_history))
        done = asyncio.run(export(pumps, history, args.to, SystemClock(), finished=args.finished))
    args.job_metrics.note(rows=done.rows)
    if args.output == arguments.JSON:
        show.print_json(asdict(done))
    else:
        last = time_text.utc(done.last_ts) if done.last_ts else "nothing"
        counts = (done.files, done.transactions, done.rows, done.unfinished, done.held_back)
        show.print_table(
            f"exported to {args.to}",
            ("files read", "transactions", "rows", "without an end", "left for later", "up to"),
            [(*map(str, counts), last)],
        )
    return 0

"""binlog-spark stats: what an archive holds, in numbers.

Tests  tests/spark/test_readme_spark.py
"""

from __future__ import annotations

import argparse
import contextlib
import json
from typing import Final

from drainer.spark import arguments
from drainer.spark.driver import TaskProgress
from drainer.spark.engine import engine_for
from drainer.spark.output import print_rows
from tidb_binlog.observe import show

HELP: Final = """\
changes by table, kind and hour, bytes, sizes of transactions, the hottest keys

    binlog-spark stats --archive DIR --start "2026-11-22 00:00:00" --hottest 20

Bytes are those of rows before and after their changes, not of files; for those see `files`.
"""
HOTTEST: Final = 10
_TITLES: Final = {
    "changes": "changes by hour, table and kind",
    "volumes": "transactions, rows and bytes by hour",
    "transactions": "sizes of transactions",
    "hottest": "keys with most changes",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_archive(parser)
    arguments.add_range(parser)
    parser.add_argument(
        "--hottest",
        type=int,
        default=HOTTEST,
        metavar="N",
        help=f"so many keys (default {HOTTEST}), 0: none",
    )
    arguments.add_output(parser)
    arguments.add_spark(parser)


def run(args: argparse.Namespace) -> int:
    from drainer.spark import statistics
    from drainer.spark.local import json_lines

    is_here = arguments.is_here(args)
    spark = None if is_here else arguments.start_session(args, "binlog-spark stats")
    given = engine_for(spark), args.archive, arguments.source_options(args)
    with contextlib.nullcontext() if is_here else TaskProgress("counting", spark):
        counted = statistics.of_changes(*given, args.hottest) | statistics.of_transactions(*given)
    tables = {
        name: (counted[name].column_names, json_lines.lines(counted[name].schema, counted[name].to_pylist()))
        for name in _TITLES
        if name in counted
    }
    if args.output == arguments.JSON:
        show.print_json({name: list(map(json.loads, lines)) for name, (_, lines) in tables.items()})
        return 0
    for name, (columns, lines) in tables.items():
        print_rows(_TITLES[name], columns, lines, args.output)
    return 0

"""binlog-spark stats: what an archive holds, in numbers.

Tests  tests/spark/test_readme_spark.py
"""

from __future__ import annotations

import argparse
import json
from typing import Final

from common.observe import show
from drainer.spark import arguments, statistics
from drainer.spark.driver import TaskProgress
from drainer.spark.output import lines_of, print_frame

HELP: Final = """\
changes by table, kind and hour, bytes, sizes of transactions, the hottest keys

    binlog-spark stats --archive DIR --start "2026-11-22 00:00:00" --hottest 20

Bytes are those of rows before and after their changes, not of files; for those see `files`.
"""
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
        default=statistics.HOTTEST,
        metavar="N",
        help=f"so many keys (default {statistics.HOTTEST}), 0: none",
    )
    arguments.add_output(parser)
    arguments.add_spark(parser)


def run(args: argparse.Namespace) -> int:
    spark = arguments.open_session(args, "binlog-spark stats")
    given = spark, args.archive, arguments.source_options(args)
    frames = {
        "changes": statistics.rates(*given),
        "volumes": statistics.volumes(*given),
        "transactions": statistics.sizes(*given),
    }
    if args.hottest > 0:
        frames["hottest"] = statistics.hottest(*given, args.hottest)
    with TaskProgress(spark, "counting"):
        if args.output == arguments.JSON:
            lines = {name: lines_of(frame) for name, frame in frames.items()}
            show.print_json({name: list(map(json.loads, some)) for name, some in lines.items()})
            return 0
        for name, frame in frames.items():
            print_frame(_TITLES[name], frame, args.output)
    return 0

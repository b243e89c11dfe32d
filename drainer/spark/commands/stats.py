"""binlog-spark stats: what an archive holds, in numbers.

Tests  tests/spark/test_readme_spark.py
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Final

from drainer.spark import arguments, statistics
from drainer.spark.driver import TaskProgress
from drainer.spark.output import lines_of, print_rows
from tidb_binlog.observe import show

HELP: Final = """\
changes by table, kind and hour, bytes, sizes of transactions, the hottest keys

    binlog-spark stats --archive DIR --start "2026-11-22 00:00:00" --hottest 20

Bytes are those of rows before and after their changes, not of files; for those see `files`.
"""
Counted = tuple[Sequence[str], Sequence[str]]
"""Names of columns, and rows as JSON."""
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
    if arguments.is_here(args):
        _show(args, _counted(args))
        return 0
    spark = arguments.open_session(args, "binlog-spark stats")
    given = spark, args.archive, arguments.source_options(args)
    frames = {
        "changes": statistics.rates(*given),
        "volumes": statistics.volumes(*given),
        "transactions": statistics.sizes(*given),
    }
    if args.hottest > 0:
        frames["hottest"] = statistics.hottest(*given, args.hottest)
    with TaskProgress("counting", spark):
        found: dict[str, Counted] = {name: (frame.columns, lines_of(frame)) for name, frame in frames.items()}
    _show(args, found)
    return 0


def _counted(args: argparse.Namespace) -> dict[str, Counted]:
    """Without Spark."""
    from drainer.spark.local import counts, json_lines

    options = arguments.source_options(args)
    found = counts.of_changes(args.archive, options, args.hottest)
    found |= counts.of_transactions(args.archive, options)
    names = [name for name in _TITLES if name in found]
    return {name: (found[name][0].names, json_lines.lines(*found[name])) for name in names}


def _show(args: argparse.Namespace, tables: Mapping[str, Counted]) -> None:
    if args.output == arguments.JSON:
        show.print_json({name: list(map(json.loads, lines)) for name, (_, lines) in tables.items()})
        return
    for name, (columns, lines) in tables.items():
        print_rows(_TITLES[name], columns, lines, args.output)

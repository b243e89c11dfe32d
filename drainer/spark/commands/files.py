"""binlog-spark files: what each file of an archive holds, and what is wrong with it.

Tests  tests/spark/test_readme_spark.py
"""

from __future__ import annotations

import argparse
from typing import Any, Final

from drainer.places.place import Place
from drainer.spark import arguments
from drainer.spark.driver import TaskProgress
from tidb_binlog import time_text
from tidb_binlog.observe import show

HELP: Final = """\
what each file holds: range, transactions, rows, damage

    binlog-spark files --archive DIR

Files with an index beside them (`index`) are not read. Ends with 17 where a file is missing or damaged.
"""
FINDINGS: Final = 17  # as an audit of its coverage (`audit.finding`)
_COUNTS: Final = ("size", "transactions", "ddl", "inserts", "updates", "deletes")
_HEADINGS: Final = ("file", "kind", "bytes", "from", "to", *_COUNTS[1:], "problem")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_archive(parser)
    arguments.add_output(parser)
    arguments.add_spark(parser)


def run(args: argparse.Namespace) -> int:
    file_rows = sorted(_rows(args), key=lambda row: (row["index"], row["file"]))
    if args.output == arguments.JSON:
        show.print_json(file_rows)
    else:
        rows = [_cells(row) for row in file_rows]
        total = [sum(row[name] or 0 for row in file_rows) for name in _COUNTS]
        rows.append(("total", "", str(total[0]), "", "", *map(str, total[1:]), ""))
        shown = Place(args.archive).shown
        show.print_table(f"files of {shown}", _HEADINGS, rows)
    return FINDINGS if any(row["problem"] for row in file_rows) else 0


def _rows(args: argparse.Namespace) -> list[dict[str, Any]]:
    options = arguments.source_options(args, view="files")
    if arguments.is_here(args):
        from drainer.reading.archive.archive_source import ArchiveSource
        from drainer.spark.local import ordered_rows

        source = ArchiveSource({**options, "path": args.archive})
        return ordered_rows.everything(source, source.schema, ())
    spark = arguments.start_session(args, "binlog-spark files", with_format=True)
    frame = spark.read.format("binlog").options(**options).load(args.archive)
    with TaskProgress("looking at files", spark):
        return [row.asDict() for row in frame.collect()]


def _cells(row: dict[str, object]) -> tuple[str, ...]:
    counts = [str(row[name] or 0) for name in _COUNTS]
    times = [_time(row[name]) for name in ("first_ts", "last_ts")]
    problem = str(row["problem"] or "")
    return (str(row["file"]), str(row["kind"]), counts[0], *times, *counts[1:], problem)


def _time(ts: object) -> str:
    return time_text.utc(ts) if isinstance(ts, int) and ts else ""

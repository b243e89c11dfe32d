"""binlog-spark history: every version of a row, or of all rows of a table.

Tests  tests/spark/test_readme_spark.py
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from drainer.places.place import READ, WRITE, Place
from drainer.spark import arguments, parquet_tasks
from drainer.spark.driver import TaskProgress
from drainer.spark.engine import Here
from drainer.spark.output import print_frame, print_rows
from tidb_binlog.errors import FlagError

if TYPE_CHECKING:
    import pyarrow as pa

    from drainer.reading.archive.archive_source import ArchiveSource

HELP: Final = """\
every version of a row: from when to when, and which transaction made it

    binlog-spark history --archive DIR --table shop.orders --key id=5
    binlog-spark history --archive DIR --table shop.orders --key '{"id": 5, "part": "a,b"}' --output json
    binlog-spark history --archive DIR --table shop.orders --start "2026-11-22 03:00:00" --save /data/orders

valid_from and valid_to are commit timestamps, the second one excluded; it is empty while a version lasts. A
version without valid_from was there before the first change that was read. A row that moved to another key
has versions under both. Without --master this process reads the archive, without Spark.
"""
_SHOWN: Final = ("key", "from_time", "to_time", "exists", "_change_type", "_commit_ts", "before", "after")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_archive(parser)
    arguments.add_bounds(parser)
    add = parser.add_argument_group("what").add_argument
    add("--table", required=True, metavar="DB.TABLE", help="the table")
    add(
        "--key", default="", metavar="KEY", help="of one row: NAME=VALUE, with commas, or JSON (default: all)"
    )
    add(
        "--save",
        default="",
        metavar="DIR",
        help="write Parquet there (path or URI), show no versions",
    )
    arguments.add_output(parser)
    arguments.add_spark(parser)


def run(args: argparse.Namespace) -> int:
    from drainer.reading.archive.archive_source import ArchiveSource
    from drainer.spark import history

    key = history.parse_key(args.key) if args.key else None
    options = arguments.source_options(args)
    if args.save:
        Place(args.save).require("--save", READ | WRITE)
    is_here = arguments.is_here(args)
    source = ArchiveSource({**options, "path": args.archive, "tables": args.table})
    if key:
        _check_key(source, args.table, key)
    if is_here:
        _show_here(args, history.table(history.of_archive(Here(), source, key)))
        return 0
    spark = arguments.start_session(args, "binlog-spark history")
    frame = history.history(spark, args.archive, args.table, key, options)
    with TaskProgress("reading", spark):
        if args.save:
            parquet_tasks.write(frame, Place(args.save))
        else:
            frame = frame if args.output == arguments.JSON else frame.select(*_SHOWN)
            print_frame(f"versions of {args.table}", frame, args.output)
    return 0


def _show_here(args: argparse.Namespace, versions: pa.Table) -> None:
    """Without Spark."""
    from drainer.spark.local import json_lines

    if args.save:
        place = Place(args.save)
        parquet_tasks.check_empty(place)
        place.make()
        parquet_tasks.write_part(place, 0, versions.schema, versions.to_batches())
        return
    names = versions.schema.names if args.output == arguments.JSON else _SHOWN
    shown = versions.select(names)
    lines = json_lines.lines(shown.schema, shown.to_pylist())
    print_rows(f"versions of {args.table}", names, lines, args.output)


def _check_key(source: ArchiveSource, table: str, key: Mapping[str, str]) -> None:
    """A name that was no column of the table's key ever fits no row. Raises `FlagError`."""
    from drainer.changes.row_reader import key_names

    names: set[str] = set()
    for entry in source.definitions:
        if f"{entry.schema}.{entry.table}".lower() == table.lower():
            info = entry.version.info
            columns = key_names(info, entry.version.left_out)
            names.update(columns or (column.name for column in info.columns))  # without a key it is the row
    if names and (unknown := sorted(key.keys() - names)):
        shown = ", ".join(sorted(names))
        raise FlagError(f"{table} has no key column {unknown[0]}", hint=f"its key is {shown}")

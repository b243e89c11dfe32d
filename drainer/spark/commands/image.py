"""binlog-spark image: tables as they were at a point in time, as Parquet.

Tests  tests/spark/test_readme_spark.py
"""

from __future__ import annotations

import argparse
import contextlib
import functools
from typing import TYPE_CHECKING, Final

from drainer.places.place import READ, WRITE, Place
from drainer.reading.archive.files.selection import parse_bound
from drainer.spark import arguments
from drainer.spark.driver import TaskProgress
from tidb_binlog import checked
from tidb_binlog.observe import show

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HELP: Final = """\
tables as they were at a point in time, as Parquet

    binlog-spark image --archive DIR --at "2026-11-22 03:00:00" --into /data/image-0300
    binlog-spark image --archive DIR --at 463012345678901248 --base /data/image-0300 --into /data/image-0400

An archive that reaches back to CREATE TABLE needs no base. With one only what came after it is read. A small
archive is read by this process, without Spark, unless --master or --conf is given.
manifest.json in the directory says the commit_ts, and rows and a checksum of each table.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_archive(parser)
    add = parser.add_argument_group("what").add_argument
    add("--at", default="", metavar="TIME", help="a commit timestamp or a time in UTC (default: the end)")
    add("--into", required=True, metavar="DIR", help="directory of the image, new; or a URI (s3://, gs://)")
    add("--base", default="", metavar="DIR", help="an earlier image")
    arguments.add_tables(parser)
    arguments.add_output(parser)
    arguments.add_small(parser, "archive and base")


def run(args: argparse.Namespace) -> int:
    stop = parse_bound(args.at, end=True)
    from drainer.spark import image

    Place(args.into).require("--into", READ | WRITE)
    if args.base:
        Place(args.base).require("--base", READ)
    options = arguments.source_options(args, **({"stop": str(stop)} if stop else {}))
    small_bytes = arguments.small_bytes(args)
    with contextlib.ExitStack() as stack:

        @functools.cache
        def spark() -> SparkSession:
            session = arguments.start_session(args, "binlog-spark image")
            stack.enter_context(TaskProgress("making the image", session))
            return session

        manifest = image.make(
            spark, args.archive, args.into, options, base=args.base, small_bytes=small_bytes, tell=_tell
        )
    if args.output == arguments.JSON:
        show.print_json(checked.read_document(manifest.to_json().encode()))
        return 0
    rows = [(f"{table.schema}.{table.table}", str(table.rows), table.checksum) for table in manifest.tables]
    show.print_table(f"image at {manifest.commit_ts} ({manifest.time})", ("table", "rows", "checksum"), rows)
    return 0


def _tell(text: str) -> None:
    show.print_warning(f"image of {text}")

"""binlog-spark flashback: take back what happened to tables, as a file of SQL or in the database.

Tests  tests/spark/test_readme_spark.py
"""

from __future__ import annotations

import argparse
import dataclasses
from typing import TYPE_CHECKING, Final

from drainer.spark import arguments
from drainer.spark.driver import TaskProgress
from drainer.spark.flashback import run as flashback
from drainer.spark.flashback.run import FlashbackSummary
from tidb_binlog.errors import FlagError
from tidb_binlog.observe import show

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HELP: Final = """\
take back what happened to tables in a range: a file of SQL to read, or --yes to do it

    binlog-spark flashback --archive DIR --start "2026-11-22 03:00:00" --tables shop.orders --file undo.sql
    binlog-spark flashback --archive DIR --start ... --tables shop.orders --to mysql://root@db:3306/ --yes

By default each row goes back to what it was before the range in one step; --way transactions takes back one
transaction after the other, the last one first. With --yes rows are compared with the archive first: where
one was changed since, nothing is done and the row is named. A run that was killed continues when the same
command is given again. A schema change of one of the tables in the range is refused.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_archive(parser)
    arguments.add_bounds(parser)
    arguments.add_tables(parser)
    arguments.add_database(
        parser, "--to", required=False, purpose="where the rows are; for --file only how its tables look"
    )
    add = parser.add_argument_group("how").add_argument
    add("--way", choices=flashback.WAYS, default=flashback.NET, help="default: net")
    add("--file", default="", metavar="FILE", help="write the statements there; it must not be there yet")
    add("--yes", action="store_true", help="change the rows in the database")
    add("--job", default="", metavar="NAME", help="with --yes, to take back a range a second time")
    arguments.add_output(parser)
    arguments.add_small(parser, "the range")


def run(args: argparse.Namespace) -> int:
    if args.yes == bool(args.file):
        raise FlagError("give either --file or --yes", hint="--file FILE writes the statements to read them")
    if args.yes and not args.database:
        raise FlagError("--yes needs --to", hint="--to mysql://USER@HOST:PORT/")
    if not args.start:
        raise FlagError("--start is missing", hint="give the time that rows are to be taken back to")
    options = arguments.source_options(args)
    target = arguments.database(args) if args.database else None
    small_bytes = arguments.small_bytes(args)

    with TaskProgress("flashback") as progress:

        def spark() -> SparkSession:
            session = arguments.start_session(args, "binlog-spark flashback")
            progress.follow(session)
            return session

        def tell(rows: int) -> None:
            progress.detail(f"{rows:,} rows restored")

        if args.yes:
            assert target is not None
            done = flashback.apply(
                spark,
                args.archive,
                target,
                options,
                way=args.way,
                small_bytes=small_bytes,
                job=args.job,
                on_progress=tell,
            )
        else:
            done = flashback.write_script(
                spark,
                args.archive,
                args.file,
                options,
                way=args.way,
                small_bytes=small_bytes,
                database=target,
            )
    _show(args, done)
    return 0


def _show(args: argparse.Namespace, done: FlashbackSummary) -> None:
    facts = dataclasses.asdict(done)
    if args.output == arguments.JSON:
        show.print_json(facts)
        return
    rows = [
        (table, str(kinds.get("delete", 0)), str(kinds.get("overwrite", 0)), str(kinds.get("insert", 0)))
        for table, kinds in done.rows.items()
    ]
    where = args.file or "the database"
    show.print_table(f"{done.undone} rows in {where}", ("table", "deleted", "overwritten", "inserted"), rows)
    for warning in done.warnings:
        show.print_warning(f"warning: {warning}")

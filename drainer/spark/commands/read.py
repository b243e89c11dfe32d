"""binlog-spark read: changes and the other views of an archive, shown, counted, or saved as Parquet.

Tests  tests/spark/test_readme_spark.py
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from drainer.places.place import READ, WRITE, Place
from drainer.spark import arguments, parquet_tasks
from drainer.spark.driver import TaskProgress
from drainer.spark.output import print_frame, print_rows
from tidb_binlog.errors import FlagError
from tidb_binlog.observe import show

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructField

HELP: Final = """\
show, count or save changes, transactions, DDL and files

    binlog-spark read --archive DIR --tables shop.orders --start "2026-11-22 03:00:00" --limit 5
    binlog-spark read --archive DIR --table shop.orders --where "after.amount > 100"
    binlog-spark read --archive DIR --count
    binlog-spark read --archive DIR --save /data/changes

Views: changes (one row a change, images as JSON; with --table as columns), transactions, ddl, files. Rows
come in commit order. JSON is one object a line. --save writes Parquet, as it comes: a file, or with Spark one
a partition.

Without --master this process reads the archive, on one core; only --where (a condition of Spark SQL) starts
Spark.
"""
VIEWS: Final = ("changes", "transactions", "ddl", "files")
LIMIT: Final = 20
_ORDER: Final = ("_commit_ts", "commit_ts", "_seq", "index")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_archive(parser)
    arguments.add_range(parser)
    add = parser.add_argument_group("what").add_argument
    add("--view", choices=VIEWS, default="changes", help="default: changes")
    add("--table", default="", metavar="DB.TABLE", help="one table, its images as typed columns")
    add("--columns", default="", metavar="NAMES", help="only these, with commas; only they are decoded")
    add("--where", default="", metavar="SQL", help="a condition of Spark SQL on the view's columns")
    add("--limit", type=_limit, default=LIMIT, metavar="N", help=f"rows shown (default {LIMIT}), 0: all")
    add("--count", action="store_true", help="only how many")
    add(
        "--save",
        default="",
        metavar="DIR",
        help="write Parquet there (path or URI), show no rows",
    )
    arguments.add_output(parser)
    arguments.add_spark(parser)


def run(args: argparse.Namespace) -> int:
    if args.table and args.view != "changes":
        raise FlagError("--table is for the view changes", hint="use --tables for the others")
    if args.save:
        Place(args.save).require("--save", READ | WRITE)
    if arguments.is_here(args) and not args.where:
        _run_here(args)
        return 0
    spark = arguments.start_session(args, "binlog-spark read", with_format=True)
    frame = _frame(spark, args)
    if args.count:
        with TaskProgress("counting", spark):
            number = frame.count()
        _tell(args.output, {args.view: number})
    elif args.save:
        with TaskProgress("saving", spark):
            parquet_tasks.write(frame, Place(args.save))
            number = parquet_tasks.read(spark, Place(args.save), frame.schema).count()
        _tell_saved(args, number)
    else:
        _show(spark, frame, args)
    return 0


def _frame(spark: SparkSession, args: argparse.Namespace) -> DataFrame:
    options = arguments.source_options(args, view=args.view, table=args.table)
    frame = spark.read.format("binlog").options(**options).load(args.archive)
    names = _names(args, frame.columns)
    if (args.count or names) and not args.where:
        # Spark prunes no columns of a Python source: what the schema names is all that gets decoded.
        fields = [field for field in frame.schema if field.name in (names or frame.columns[:1])]
        frame = _again(spark, options, args.archive, fields)
    if args.where:
        frame = _where(frame, args.where)
    return frame.select(*names) if names else frame


def _names(args: argparse.Namespace, columns: Sequence[str]) -> list[str]:
    """The columns that are asked for, none for all."""
    names = [name.strip() for name in args.columns.split(",") if name.strip()]
    unknown = [name for name in names if name not in columns]
    if unknown:
        raise FlagError(f"{args.view} has no column {unknown[0]}", hint=f"choose from {', '.join(columns)}")
    return names


def _run_here(args: argparse.Namespace) -> None:
    """Without Spark."""
    import pyarrow as pa

    from drainer.reading.archive.archive_source import ArchiveSource
    from drainer.spark.local import json_lines, ordered_rows

    options = arguments.source_options(args, view=args.view, table=args.table)
    source = ArchiveSource({**options, "path": args.archive})
    schema = source.schema
    names = _names(args, schema.names) or (schema.names[:1] if args.count else schema.names)
    columns = pa.schema([schema.field(name) for name in names])
    if args.count:
        _tell(
            args.output, {args.view: sum(batch.num_rows for batch in ordered_rows.batches(source, columns))}
        )
        return
    if args.save:
        place = Place(args.save)
        parquet_tasks.check_empty(place)
        place.make()
        _tell_saved(args, parquet_tasks.write_part(place, 0, columns, ordered_rows.batches(source, columns)))
        return
    order = [name for name in _ORDER if name in names]
    if args.limit:
        rows = ordered_rows.first(source, columns, order, args.limit)
    else:
        rows = ordered_rows.everything(source, columns, order)
    lines = json_lines.lines(columns, rows)
    print_rows(_title(args), names, lines, args.output, keep_empty=bool(args.columns))


def _title(args: argparse.Namespace) -> str:
    return f"{args.view} of {Place(args.archive).shown}"


def _again(
    spark: SparkSession, options: dict[str, str], archive: str, fields: Iterable[StructField]
) -> DataFrame:
    from pyspark.sql.types import StructType

    reader = spark.read.format("binlog").options(**options)
    return reader.schema(StructType(list(fields))).load(archive)


def _where(frame: DataFrame, condition: str) -> DataFrame:
    from pyspark.errors import AnalysisException, ParseException

    try:
        return frame.where(condition)
    except (AnalysisException, ParseException) as error:
        said = str(error).split(" SQLSTATE")[0].splitlines()
        raise FlagError(
            f"--where {condition!r} is no condition here: {' '.join(filter(None, said))}",
            hint=f"SQL over {', '.join(frame.columns)}",
        ) from None


def _show(spark: SparkSession, frame: DataFrame, args: argparse.Namespace) -> None:
    order = [name for name in _ORDER if name in frame.columns]
    if order:
        frame = frame.orderBy(*order)
    if args.limit:
        frame = frame.limit(args.limit)
    with TaskProgress("reading", spark):
        print_frame(_title(args), frame, args.output, keep_empty=bool(args.columns))


def _tell_saved(args: argparse.Namespace, rows: int) -> None:
    _tell(args.output, {"rows": rows, "directory": args.save})


def _tell(output: str, facts: dict[str, object]) -> None:
    if output == arguments.JSON:
        show.print_json(facts)
    else:
        show.print_facts(facts.items())


def _limit(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError("give a number of rows, 0 for all")
    return int(text)

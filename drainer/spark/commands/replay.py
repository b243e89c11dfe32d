"""binlog-spark replay: a range of an archive goes downstream, once, over as many cores as there are.

Tests  tests/spark/test_readme_spark.py
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from drainer.reading.archive.files.selection import Selection
from drainer.spark import arguments
from drainer.spark.replay.plan import ReplayOptions
from tidb_binlog import quantities
from tidb_binlog.observe import show

if TYPE_CHECKING:
    from drainer.spark.replay.entry import ReplaySummary

HELP: Final = """\
bring a database to a point in time of an archive, over many cores, and resume after a crash

    binlog-spark replay --from DIR --to mysql://root@127.0.0.1:3306/ [--start TIME] [--stop TIME]

The database has to be as it was upstream before --start. Changes of a row are folded over the whole range, so
that it is written once; schema changes run in their order between them. What is done is kept downstream, in
tidb_binlog.spark_jobs and spark_progress: the same command resumes where the last one stopped, and does
nothing twice. It ends with a summary.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_archive(parser)
    arguments.add_database(parser, "--to", required=True, purpose="where to apply it")
    arguments.add_tables(arguments.add_bounds(parser))
    add = parser.add_argument_group("replay").add_argument
    add(
        "--dry-run",
        action="store_true",
        help="say what would be done and how long it may take; write nothing",
    )
    add("--safe", action="store_true", help="rows may be downstream already, or be gone: write over them")
    add(
        "--skip-ddl",
        type=_numbers,
        default=frozenset(),
        metavar="TSO",
        help="leave these schema changes out, by their commit_ts, with commas",
    )
    add(
        "--job",
        default="",
        metavar="NAME",
        help="name of the job (default: made of archive, range and tables)",
    )
    arguments.add_output(parser)
    arguments.add_spark(parser)


def run(args: argparse.Namespace) -> int:
    from drainer.spark.replay.entry import replay

    arguments.check(args)
    options = ReplayOptions(
        tables=Selection.of(tables=args.tables).tables,
        safe=args.safe,
        skip_ddl=args.skip_ddl,
        source=arguments.source_options(args, tables="", start="", stop=""),
    )
    summary = replay(
        lambda: arguments.start_session(args, "binlog-spark replay"),
        args.archive,
        arguments.database(args),
        start=args.start,
        stop=args.stop,
        options=options,
        job=args.job,
        dry_run=args.dry_run,
        show_progress=True,
    )
    args.job_metrics.note(rows=summary.rows, read_bytes=summary.bytes, drift=summary.drift)
    show.print_lines(*([summary.to_json()] if args.output == arguments.JSON else lines(summary)))
    return 0


def lines(summary: ReplaySummary) -> list[str]:
    """For people."""
    size = f"{summary.bytes / (1 << 20):.1f} MiB"
    text_lines = [
        f"archive   {summary.archive}, {size}, about {summary.changes} changes, {summary.ddl} schema changes",
        f"range     commit_ts {summary.start_ts} to {summary.stop_ts}",
    ]
    if summary.dry_run:
        return [
            *text_lines,
            f"dry run   nothing was written; about {quantities.span(summary.estimated_s)} on two cores",
        ]
    text_lines.append(f"job       {summary.job}" + (", resumed" if summary.resumed else ""))
    took = quantities.span(summary.seconds)
    text_lines.append(
        f"done      before; what came later is another range: --start {summary.stop_ts + 1}"
        if summary.was_done
        else f"done      {summary.rows} rows written in {summary.chunks} transactions, {took}"
    )
    if summary.drift:
        text_lines.append(f"drift     {summary.drift} rows downstream were not as they should be: audit it")
    texts = sorted(summary.texts.items())
    text_lines += [f"texts     {name}: {count} values are not in its character set" for name, count in texts]
    text_lines += [f"missing   downstream {line}" for line in summary.missing]
    return text_lines


def _numbers(text: str) -> frozenset[int]:
    return frozenset(int(number) for number in text.split(",") if number.strip())

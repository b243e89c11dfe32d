"""binlog-spark stream: a growing archive goes downstream as it is written, batch by batch, each once.

Tests  tests/spark/test_readme_spark.py
"""

from __future__ import annotations

import argparse
import signal
from dataclasses import asdict
from types import FrameType
from typing import TYPE_CHECKING, Final

from drainer.reading.archive.files.selection import Selection, parse_bound
from drainer.spark import arguments
from drainer.spark.replay.plan import ReplayOptions
from drainer.spark.source.stream_offsets import BATCH_BYTES, INTERVAL_S
from tidb_binlog import quantities
from tidb_binlog.observe import show

if TYPE_CHECKING:
    from drainer.spark.replay.stream_apply import Batch

HELP: Final = """\
apply an archive downstream while a drainer writes it, and resume where the last run ended

    binlog-spark stream --from DIR --to mysql://root@127.0.0.1:3306/ --checkpoint DIR

The checkpoint directory remembers which batch comes next, the downstream (tidb_binlog.spark_jobs) what of it
is there: killed at any time, the same command resumes, nothing is lost or done twice. Each batch is a line.
Ctrl-C or SIGTERM ends it; --once ends it when all that is there now is applied.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_archive(parser)
    arguments.add_database(parser, "--to", required=True, purpose="where to apply it")
    add = parser.add_argument_group("stream").add_argument
    add("--checkpoint", required=True, metavar="DIR", help="of this stream alone; kept over restarts")
    add("--once", action="store_true", help="apply what is there now, then end")
    add("--start", type=_bound, default=0, metavar="TIME", help="begin there, with a new checkpoint")
    add("--interval", type=_span, default=INTERVAL_S, metavar="SPAN", help="between batches (default 1s)")
    add(
        "--batch-bytes",
        type=arguments.size_bytes,
        default=BATCH_BYTES,
        metavar="SIZE",
        help="of the archive in a batch at most, but one transaction at least (default 64 MiB)",
    )
    add("--safe", action="store_true", help="rows may be downstream already, or be gone: write over them")
    add(
        "--skip-lost",
        action="store_true",
        help="continue where segments were removed before they were applied: their rows are lost downstream",
    )
    arguments.add_tables(parser)
    arguments.add_output(parser)
    arguments.add_spark(parser)


def run(args: argparse.Namespace) -> int:
    # It needs what PySpark has since 4.2: the other commands do without, and so does --help.
    from drainer.spark.replay.stream_apply import ArchiveStream, StreamSettings

    target = arguments.database(args)
    options = ReplayOptions(
        tables=Selection.of(tables=args.tables).tables,
        safe=args.safe,
        source=arguments.source_options(args, tables="", start=""),
    )
    settings = StreamSettings(
        start=args.start,
        once=args.once,
        interval_s=args.interval,
        batch_bytes=args.batch_bytes,
        fail_on_data_loss=not args.skip_lost,
        options=options,
    )
    spark = arguments.open_session(args, "binlog-spark stream")
    show = _as_json if args.output == arguments.JSON else _as_text

    def done(batch: Batch) -> None:
        args.job_metrics.note_batch(batch)
        show(batch)

    stream = ArchiveStream(spark, args.archive, target, args.checkpoint, settings, on_batch=done)

    def end(number: int, frame: FrameType | None) -> None:
        stream.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    stream.wait()
    return 0


def _as_json(batch: Batch) -> None:
    show.print_json(asdict(batch), indent=None)


def _as_text(batch: Batch) -> None:
    rate = batch.rows / batch.seconds if batch.seconds else 0.0
    parts = [
        f"batch {batch.number}",
        f"{batch.rows} rows",
        *([f"{batch.ddl} DDL"] if batch.ddl else []),
        *([f"{batch.drift} rows were not as expected"] if batch.drift else []),
        f"up to {batch.stop_ts}",
        f"{rate:.0f} rows/s",
        f"lag {quantities.span(max(batch.lag_s, 0.0))}",
    ]
    show.print_lines(", ".join(parts))


def _bound(text: str) -> int:
    return parse_bound(text, end=False)


def _span(text: str) -> float:
    try:
        return quantities.duration_s(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None

"""binlog-spark stream: what Pumps have, or a growing archive, goes downstream batch by batch, each once.

Tests  tests/spark/test_readme_spark.py
"""

from __future__ import annotations

import argparse
import atexit
import functools
import os
import shutil
import signal
import tempfile
from collections.abc import Callable
from dataclasses import asdict, replace
from types import FrameType
from typing import TYPE_CHECKING, Final

from drainer.places.object_store import STORES
from drainer.places.place import Place
from drainer.reading.archive.files.selection import Selection, parse_bound
from drainer.spark import arguments
from drainer.spark.replay.plan import SMALL_BYTES, ReplayOptions
from drainer.spark.source.stream_offsets import BATCH_BYTES, INTERVAL_S
from tidb_binlog import quantities
from tidb_binlog.errors import FlagError
from tidb_binlog.observe import show

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from drainer.config.options import DrainerConfig
    from drainer.spark.live.downstream import LiveSettings
    from drainer.spark.live.stream import PumpStream
    from drainer.spark.replay.stream_apply import ArchiveStream
    from drainer.spark.replay.stream_jobs import Batch

HELP: Final = """\
apply what Pumps have, or an archive that a drainer writes, over many cores, and resume where the last run
ended

    binlog-spark stream --from pumps://HOST:2379 --to mysql://root@127.0.0.1:3306/
    binlog-spark stream --from pumps://HOST:2379 --to delta:///data/lake
    binlog-spark stream --config drainer.toml
    binlog-spark stream --from DIR --to mysql://root@127.0.0.1:3306/ --checkpoint DIR

From Pumps, it takes the place of a Drainer: it goes on from the Drainer's checkpoint downstream, by its rules
(--config), and a Drainer goes on from what it leaves. Both at once are refused. While it runs, Pumps keep for
the reader --name what it has not applied.
To a lake (delta://PLACE or iceberg://PLACE, PLACE a directory, s3:// or gs:// URI), every change is appended
to a table of its table, as a Drainer with that db-type does; the warehouse remembers where the stream is.
From an archive, the checkpoint directory remembers which batch comes next, the downstream what of it is
there. Killed at any time, the same command resumes, nothing is lost or done twice. Each batch is a line.
Ctrl-C or SIGTERM ends it after the batch at hand; --once ends it when all that is there now is applied.
"""
NAME: Final = "spark"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_archive(parser, required=False, pumps=True)
    arguments.add_database(
        parser, "--to", required=False, purpose="where to apply it: delta://PLACE, iceberg://PLACE, or"
    )
    add = parser.add_argument_group("stream").add_argument
    add_following(parser)
    add(
        "--checkpoint",
        default="",
        type=_checkpoint,
        metavar="DIR",
        help="of a stream from an archive; kept over restarts",
    )
    add("--start", type=_bound, default=0, metavar="TIME", help="begin there, with a new checkpoint")
    add("--safe", action="store_true", help="rows may be downstream already, or be gone: write over them")
    add(
        "--skip-lost",
        action="store_true",
        help="continue where segments were removed before they were applied: their rows are lost downstream",
    )
    arguments.add_tables(parser)
    arguments.add_output(parser)
    arguments.add_spark(parser)


def add_following(parser: argparse.ArgumentParser) -> None:
    """How what Pumps have is followed."""
    add = parser.add_argument_group("batches").add_argument
    add("--config", default="", metavar="FILE", help="a Drainer's: Pumps, downstream, rules, TLS, ddl-rule")
    add(
        "--mode",
        choices=("changelog", "mirror"),
        default="changelog",
        help="of a lake: every change is appended (default), or its tables are what the tables upstream are",
    )
    add("--name", default=NAME, metavar="NAME", help=f"of the reader that Pumps keep for (default {NAME})")
    add("--once", action="store_true", help="apply what is there now, then end")
    add("--interval", type=_span, default=INTERVAL_S, metavar="SPAN", help="between batches (default 1s)")
    add(
        "--batch-bytes",
        type=arguments.size_bytes,
        default=0,
        metavar="SIZE",
        help="read for a batch at most, but one transaction at least (default 64 MiB, from Pumps 256 MiB)",
    )
    add(
        "--small",
        type=arguments.size_bytes,
        default=SMALL_BYTES,
        metavar="SIZE",
        help="a batch from Pumps up to so much is done by this process, without Spark (default 8 MiB)",
    )


def run(args: argparse.Namespace) -> int:
    if args.config or args.archive.startswith(arguments.PUMPS):
        drainer = drainer_of(args)
        refuse_whole_transactions(drainer)
        return follow_pumps(args, live_settings(args, drainer))
    return _follow(args, functools.partial(_from_archive, args))


def _follow(
    args: argparse.Namespace, stream_of: Callable[[Callable[[Batch], None]], PumpStream | ArchiveStream]
) -> int:
    show = _as_json if args.output == arguments.JSON else _as_text

    def done(batch: Batch) -> None:
        args.job_metrics.note_batch(batch)
        show(batch)

    stream = stream_of(done)

    def end(number: int, frame: FrameType | None) -> None:
        stream.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    stream.wait()
    return 0


def refuse_whole_transactions(drainer: DrainerConfig) -> None:
    """Raises `FlagError` where upstream transactions are not to be cut."""
    if drainer.to_database and drainer.dispatches_whole:
        raise FlagError(
            "syncer.dispatch = transaction: a stream of Spark cuts transactions, and has no order of them",
            hint="set it to row, or leave this to a Drainer",
        )


def live_settings(args: argparse.Namespace, drainer: DrainerConfig) -> LiveSettings:
    """What the command line says of a stream; Spark is told what it needs for that. Raises `FlagError`."""
    from drainer.config.lake_options import LAKES
    from drainer.lake.warehouse import MIRROR
    from drainer.spark.live.downstream import LIVE_BATCH_BYTES, LiveSettings
    from drainer.spark.live.mirror import session_settings

    if args.mode == MIRROR:
        if drainer.db_type not in LAKES:
            raise FlagError("--mode mirror is of a lake", hint="--to delta://PLACE or iceberg://PLACE")
        args.conf = [*session_settings(drainer).items(), *args.conf]
    return LiveSettings(
        drainer,
        args.name,
        listen=drainer.addr if args.config else "",
        once=args.once,
        small_bytes=args.small,
        interval_s=args.interval,
        batch_bytes=args.batch_bytes or LIVE_BATCH_BYTES,
        mode=args.mode,
    )


def follow_pumps(args: argparse.Namespace, settings: LiveSettings) -> int:
    """The stream from where the checkpoint downstream is, as a Drainer of this configuration."""
    from drainer.spark.live.stream import PumpStream

    def spark() -> SparkSession:
        return arguments.start_session(args, f"binlog-spark {args.command}")

    return _follow(args, lambda done: PumpStream(settings, spark, on_batch=done))


def drainer_of(args: argparse.Namespace) -> DrainerConfig:
    """The Drainer's configuration that the command line stands for. Raises `ConfigError`, `FlagError`."""
    from drainer.config.lake_options import ICEBERG, LAKES
    from drainer.config.options import ENV_PREFIX, DrainerConfig
    from tidb_binlog.config import loading

    argv = ["-config", args.config] if args.config else []
    directory = tempfile.mkdtemp(prefix="binlog-stream-")  # of a Drainer's nothing is needed, nor changed
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    settings = loading.load(DrainerConfig, argv, os.environ, program="drainer", env_prefix=ENV_PREFIX)
    settings = replace(settings, data_dir=directory)
    if args.archive:
        if not args.archive.startswith(arguments.PUMPS):
            raise FlagError("--config is about Pumps", hint="leave --from away, or give pumps://HOST:2379")
        settings = replace(settings, pd_urls=args.archive.removeprefix(arguments.PUMPS))
    if args.start:
        settings = replace(settings, initial_commit_ts=args.start - 1)
    if args.safe:
        settings = replace(settings, safe_mode=True)
    lake, _, place = args.database.partition("://")
    if lake in LAKES:
        settings = replace(settings, db_type=lake, warehouse=place)
    elif args.database:
        if lake not in arguments.SCHEMES:
            raise FlagError(
                f"--to begins with {lake}, which is no downstream of a stream",
                hint=f"use mysql://USER@HOST:PORT/, {'://PLACE or '.join(LAKES)}://PLACE",
            )
        target = arguments.database(args)
        settings = replace(
            settings,
            db_type="mysql",
            to_host=target.host,
            to_port=target.port,
            to_user=target.user,
            to_password=target.password,
            to_socket=target.socket,
            to_ssl_ca=args.ssl_ca,
            to_ssl_cert=args.ssl_cert,
            to_ssl_key=args.ssl_key,
        )
    if settings.db_type in LAKES:
        settings.check_lake(is_iceberg=settings.db_type == ICEBERG)
    elif not settings.to_database or not (args.database or args.config):
        raise FlagError(
            "there is no downstream", hint="--to mysql://USER@HOST:PORT/, or [syncer.to] in --config"
        )
    return settings


def _from_archive(args: argparse.Namespace, done: Callable[[Batch], None]) -> ArchiveStream:
    # It needs what PySpark has since 4.2: the other commands do without, and so does --help.
    from drainer.spark.replay.stream_apply import ArchiveStream, StreamSettings

    if args.mode == "mirror":
        raise FlagError("--mode mirror is of a stream from Pumps", hint="--from pumps://HOST:2379")
    for flag, value in (("--from", args.archive), ("--to", args.database), ("--checkpoint", args.checkpoint)):
        if not value:
            raise FlagError(f"{flag} is missing", hint="see binlog-spark stream --help")
    options = ReplayOptions(
        tables=Selection.of(tables=args.tables).tables,
        safe=args.safe,
        source=arguments.source_options(args, tables="", start=""),
    )
    settings = StreamSettings(
        start=args.start,
        once=args.once,
        interval_s=args.interval,
        batch_bytes=args.batch_bytes or BATCH_BYTES,
        fail_on_data_loss=not args.skip_lost,
        options=options,
    )
    target = arguments.database(args)
    arguments.check(args, tables=False)
    spark = arguments.start_session(args, "binlog-spark stream")
    return ArchiveStream(spark, args.archive, target, args.checkpoint, settings, on_batch=done)


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


def _checkpoint(text: str) -> str:
    if Place(text).scheme in STORES:
        raise argparse.ArgumentTypeError(
            f"{text!r}: Spark keeps it, which knows no such file system; give a path, hdfs://, or s3a:// with"
            " the jars for it"
        )
    return text


def _bound(text: str) -> int:
    return parse_bound(text, end=False)


def _span(text: str) -> float:
    try:
        return quantities.duration_s(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None

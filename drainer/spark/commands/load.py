"""binlog-spark load: what the upstream has is copied by Spark's tasks, then the stream goes on from there.

Holds   killed at any time, the same command goes on: with the copy while that is not done, afterwards with
        the stream. Pumps keep what follows T for the stream's reader from before the first row is read
Tests   tests/spark/live/test_first_copy.py
"""

from __future__ import annotations

import argparse
import asyncio
import functools
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Final

from drainer.spark import arguments
from drainer.spark.commands import stream
from tidb_binlog.errors import FlagError
from tidb_binlog.observe import show

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from drainer.config.options import DrainerConfig
    from drainer.spark.live.downstream import LiveSettings

HELP: Final = """\
copy what the upstream has, by key ranges over many cores, then follow the Pumps from there

    binlog-spark load --from tidb://loader@HOST:4000/ --to mysql://root@HOST:3306/ --pumps pumps://HOST:2379
    binlog-spark load --from tidb://loader@HOST:4000/ --to delta:///lake --pumps pumps://HOST:2379
    binlog-spark load --config drainer.toml

All tables are read as they were at one timestamp T of a TiDB (tidb_snapshot), each range by a task over a
connection of its own; garbage collection is held meanwhile. At the end the checkpoint at T is stored, from
which the stream goes on as `binlog-spark stream` does, or with --no-stream a Drainer.
Killed at any time, the same command resumes, and nothing is written twice. A downstream that has a checkpoint
is not copied to: the stream goes on there.
In a lake, a changelog begins with each row at T, marked snapshot, a mirror (--mode mirror) with the rows of
T; tables appear when all are copied.
A database whose programs publish ([syncer.from] outcome-table) shows T to one process only: this one copies
it, with worker-count threads, and Spark does what follows.
"""
FROM_PASSWORD: Final = "BINLOG_SPARK_FROM_PASSWORD"
PROGRAM: Final = "binlog-spark"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("upstream").add_argument
    add(
        "--from",
        dest="source",
        default="",
        metavar="URL",
        help=f"SQL of the upstream: tidb://USER@HOST:PORT/, the password in {FROM_PASSWORD} or"
        " --from-password-file (default: [syncer.from] in --config)",
    )
    add("--from-password-file", default="", metavar="FILE", help="its first line is the password")
    add(
        "--pumps",
        dest="archive",
        type=_pumps,
        default="",
        metavar="URL",
        help="the cluster: pumps://HOST:2379 (default: pd-urls in --config)",
    )
    arguments.add_database(
        parser, "--to", required=False, purpose="where to copy and apply: delta://PLACE, iceberg://PLACE, or"
    )
    stream.add_following(parser)
    add = parser.add_argument_group("copy").add_argument
    add(
        "--replace", action="store_true", help="what is in the tables downstream goes first, but for a copy's"
    )
    add("--append", action="store_true", help="rows that are in the tables downstream stay")
    add("--rate", type=int, default=0, metavar="ROWS", help="rows a second at most (default: no limit)")
    add("--dry-run", action="store_true", help="show what would be copied; write nothing")
    add("--no-stream", action="store_true", help="end after the copy: a Drainer goes on, or a stream")
    arguments.add_output(parser)
    arguments.add_spark(parser)
    parser.set_defaults(start=0, safe=False)


def run(args: argparse.Namespace) -> int:
    if args.rate < 0:
        raise FlagError(f"--rate is {args.rate}", hint="rows a second, 0: without a limit")
    if args.replace and args.append:
        raise FlagError("--replace and --append are two ways", hint="leave one of them away")
    drainer = settings_of(args)
    settings = stream.live_settings(args, drainer)
    if not args.no_stream:
        stream.refuse_whole_transactions(drainer)
    asyncio.run(_copy(args, drainer) if drainer.to_database else _copy_into_lake(args, settings))
    if args.dry_run or args.no_stream:
        return 0
    return stream.follow_pumps(args, settings)


def settings_of(args: argparse.Namespace) -> DrainerConfig:
    """The Drainer's configuration that the command line stands for. Raises `ConfigError`, `FlagError`."""
    if not (args.archive or args.config):
        raise FlagError("there is no cluster", hint="--pumps pumps://HOST:2379, or --config drainer.toml")
    drainer = stream.drainer_of(args)
    if args.append and not drainer.to_database:
        raise FlagError(
            "--append is of a database: a copy into a lake makes its tables",
            hint="leave it away, or give --replace",
        )
    if args.source:
        secret = arguments.password(args.from_password_file, FROM_PASSWORD)
        source = arguments.target_of(args.source, secret)
        drainer = replace(
            drainer,
            from_host=source.host,
            from_port=source.port,
            from_user=source.user,
            from_password=secret,
            from_password_file="",
            from_encrypted_password="",
            from_socket=source.socket,
        )
    return drainer


async def _copy(args: argparse.Namespace, drainer: DrainerConfig) -> None:
    """What is still to be copied. Raises as `Load.run`."""
    from drainer.app.build_mysql import patiently, seen
    from drainer.config.cluster import cluster
    from drainer.points.load.load import Load, estimate
    from drainer.points.load.reconcile import Mode
    from drainer.points.load.shown import print_done, print_estimate, shown
    from drainer.spark.chunk_tasks import ChunkTasks

    as_json = args.output == arguments.JSON
    mode = Mode.REPLACE if args.replace else Mode.APPEND if args.append else Mode.NEW
    async with cluster(drainer) as (upstream, nodes):
        inspection = await patiently(lambda: seen(drainer, upstream.cluster_id), lambda: None)
        if not inspection.is_to_load and (mode is not Mode.REPLACE or inspection.load is not None):
            if not as_json:
                show.print_lines("nothing to copy: the downstream has a checkpoint")
            return
        if args.dry_run:
            expected = await estimate(drainer, upstream, nodes, mode=mode, rate_rows=args.rate)
            print_estimate(expected, as_json=as_json)
            return

        def spark() -> SparkSession:
            return arguments.start_session(args, "binlog-spark load")

        load = Load(
            drainer,
            upstream,
            nodes,
            mode=mode,
            rate_rows=args.rate,
            spread=functools.partial(ChunkTasks, spark),
            reader="" if args.no_stream else args.name,
        )
        async with shown(load.counters, PROGRAM, quiet=as_json):
            done = await load.run()
    args.job_metrics.note(rows=done.rows)
    if as_json:
        show.print_json({"copied": asdict(done)}, indent=None)
    else:
        what_next = "A Drainer or a stream goes on from there." if args.no_stream else "The stream goes on."
        print_done(done, PROGRAM, what_next)


async def _copy_into_lake(args: argparse.Namespace, settings: LiveSettings) -> None:
    """What is still to be copied. Raises as `LakeCopy.run`."""
    from drainer.config.cluster import cluster
    from drainer.lake.warehouse import MIRROR
    from drainer.points.dump.dump import Dump
    from drainer.points.load.shown import print_done, print_estimate, shown
    from drainer.spark.live.first_copy import LakeCopy
    from drainer.spark.live.mirror import connector_of, require
    from drainer.spark.source.pump_cluster import PumpCluster
    from tidb_binlog.clock import SystemClock

    as_json, drainer = args.output == arguments.JSON, settings.drainer
    if args.dry_run:
        async with cluster(drainer) as (upstream, _):
            expected = await Dump(drainer, upstream, drainer.warehouse, rate_rows=args.rate).plan()
        print_estimate(expected, as_json=as_json)
        return

    def spark() -> SparkSession:
        return arguments.start_session(args, "binlog-spark load")

    if settings.mode == MIRROR and not args.no_stream:
        require(spark(), connector_of(drainer))  # it would be missed after hours
    async with PumpCluster(drainer, settings.name, settings.listen, SystemClock()) as pumps:
        copy = LakeCopy(settings, spark, pumps, is_replacing=args.replace, rate_rows=args.rate)
        async with shown(copy.counters, PROGRAM, quiet=as_json):
            done = await copy.run()
    if done is None:
        if not as_json:
            show.print_lines("nothing to copy: the stream has a position in the lake")
        return
    args.job_metrics.note(rows=done.rows)
    if as_json:
        show.print_json({"copied": asdict(done)}, indent=None)
    else:
        what_next = "A Drainer or a stream goes on from there." if args.no_stream else "The stream goes on."
        print_done(done, PROGRAM, what_next)


def _pumps(text: str) -> str:
    if text and not text.startswith(arguments.PUMPS):
        raise argparse.ArgumentTypeError(f"{text!r}: give pumps://HOST:2379")
    return text

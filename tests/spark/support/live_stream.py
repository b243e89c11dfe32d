"""A stream of Spark into the test's server, from all that the Pumps of an etcd hold."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drainer.config.options import DrainerConfig
from drainer.mysql.connection import Connection, Target
from drainer.spark.live.downstream import LiveSettings
from drainer.spark.live.stream import PumpStream
from drainer.spark.replay.stream_jobs import Batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def live_settings(
    database: str, endpoint: str, target: Target, connection: Connection, directory: Path, **options: Any
) -> Iterator[LiveSettings]:
    """With these options of a Drainer; `database` is not there before and after."""
    connection.run(f"DROP DATABASE IF EXISTS {database}".encode())
    data_dir = directory / "data"
    data_dir.mkdir()
    drainer = replace(
        DrainerConfig(),
        pd_urls=endpoint,
        data_dir=str(data_dir),
        initial_commit_ts=0,
        to_user=target.user,
        to_password=target.password,
        to_socket=target.socket,
        **options,
    )
    yield LiveSettings(drainer, "spark", once=True, interval_s=0.05)
    connection.run(f"DROP DATABASE IF EXISTS {database}".encode())


async def life(settings: LiveSettings, spark: SparkSession | None = None) -> list[Batch]:
    """A stream until it ends; by the driver alone without a session."""
    batches: list[Batch] = []
    stream = PumpStream(settings, (lambda: spark) if spark else None, on_batch=batches.append)
    await asyncio.to_thread(stream.wait)
    return batches

"""Session: a healthy start says nothing; whatever else the JVM says is shown."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from drainer.spark import jvm, worker_daemon
from tests.spark.conftest import Started


def test_a_healthy_start_says_nothing(started: Started) -> None:
    assert started.session.range(3).count() == 3
    assert started.said == ""


def _parent(numbers: Iterator[Any]) -> Iterator[Any]:
    """What a worker was forked from."""
    list(numbers)
    place = Path("/proc", str(os.getppid()))
    texts = [(place / name).read_text() for name in ("cmdline", "maps", "status")]
    yield pa.RecordBatch.from_arrays([pa.array(texts)], ["text"])


def test_workers_are_forked_from_one_that_has_loaded_what_they_need(spark: SparkSession) -> None:
    """It has no thread, which a fork would leave behind in the middle of something."""
    rows = spark.range(0, 1, 1, 1).mapInArrow(_parent, "text string").collect()
    command, maps, status = (row.text for row in rows)
    assert worker_daemon.__name__ in command
    assert "libarrow" in maps
    assert "\nThreads:\t1\n" in status


def test_only_the_warning_of_incubator_modules_is_held_back() -> None:
    source, jvm_end = os.pipe()
    shown, target = os.pipe()
    thread = threading.Thread(target=jvm.copy, args=(source, target))
    thread.start()
    os.write(jvm_end, b"WARNING: Using incubator modules: jdk.incubator.vector\nfirst: \xff\n")
    assert os.read(shown, 100) == b"first: \xff\n"  # at once, while the JVM lives
    os.write(jvm_end, b"WARNING: another one\nand no end")
    os.close(jvm_end)
    thread.join()
    os.close(target)
    with open(shown, "rb") as rest:
        assert rest.read() == b"WARNING: another one\nand no end"

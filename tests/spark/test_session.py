"""Session: a healthy start says nothing; whatever else the JVM says is shown."""

from __future__ import annotations

import argparse
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from drainer.spark import arguments, jvm, worker_daemon
from drainer.spark.source import source
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


def test_a_command_that_reads_no_format_has_none_looked_for(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered: list[SparkSession] = []
    monkeypatch.setattr(source, "register", registered.append)
    args = argparse.Namespace(master="local[2]", conf=[])
    assert arguments.start_session(args, "binlog-spark replay") is spark
    assert registered == []
    assert arguments.start_session(args, "binlog-spark read", with_format=True) is spark
    assert registered == [spark]


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

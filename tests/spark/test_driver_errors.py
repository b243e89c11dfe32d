"""Errors of Spark's workers come back as ours: their class, their text, their exit code."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from drainer.mysql.connection import Away
from drainer.spark import jvm
from drainer.spark.driver import translated
from tidb_binlog.errors import BinlogError, ConfigError, Corruption, Unavailable

WORKER = """\
An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/tmp/x.py", line 13, in boom
    raise {name}("a.b.Corruption: of another", hint="do y")
{name}: {text}"""


def fails(batches: Iterator[Any]) -> Iterator[Any]:
    for _ in batches:
        raise Corruption("binlog-0000000000000001: damaged at 17\nand more", hint="restore it")
    yield from batches


def test_an_error_raised_in_a_task(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="Python worker") as raised:
        spark.range(4).mapInArrow(fails, "id long").collect()
    shown = translated(raised.value)
    assert type(shown) is Corruption
    assert str(shown) == "binlog-0000000000000001: damaged at 17\nand more (restore it)"
    assert shown.exit_code == 6


def shown_of(name: str, text: str, after: str = "") -> BinlogError | None:
    return translated(RuntimeError(WORKER.format(name=name, text=text) + after))


def test_the_text_ends_where_others_begin() -> None:
    for after in (
        "\n\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:1)",
        "\n\nDriver stacktrace:\n\tat x.y(Z.scala:1)",
        "\n\nJVM stacktrace:\norg.apache.spark",
        " SQLSTATE: 38000",
        "\n SQLSTATE: 38000",
    ):
        shown = shown_of("tidb_binlog.errors.Unavailable", "h:1 is away (wait)", after)
        assert type(shown) is Unavailable
        assert str(shown) == "h:1 is away (wait)"


def test_the_last_of_a_chain_counts() -> None:
    first = WORKER.format(name="tidb_binlog.errors.ConfigError", text="one")
    chain = "\n\nDuring handling of the above exception, another exception occurred:\n\n"
    shown = translated(
        RuntimeError(first + chain + WORKER.format(name="drainer.mysql.connection.Away", text="two"))
    )
    assert type(shown) is Away
    assert str(shown) == "two"


def test_a_class_that_is_not_known_here_is_an_error_all_the_same() -> None:
    shown = shown_of("drainer.no_such_module.Odd", "text")
    assert type(shown) is BinlogError
    assert shown_of("drainer.txn.Ddl", "text") is not None  # a name of ours that is no error's


def test_what_is_ours_stays_and_what_is_not_ours_is_left_alone() -> None:
    error = ConfigError("x")
    assert translated(error) is error
    assert translated(ValueError("common is fine: x")) is None
    assert translated(RuntimeError(WORKER.format(name="ValueError", text="x"))) is None


def test_a_directory_that_is_there_is_not_written_over(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="PATH_ALREADY_EXISTS") as raised:
        spark.range(1).write.mode("error").parquet(str(tmp_path))
    shown = translated(raised.value)
    assert type(shown) is ConfigError
    assert f"{tmp_path} is there already" in str(shown)


def test_a_cluster_that_lost_the_job() -> None:
    shown = translated(RuntimeError("Job aborted: ExecutorLostFailure (executor 3 exited)\n at x"))
    assert type(shown) is Unavailable


ENDS = """
from drainer.spark import driver
from drainer.spark.session import session
spark = session("ends", "local[1]")
spark.sparkContext._gateway.proc.kill()
for _ in range(2):  # it is cut off, and then refused
    try:
        spark.range(1).collect()
    except Exception as error:
        print(type(driver.translated(error)).__name__)
"""


def test_a_jvm_that_was_killed() -> None:
    done = subprocess.run([sys.executable, "-c", ENDS], text=True, capture_output=True, check=False)
    assert done.stdout.split() == ["JvmGone", "JvmGone"], done.stderr[-4000:]


def test_a_jvm_that_is_there_is_not_the_reason(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jvm, "_ENDING_S", 0.0)
    assert translated(ConnectionRefusedError("of a database")) is None

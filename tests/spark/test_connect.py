"""Spark Connect: what works without a JVM's context, in a process that is no more than a client."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from drainer.spark import arguments
from tests.architecture.source import ROOT
from tests.drainer.reading.archive.support import corpus
from tests.drainer.support.relay_world import items
from tests.waiting import PATIENCE_S
from tidb_binlog.errors import FlagError

pytestmark = pytest.mark.integration

CLIENT = """
import sys, threading
from pyspark.sql import SparkSession
from pyspark.sql.connect.client import DefaultChannelBuilder
from drainer.spark.program import run

server = SparkSession.builder.remote("local[1]").config("spark.sql.shuffle.partitions", "1").getOrCreate()
address = f"sc://localhost:{DefaultChannelBuilder.default_port()}"
common = ["--archive", sys.argv[1], "--master", address, "--output", "json"]

def work():  # where no session is active: one is made for the address
    assert SparkSession.getActiveSession() is None
    deletes = ["--table", "shop.customer", "--where", "_change_type = 'delete'", "--count"]
    codes.append(run(["read", *common, *deletes]))
    codes.append(run(["stats", *common]))

codes = []
thread = threading.Thread(target=work)
thread.start()
thread.join()
assert codes == [0, 0], codes
server.stop()
"""


def test_read_and_stats_do_without_a_context(tmp_path: Path) -> None:
    archive = corpus.our_archive(items("basic"), tmp_path / "archive").uri
    # With SPARK_TESTING the server takes a free port.
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, archive],
        env=os.environ
        | {"SPARK_TESTING": "1", "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable},
        cwd=ROOT,
        text=True,
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    text = done.stdout[done.stdout.index("{") :]
    read, end = json.JSONDecoder().raw_decode(text)
    assert read == {"changes": 4}
    stats = json.loads(text[end:])
    assert sum(row["changes"] for row in stats["changes"] if row["_table"] == "customer") == 29


def test_what_needs_a_context_is_refused() -> None:
    args = argparse.Namespace(master="sc://localhost:15002", conf=[])
    with pytest.raises(FlagError, match="binlog-spark image needs Spark's own context"):
        arguments.start_session(args, "binlog-spark image")

"""Older releases of Spark that the package allows: a whole run from Pumps, and an archive, in each."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from drainer.mysql.connection import Connection, Target
from tests.architecture.source import ROOT
from tests.drainer.reading.archive.support import corpus
from tests.drainer.support.relay_world import items
from tests.integration.support.subscribed_shop import shop, write
from tests.pump.conftest import pump as pump
from tests.pump.support.process import Start
from tests.spark.support import spark_versions
from tests.waiting import PATIENCE_S
from tidb_binlog.errors import Unavailable

pytestmark = [pytest.mark.integration, pytest.mark.timeout(spark_versions.MAKING_S + 100)]

RUN = """
import json, sys
import pyspark
from drainer.spark.program import run
from drainer.spark.session import session

endpoint, to, archive = sys.argv[1:]
settings = ["--small", "1", "--start", "1", "--conf", "spark.sql.shuffle.partitions=2"]
code = run(["stream", "--from", f"pumps://{endpoint}", "--to", to, "--once", *settings])
frame = session().read.format("binlog").option("table", "shop.customer").load(archive)
kinds = frame.groupBy("_change_type").count().orderBy("_change_type").collect()
print(json.dumps([pyspark.__version__, code, [list(row) for row in kinds]]))
"""


@pytest.mark.parametrize("release", spark_versions.RELEASES)
async def test_a_whole_run_of_an_older_release(
    release: str, pump: Start, etcd_clean: str, target: Target, connection: Connection, tmp_path: Path
) -> None:
    await pump("-node-id=p1", "-heartbeat-interval=200ms").start_and_wait()
    publisher = await shop(etcd_clean)
    for number in range(20):
        await write(publisher, number)
    await publisher.close()
    archive = corpus.our_archive(items("basic"), tmp_path / "archive").uri
    connection.run(b"DROP DATABASE IF EXISTS shop")
    to = f"mysql://{target.user}@/?socket={target.socket}"
    argv = [sys.executable, "-c", RUN, etcd_clean, to, archive]
    done = subprocess.run(
        argv,
        env=spark_versions.or_skip(lambda: spark_versions.environ(release))
        | {"BINLOG_SPARK_PASSWORD": target.password},
        cwd=ROOT,
        text=True,
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    version, code, kinds = json.loads(done.stdout.splitlines()[-1])
    assert (version.rpartition(".")[0], code) == (release, 0), done.stdout
    assert kinds == [["delete", 4], ["insert", 11], ["update", 14]]
    rows = connection.rows(b"SELECT id, item FROM shop.orders ORDER BY id")
    assert rows == [(number, f"pen {number}") for number in range(20)]
    connection.run(b"DROP DATABASE shop")


def test_a_release_that_cannot_be_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said which one: so `make demo-spark` ends, with the code 2."""
    monkeypatch.setattr(spark_versions, "_STORE", tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(Unavailable, match=r"pyspark==4\.1\.\* cannot be downloaded: (?s:.*)no network"):
        spark_versions.environ("4.1")
    monkeypatch.setattr(spark_versions, "_install", None)  # not tried again at once
    with pytest.raises(Unavailable, match="cannot be downloaded"):
        spark_versions.environ("4.1")
    assert not (tmp_path / "4.1").exists()

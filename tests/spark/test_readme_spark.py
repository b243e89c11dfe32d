"""Every command of docs/spark.md runs as it stands there, in one session: a JVM each would be minutes."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.mysql.connection import Target, connect
from drainer.spark.program import run
from tests.architecture.source import ROOT
from tests.docs.pages import SPARK
from tidb_binlog.errors import FlagError

Printed = Callable[..., str]


def unpack(directory: Path) -> None:
    """The archives that the other commands use."""
    for line in SPARK.commands():
        if line.startswith(("mkdir", "gunzip", "tar")):
            subprocess.run(line.replace(" build", f" {directory}"), shell=True, check=True, cwd=ROOT)


@pytest.fixture
def printed(
    spark: SparkSession,
    mariadb: MariaDbServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Printed:
    """Runs the one command of the page that has these words, and gives what it printed."""
    unpack(tmp_path)
    monkeypatch.setenv("BINLOG_SPARK_PASSWORD", mariadb.password)

    def of(*words: str, but: str = "nothing", more: tuple[str, ...] = ()) -> str:
        (line,) = [
            line for line in SPARK.commands() if all(word in line for word in words) and but not in line
        ]
        line = line.replace(
            "mysql://root@127.0.0.1:3306/", f"mysql://{mariadb.user}@127.0.0.1:{mariadb.port}/"
        )
        line = line.replace(" build", f" {tmp_path}")
        program, *arguments = shlex.split(line)
        if program == "spark-submit":
            arguments = arguments[arguments.index(f"{tmp_path}/binlog_spark.py") + 1 :]
        assert run([*arguments, *more]) == 0
        return capsys.readouterr().out

    return of


def test_an_analyst_reads(printed: Printed) -> None:
    assert printed(" read ", "--limit").count(" insert ") == 5
    assert "update" in printed(" read ", "--where")
    assert "customer" in printed(" stats ")
    versions = printed(" history ", more=("--output", "json")).splitlines()
    assert [json.loads(line)["key"] for line in versions]


def test_what_spark_would_say_in_a_page_is_one_line(spark: SparkSession, tmp_path: Path) -> None:
    unpack(tmp_path)
    archive = f"--archive={tmp_path}/archive"
    for condition in ("nocolumn = 1", "_seq = = 1"):
        with pytest.raises(FlagError, match="is no condition here: ") as refused:
            run(["read", archive, "--where", condition])
        assert "\n" not in str(refused.value)


def test_a_history_of_nothing_has_its_headings(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unpack(tmp_path)
    assert run(["history", f"--archive={tmp_path}/archive", "--table", "shop.nope", "--key", "id=1"]) == 0
    assert "from_time" in capsys.readouterr().out


def test_the_notebook(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unpack(tmp_path)
    (script,) = [block for block in SPARK.blocks("python") if "build/archive" in block]
    exec(script.replace('"build', f'"{tmp_path}'), {})
    assert re.search(r"shop\| *customer\| *update\| *\d+\|", capsys.readouterr().out)


def test_an_operator_audits_and_restores(printed: Printed, mariadb: MariaDbServer, tmp_path: Path) -> None:
    assert "binlog-0000000000000000" in printed(".venv/bin/binlog-spark files")
    printed(" audit ", "--report")
    assert "<svg" in (tmp_path / "audit.html").read_text()
    target = Target("127.0.0.1", mariadb.port, mariadb.user, mariadb.password)
    connection = connect(target)
    try:
        printed(" replay ", "--dry-run")
        assert not connection.rows(b"SHOW DATABASES LIKE 'shop'")
        connection.rollback()
        printed(" replay ", but="--dry-run")
        assert connection.rows(b"SELECT COUNT(*) FROM shop.customer")
        connection.rollback()
        printed(" audit ", "--db")
    finally:
        for schema in (b"shop", b"tidb_binlog"):
            connection.run(b"DROP DATABASE IF EXISTS " + schema)
        connection.close()


def test_value_logs_become_an_archive_an_image_and_a_database(
    printed: Printed, mariadb: MariaDbServer, tmp_path: Path
) -> None:
    assert "exported" in printed(" export ")
    assert "shop.customer" in printed(" image ")
    assert list((tmp_path / "image").glob("shop.orders/*.parquet"))
    connection = connect(Target("127.0.0.1", mariadb.port, mariadb.user, mariadb.password))
    try:
        lines = printed(" stream ", more=("--output", "json")).splitlines()
        assert sum(json.loads(line)["ddl"] for line in lines) == 5
        counts = b"SELECT (SELECT COUNT(*) FROM shop.customer), (SELECT COUNT(*) FROM shop.orders)"
        ((customers, orders),) = connection.rows(counts)
        assert (int(customers), int(orders)) == (11 - 4, 24 - 1)  # inserted, deleted
        connection.rollback()
    finally:
        for schema in (b"shop", b"test", b"tidb_binlog"):
            connection.run(b"DROP DATABASE IF EXISTS " + schema)
        connection.close()


def test_many_machines_get_a_package(printed: Printed, tmp_path: Path) -> None:
    """That it works on a cluster is the business of test_cluster; here: the files are what the line names."""
    printed(" package ")
    (submit,) = [line for line in SPARK.commands() if line.startswith("spark-submit")]
    for name in ("binlog_spark.zip", "binlog_spark.py"):
        assert (tmp_path / name).exists()
        assert f"build/{name}" in submit
    environment = {"PYTHONPATH": str(tmp_path / "binlog_spark.zip")}
    script = [sys.executable, "-P", str(tmp_path / "binlog_spark.py"), "--help"]
    shown = subprocess.run(script, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "replay" in shown.stdout
    assert "binlog-0000000000000000" in printed("spark-submit")


def test_a_notebook_has_the_commands_functions_where_the_page_says() -> None:
    """Each by itself, as the first thing that a program imports."""
    assert "(`drainer.spark.history`, `statistics`, `image`, ...)" in SPARK.text
    for line in (
        "from drainer.spark.history import history, versions",
        "from drainer.spark.statistics import hottest, rates, sizes, volumes",
        "from drainer.spark.image import make",
        "from drainer.spark import history, image, statistics; history.history, statistics.rates, image.make",
        "import drainer.spark.image; drainer.spark.image.make",
        "from drainer.spark.session import session",
    ):
        subprocess.run([sys.executable, "-c", line], check=True)

"""Where the archive of classes cannot be made, tests of Spark run without it, and all others run."""

from __future__ import annotations

from pathlib import Path

import pyspark
import pytest

from tests.spark.support import spark_home, spark_versions


def test_a_java_that_cannot_run_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho too old >&2\nexit 1\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(java.parent.parent))
    monkeypatch.setattr(spark_versions, "_STORE", tmp_path / "store")
    plain(spark_home.environ())
    (failed,) = (tmp_path / "store").glob("classes-*.failed")
    assert "JAVA_GATEWAY_EXITED" in failed.read_text()


def test_a_checkout_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(spark_versions, "_STORE", tmp_path / "file" / "store")
    plain(spark_home.environ())


def plain(environ: dict[str, str]) -> None:
    assert environ["SPARK_HOME"] == str(Path(pyspark.__file__).parent)
    assert not any("Archive" in option for option in environ.values())

"""A mirror where it cannot be: a session without its connector, a stream that has none."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from drainer.spark.live.mirror import DELTA_CONNECTOR, ICEBERG_CONNECTOR, require
from drainer.spark.program import run
from tidb_binlog.errors import ConfigError, FlagError


def test_a_session_without_the_connector(spark: SparkSession) -> None:
    """It is said which one, and of which release."""
    for connector in (DELTA_CONNECTOR, ICEBERG_CONNECTOR):
        with pytest.raises(ConfigError, match=f"needs {connector.packages[0]}.*{spark.version}") as raised:
            require(spark, connector)
        assert "pyspark==4.1" in str(raised.value)


@pytest.mark.parametrize(("source", "said"), [("pumps://h:1", "of a lake"), (".", "of a stream from Pumps")])
def test_a_mirror_of_what_has_none(source: str, said: str) -> None:
    """And not a stream that is something else."""
    argv = ["stream", "--from", source, "--to", "mysql://root@127.0.0.1/", "--mode", "mirror"]
    with pytest.raises(FlagError, match=f"--mode mirror is {said}"):
        run([*argv, "--checkpoint", "nowhere"])


@pytest.mark.parametrize("to", ["hdfs://host/x", "file:///x", "s3://bucket"])
def test_a_downstream_that_is_none(to: str) -> None:
    """What can be one is said."""
    with pytest.raises(FlagError, match="no downstream") as raised:
        run(["stream", "--from", "pumps://127.0.0.1:1", "--to", to])
    assert "delta://PLACE or iceberg://PLACE" in str(raised.value)

"""One Spark session for all tests: start-up costs seconds, a second session gives nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from common import clock
from drainer.spark.session import session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Two slots, one GiB, two shuffle partitions: keep data and jobs small."""
    clock.use_utc()
    made = session(
        "tests",
        "local[2]",
        {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"},
    )
    yield made
    made.stop()

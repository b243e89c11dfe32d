"""Plugin: the fixture `binlog_cluster` for pytest.

Tests  tests/deploy/binlog_testing/test_testing_page.py
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from binlog_testing.cluster import BinlogCluster


@pytest.fixture
def binlog_cluster() -> Iterator[BinlogCluster]:
    """A cluster in memory, with two pumps; empty for each test."""
    from binlog_testing.cluster import BinlogCluster  # pytest loads a plugin for every run

    with BinlogCluster() as cluster:
        yield cluster

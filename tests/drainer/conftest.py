"""Fixtures of the drainer's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.mysql.connection import Target
from tests.drainer.support.apply_life import clean


@pytest.fixture
def target(mariadb: MariaDbServer) -> Iterator[Target]:
    """A downstream that holds nothing, and is left so."""
    target = Target(mariadb.host, mariadb.port, mariadb.user, mariadb.password)
    clean(target)
    yield target
    clean(target)

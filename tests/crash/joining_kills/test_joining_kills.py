"""A drainer dies while tables join it, its successors too; `tests.crash.joining_kills` draws many more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from tests.crash.joining_kills.runs import Kills, drawn

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("seed", [6, 36])
async def test_deaths_while_tables_join(
    etcd_clean: str, mariadb: MariaDbServer, free_port: Callable[[], int], tmp_path: Path, seed: int
) -> None:
    assert await Kills(etcd_clean, mariadb, free_port).run(drawn(seed), tmp_path) >= 1

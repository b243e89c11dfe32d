"""Of streams under several names that move one position in a lake, one goes on."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from drainer.config.options import DrainerConfig
from drainer.lake.warehouse import LakePosition
from drainer.spark.live.lake import claim
from tests.waiting import PATIENCE_S
from tidb_binlog.errors import Conflict


class Cluster:
    def __init__(self) -> None:
        self.alive = {"a", "b"}

    async def is_alive(self, name: str) -> bool:
        return name in self.alive


@pytest.fixture
def position(tmp_path: Path) -> LakePosition:
    settings = replace(DrainerConfig(), db_type="delta", warehouse=str(tmp_path), node_id="n")
    return LakePosition(settings, 1, "changelog")


async def test_of_two_that_begin_at_once_not_both_go_on(
    position: LakePosition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are alive before either says its name, and neither is known when they come to it."""
    both, add = threading.Barrier(2, timeout=PATIENCE_S), LakePosition.add_reader

    def add_with_the_other(position: LakePosition, name: str) -> None:
        both.wait()
        add(position, name)

    monkeypatch.setattr(LakePosition, "add_reader", add_with_the_other)
    cluster: Any = Cluster()
    begun = (claim(position, name, cluster) for name in ("a", "b"))
    ends = await asyncio.gather(*begun, return_exceptions=True)
    assert all(end is None or isinstance(end, Conflict) for end in ends)
    assert ends.count(None) < 2


async def test_one_that_is_gone_is_forgotten(position: LakePosition) -> None:
    cluster: Any = Cluster()
    await claim(position, "a", cluster)
    await claim(position, "a", cluster)
    with pytest.raises(Conflict, match="the stream a is running"):
        await claim(position, "b", cluster)
    cluster.alive = {"b"}
    await claim(position, "b", cluster)
    cluster.alive = {"a", "b"}  # it works elsewhere by now
    with pytest.raises(Conflict, match="the stream b is running"):
        await claim(position, "a", cluster)
    await claim(position, "b", cluster)

"""Pump processes for tests, and the upstream that they share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterator
from pathlib import Path

import pytest

from pump.index import backends
from tests.pump.support.process import PumpProcess, Start
from tidb_binlog.upstream.standalone import StandaloneUpstream


@pytest.fixture
def pump(etcd_clean: str, free_port: Callable[[], int], tmp_path: Path) -> Iterator[Start]:
    """Makes pump processes; all are gone after the test."""
    made: list[PumpProcess] = []

    def make(*flags: str, directory: str = "pump", endpoint: str = etcd_clean) -> PumpProcess:
        made.append(PumpProcess(tmp_path / directory, endpoint, free_port, *flags))
        return made[-1]

    yield make
    for process in made:
        process.end()


@pytest.fixture
async def upstream(etcd_clean: str) -> AsyncIterator[StandaloneUpstream]:
    found = await StandaloneUpstream.connect(etcd_clean)
    yield found
    await found.close()


@pytest.fixture(params=[backends.LEVELDB, backends.SQLITE])
def each_index(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every index that is opened without saying which has these files."""
    choose = backends.choose

    def chosen(configured: str, present: Collection[str]) -> str:
        return choose(request.param if configured == backends.AUTO else configured, present)

    monkeypatch.setattr(backends, "choose", chosen)

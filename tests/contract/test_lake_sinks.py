"""The contract of sinks, kept by those that append to changelogs in a lake."""

from __future__ import annotations

from pathlib import Path

import pytest

from drainer.testing.batch_bed import BatchBed
from drainer.testing.sink_contract import BatchSinkContract
from tests.contract.lake_beds import BEDS


@pytest.fixture(params=BEDS)
def bed(request: pytest.FixtureRequest, tmp_path: Path) -> BatchBed:
    return BEDS[request.param](tmp_path)


class TestLakeSinks(BatchSinkContract):
    """They keep the contract."""

"""What the pipeline counts of the errors that end it; how it lives is in tests/integration."""

from __future__ import annotations

import pytest

from drainer.app.pipeline import _counted
from drainer.stream.pull.merger import OrderBroken
from drainer.stream.pull.pull_message import Undecodable, arrival
from tests.exposition import sample
from tidb_binlog.errors import Corruption


async def _pull(error: Exception) -> None:
    raise error


@pytest.mark.parametrize(
    ("error", "undecodable", "disorder"),
    [
        (Undecodable("a pump sent no binlog"), 1, 0),
        (OrderBroken("a pump sent commit_ts 3 after commit_ts 4"), 0, 1),
        (Corruption("unknown table"), 0, 0),
    ],
)
async def test_errors_that_a_go_drainer_counts_are_counted(
    error: Corruption, undecodable: int, disorder: int
) -> None:
    counters = (
        'binlog_drainer_error_count{type="unmarshal_binlog"}',
        "binlog_drainer_disorder_binlog_count",
    )
    before = [sample(counter) for counter in counters]
    with pytest.raises(type(error)):
        await _counted(_pull(error))
    after = [sample(counter) for counter in counters]
    assert [b - a for a, b in zip(before, after, strict=True)] == [undecodable, disorder]


def test_a_payload_that_is_no_binlog_is_undecodable() -> None:
    with pytest.raises(Undecodable):
        arrival([b"\xff\xff"], 20, "p1")

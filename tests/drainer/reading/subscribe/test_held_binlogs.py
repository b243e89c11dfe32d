"""From where on a stream can begin, by what pumps and the registry say."""

from __future__ import annotations

from drainer.reading.subscribe.stream_start import Held, held
from tidb_binlog.cluster.node import NodeStatus
from tidb_binlog.cluster.registry import ClusterView, NodeEntry
from tidb_binlog.errors import Unavailable


def view(**pumps: tuple[str, int]) -> ClusterView:
    entries = {
        name: NodeEntry(NodeStatus(name, f"{name}:1", state, last_ts), 1, True)
        for name, (state, last_ts) in pumps.items()
    }
    return ClusterView(1, entries, {})


def purged(**stamps: int) -> object:
    async def ask(address: str) -> int:
        if (name := address.partition(":")[0]) not in stamps:
            raise Unavailable("nobody listens")
        return stamps[name]

    return ask


async def test_the_pump_that_has_purged_most_decides() -> None:
    found = await held(view(a=("online", 90), b=("paused", 90)), purged(a=10, b=20))  # type: ignore[arg-type]
    assert found == Held(20, "pump b has purged what is older", ())


async def test_a_pump_that_left_took_its_binlogs_along() -> None:
    found = await held(view(a=("online", 90), b=("offline", 50)), purged(a=10))  # type: ignore[arg-type]
    assert found == Held(50, "pump b has left the cluster with what is older", ())


async def test_one_that_does_not_answer_is_named() -> None:
    found = await held(view(a=("online", 90), b=("online", 90)), purged(a=0))  # type: ignore[arg-type]
    assert found == Held(0, "", ("b",))


async def test_no_pump_at_all() -> None:
    assert await held(view(), purged()) == Held(0, "", ())  # type: ignore[arg-type]

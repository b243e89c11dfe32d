"""`binlogctl decide`: the pump that has the transaction is told, and what it says is passed on."""

from __future__ import annotations

import pytest

from tests.deploy.binlogctl.conftest import Ctl
from tests.deploy.binlogctl.support.scripted_node import ScriptedNode, listening, said
from tidb_binlog.cluster.node import ONLINE, NodeStatus
from tidb_binlog.cluster.registry import PUMPS
from tidb_binlog.etcd.registry import EtcdRegistry

pytestmark = pytest.mark.integration


async def _register(registry: EtcdRegistry, name: str, address: str) -> None:
    await registry.put(PUMPS, NodeStatus(name, address, ONLINE), 0)


async def test_the_pump_that_has_it_takes_it(ctl: Ctl, registry: EtcdRegistry, etcd_clean: str) -> None:
    other, one = ScriptedNode(answer=said("not open", 404, 404)), ScriptedNode(answer=said("is decided"))
    async with listening(other) as a, listening(one) as b:
        await _register(registry, "a", a)
        await _register(registry, "b", b)
        done = await ctl("decide", "10", "rolled-back", "-pd-urls", etcd_clean)
        assert done.code == 0, done
        assert other.asked == one.asked == ["/transactions/10/rolled-back"]
        done = await ctl("decide", "10", "25", "-node-id", "b", "-pd-urls", etcd_clean)
        assert done.code == 0
        assert one.asked[1:] == ["/transactions/10/25"]
        assert len(other.asked) == 1


async def test_what_a_pump_refuses_is_said(ctl: Ctl, registry: EtcdRegistry, etcd_clean: str) -> None:
    node = ScriptedNode(answer=said("transaction 10 is not left to you", 1, 409))
    async with listening(node) as address:
        await _register(registry, "a", address)
        done = await ctl("decide", "10", "25", "-pd-urls", etcd_clean)
        assert done.code == 4
        assert "not left to you" in done.err
        node.answer = said("not open", 404, 404)
        done = await ctl("decide", "10", "25", "-pd-urls", etcd_clean)
        assert done.code == 4
        assert "open at no pump" in done.err


@pytest.mark.parametrize(
    "words", [("x", "25"), ("10", "committed"), ("0", "25"), ("10", str(1 << 63)), ("1" * 5000, "25")]
)
async def test_what_is_no_outcome_asks_nobody(ctl: Ctl, words: tuple[str, str]) -> None:
    done = await ctl("decide", *words, "-pd-urls", "http://127.0.0.1:1")
    assert done.code == 2
    assert "not a start_ts and an outcome" in done.err

"""A standby says what is in its way, and gives way to another that was faster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from drainer.operate.control.standby import TOLD_TO_LEAVE, Standby, lease_s
from tests.waiting import PATIENCE_S, until
from tidb_binlog.clock import SystemClock
from tidb_binlog.cluster.heartbeat import Heartbeat
from tidb_binlog.cluster.node import ONLINE, PAUSED, NodeStatus
from tidb_binlog.cluster.registry import DRAINERS
from tidb_binlog.errors import ConfigError, Conflict, DownstreamError
from tidb_binlog.etcd.registry import EtcdRegistry, connect_registry

pytestmark = pytest.mark.integration


@pytest.fixture
async def registries(etcd_clean: str) -> AsyncIterator[tuple[EtcdRegistry, EtcdRegistry, EtcdRegistry]]:
    """Each as in a process of its own."""
    opened = [await connect_registry(etcd_clean) for _ in range(3)]
    yield opened[0], opened[1], opened[2]
    for registry in opened:
        await registry.close()


def heartbeat_of(registry: EtcdRegistry, host: str, *, told: bool = False) -> Heartbeat:
    status = NodeStatus("d", host, PAUSED, 7, 7, label=TOLD_TO_LEAVE if told else None)
    return Heartbeat(registry, DRAINERS, lambda: status, 0.05, SystemClock(), lease_s=lease_s(0.05))


async def nothing() -> None: ...


def test_the_lease_lasts_three_beats_and_never_less_than_three_seconds() -> None:
    assert [lease_s(interval) for interval in (0.1, 1.0, 1.5, 4.0)] == [3, 3, 5, 12]


async def test_of_two_standbys_one_takes_over_and_the_other_goes_on_waiting(
    registries: tuple[EtcdRegistry, EtcdRegistry, EtcdRegistry],
) -> None:
    active = heartbeat_of(registries[0], "h:1")
    await active.register(ONLINE)
    standbys = [Standby(registry, "d", SystemClock(), nothing) for registry in registries[1:]]
    hearts = [heartbeat_of(registry, f"h:{number}") for number, registry in enumerate(registries[1:], 2)]
    tasks = [
        asyncio.create_task(standby.wait_and_register(lambda heart=heart: heart.register(ONLINE)))  # type: ignore[misc]
        for standby, heart in zip(standbys, hearts, strict=True)
    ]
    await until(lambda: all("h:1 is active" in standby.reason for standby in standbys))
    assert standbys[0].stored_ts == 7
    await active.leave(PAUSED)
    await until(lambda: sum(task.done() for task in tasks) == 1)
    waiting = standbys[1] if tasks[0].done() else standbys[0]
    await until(lambda: waiting.reason.endswith("is active") and "h:1" not in waiting.reason)
    assert waiting.waiting
    assert "standby: drainer d at" in waiting.unready()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_what_an_operator_told_stands_in_the_entry(
    registries: tuple[EtcdRegistry, EtcdRegistry, EtcdRegistry],
) -> None:
    active = heartbeat_of(registries[0], "h:1", told=True)
    await active.register(ONLINE)
    await active.leave(PAUSED)  # before any standby looked
    standby = Standby(registries[1], "d", SystemClock(), nothing)
    task = asyncio.create_task(standby.wait_and_register(nothing))
    await until(lambda: "told to leave" in standby.reason)
    entry = (await registries[2].view()).drainers["d"]
    await registries[2].put(DRAINERS, entry.status.with_state(ONLINE), entry.mod_revision)
    await asyncio.wait_for(task, PATIENCE_S)


async def test_what_a_takeover_would_meet_is_known_before(
    registries: tuple[EtcdRegistry, EtcdRegistry, EtcdRegistry],
) -> None:
    active = heartbeat_of(registries[0], "h:1")
    await active.register(ONLINE)
    found: list[Exception] = [DownstreamError("the downstream refused the login")]

    async def rehearse() -> None:
        if found:
            raise found[0]

    standby = Standby(registries[1], "d", SystemClock(), rehearse)
    task = asyncio.create_task(standby.wait_and_register(nothing))
    await until(lambda: bool(standby.trouble))
    assert "refused the login" in standby.unready()
    assert standby.facts().trouble == standby.trouble
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_what_is_wrong_with_itself_ends_a_standby(
    registries: tuple[EtcdRegistry, EtcdRegistry, EtcdRegistry],
) -> None:
    async def impossible() -> None:
        raise ConfigError("node id is not possible")

    standby = Standby(registries[1], "d", SystemClock(), nothing)
    with pytest.raises(ConfigError):
        await asyncio.wait_for(standby.wait_and_register(impossible), PATIENCE_S)
    tries = 0

    async def lost_twice() -> None:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise Conflict("somebody was faster")

    await asyncio.wait_for(
        Standby(registries[1], "d", SystemClock(), nothing).wait_and_register(lost_twice), PATIENCE_S
    )
    assert tries == 3

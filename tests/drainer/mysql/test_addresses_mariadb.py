"""Two addresses of a real server: the way to the first one breaks, and no session stays on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pytest

from drainer.mysql.addresses import AFTER_S, Addresses
from drainer.mysql.connection import Target, connect
from drainer.mysql.errors import ConnectionLost
from tests.rig.proxy import Proxy
from tests.waiting import PATIENCE_S
from tidb_binlog.clock import ManualClock
from tidb_binlog.errors import Unavailable

pytestmark = pytest.mark.integration


@pytest.fixture
async def proxy(target: Target) -> AsyncIterator[Proxy]:
    proxy = Proxy(target.host, target.port)
    await proxy.start()
    yield proxy
    await proxy.close()


@pytest.fixture
def read_only(target: Target) -> Iterator[None]:
    connection = connect(target)
    connection.run(b"SET GLOBAL read_only=1")
    yield
    connection.run(b"SET GLOBAL read_only=0")
    connection.close()


async def test_sessions_at_the_old_server_end_before_the_first_at_the_new_one(
    target: Target, proxy: Proxy
) -> None:
    clock = ManualClock()
    places = (("127.0.0.1", proxy.port), (target.host, target.port))
    several = replace(target, host="127.0.0.1", port=proxy.port, addresses=Addresses(places, clock=clock))
    old = await asyncio.to_thread(connect, several)
    assert repr(several).endswith(f":{proxy.port}")
    proxy.refuse()
    with pytest.raises(Unavailable, match="cannot be reached"):
        await asyncio.to_thread(connect, several)
    assert await asyncio.to_thread(old.rows, b"SELECT 1") == [(1,)]
    waiting = asyncio.create_task(asyncio.to_thread(old.rows, b"SELECT SLEEP(60)"))
    await asyncio.sleep(0)
    clock.advance(AFTER_S)
    new = await asyncio.to_thread(connect, several)
    assert repr(several).endswith(f":{target.port}")
    with pytest.raises(ConnectionLost):
        async with asyncio.timeout(PATIENCE_S):
            await waiting
    assert new.rows(b"SELECT 1") == [(1,)]
    new.close()
    old.close()


async def test_a_replica_is_not_written_to(target: Target, read_only: None) -> None:
    places = ((target.host, target.port), ("127.0.0.1", 1))
    with pytest.raises(Unavailable, match="is read-only: a replica that was not promoted"):
        await asyncio.to_thread(connect, replace(target, addresses=Addresses(places)))
    assert await asyncio.to_thread(_can_connect, target), "one address is the operator's choice"


def _can_connect(target: Target) -> bool:
    connect(target).close()
    return True

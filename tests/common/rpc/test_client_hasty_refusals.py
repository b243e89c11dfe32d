from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from tests.fakes.hasty_peer import hasty_peer
from tidb_binlog import rpc
from tidb_binlog.errors import Unavailable
from tidb_binlog.etcd.client import EtcdClient

# About one stream in four shows grpcio's own failure, on a busy machine nearly all do.
TRIES = 30
TRIES_MAX = 1000


async def requests() -> AsyncIterator[bytes]:
    yield b"request"
    await asyncio.Event().wait()


async def test_a_stream_that_is_refused_at_once_is_never_an_internal_error() -> None:
    seen: set[object] = set()
    async with hasty_peer(rpc.UNIMPLEMENTED, "unknown service") as address:
        client = rpc.Client(address)
        for turn in range(TRIES_MAX):
            if turn >= TRIES and rpc.UNIMPLEMENTED in seen:
                break
            try:
                async with aclosing(client.bidi("/test.Example/Chat", requests())) as replies:
                    await anext(replies)
            except rpc.RpcStatus as status:
                seen.add(status.code)
            except Unavailable:
                seen.add(Unavailable)
        await client.close()
    assert seen <= {rpc.UNIMPLEMENTED, Unavailable}
    assert rpc.UNIMPLEMENTED in seen


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (rpc.UNAVAILABLE, "etcdserver: no leader"),  # so a member without a leader does to watches
        (rpc.INTERNAL, "Received RST_STREAM with error code 2"),  # grpcio's word for a stream that was reset
    ],
)
async def test_a_watch_that_ends_at_once_is_unavailable(code: int, text: str) -> None:
    """Who keeps one up tries again."""
    messages: set[str] = set()
    async with hasty_peer(code, text) as address:
        client = EtcdClient([address], None, 5.0)
        for turn in range(TRIES_MAX):
            if turn >= TRIES and any(text in message for message in messages):
                break
            try:
                async with aclosing(client.watch(b"/tidb-binlog/", 1)) as changes:
                    await anext(changes)
            except Unavailable as error:
                messages.add(error.message)
        await client.close()
    assert any(text in message for message in messages), messages

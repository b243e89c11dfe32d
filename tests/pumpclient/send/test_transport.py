"""Transport: error table, connections; on a scripted client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable

import grpc
import pytest

from pumpclient.send.transport import FAILURE_OF_CODE, WRITE_BINLOG, RpcTransport, TransportFailure
from pumpclient.send.write_policy import Failure
from tidb_binlog.errors import BinlogError, Conflict, Corruption, Rejected, Unavailable
from tidb_binlog.rpc import RpcStatus
from tidb_binlog.wire import pump_pb2


class ScriptedClient:
    def __init__(self, script: list[bytes | BaseException]) -> None:
        self.script = script
        self.requests: list[pump_pb2.WriteBinlogReq] = []
        self.closed = 0
        self.streams = 0
        self.stream: Callable[[AsyncIterator[bytes]], AsyncIterator[bytes]] | None = None
        self.gate: asyncio.Event | None = None

    async def unary(self, method_path: str, request: bytes, timeout_s: float) -> bytes:
        assert (method_path, timeout_s) == (WRITE_BINLOG, 15.0)
        self.requests.append(pump_pb2.WriteBinlogReq.FromString(request))
        if self.gate is not None:
            await self.gate.wait()
        answer = self.script.pop(0) if self.script else b""
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def bidi(self, path: str, requests: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        self.streams += 1
        if self.stream is not None:
            async for reply in self.stream(requests):
                yield reply

    async def close(self) -> None:
        self.closed += 1


class Dialer:
    """Hands out one scripted client after the other."""

    def __init__(self, *scripts: list[bytes | BaseException]) -> None:
        self.clients = [ScriptedClient(list(script)) for script in scripts]
        self.dialled = 0

    def __call__(self, address: str) -> ScriptedClient:
        assert address == "pump:8250"
        self.dialled += 1
        return self.clients[self.dialled - 1]


async def failure_of(transport: RpcTransport) -> TransportFailure:
    with pytest.raises(TransportFailure) as caught:
        await transport.write("pump:8250", 7, b"payload", 15.0)
    return caught.value


def test_every_status_code_has_its_failure() -> None:
    assert set(FAILURE_OF_CODE) == {code.value[0] for code in grpc.StatusCode} - {0}


@pytest.mark.parametrize("code", sorted(FAILURE_OF_CODE))
async def test_status_codes_decide_and_texts_do_not(code: int) -> None:
    transport = RpcTransport(dial=Dialer([RpcStatus(code, "ResourceExhausted, Unavailable")]), batches=False)
    assert (await failure_of(transport)).failure is FAILURE_OF_CODE[code]


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (Unavailable("x"), Failure.UNREACHABLE),
        (Rejected("x"), Failure.FAILED),
        (Conflict("x"), Failure.FAILED),
        (Corruption("x"), Failure.FAILED),
        (BinlogError("x"), Failure.FAILED),
    ],
)
async def test_every_error_class_is_translated(error: BinlogError, failure: Failure) -> None:
    assert (await failure_of(RpcTransport(dial=Dialer([error]), batches=False))).failure is failure


async def test_replies() -> None:
    refused = pump_pb2.WriteBinlogResp(errmsg="disk full").SerializeToString()
    dialer = Dialer([b"", refused, b"\xff\xff"])
    transport = RpcTransport(dial=dialer, batches=False)
    await transport.write("pump:8250", 7, b"payload", 15.0)
    assert dialer.clients[0].requests == [pump_pb2.WriteBinlogReq(clusterID=7, payload=b"payload")]
    failure = await failure_of(transport)
    assert (failure.failure, failure.message) == (Failure.REFUSED, "disk full")
    assert (await failure_of(transport)).failure is Failure.FAILED
    assert dialer.dialled == 1


async def test_unreachable_dials_anew_and_other_failures_do_not() -> None:
    dialer = Dialer([RpcStatus(2, "no"), Unavailable("gone")], [b""])
    transport = RpcTransport(dial=dialer, batches=False)
    assert (await failure_of(transport)).failure is Failure.FAILED
    assert dialer.clients[0].closed == 0
    assert (await failure_of(transport)).failure is Failure.UNREACHABLE
    await asyncio.sleep(0.0)  # closed in the background
    assert dialer.clients[0].closed == 1
    await transport.write("pump:8250", 7, b"payload", 15.0)
    assert dialer.dialled == 2
    await transport.close()
    assert [client.closed for client in dialer.clients] == [1, 1]


async def test_dropping_a_connection_does_not_abort_the_calls_on_it() -> None:
    dialer = Dialer([b""], [b""])
    old, young = dialer.clients
    old.gate = asyncio.Event()
    transport = RpcTransport(dial=dialer, batches=False)
    slow = asyncio.ensure_future(transport.write("pump:8250", 7, b"payload", 15.0))
    await asyncio.sleep(0)
    await transport.drop("pump:8250")
    await transport.drop("pump:8250")
    await transport.write("pump:8250", 7, b"payload", 15.0)
    assert (dialer.dialled, old.closed, young.closed) == (2, 0, 0)
    old.gate.set()
    await slow
    await asyncio.sleep(0.0)
    assert (old.closed, young.closed) == (1, 0)


async def test_a_late_failure_on_an_old_connection_leaves_the_new_one() -> None:
    dialer = Dialer([Unavailable("gone")], [b"", b""])
    old, young = dialer.clients
    old.gate = asyncio.Event()
    transport = RpcTransport(dial=dialer, batches=False)
    late = asyncio.ensure_future(failure_of(transport))
    await asyncio.sleep(0)
    await transport.drop("pump:8250")
    await transport.write("pump:8250", 7, b"payload", 15.0)
    old.gate.set()
    await late
    await transport.write("pump:8250", 7, b"payload", 15.0)
    assert (dialer.dialled, old.closed, young.closed) == (2, 1, 0)


async def test_an_address_that_cannot_be_dialled_is_unreachable() -> None:
    def refuse(address: str) -> ScriptedClient:
        raise ValueError(f"{address}: no such thing")

    assert (await failure_of(RpcTransport(dial=refuse))).failure is Failure.UNREACHABLE

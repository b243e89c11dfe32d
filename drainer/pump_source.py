"""Pump source: the stream of one pump, kept up for as long as the pump belongs to the cluster.

Drives   nothing; hands what arrives to `deliver` in the same turn of the event loop
Owns     one connection at a time
Holds    what was delivered and not yet released stays below `credit_bytes`, plus one payload that is larger
         by itself. A connection begins behind the last position delivered, so nothing is skipped or repeated
Stops    by cancellation, which abandons only what had not been delivered

Two protocols: `PullBatches` (many payloads a message, a watermark with each, credit in bytes), and where the
pump does not know it `PullBinlogs`, whose only watermark are the time marks that an idle pump stores. A pump
that does not answer is asked again for ever, with growing pauses: only the registry can say that it is gone.
What the pump refuses for good (position purged, its data damaged) stops the drainer.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from google.protobuf.message import DecodeError

from common import log, rpc
from common.backoff import Backoff
from common.errors import Corruption, Unavailable
from common.wire import binlog_pb2, pump_pb2
from drainer.merger import Merged

PULL_BATCHES: Final = "/binlog.PumpBatch/PullBatches"
PULL_BINLOGS: Final = "/binlog.Pump/PullBinlogs"

OUT_OF_RANGE: Final = 11
RETRY_FIRST_S: Final = 0.05
RETRY_MAX_S: Final = 1.0

_logger = log.get("pump_source")


class PullClient(Protocol):
    """What a source needs of a connection; `common.rpc.Client` is one."""

    def server_stream(self, path: str, request: bytes) -> AsyncIterator[bytes]: ...

    def bidi(self, path: str, requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]: ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class DdlMark:
    """Among the payloads just decoded, one of a DDL. `query` is its beginning, in lower case."""

    commit_ts: int
    job_id: int
    schema_state: int
    query: bytes


@dataclass(frozen=True, slots=True)
class Arrival:
    """What one message of a pump holds. `watermark` 0: none; `mark_bytes`: size of time marks left out."""

    entries: list[Merged]
    watermark: int
    ddl: list[DdlMark]
    mark_bytes: int = 0


Deliver = Callable[[Arrival], None]
Reply = TypeVar("Reply", pump_pb2.PullBatchesResp, pump_pb2.PullBinlogResp)


def decode_arrival(payloads: Sequence[bytes], watermark: int, node_id: str) -> Arrival:
    """Payloads of a message; a time mark raises the watermark. Raises `Corruption` for undecodable ones."""
    entries: list[Merged] = []
    ddl: list[DdlMark] = []
    mark_bytes = 0
    decode = binlog_pb2.Binlog.FromString
    for payload in payloads:
        try:
            message = decode(payload)
        except DecodeError as error:
            last = entries[-1].commit_ts if entries else None
            where = f"behind commit_ts {last}" if last else "as the first of a message"
            raise Corruption(
                f"pump {node_id} sent {len(payload)} bytes {where} that are not a binlog: {error}",
                hint=f"`binlogctl -cmd pumps` shows where {node_id} is; check its data directory",
            ) from None
        commit_ts = message.commit_ts
        if commit_ts == message.start_ts and commit_ts > 0:
            watermark = max(watermark, commit_ts)
            mark_bytes += len(payload)
            continue
        entries.append(Merged(commit_ts, payload))
        if message.ddl_job_id:
            begin = message.ddl_query[:64].lstrip().lower()
            ddl.append(DdlMark(commit_ts, message.ddl_job_id, message.ddl_schema_state, begin))
    return Arrival(entries, watermark, ddl, mark_bytes)


class PumpSource:
    """One pump. `position`: everything of this pump at or below it has been delivered.

    `deliver` may raise to stop everything (order violated). `error` is why there is no connection, "" if
    there is one or none was tried.
    """

    def __init__(
        self,
        node_id: str,
        address: str,
        *,
        cluster_id: int,
        after_ts: int,
        credit_bytes: int,
        connect: Callable[[str], PullClient],
        deliver: Deliver,
        rng: random.Random | None = None,
    ) -> None:
        assert credit_bytes > 0
        self.node_id = node_id
        self.address = address
        self.position = after_ts
        self.held_bytes = 0
        self.connected = False
        self.error = ""
        self.speaks_batches = True
        self._cluster_id = cluster_id
        self._credit_bytes = credit_bytes
        self._connect = connect
        self._deliver = deliver
        self._backoff = Backoff(RETRY_FIRST_S, RETRY_MAX_S, rng)
        self._wanted_ts = 0
        self._asked_ts = 0
        self._owed_bytes = 0
        self._changed = asyncio.Event()
        self._retry_now = asyncio.Event()
        self._session: asyncio.Task[None] | None = None

    # -- what the collector says ------------------------------------------------------------------------

    def ask(self, watermark: int) -> None:
        """Have the pump say when its watermark is at least this; old pumps say it in their own time."""
        if watermark > self._wanted_ts:
            self._wanted_ts = watermark
            if watermark > self._asked_ts:
                self._changed.set()

    def release(self, size: int) -> None:
        """`size` bytes delivered earlier have left the merger: the pump may send as many again."""
        self.held_bytes -= size
        self._owed_bytes += size
        assert self.held_bytes >= 0
        if self._owed_bytes * 8 >= self._credit_bytes or not self.held_bytes:
            self._changed.set()

    def move_to(self, address: str) -> None:
        """The pump has another address: leave the old one at once."""
        if address != self.address:
            _logger.info("pump moved", pump=self.node_id, address=address, before=self.address)
            self.address = address
            if self._session is not None:
                self._session.cancel()
            self.retry_now()

    def retry_now(self) -> None:
        """The registry shows a change: do not wait out the pause."""
        self._retry_now.set()

    # -- keeping the stream up --------------------------------------------------------------------------

    async def run(self) -> None:
        """Pull until cancelled. Raises `Corruption` when this pump can never serve what is needed."""
        while True:
            self._session = asyncio.create_task(self._pull(), name=f"pull {self.node_id}")
            try:
                await asyncio.wait({self._session})
            except asyncio.CancelledError:
                self._session.cancel()
                await asyncio.wait({self._session})
                if not self._session.cancelled():
                    self._session.exception()  # seen; it does not matter any more
                raise
            session, self._session = self._session, None
            if session.cancelled():
                continue  # moved
            error = session.exception()
            if isinstance(error, rpc.RpcStatus) and error.code == rpc.UNIMPLEMENTED and self.speaks_batches:
                self.speaks_batches = False
                _logger.info("pump speaks the old protocol only", pump=self.node_id, address=self.address)
                continue
            if error is not None and not isinstance(error, Unavailable | rpc.RpcStatus):
                raise error
            if isinstance(error, rpc.RpcStatus) and error.code in (OUT_OF_RANGE, rpc.DATA_LOSS):
                raise self._refused(error)
            self._note_down(str(error) if error else "the pump ended the stream")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._backoff.next_s()):
                    await self._retry_now.wait()
            self._retry_now.clear()

    def _refused(self, error: rpc.RpcStatus) -> Corruption:
        what = f"pump {self.node_id} ({self.address}) cannot serve binlogs behind commit_ts {self.position}"
        hint = f"`binlogctl -cmd pumps` shows where {self.node_id} is; check its log and its data directory"
        if error.code == OUT_OF_RANGE:
            hint = (
                "load a newer backup into the downstream and start from its position with initial-commit-ts"
            )
        return Corruption(f"{what}: {error.message}", hint=hint)

    def _note_down(self, reason: str) -> None:
        if reason != self.error:  # a pump that is down for a night is one line
            _logger.warning("no stream from pump", pump=self.node_id, address=self.address, reason=reason)
        self.error = reason

    def _note_up(self) -> None:
        if not self.connected:
            self.connected = True
            self._backoff.reset()
            if self.error:
                _logger.info("pump streams again", pump=self.node_id, address=self.address)
            self.error = ""

    # -- one connection ---------------------------------------------------------------------------------

    async def _pull(self) -> None:
        client = self._connect(self.address)
        try:
            if self.speaks_batches:
                await self._pull_batches(client)
            else:
                await self._pull_binlogs(client)
        finally:
            self.connected = False
            await client.close()

    async def _pull_batches(self, client: PullClient) -> None:
        replies = client.bidi(PULL_BATCHES, self._requests())
        async with _closing(replies):
            async for data in replies:
                batch = self._decode(pump_pb2.PullBatchesResp, data)
                self._arrived(batch.payloads[:], batch.watermark)

    async def _requests(self) -> AsyncGenerator[bytes, None]:
        """The opening, then credit and waits as they come up. Asks at once: the answer tells of life."""
        self._owed_bytes = 0
        self._asked_ts = max(self._wanted_ts, self.position + 1)
        yield pump_pb2.PullBatchesReq(
            cluster_id=self._cluster_id,
            after_ts=self.position,
            credit_bytes=max(0, self._credit_bytes - self.held_bytes),
            wait_watermark=self._asked_ts,
        ).SerializeToString()
        while True:
            await self._changed.wait()
            self._changed.clear()
            credit, self._owed_bytes = self._owed_bytes, 0
            waits_for = self._wanted_ts if self._wanted_ts > max(self._asked_ts, self.position) else 0
            self._asked_ts = max(self._asked_ts, waits_for)
            if credit or waits_for:
                yield pump_pb2.PullBatchesReq(
                    credit_bytes=credit, wait_watermark=waits_for
                ).SerializeToString()

    async def _pull_binlogs(self, client: PullClient) -> None:
        request = pump_pb2.PullBinlogReq(clusterID=self._cluster_id)
        request.startFrom.offset = self.position
        replies = client.server_stream(PULL_BINLOGS, request.SerializeToString())
        async with _closing(replies):
            async for data in replies:
                self._arrived([self._decode(pump_pb2.PullBinlogResp, data).entity.payload], 0)
                while self.held_bytes >= self._credit_bytes:  # not reading is what slows an old pump down
                    self._changed.clear()
                    await self._changed.wait()

    def _decode(self, kind: type[Reply], data: bytes) -> Reply:
        try:
            return kind.FromString(data)
        except DecodeError as error:
            raise Corruption(
                f"pump {self.node_id} ({self.address}) sent a message of {len(data)} bytes behind commit_ts "
                f"{self.position} that cannot be decoded: {error}",
                hint=f"check that a pump, and of which version, listens on {self.address}",
            ) from None

    def _arrived(self, payloads: Sequence[bytes], watermark: int) -> None:
        self._note_up()
        arrival = decode_arrival(payloads, watermark, self.node_id)
        self.held_bytes += sum(len(entry.payload) for entry in arrival.entries)
        if arrival.mark_bytes:
            self._owed_bytes += arrival.mark_bytes
        self._deliver(arrival)
        last_ts = arrival.entries[-1].commit_ts if arrival.entries else 0
        self.position = max(self.position, arrival.watermark, last_ts)


@contextlib.asynccontextmanager
async def _closing(stream: AsyncIterator[bytes]) -> AsyncIterator[None]:
    try:
        yield
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()

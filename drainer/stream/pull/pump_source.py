"""Pump source: the stream of one pump, kept up for as long as the pump belongs to the cluster.

Drives   nothing; hands what arrives to `deliver` in the same turn of the event loop
Owns     one connection at a time
Holds    what was delivered and not yet released stays below `credit_bytes`, plus one payload that is larger
         by itself. A connection begins after the last position delivered, so nothing is skipped or repeated.
         A transaction above the limit of `spill` is never in memory as a whole: the pump sends it in parts,
         which go to disk as they come, and it is delivered when the last of them is there. A compressed
         message that says it is larger than what was asked for is never made
Stops    by cancellation, which abandons only what had not been delivered

Two protocols: `PullBatches` (many payloads a message, a watermark with each, credit in bytes), and where the
pump does not know it `PullBinlogs`, whose only watermark are the time marks that an idle pump stores, and
which brings a transaction of any size in one message. Messages of the first are compressed where that was
asked for and the pump can, those of the second as gRPC does it. A pump that does not answer is asked again
for ever, with growing pauses: only the registry can say that it is gone. One that says nothing at all
although it was asked to is taken for cut off. What the pump refuses for good (position purged, its data
damaged) stops the drainer.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from typing import Final, Protocol, TypeVar

from google.protobuf.message import DecodeError

from drainer.stream.pull import large_txn
from drainer.stream.pull.merged import Merged, stretch
from drainer.stream.pull.pull_message import Arrival, Undecodable, arrival
from drainer.stream.pull.spill import Account, SpillDirectory, SpillFile
from tidb_binlog import compression, protobuf_fields, rpc
from tidb_binlog.backoff import Backoff
from tidb_binlog.errors import Corruption, Unavailable
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.observe import log, trace
from tidb_binlog.tso import Ts
from tidb_binlog.wire import pump_pb2

_PAYLOAD_BYTES_MAX: Final = 1 << 31  # that of gRPC
_TAGS_BYTES: Final = 1 << 20


class Compressed:
    """What one pump is asked for. `compressor`: "zstd", "gzip", or "" for messages as they are;
    `credit_bytes`, `above_bytes`: the most that it may send ahead, and in one payload (0: no limit)."""

    def __init__(self, compressor: str, credit_bytes: int, above_bytes: int) -> None:
        self.takes = tuple(dict.fromkeys((compressor, compression.GZIP))) if compressor else ()
        # The first payload of a message may exceed the credit. Tags and timestamps are no more than payloads.
        self._bytes_max = 2 * max(credit_bytes, above_bytes or _PAYLOAD_BYTES_MAX) + _TAGS_BYTES

    async def message(self, compressed: pump_pb2.Compressed) -> bytes:
        """The serialized message. Raises `ValueError`."""
        name, size, frame = compressed.compression, compressed.size, compressed.data
        if name not in self.takes or not 0 < size <= self._bytes_max:
            raise ValueError(f"{size} bytes compressed as {name!r} were not asked for")
        if size > compression.INLINE_BYTES_MAX:
            return await asyncio.to_thread(compression.decompress, name, frame, size)
        return compression.decompress(name, frame, size)


PULL_BATCHES: Final = "/binlog.PumpBatch/PullBatches"
PULL_BINLOGS: Final = "/binlog.Pump/PullBinlogs"

OUT_OF_RANGE: Final = 11
RETRY_FIRST_S: Final = 0.05
RETRY_MAX_S: Final = 1.0
# A pump is to say something once a second; a slow line has a minute for a message of 8 MiB.
SILENCE_ASKED_MS: Final = 1000
SILENCE_MAX_S: Final = 60.0

_logger = log.get("pump_source")


class BinlogsGone(Corruption):
    """A pump does not hold any more what comes next. `lowest`: what can be pulled from; 0: not known."""

    def __init__(self, message: str, *, lowest: int = 0, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.lowest = lowest


@dataclass(frozen=True, slots=True)
class PullChoice:
    """What is wanted of Pumps, where that is not everything. `until_ts`: nothing above it, 0: no end.
    `table_ids`: transactions that have rows of one of them, and DDL; none: all. Pumps that do not know it
    send everything."""

    until_ts: Ts = 0
    table_ids: tuple[int, ...] = ()


class PullClient(Protocol):
    """What a source needs of a connection; `tidb_binlog.rpc.Client` is one."""

    def server_stream(self, path: str, request: bytes, *, gzip: bool) -> AsyncIterator[bytes]: ...

    def bidi(self, path: str, requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]: ...

    async def close(self) -> None: ...


Deliver = Callable[[Arrival], None]
Reply = TypeVar("Reply", pump_pb2.PullBatchesResp, pump_pb2.PullBinlogResp)


class PumpSource:
    """One pump. `deliver` may raise to stop everything (order violated)."""

    def __init__(
        self,
        node_id: str,
        address: str,
        *,
        cluster_id: int,
        after_ts: Ts,
        credit_bytes: int,
        connect: Callable[[str], PullClient],
        deliver: Deliver,
        spill: SpillDirectory,
        compressor: str = "",
        choice: PullChoice = PullChoice(),  # noqa: B008  frozen
        silence_max_s: float = SILENCE_MAX_S,
        rng: random.Random | None = None,
    ) -> None:
        assert credit_bytes > 0
        self.node_id = node_id
        self.address = address  # of now; a session that is on another one is being cancelled
        self.position = after_ts  # everything of this pump at or below it has been delivered; never falls
        self.held_bytes = 0  # delivered in memory and not released; the pump may not send beyond the credit
        self.connected = False  # this session has brought a message
        self.error = ""  # why there is no connection; "" if there is one or none was tried
        self.speaks_batches = True  # until the pump says that it does not know `PullBatches`
        self.waits_for_start_ts = 0  # the open prewrite that keeps its watermark back; 0 if there is none
        self.compression = ""  # how the pump compresses what it sends in this session; "" if it does not
        self._cluster_id = cluster_id
        self._choice = choice
        self._credit_bytes = credit_bytes
        self._connect = connect
        self._deliver = deliver
        self._spill = spill
        self._compressed = Compressed(compressor, credit_bytes, spill.above_bytes)
        self._silence_max_s = silence_max_s
        self._room = asyncio.Event()  # what lies on disk of this pump got less
        loop = asyncio.get_running_loop()
        self._account = Account(lambda: _call_on(loop, self._room.set))
        # The large transaction that is arriving in parts, with the first of them; None between two.
        self._incoming: tuple[SpillFile, pump_pb2.Part] | None = None
        self._backoff = Backoff(RETRY_FIRST_S, RETRY_MAX_S, rng)
        # The watermark that the collector wants, and what this session has asked for; the newest commit_ts
        # that waits for this pump, and what this session has told it. Wanted and given never fall.
        self._wanted_ts = 0
        self._asked_ts = 0
        self._given_ts = 0
        self._told_ts = 0
        self._owed_bytes = 0  # credit that this session has not given back yet
        self._changed = asyncio.Event()  # there may be something to tell the pump
        self._retry_now = asyncio.Event()
        self._session: asyncio.Task[None] | None = None  # None while the pause lasts

    @property
    def spilled_bytes(self) -> int:
        """What lies on disk of this pump, delivered or not."""
        return self._account.bytes

    # -- what the collector says ------------------------------------------------------------------------

    def ask(self, watermark: int) -> None:
        """Have the pump say when its watermark is at least this; old pumps say it in their own time."""
        if watermark > self._wanted_ts:
            self._wanted_ts = watermark
            if watermark > self._asked_ts:
                trace.moment("asked for its watermark", f"pump {self.node_id}", watermark=watermark)
                self._changed.set()

    def tell(self, given_ts: Ts) -> None:
        """A commit of another pump waits for this one: have it say each rise of its watermark until there."""
        if given_ts > max(self._given_ts, self.position):
            self._given_ts = given_ts
            self._changed.set()

    def release(self, size: int) -> None:
        """`size` bytes delivered earlier have left the merger: the pump may send as many again."""
        self.held_bytes -= size
        assert self.held_bytes >= 0
        self._give_back(size)

    def _give_back(self, size: int) -> None:
        self._owed_bytes += size
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
            if session.cancelled():  # moved
                self.speaks_batches = True
                continue
            error = session.exception()
            if isinstance(error, rpc.RpcStatus) and error.code == rpc.UNIMPLEMENTED and self.speaks_batches:
                self.speaks_batches = False
                _logger.info("pump speaks the old protocol only", pump=self.node_id, address=self.address)
                continue
            if error is not None and not isinstance(error, Unavailable | rpc.RpcStatus):
                raise error
            if error is None and 0 < self._choice.until_ts <= self.position:
                return
            if isinstance(error, rpc.RpcStatus) and error.code in (OUT_OF_RANGE, rpc.DATA_LOSS):
                raise self._refused(error)
            self._note_down(str(error) if error else "the pump ended the stream")
            self.speaks_batches = True  # it may be another program by now
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._backoff.next_s()):
                    await self._retry_now.wait()
            self._retry_now.clear()

    def _refused(self, error: rpc.RpcStatus) -> Corruption:
        what = f"pump {self.node_id} ({self.address}) cannot serve binlogs after commit_ts {self.position}"
        hint = f"`binlogctl -cmd pumps` shows where {self.node_id} is; check its log and its data directory"
        if error.code == OUT_OF_RANGE:
            hint = (
                "load a newer backup into the downstream and start from its position with initial-commit-ts"
            )
            return BinlogsGone(f"{what}: {error.message}", hint=hint)
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
            self.compression = ""
            self.waits_for_start_ts = 0
            self._incoming = None
            await client.close()

    async def _pull_batches(self, client: PullClient) -> None:
        replies = client.bidi(PULL_BATCHES, self._requests())
        async with _closing(replies):
            while (data := await self._next(replies)) is not None:
                batch = self._decode(pump_pb2.PullBatchesResp, data)
                if batch.HasField("compressed"):
                    batch = await self._decompressed(batch.compressed)
                self.waits_for_start_ts = batch.waits_for_start_ts
                if batch.HasField("part"):
                    await self._take_part(batch.part, batch.watermark)
                else:
                    stamps = batch.commit_ts[:]
                    self._arrived(arrival(batch.payloads[:], batch.watermark, self.node_id, stamps))

    async def _decompressed(self, compressed: pump_pb2.Compressed) -> pump_pb2.PullBatchesResp:
        try:
            data = await self._compressed.message(compressed)
        except ValueError as error:
            raise self._nonsense(compressed.data, error) from None
        self.compression = compressed.compression
        return self._decode(pump_pb2.PullBatchesResp, data)

    async def _next(self, replies: AsyncIterator[bytes]) -> bytes | None:
        """The next message; `Unavailable` when the pump says nothing, as on a connection that is cut."""
        try:
            async with asyncio.timeout(self._silence_max_s):
                return await anext(replies, None)
        except TimeoutError:
            raise Unavailable(
                f"nothing was heard for {self._silence_max_s:g} s", hint=f"check the way to {self.address}"
            ) from None

    async def _requests(self) -> AsyncGenerator[bytes, None]:
        """The opening, then credit and waits as they come up. Asks at once: the answer tells of life."""
        self._owed_bytes = 0
        self._asked_ts = max(self._wanted_ts, self.position + 1, self._choice.until_ts)
        self._told_ts = self._given_ts if self._given_ts > self.position else 0
        yield pump_pb2.PullBatchesReq(
            cluster_id=self._cluster_id,
            after_ts=self.position,
            credit_bytes=max(0, self._credit_bytes - self.held_bytes),
            wait_watermark=self._asked_ts,
            parts_above=self._spill.above_bytes,
            silence_ms=SILENCE_ASKED_MS,
            given_ts=self._told_ts,
            takes_compression=self._compressed.takes,
            until_ts=self._choice.until_ts,
            table_ids=self._choice.table_ids,
        ).SerializeToString()
        while True:
            await self._changed.wait()
            self._changed.clear()
            credit, self._owed_bytes = self._owed_bytes, 0
            waits_for = self._wanted_ts if self._wanted_ts > max(self._asked_ts, self.position) else 0
            self._asked_ts = max(self._asked_ts, waits_for)
            given_ts = self._given_ts if self._given_ts > max(self._told_ts, self.position) else 0
            self._told_ts = max(self._told_ts, given_ts)
            if credit or waits_for or given_ts:
                yield pump_pb2.PullBatchesReq(
                    credit_bytes=credit, wait_watermark=waits_for, given_ts=given_ts
                ).SerializeToString()

    async def _pull_binlogs(self, client: PullClient) -> None:
        request = pump_pb2.PullBinlogReq(clusterID=self._cluster_id)
        request.startFrom.offset = self.position
        gzip = bool(self._compressed.takes)
        self.compression = compression.GZIP if gzip else ""
        replies = client.server_stream(PULL_BINLOGS, request.SerializeToString(), gzip=gzip)
        async with _closing(replies):
            async for data in replies:
                if len(data) > self._spill.above_bytes:
                    await self._take_large(data)
                else:
                    payload = self._decode(pump_pb2.PullBinlogResp, data).entity.payload
                    self._arrived(arrival([payload], 0, self.node_id))
                while self.held_bytes >= self._credit_bytes:  # not reading is what slows an old pump down
                    self._changed.clear()
                    await self._changed.wait()

    def _decode(self, kind: type[Reply], data: bytes) -> Reply:
        try:
            return kind.FromString(data)
        except DecodeError as error:
            raise self._nonsense(data, error) from None

    def _nonsense(self, data: bytes, error: Exception) -> Undecodable:
        return Undecodable(
            f"pump {self.node_id} ({self.address}) sent a message of {len(data)} bytes after commit_ts "
            f"{self.position} that cannot be decoded: {error}",
            hint=f"check that a pump, and of which version, listens on {self.address}",
        )

    def _arrived(self, arrival: Arrival) -> None:
        self._note_up()
        self.held_bytes += arrival.size
        if arrival.mark_bytes:
            self._owed_bytes += arrival.mark_bytes
        if trace.is_on():
            what = {"watermark": arrival.watermark, "bytes": arrival.size}
            trace.moment("received", f"pump {self.node_id}", **stretch(arrival.entries), **what)
        self._deliver(arrival)
        last_ts = arrival.entries[-1].commit_ts if arrival.entries else 0
        self.position = max(self.position, arrival.watermark, last_ts)

    # -- large transactions -----------------------------------------------------------------------------

    async def _take_part(self, part: pump_pb2.Part, watermark: int) -> None:
        """Put a part on disk; it takes no credit there. With the last one the transaction has arrived."""
        if part.offset == 0:
            below = min(watermark, part.commit_ts - 1)  # others need not wait for this one's rows
            self._arrived(Arrival([], below, []))
            self._incoming = (await self._spill.begin(self._account), part)
        file, first = self._incoming or (None, None)
        data = part.data  # a copy each time
        if (
            file is None
            or first is None
            or (part.commit_ts, part.size, part.offset) != (first.commit_ts, first.size, file.size)
            or not 0 < len(data) <= part.size - part.offset
        ):
            raise Corruption(
                f"pump {self.node_id} ({self.address}) sent a part at {part.offset} of the binlog with "
                f"commit_ts {part.commit_ts} that does not follow on what it sent before",
                hint=f"check that a pump, and of which version, listens on {self.address}",
            )
        with self._blamed():
            await self._spill.append(file, data)
        self._give_back(len(data))
        if file.size == part.size:
            self._incoming = None
            await self._spilled(file, part.commit_ts, watermark)

    async def _take_large(self, data: bytes) -> None:
        """A large transaction that came in one message of the old protocol."""
        view = memoryview(data)

        def read(offset: int, size: int) -> bytes:
            return bytes(view[offset : offset + size])

        begin, size = 0, len(data)
        try:
            for field_tag in (0x0A, 0x12):  # PullBinlogResp.entity, Entity.payload
                begin, size = next(
                    (at, value)
                    for tag, value, at in protobuf_fields.fields(read, begin, begin + size)
                    if tag == field_tag
                )
        except (protobuf_fields.MalformedMessage, StopIteration) as error:
            raise self._nonsense(data, error) from None
        with self._blamed():
            file = await self._spill.keep(self._account, view[begin : begin + size])
        await self._spilled(file, 0, 0)

    async def _spilled(self, file: SpillFile, commit_ts: Ts, watermark: int) -> None:
        """Deliver what is on disk as a whole; then wait if there is too much of this pump."""
        with self._blamed():
            outline = await asyncio.to_thread(large_txn.outline, file.read, file.size)
        if outline.ddl_job_id or outline.commit_ts == outline.start_ts:  # no rows: of any use in memory only
            self._arrived(arrival([file.read(0, file.size)], watermark, self.node_id))
            return
        if commit_ts not in (0, outline.commit_ts):
            raise Corruption(
                f"pump {self.node_id} ({self.address}) sent a binlog with commit_ts {outline.commit_ts} "
                f"as that of {commit_ts}",
                hint=f"`binlogctl -cmd pumps` shows where {self.node_id} is; check its data directory",
            )
        spilled = file.spilled(outline.start_ts, outline.commit_ts)
        self._arrived(Arrival([Merged(outline.commit_ts, b"", None, spilled)], watermark, []))
        del file, spilled
        while self._account.bytes > self._spill.ahead_bytes:
            self._room.clear()
            if self._account.bytes > self._spill.ahead_bytes:
                await self._room.wait()

    @contextlib.contextmanager
    def _blamed(self) -> Iterator[None]:
        """What cannot be read came from this pump."""
        try:
            yield
        except Corruption as error:
            raise Undecodable(
                f"pump {self.node_id} ({self.address}) sent a large binlog after commit_ts {self.position} "
                f"that cannot be read: {error.message}",
                hint=f"`binlogctl -cmd pumps` shows where {self.node_id} is; check its data directory",
            ) from None


@contextlib.asynccontextmanager
async def _closing(stream: AsyncIterator[bytes]) -> AsyncIterator[None]:
    try:
        yield
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()


def _call_on(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(function)

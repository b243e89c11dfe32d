"""Puller: the pull streams of drainers, old protocol and new.

Owns    a task per new-protocol stream that reads its requests
Holds   of a transaction that goes out in parts, one part is in memory; whatever is read was asked for before.
        So many streams at once, and of one connection or address fewer; when all places are taken, an address
        that has few takes one of the address that has most, and a drainer of the registry whosever it needs
Waits   for the watermark or for a request, never by polling. Who waits for a watermark is known to
        `watermark.idle`, which draws a timestamp where nothing else would raise it. A puller that wants to
        know that the pump is there hears something at least that often
Stops   `end` lets every stream finish its message and close without an error
Tests  tests/pump/test_server.py, tests/pump/test_program_live_options.py, tests/pump/pull/test_peer_memory.py
"""

from __future__ import annotations

import asyncio
import socket
from bisect import bisect_left
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message

from pump import metrics
from pump.index.store import IndexDamaged
from pump.pull import replies as pull_replies
from pump.pull import session as pull_session
from pump.pull.pages import PullPages, cost
from pump.pull.replies import Packer
from pump.pull.session import PartMessage, PullSession
from pump.storage.history import PositionPurged
from pump.storage.storage import Storage
from pump.watermark.idle import IdleWatermark
from pump.write import admission
from tidb_binlog import rpc, time_text, tso
from tidb_binlog.budget import Ticket
from tidb_binlog.clock import Clock, SystemClock, look_at
from tidb_binlog.cluster import node
from tidb_binlog.cluster.registry import ClusterView
from tidb_binlog.door.network import network_of
from tidb_binlog.errors import BinlogError, Unavailable
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.net.abandonable_thread import in_abandonable_thread
from tidb_binlog.net.port import split_address
from tidb_binlog.observe import log
from tidb_binlog.status.pump import PullerStatus
from tidb_binlog.tso import TS_MAX, Ts
from tidb_binlog.upstream.upstream_time import UpstreamTime
from tidb_binlog.wire import pump_pb2

STREAMS_MAX = 128
CONNECTION_STREAMS_MAX = 32
OUT_OF_RANGE = 11  # gRPC status: the position was purged
INVALID_ARGUMENT = rpc.INVALID_ARGUMENT
_PAGE_BYTES = 1 << 20
_HANDED_BYTES = 1 << 16  # of a page that is sent bit by bit, before its ticket is made smaller
SILENCE_MS_MIN = 10
_KEPT_S = 10.0
_NAMES_S = 5.0

Request = TypeVar("Request", bound=Message)

_BATCH_BYTES = metrics.PULLED_BYTES.labels("batch")
_logger = log.get("puller")


@dataclass(slots=True, eq=False)
class Stream:
    """One pull stream, as `/status` shows it. `position`: the last timestamp that was sent or covered."""

    protocol: str
    caller: rpc.Caller
    position: int = 0
    session: PullSession | None = None
    is_open: bool = False
    packer: Packer | None = None
    task: asyncio.Task[None] | None = field(default_factory=asyncio.current_task)
    is_evicted: bool = False
    """Its place went to another address."""

    def evict(self) -> None:
        assert self.task is not None
        self.is_evicted = True
        self.task.cancel()

    def open(self, position: int, session: PullSession | None = None) -> None:
        """The call is taken: a puller stands here."""
        self.position, self.session, self.is_open = position, session, True
        metrics.PULLERS.labels(self.protocol).inc()
        _logger.info("pull stream opened", protocol=self.protocol, after_ts=position)

    def facts(self, watermark: int) -> PullerStatus:
        behind_s = tso.physical_s(watermark) - tso.physical_s(self.position)
        lag_s = max(round(behind_s, 3), 0.0)
        status = PullerStatus(protocol=self.protocol, position=self.position, lag_s=lag_s)
        if self.session is not None:
            status.credit_bytes, status.waits_for = self.session.credit, self.session.waits_for
        if self.packer is not None:
            status.compression, status.compressed_share = self.packer.name, self.packer.share
        return status


class Pullers:
    """All pull streams of one pump."""

    def __init__(
        self,
        storage: Storage,
        idle: IdleWatermark,
        cluster_id: int,
        clock: Clock | None = None,
        time: UpstreamTime | None = None,
        *,
        streams_max: int = STREAMS_MAX,
        connection_streams_max: int = CONNECTION_STREAMS_MAX,
    ) -> None:
        self._clock = clock or SystemClock()
        self._storage = storage
        self._idle = idle
        self._cluster_id = cluster_id
        self._time = time
        self._wakes: set[asyncio.Event] = set()
        self._ending = False
        self._streams: dict[Stream, None] = {}  # the newest last
        self._streams_max = streams_max
        self._connection_streams_max = connection_streams_max
        self.kept = Counter[str]()
        """How many streams of each address are nobody else's."""

    def end(self) -> None:
        """End all streams, after the message each may be sending."""
        self._ending = True
        for wake in self._wakes:
            wake.set()

    # -- binlog.Pump/PullBinlogs -----------------------------------------------------------------

    def change_limits(self, streams_max: int, connection_streams_max: int) -> None:
        """For streams that are opened from now on."""
        self._streams_max = streams_max
        self._connection_streams_max = connection_streams_max

    async def pull_binlogs(self, data: bytes) -> AsyncIterator[bytes]:
        """One entity a message, stored time marks included, from `startFrom.offset` on (exclusive)."""
        with self._stream("entity", "PullBinlogs") as stream:
            request = _decode(pump_pb2.PullBinlogReq, data)
            self._check_cluster(request.clusterID)
            await self._check_position(request.startFrom.offset)
            stream.open(request.startFrom.offset)
            pages = PullPages(self._storage, stream.caller)
            sent = metrics.PULLED_BYTES.labels("entity")
            with self._storage.listener() as wake:
                self._wakes.add(wake)
                try:
                    while not self._ending:
                        wake.clear()
                        if stream.position >= self._storage.watermark:
                            with self._idle.waiting(object(), 0):
                                await wake.wait()
                            continue
                        with _reporting_failures(stream.position):
                            page, ticket = await pages.page(stream.position, _PAGE_BYTES)
                        try:
                            left, covered, sent_bytes = page.deliveries[::-1], page.covered, 0
                            del page
                            ticket.shrink(cost(left))
                            while left:
                                assert left[-1].commit_ts > stream.position
                                stream.position = left[-1].commit_ts
                                size = left[-1].size
                                sent.inc(size)
                                sent_bytes += size
                                if sent_bytes >= _HANDED_BYTES or len(left) == 1:
                                    # From here on the transport counts it.
                                    ticket.hand_over(sent_bytes if len(left) > 1 else ticket.size)
                                    sent_bytes = 0
                                yield pull_replies.entity(left.pop())
                        finally:
                            ticket.close()
                        stream.position = covered
                finally:
                    self._wakes.discard(wake)

    # -- binlog.PumpBatch/PullBatches ------------------------------------------------------------

    async def pull_batches(self, requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Many payloads a message, a watermark in each, credit in bytes."""
        first = await anext(requests, None)
        if first is None:
            return
        with self._stream("batch", "PullBatches") as stream:
            request = _decode(pump_pb2.PullBatchesReq, first)
            self._check_cluster(request.cluster_id)
            await self._check_position(request.after_ts)
            until_ts = request.until_ts if request.until_ts > 0 else TS_MAX
            hurries = until_ts < TS_MAX or bool(request.table_ids)
            session = PullSession(request.after_ts, until_ts, hurries=hurries)
            self._take_request(session, request)
            stream.packer = Packer.of(request.takes_compression)
            stream.open(request.after_ts, session)
            async for reply in self._batches(stream, session, requests, request):
                yield reply

    async def _batches(
        self,
        stream: Stream,
        session: PullSession,
        requests: AsyncIterator[bytes],
        opening: pump_pb2.PullBatchesReq,
    ) -> AsyncIterator[bytes]:
        packer = stream.packer
        tables = frozenset(opening.table_ids) if opening.table_ids else None
        pages = PullPages(
            self._storage,
            stream.caller,
            copies=2 if packer else 1,
            until_ts=session.until_ts,
            tables=tables,
        )
        silence_s = max(opening.silence_ms, SILENCE_MS_MIN) / 1000 if opening.silence_ms > 0 else None
        now_s = asyncio.get_running_loop().time
        said_s = now_s()
        with self._storage.listener() as wake:
            self._wakes.add(wake)
            reader = asyncio.get_running_loop().create_task(self._read_requests(requests, session, wake))
            try:
                while not self._ending:
                    wake.clear()
                    reply, ticket = await self._reply(pages, session, max(opening.parts_above, 0))
                    try:
                        if reply:
                            stream.position = session.position
                            if packer is not None:
                                reply = await packer.packed(reply)
                            if ticket is not None:
                                ticket.hand_over(ticket.size)  # from here on the transport counts it
                            yield reply
                            if session.is_over:
                                return
                            continue
                    finally:
                        if reply:
                            said_s = now_s()
                        reply = b""
                        if ticket is not None:
                            ticket.close()
                    if ticket is not None and session.position < self._storage.watermark:
                        # A page that says nothing by itself, as many may that a filter has emptied.
                        if silence_s is not None and now_s() >= said_s + silence_s:
                            yield _encoded(session.sign_of_life(0))
                            said_s = now_s()
                        continue
                    if reader.done():
                        reader.result()
                        return  # the puller sends nothing more: it has left
                    with self._idle.waiting(session, session.waits_for):
                        due_s = silence_s and look_at(said_s + silence_s - now_s())
                        if not await _is_woken(wake, due_s):
                            yield _encoded(session.sign_of_life(self._held_by(session)))
                            said_s = now_s()
            finally:
                self._wakes.discard(wake)
                reader.cancel()
                await asyncio.wait({reader})
                if not reader.cancelled():
                    reader.exception()  # seen; the stream has ended anyway

    async def _read_requests(
        self, requests: AsyncIterator[bytes], session: PullSession, wake: asyncio.Event
    ) -> None:
        try:
            async for data in requests:
                self._take_request(session, _decode(pump_pb2.PullBatchesReq, data))
                wake.set()
        finally:
            wake.set()

    def _take_request(self, session: PullSession, request: pump_pb2.PullBatchesReq) -> None:
        given_ts = request.given_ts
        if given_ts > 0:
            # One from the future is no reason to ask the oracle now: whoever waits for it says so.
            if self._time is None or self._time.may_have_given(given_ts):
                self._idle.given(given_ts)
            else:
                given_ts = 0
        session.request(request.credit_bytes, request.wait_watermark, given_ts)

    async def _reply(
        self, pages: PullPages, session: PullSession, parts_above: int
    ) -> tuple[bytes, Ticket | None]:
        """The next message, empty if there is none, and the ticket that it was made with."""
        ticket: Ticket | None = None
        message: pull_session.Message | PartMessage | None = None
        try:
            with _reporting_failures(session.position):
                if session.large is not None:
                    reply = await pages.part(session)
                    if reply is not None:
                        message, ticket = reply
                elif session.page_bytes and session.position < min(self._storage.watermark, session.until_ts):
                    page, ticket = await pages.page(session.position, session.page_bytes, parts_above)
                    message = session.page(page)
            message = message or session.reached()
            return _encoded(message) if message is not None else b"", ticket
        except BaseException:
            if ticket is not None:
                ticket.close()
            raise

    def _held_by(self, session: PullSession) -> int:
        """start_ts of the open prewrite that keeps the awaited watermark back; 0 if there is none."""
        if session.waits_for <= self._storage.watermark:
            return 0
        longest = next(self._storage.open_prewrites(), None)
        return 0 if longest is None else longest.start_ts

    # -- binlog.PumpBatch/CutRange ---------------------------------------------------------------

    async def cut_range(self, data: bytes) -> bytes:
        """Where a range may be cut, and the bytes between."""
        request = _decode(pump_pb2.CutRangeReq, data)
        self._check_cluster(request.cluster_id)
        await self._check_position(request.after_ts)
        with _reporting_failures(request.after_ts):
            until_ts = min(request.until_ts, self._storage.watermark)
            cuts, sizes = await self._storage.in_thread(
                range_cuts, self._storage, request.after_ts, until_ts, request.pieces, request.least_bytes
            )
        return pump_pb2.CutRangeResp(cuts=cuts, sizes=sizes).SerializeToString()

    # -- both ------------------------------------------------------------------------------------

    @contextmanager
    def _stream(self, protocol: str, method: str) -> Iterator[Stream]:
        """Count, log and time one call; a stream that ends because its puller leaves has succeeded."""
        stream, began_s, label = Stream(protocol, rpc.caller()), self._clock.monotonic_s(), "fail"
        try:
            self.check_streams(stream.caller)
            self._streams[stream] = None
            yield stream
            label = "succ"
        except (GeneratorExit, asyncio.CancelledError):
            if stream.is_evicted:
                text = f"{self._streams_max} pull streams are open (pull-streams), and its address has most"
                raise rpc.RpcStatus(rpc.RESOURCE_EXHAUSTED, text) from None
            label = "succ"
            raise
        finally:
            self._streams.pop(stream, None)
            metrics.RPC_SECONDS.labels(method, label).observe(self._clock.monotonic_s() - began_s)
            if stream.is_open:
                metrics.PULLERS.labels(protocol).dec()
                _logger.info("pull stream ended", protocol=protocol, position=stream.position)

    def check_streams(self, caller: rpc.Caller) -> None:
        """Raises `RpcStatus` when there is one too many."""
        same = [stream.caller.connection for stream in self._streams].count(caller.connection)
        near = sum(stream.caller.address == caller.address != "" for stream in self._streams)
        if same >= self._connection_streams_max:
            limit = f"{same} of its connection are open (pull-streams-per-connection)"
        elif near >= max(self._streams_max // 2, 1):
            limit = f"{near} of its address are open (half of pull-streams)"
        elif len(self._streams) >= self._streams_max and not self._make_room(caller.address, near):
            limit = f"{self._streams_max} are open (pull-streams)"
        else:
            return
        _logger.warning("pull stream refused", address=caller.address, limit=limit)
        raise rpc.RpcStatus(rpc.RESOURCE_EXHAUSTED, f"too many pull streams: {limit}")

    def _make_room(self, address: str, has: int) -> bool:
        """Whether an address with most streams that are not kept gave up its newest: for one of the kept, or
        for an address that has at least two fewer."""
        counts = Counter(stream.caller.address for stream in self._streams if stream.caller.address)
        counts -= self.kept
        most = max(counts.values(), default=0)
        if most < (1 if has < self.kept[address] else has + 2):
            return False
        newest = next(stream for stream in reversed(self._streams) if counts[stream.caller.address] == most)
        del self._streams[newest]
        newest.evict()
        busiest = newest.caller.address
        _logger.warning("pull stream ended for one of another address", address=busiest, streams=most)
        return True

    async def keep_places(self, view: Callable[[], Awaitable[ClusterView]]) -> None:
        """Keep one for each drainer of the registry, at the addresses that its name has; until cancelled."""
        while True:
            with suppress(BinlogError, TimeoutError):  # what was kept stays
                drainers = (await view()).drainers.values()
                hosts = [entry.status.host for entry in drainers if entry.status.state != node.OFFLINE]
                self.kept = await in_abandonable_thread(_addresses, hosts, timeout_s=_NAMES_S)
            await asyncio.sleep(_KEPT_S)

    def facts(self) -> list[PullerStatus]:
        """The open streams: where each stands, and what it waits for. Timestamps; lag in upstream seconds."""
        watermark = self._storage.watermark
        return [stream.facts(watermark) for stream in self._streams if stream.is_open]

    @property
    def old_streams(self) -> int:
        return self._count("entity")

    @property
    def new_streams(self) -> int:
        return self._count("batch")

    def _count(self, protocol: str) -> int:
        return sum(stream.is_open and stream.protocol == protocol for stream in self._streams)

    async def _check_position(self, position: int) -> None:
        if self._time is not None and position > self._time.limit_ts:
            await self._time.refresh()
        if self._time is not None and position > self._time.limit_ts:
            raise rpc.RpcStatus(
                rpc.DATA_LOSS,
                f"position {position} ({time_text.utc(position)}) lies in the future: nothing was committed "
                "up to there, and what will be would be missed; start from a position that was reached",
            )

    def _check_cluster(self, requested: int) -> None:
        refused = admission.cluster(requested, self._cluster_id)
        if refused is not None:
            raise rpc.RpcStatus(rpc.UNKNOWN, refused.text)


@contextmanager
def _reporting_failures(position: int) -> Iterator[None]:
    """Log and count what keeps binlogs from being read; a purged position has a status of its own."""
    try:
        yield
    except PositionPurged as error:
        _logger.error("puller asks for purged binlogs", position=position, error=error)
        raise rpc.RpcStatus(OUT_OF_RANGE, error.message, hint=error.hint) from None
    except IndexDamaged as error:  # the log has everything: a puller that comes again gets it
        metrics.STORAGE_ERRORS.labels("read_value").inc()
        _logger.error("pull failed, the pump starts anew", position=position, error=error)
        raise Unavailable(error.message, hint=error.hint) from None
    except BinlogError as error:
        metrics.STORAGE_ERRORS.labels("read_value").inc()
        _logger.error("pull failed", position=position, error=error)
        raise


def _encoded(message: pull_session.Message | PartMessage) -> bytes:
    _BATCH_BYTES.inc(message.size)
    if isinstance(message, PartMessage):
        return pull_replies.part(message)
    return pull_replies.batch(message.deliveries, message.watermark, message.waits_for_start_ts)


async def _is_woken(wake: asyncio.Event, due_s: float | None) -> bool:
    """Wait until the event is set; False once it is `due_s` on the loop's clock, however often it was set."""
    if due_s is not None and asyncio.get_running_loop().time() >= due_s:
        return False
    try:
        async with asyncio.timeout_at(due_s):
            await wake.wait()
    except TimeoutError:
        return False
    return True


def _addresses(hosts: Iterable[str]) -> Counter[str]:
    """How many of these (`host:port`) each address has; one that has no address now is left out."""
    counts = Counter[str]()
    for host in hosts:
        with suppress(BinlogError, OSError):
            infos = socket.getaddrinfo(*split_address("host", host), type=socket.SOCK_STREAM)
            counts.update({network_of(str(info[4][0])) for info in infos})
    return counts


def _decode(kind: type[Request], data: bytes) -> Request:
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise rpc.RpcStatus(INVALID_ARGUMENT, f"request cannot be decoded: {error}") from None


# Range cuts: timestamps that cut a range into pieces with about as many bytes each.
# Why    records are written nearly in the order of their timestamps, so places in the log tell how much is
#        between two of them: a search asks the index some forty times a cut, and no record is read
# Never  promises more than that: what was written late counts where it was written. Any cut is a right one

PIECES_MAX: Final = 1024
_NEIGHBOURS: Final = (
    8  # a prewrite of a long transaction is written long after its start_ts: its neighbours not
)


def cuts_of(
    after_ts: Ts, until_ts: Ts, pieces: int, bytes_before: Callable[[Ts], int], least_bytes: int = 1
) -> tuple[list[int], list[int]]:
    """Cut the range (after_ts, until_ts] into so many pieces at most, of about `least_bytes` at least."""
    at, end = bytes_before(after_ts), bytes_before(until_ts)
    begin, total, low = at, end - at, after_ts
    pieces = min(pieces, total // max(least_bytes, 1))
    cuts: list[int] = []
    sizes: list[int] = []
    for number in range(1, min(pieces, PIECES_MAX)):
        inside = range(low + 1, until_ts)
        index = bisect_left(inside, begin + total * number // pieces, key=bytes_before)
        if index >= len(inside):
            break
        low, reached = inside[index], bytes_before(inside[index])
        if reached > at:
            cuts.append(low)
            sizes.append(reached - at)
            at = reached
    return cuts, [*sizes, max(end - at, 0)]


def range_cuts(
    storage: Storage, after_ts: Ts, until_ts: Ts, pieces: int, least_bytes: int = 1
) -> tuple[list[int], list[int]]:
    """Cut what a storage has. Raises `PositionPurged`, `IndexDamaged`; blocks."""
    after_ts = max(after_ts, 0)
    storage.history().check_kept(after_ts)
    starts, end, index = storage.value_log.starts(), storage.value_log.size, storage.index

    def bytes_before(ts: Ts) -> int:
        places = index.places_after(ts, _NEIGHBOURS)
        return min([starts.get(place.fid, 0) + place.offset for place in places], default=end)

    return cuts_of(after_ts, max(until_ts, after_ts), pieces, bytes_before, least_bytes)

"""Puller: the pull streams of drainers, old protocol and new.

Drives  `pull_session`
Owns    a task per new-protocol stream that reads its requests
Waits   for the watermark or for a request, never by polling. Who waits for a watermark is known to
        `idle_watermark`, which draws a timestamp where nothing else would raise it
Stops   `end` lets every stream finish its message and close without an error
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from common import log, rpc
from common.errors import BinlogError
from common.wire import pump_pb2
from pump import admission, metrics, pull_session
from pump.delivery import Delivery, Page
from pump.history import History, PositionPurged
from pump.idle_watermark import IdleWatermark
from pump.pull_session import PullSession
from pump.storage import Storage

OUT_OF_RANGE = 11  # gRPC status: the position was purged
INVALID_ARGUMENT = rpc.INVALID_ARGUMENT
_PAGE_BYTES = 1 << 20

Request = TypeVar("Request", bound=Message)

_logger = log.get("puller")


class Pullers:
    """All pull streams of one pump."""

    def __init__(self, storage: Storage, idle: IdleWatermark, cluster_id: int) -> None:
        self._storage = storage
        self._idle = idle
        self._cluster_id = cluster_id
        self._wakes: set[asyncio.Event] = set()
        self._ending = False
        self.old_streams = 0
        self.new_streams = 0

    def end(self) -> None:
        """End all streams, after the message each may be sending."""
        self._ending = True
        for wake in self._wakes:
            wake.set()

    # -- binlog.Pump/PullBinlogs -----------------------------------------------------------------

    async def pull_binlogs(self, data: bytes) -> AsyncIterator[bytes]:
        """One entity a message, stored time marks included, from `startFrom.offset` on (exclusive)."""
        request = _decode(pump_pb2.PullBinlogReq, data)
        self._check_cluster(request.clusterID)
        position = request.startFrom.offset
        history = self._storage.history()
        self.old_streams += 1
        metrics.PULLERS.labels("entity").inc()
        sent = metrics.PULLED_BYTES.labels("entity")
        _logger.info("pull stream opened", protocol="entity", after_ts=position)
        try:
            with self._storage.listener() as wake:
                self._wakes.add(wake)
                try:
                    while not self._ending:
                        wake.clear()
                        if position >= self._storage.watermark:
                            with self._idle.waiting(object(), 0):
                                await wake.wait()
                            continue
                        page = await self._page(history, position, _PAGE_BYTES)
                        for delivery in page.deliveries:
                            assert delivery.commit_ts > position
                            position = delivery.commit_ts
                            sent.inc(len(delivery.payload))
                            yield _entity(delivery)
                        position = page.covered
                finally:
                    self._wakes.discard(wake)
        finally:
            self.old_streams -= 1
            metrics.PULLERS.labels("entity").dec()
            _logger.info("pull stream ended", protocol="entity", position=position)

    # -- binlog.PumpBatch/PullBatches ------------------------------------------------------------

    async def pull_batches(self, requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Many payloads a message, a watermark in each, credit in bytes."""
        first = await anext(requests, None)
        if first is None:
            return
        request = _decode(pump_pb2.PullBatchesReq, first)
        self._check_cluster(request.cluster_id)
        session = PullSession(request.after_ts)
        session.request(request.credit_bytes, request.wait_watermark)
        self.new_streams += 1
        metrics.PULLERS.labels("batch").inc()
        _logger.info("pull stream opened", protocol="batch", after_ts=request.after_ts)
        try:
            async for message in self._batches(session, requests):
                yield pump_pb2.PullBatchesResp(
                    payloads=message.payloads, watermark=message.watermark
                ).SerializeToString()
        finally:
            self.new_streams -= 1
            metrics.PULLERS.labels("batch").dec()
            _logger.info("pull stream ended", protocol="batch", position=session.position)

    async def _batches(
        self, session: PullSession, requests: AsyncIterator[bytes]
    ) -> AsyncIterator[pull_session.Message]:
        history = self._storage.history()
        sent = metrics.PULLED_BYTES.labels("batch")
        with self._storage.listener() as wake:
            self._wakes.add(wake)
            reader = asyncio.get_running_loop().create_task(_read_requests(requests, session, wake))
            try:
                while not self._ending:
                    wake.clear()
                    message = None
                    if session.page_bytes and session.position < self._storage.watermark:
                        page = await self._page(history, session.position, session.page_bytes)
                        message = session.page(page)
                        if message is None and session.position < self._storage.watermark:
                            continue
                    message = message or session.told()
                    if message is not None:
                        sent.inc(sum(map(len, message.payloads)))
                        yield message
                    elif reader.done():
                        reader.result()
                        return  # the puller sends nothing more: it has left
                    else:
                        with self._idle.waiting(session, session.waits_for):
                            await wake.wait()
            finally:
                self._wakes.discard(wake)
                reader.cancel()
                await asyncio.wait({reader})
                if not reader.cancelled():
                    reader.exception()  # seen; the stream has ended anyway

    # -- both ------------------------------------------------------------------------------------

    async def _page(self, history: History, position: int, bytes_max: int) -> Page:
        try:
            return await self._storage.page(history, position, bytes_max)
        except PositionPurged as error:
            _logger.error("puller asks for purged binlogs", position=position, error=error)
            raise rpc.RpcStatus(OUT_OF_RANGE, error.message, hint=error.hint) from None
        except BinlogError as error:
            metrics.STORAGE_ERRORS.labels("read_value").inc()
            _logger.error("pull failed", position=position, error=error)
            raise

    def _check_cluster(self, requested: int) -> None:
        refused = admission.cluster(requested, self._cluster_id)
        if refused is not None:
            raise rpc.RpcStatus(rpc.UNKNOWN, refused.text)


async def _read_requests(requests: AsyncIterator[bytes], session: PullSession, wake: asyncio.Event) -> None:
    try:
        async for data in requests:
            request = _decode(pump_pb2.PullBatchesReq, data)
            session.request(request.credit_bytes, request.wait_watermark)
            wake.set()
    finally:
        wake.set()


def _decode(kind: type[Request], data: bytes) -> Request:
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise rpc.RpcStatus(INVALID_ARGUMENT, f"request cannot be decoded: {error}") from None


def _entity(delivery: Delivery) -> bytes:
    meta = pump_pb2.Meta(startTs=delivery.start_ts, commitTs=delivery.commit_ts)
    entity = pump_pb2.Entity(pos=pump_pb2.Pos(), payload=delivery.payload, meta=meta)
    return pump_pb2.PullBinlogResp(entity=entity).SerializeToString()

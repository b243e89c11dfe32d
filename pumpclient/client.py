"""PumpClient: hands finished binlogs to pumps.

Drives  roster (discovery, health, selection) through delivery
Owns    a task that follows the registry, a task that probes, the transport's connections
Stops   `close` ends both tasks and all connections; writes under way end at once: prewrites raise
        `ClientClosed`, commits and rollbacks return False
Never   configures logging, touches signals or the event loop policy, or keeps anything on disk

Three rules: a prewrite reaches some pump or its caller gets an error; a commit or rollback goes to the
pump that has the prewrite, and its caller never gets an error for a delivery that failed (the pump asks
the upstream in the end); a pump that does not answer is avoided, but tried again before a prewrite fails.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Protocol, Self

from common import binlog, etcd
from common.clock import Clock, SystemClock
from common.errors import BinlogError, Rejected, Unavailable
from common.registry import ClusterView
from common.tls import TlsConfig
from common.upstream.standalone import StandaloneUpstream
from pumpclient import health
from pumpclient.delivery import Counters, Delivery
from pumpclient.errors import ClientClosed, InvalidBinlog, NoPumpRegistered
from pumpclient.options import Options
from pumpclient.pause import Pauses, Sleep
from pumpclient.roster import PumpView, Roster
from pumpclient.selector import Chosen, strategy_of
from pumpclient.transport import PumpTransport, RpcTransport

logger: Final = logging.getLogger("pumpclient")

PROBE_PAYLOAD: Final = b""
WATCH_RETRY_PAUSE_S: Final = 1.0


class PumpDirectory(Protocol):
    """Where pumps are found. `common.registry.Registry` is one."""

    async def view(self) -> ClusterView: ...

    def watch(self) -> AsyncIterator[ClusterView]: ...

    async def close(self) -> None: ...


class PumpClient:
    """Writes binlogs to the pumps of one cluster. Made by `connect`; use it as an async context manager.

    All methods may be called concurrently from tasks of one event loop; calls are not ordered among each
    other, so a caller awaits the prewrite before it sends the commit.
    """

    def __init__(
        self,
        directory: PumpDirectory,
        transport: PumpTransport,
        *,
        cluster_id: int,
        strategy: str = "range",
        options: Options | None = None,
        clock: Clock | None = None,
        sleep: Sleep = asyncio.sleep,
        offset: int = 0,
    ) -> None:
        self.cluster_id = cluster_id
        self._directory = directory
        self._transport = transport
        self._options = options or Options()
        self._clock = clock or SystemClock()
        self._pauses = Pauses(self._clock, sleep)
        self._roster = Roster(strategy, self._options, offset=offset)
        self._closing = asyncio.Event()
        self._delivery = Delivery(
            self._roster,
            transport,
            cluster_id=cluster_id,
            options=self._options,
            clock=self._clock,
            pauses=self._pauses,
            closing=self._closing,
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._started = False

    async def start(self) -> None:
        """Read the registry and begin to follow it. `connect` has done so.

        Raises `NoPumpRegistered` when no pump is registered in any state, `Unavailable` when the registry
        does not answer. Pumps that are registered but not online are no error.
        """
        try:
            async with asyncio.timeout(self._options.registry_timeout_s):
                view = await self._directory.view()
        except TimeoutError:
            raise Unavailable(
                f"the registry did not answer within {self._options.registry_timeout_s:g} s",
                hint="check that etcd is up and reachable from here",
            ) from None
        if not view.pumps:
            raise NoPumpRegistered("no pump found in pd", hint="start a pump that uses the same endpoints")
        await self._delivery.carry_out(self._roster.apply(view, self._now_s()))
        self._started = True
        self._spawn(self._follow_registry(), "pumpclient registry")
        self._spawn(self._probe_loop(), "pumpclient probes")

    async def close(self) -> None:
        """End background tasks and connections. May be called again, and from several tasks."""
        self._closing.set()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._transport.close()
        await self._directory.close()

    async def __aenter__(self) -> Self:
        if not self._started:
            await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # What the host reads.

    @property
    def counters(self) -> Counters:
        """A copy of the counters."""
        return replace(self._delivery.counters)

    @property
    def strategy(self) -> str:
        return self._roster.selector.strategy

    def pumps(self) -> tuple[PumpView, ...]:
        """All pumps the client knows, with their state, ascending id."""
        return self._roster.views()

    def set_strategy(self, strategy: str) -> None:
        """Choose by another strategy from now on; commits still go where their prewrites went.

        Raises `ConfigError` for an unknown one.
        """
        self._roster.selector.switch(strategy)

    # What the host writes.

    async def write_prewrite(self, start_ts: int, key: bytes, value: bytes) -> None:
        """Store the prewrite of a row transaction; `value` is a serialized PrewriteValue.

        Returns when a pump has it on disk. Raises `WriteFailed` when none took it, `BinlogTooLarge` when
        it is larger than a pump receives, `ClientClosed`: the transaction must not commit then.
        """
        await self._prewrite(_valid(start_ts), binlog.prewrite(start_ts, key, value))

    async def write_ddl_prewrite(
        self,
        start_ts: int,
        key: bytes,
        query: str,
        job_id: int,
        schema_state: int = binlog.SCHEMA_STATE_PUBLIC,
    ) -> None:
        """Store the prewrite of a schema change. Raises as `write_prewrite` does."""
        payload = binlog.prewrite_ddl(_valid(start_ts), key, query, job_id, schema_state)
        await self._prewrite(start_ts, payload)

    async def write_commit(self, start_ts: int, commit_ts: int, key: bytes = b"") -> bool:
        """Tell the pump that has the prewrite that the transaction is committed; True when it knows.

        Tries for `finish_deadline_s`; usually run in the background. False is no loss: the pump asks the
        upstream. `commit_ts` must have been drawn after `write_prewrite` returned.
        """
        if commit_ts <= _valid(start_ts):
            raise InvalidBinlog(
                f"commit_ts {commit_ts} is not above start_ts {start_ts}",
                hint="draw the commit timestamp after the prewrite was acknowledged",
            )
        return await self._finish(start_ts, binlog.commit(start_ts, commit_ts, key))

    async def write_rollback(self, start_ts: int, key: bytes = b"") -> bool:
        """Tell the pump that has the prewrite that the transaction is rolled back; as `write_commit`.

        Send it only when the transaction can never commit: a pump believes it without asking.
        """
        return await self._finish(_valid(start_ts), binlog.rollback(start_ts, key))

    async def write_binlog(self, payload: bytes) -> bool:
        """Send a serialized Binlog as it is. A prewrite raises or returns True; others never raise for
        delivery problems and return whether the pump has it. Raises `InvalidBinlog` for other bytes.
        """
        try:
            header = binlog.header(binlog.parse(payload))
        except Rejected as error:
            raise InvalidBinlog(error.message, hint="pass a serialized binlog.Binlog") from None
        _valid(header.start_ts)
        if header.tp != binlog.PREWRITE:
            return await self._finish(header.start_ts, payload)
        await self._prewrite(header.start_ts, payload)
        return True

    # Writing.

    async def _prewrite(self, start_ts: int, payload: bytes) -> None:
        if self._closing.is_set() or not self._started:
            raise ClientClosed("the pump client is not open", hint="use it inside `async with`")
        await self._delivery.store(start_ts, payload)

    async def _finish(self, start_ts: int, payload: bytes) -> bool:
        choice = self._roster.take(start_ts)
        if isinstance(choice, Chosen):
            return await self._delivery.finish(choice.pump_id, payload)
        logger.warning("binlog don't have matched prewrite binlog: start_ts=%d", start_ts)
        self._delivery.counters.finishes_lost += 1
        return False

    # Background.

    async def _follow_registry(self) -> None:
        """Take over every change of the registry. Trouble there leaves the pumps as they are."""
        while True:
            views = self._directory.watch()
            try:
                async for view in views:
                    await self._delivery.carry_out(self._roster.apply(view, self._now_s()))
            except BinlogError as error:
                logger.warning("watching the pumps failed, listing them again: %s", error)
            finally:
                if isinstance(views, AsyncGenerator):
                    await views.aclose()
            await self._pauses.pause(WATCH_RETRY_PAUSE_S, self._closing)

    async def _probe_loop(self) -> None:
        changed = self._delivery.probe_schedule_changed
        while True:
            changed.clear()
            effects = self._roster.tick(self._now_s())
            await self._delivery.carry_out(effects)
            for effect in effects:
                if isinstance(effect, health.Probe):
                    self._spawn(self._probe(effect.pump_id), f"pumpclient probe {effect.pump_id}")
            await self._pauses.until(self._roster.health.next_probe_s(), changed)

    async def _probe(self, pump_id: str) -> None:
        """Ask with an empty payload: a pump checks it like a prewrite and stores nothing."""
        self._delivery.counters.probes_sent += 1
        await self._delivery.attempt(pump_id, PROBE_PAYLOAD, health.Stored)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("%s stopped", task.get_name(), exc_info=error)

    def _now_s(self) -> float:
        return self._clock.monotonic_s()


def _valid(start_ts: int) -> int:
    if start_ts <= 0:
        raise InvalidBinlog(f"start_ts is {start_ts}", hint="draw one from the timestamp oracle")
    return start_ts


async def connect(
    endpoints: str,
    *,
    cluster_id: int | None = None,
    strategy: str = "range",
    options: Options | None = None,
    tls: TlsConfig | None = None,
) -> PumpClient:
    """A client for the pumps registered in etcd (or PD) at `endpoints`, a comma list of host:port.

    `cluster_id` is asked of the standalone upstream in the same etcd when not given. `strategy` is range,
    hash or score. `tls` is for etcd and the pumps alike.

    Raises `ConfigError` (strategy, endpoints), `Unavailable` (etcd does not answer), `NoPumpRegistered`.
    """
    strategy_of(strategy)
    options = options or Options()
    if cluster_id is None:
        upstream = await StandaloneUpstream.connect(endpoints, tls=tls, create=False)
        cluster_id = upstream.cluster_id
        await upstream.close()
    registry = await etcd.connect(endpoints, tls=tls, timeout_s=options.registry_timeout_s)
    client = PumpClient(
        registry,
        RpcTransport(tls=tls),
        cluster_id=cluster_id,
        strategy=strategy,
        options=options,
        offset=random.randrange(1 << 16),  # many hosts starting at once spread over the pumps
    )
    try:
        await client.start()
    except BaseException:
        await client.close()
        raise
    return client

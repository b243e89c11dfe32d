"""PumpClient: hands finished binlogs to pumps.

Drives  roster (discovery, health, selection) through delivery
Owns    a task that follows the registry, a task that probes, the transport's connections
Stops   `close` ends both tasks and all connections; writes under way end at once: prewrites raise
        `ClientClosed`, commits and rollbacks return False
Never   configures logging, touches signals or the event loop policy, or keeps anything on disk

Skips   everything after a lost prewrite, when the host chose `ignore_error`, until `recover` (`skipping`)

Three rules: a prewrite reaches some pump or its caller gets an error; a commit or rollback goes to the
pump that has the prewrite, and its caller never gets an error for a delivery that failed (the pump asks
the upstream in the end); a pump that does not answer is avoided, but tried again before a prewrite fails.

Tests   tests/pumpclient/test_client.py, tests/pumpclient/send/test_write_model.py
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Final, Literal, Protocol, Self, get_args

from pumpclient.errors import (
    BinlogTooLarge,
    ClientClosed,
    InvalidBinlog,
    NoPumpRegistered,
    RecoveryTimeout,
    WriteFailed,
)
from pumpclient.opening import opening
from pumpclient.options import Options
from pumpclient.pumps import health
from pumpclient.pumps.roster import PumpView, Roster, checked_label
from pumpclient.pumps.selector import LOCAL_UNIX, strategy_of
from pumpclient.pumps.socket_pump import LocalPump
from pumpclient.send.delivery import Counters, Delivery
from pumpclient.send.skipping import ClientState, Skipping, SkipStatus
from pumpclient.send.transport import PumpTransport, RpcTransport
from pumpclient.tasks import Background, Pauses, Sleep
from tidb_binlog import binlog
from tidb_binlog.clock import Clock, SystemClock
from tidb_binlog.cluster.registry import ClusterView
from tidb_binlog.errors import BinlogError, ConfigError, Rejected, Unavailable
from tidb_binlog.etcd.registry import connect_registry
from tidb_binlog.net.tls import TlsConfig
from tidb_binlog.process import loop_thread
from tidb_binlog.table_info import SchemaState
from tidb_binlog.tso import Ts
from tidb_binlog.upstream import choice

logger: Final = logging.getLogger("pumpclient")

WATCH_RETRY_PAUSE_S: Final = 1.0
RECOVER_POLL_S: Final = 0.5
RECOVER_S: Final = 1800.0
SKIPPING_TOLD_S: Final = 60.0
RecoverOp = Literal["wait", "nowait", "reset", "status"]


class PumpDirectory(Protocol):
    """Where pumps are found. `tidb_binlog.cluster.registry.Registry` is one."""

    async def view(self) -> ClusterView:
        """What is registered now."""
        ...

    def watch(self) -> AsyncIterator[ClusterView]:
        """The same, and again after each change, without an end."""
        ...

    async def close(self) -> None:
        """Nothing more is asked of it."""
        ...


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
        label: Mapping[str, str] | None = None,
    ) -> None:
        self.cluster_id = cluster_id
        self._directory = directory
        self._transport = transport
        self._options = options or Options()
        self._clock = clock or SystemClock()
        self._now_s = self._clock.monotonic_s
        self._pauses = Pauses(self._clock, sleep)
        self._roster = Roster(strategy, self._options, offset=offset, label=label)
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
        self._skipping = Skipping(self._options)
        self._skipping_told_s = 0.0
        self._background = Background()
        self._started = False
        self._loop: asyncio.AbstractEventLoop | None = None  # of the tasks and connections, from `start` on

    async def start(self) -> None:
        """Read the registry and begin to follow it. `connect` has done so.

        Raises `NoPumpRegistered` when no pump is registered in any state, `Unavailable` when the registry
        does not answer. Pumps that are registered but not online are no error.
        """
        self._loop = asyncio.get_running_loop()
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
        self._background.spawn(self._follow_registry(), "pumpclient registry")
        self._background.spawn(self._probe_loop(), "pumpclient probes")

    async def close(self) -> None:
        """End background tasks and connections. May be called again, and from several tasks."""
        self._closing.set()
        await self._background.end()
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

    def require_loop(self) -> None:
        """Raise `ClientClosed` on another event loop than that it was opened on."""
        loop_thread.require_loop(self._loop, "the pump client", ClientClosed, "its blocking counterpart")

    # What the host reads.

    @property
    def counters(self) -> Counters:
        """A copy of the counters."""
        return replace(self._delivery.counters)

    @property
    def state(self) -> ClientState:
        """ON: binlogs are written. SKIPPING: a prewrite was lost and the host chose to continue without."""
        if self._closing.is_set() or not self._started:
            return ClientState.OFF
        return ClientState.SKIPPING if self._skipping.on else ClientState.ON

    @property
    def strategy(self) -> str:
        """The name of the strategy by which pumps are chosen now."""
        return self._roster.selector.strategy

    @property
    def watermark(self) -> int:
        """Every pump knows the ends of all transactions up to this commit_ts; 0: not known. Read from the
        registry, where each says it every few seconds; pumps that are offline are not waited for.
        """
        return self._roster.watermark

    def pumps(self) -> tuple[PumpView, ...]:
        """All pumps the client knows, with their state, ascending id."""
        return self._roster.views()

    def set_strategy(self, strategy: str) -> None:
        """Choose by another strategy from now on; commits still go where their prewrites went.

        Raises `ConfigError` for an unknown one, and for a client of a socket, which has one pump.
        """
        if LOCAL_UNIX in (strategy, self.strategy):
            raise ConfigError(
                f"strategy {strategy} cannot replace {self.strategy}",
                hint=f"{LOCAL_UNIX} goes with the socket given to connect, and the others without one",
            )
        self._roster.selector.switch(strategy)

    async def recover(self, op: RecoverOp = "wait", seconds: float = RECOVER_S) -> SkipStatus:
        """End SKIPPING, as `/binlog/recover` of a TiDB server does; what is missing stays in the status.

        wait    write again from now on, and wait until all transactions without a prewrite have ended: a
                copy of the data made from then on closes the gap. Raises `RecoveryTimeout` after `seconds`
        nowait  write again from now on
        reset   forget the transactions without a prewrite (their host's threads died, say)
        status  only the answer
        """
        if op not in get_args(RecoverOp):
            raise ConfigError(
                f"recover {op} is not known", hint=f"use one of {', '.join(get_args(RecoverOp))}"
            )
        if op == "reset":
            self._skipping.reset()
        elif op != "status" and self._skipping.recover():
            logger.warning("binlogs are written again; missing: %s", self._skipping.status(self._now_s()).gap)
        status = self._skipping.status(self._now_s())
        end_s = self._now_s() + seconds
        while op == "wait" and status.skipped_committers:
            if self._now_s() >= end_s or self._closing.is_set():
                raise RecoveryTimeout(
                    f"{status.skipped_committers} transactions without a prewrite are still open",
                    hint="binlogs are written again; call recover once more, or end these transactions",
                )
            await self._pauses.pause(min(RECOVER_POLL_S, end_s - self._now_s()), self._closing)
            status = self._skipping.status(self._now_s())
        return status

    # What the host writes.

    async def write_prewrite(self, start_ts: Ts, key: bytes, value: bytes) -> bool:
        """Store the prewrite of a row transaction; `value` is a serialized PrewriteValue.

        Returns when a pump has it on disk: True. Raises `WriteFailed` when none took it, `BinlogTooLarge`
        when it is larger than a pump receives, `ClientClosed`: the transaction must not commit then. With
        `ignore_error` the first two become False: it may commit, readers of the pumps will miss it.
        """
        return await self._prewrite(_valid(start_ts), binlog.prewrite(start_ts, key, value))

    async def write_ddl_prewrite(
        self,
        start_ts: Ts,
        key: bytes,
        query: str,
        job_id: int,
        schema_state: int = SchemaState.PUBLIC,
    ) -> bool:
        """Store the prewrite of a schema change. Returns and raises as `write_prewrite` does."""
        payload = binlog.prewrite_ddl(_valid(start_ts), key, query, job_id, schema_state)
        return await self._prewrite(start_ts, payload)

    async def write_commit(self, start_ts: Ts, commit_ts: Ts, key: bytes = b"") -> bool:
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

    async def write_rollback(self, start_ts: Ts, key: bytes = b"") -> bool:
        """Tell the pump that has the prewrite that the transaction is rolled back; as `write_commit`.

        Send it only when the transaction can never commit: a pump believes it without asking.
        """
        return await self._finish(_valid(start_ts), binlog.rollback(start_ts, key))

    async def write_binlog(self, payload: bytes) -> bool:
        """Send a serialized Binlog as it is. A prewrite returns and raises as `write_prewrite` does; others
        never raise for delivery problems and return whether the pump has it. Raises `InvalidBinlog` for
        other bytes.
        """
        try:
            header = binlog.header(binlog.parse(payload))
        except Rejected as error:
            raise InvalidBinlog(error.message, hint="pass a serialized binlog.Binlog") from None
        _valid(header.start_ts)
        if header.tp != binlog.PREWRITE:
            return await self._finish(header.start_ts, payload)
        return await self._prewrite(header.start_ts, payload)

    # Writing.

    async def _prewrite(self, start_ts: Ts, payload: bytes) -> bool:
        if self._closing.is_set() or not self._started:
            raise ClientClosed("the pump client is not open", hint="use it inside `async with`")
        self.require_loop()
        if self._skipping.on:
            self._skipping.skip(start_ts, self._now_s())
        else:
            try:
                await self._delivery.store(start_ts, payload)
                return True
            except (WriteFailed, BinlogTooLarge) as error:
                if not self._skipping.lost(start_ts, error.message, self._now_s(), self._clock.wall_s()):
                    raise
        self._delivery.counters.prewrites_skipped += 1
        self._tell_skipping()
        return False

    def _tell_skipping(self) -> None:
        """At once when it begins, then once a minute while there is something to skip."""
        gap, now_s = self._skipping.status(self._now_s()).gap, self._now_s()
        assert gap is not None
        if gap.prewrites > 1 and now_s - self._skipping_told_s < SKIPPING_TOLD_S:
            return
        self._skipping_told_s = now_s
        logger.critical(
            "binlogs are skipped, %d transactions so far, the first one start_ts=%d: %s; readers of the "
            "pumps miss them: mend the pumps, call recover() and copy the data anew",
            gap.prewrites,
            gap.first_lost_ts,
            gap.cause,
        )

    async def _finish(self, start_ts: Ts, payload: bytes) -> bool:
        self.require_loop()
        pump_id = self._roster.affinity.take(start_ts)
        if not self._skipping.is_quiet and self._skipping.finished(start_ts):
            self._delivery.counters.finishes_skipped += 1
            return False
        if pump_id is not None:
            return await self._delivery.finish(pump_id, payload)
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
                    probe = self._delivery.probe(effect.pump_id)
                    self._background.spawn(probe, f"pumpclient probe {effect.pump_id}")
            await self._pauses.until(self._roster.health.next_probe_s(), changed)


def _valid(start_ts: Ts) -> int:
    if start_ts <= 0:
        raise InvalidBinlog(f"start_ts is {start_ts}", hint="draw one from the timestamp oracle")
    return start_ts


@opening
async def connect(
    endpoints: str,
    *,
    cluster_id: int | None = None,
    strategy: str = "range",
    socket: str = "",
    options: Options | None = None,
    tls: TlsConfig | None = None,
    label: Mapping[str, str] | None = None,
) -> PumpClient:
    """A client for the pumps registered in etcd (or PD) at `endpoints`, a comma list of host:port.

    `cluster_id` is asked of the upstream at the same endpoints when not given. `strategy` is range, hash or
    score. `tls` is for etcd and the pumps alike. `socket` (unix:///path) is that of one pump on this host:
    it gets everything, without TLS, and no other pump is searched. `label`, as {"zone": "a"}: pumps that have
    it get the prewrites as long as one of them takes them; while none does, the others.

    Raises `ConfigError` (strategy, endpoints, socket, label), `Unavailable` (etcd or PD does not answer),
    `Rejected` (no cluster there), `NoPumpRegistered`.
    """
    options, label = options or Options(), checked_label(label)
    local = LocalPump(socket) if socket else None
    if local is not None:
        strategy, tls_of_pumps = LOCAL_UNIX, None
    elif strategy_of(strategy) == LOCAL_UNIX:
        raise ConfigError(f"strategy {strategy} needs a socket", hint="give socket=unix:///path")
    else:
        tls_of_pumps = tls
    if cluster_id is None:
        cluster_id = await choice.cluster_id(endpoints, tls=tls, timeout_s=options.registry_timeout_s)
    client = PumpClient(
        local or await connect_registry(endpoints, tls=tls, timeout_s=options.registry_timeout_s),
        RpcTransport(tls=tls_of_pumps, batches=options.batches),
        cluster_id=cluster_id,
        strategy=strategy,
        options=options,
        offset=random.randrange(1 << 16),  # many hosts starting at once spread over the pumps
        label=label,
    )
    try:
        await client.start()
    except BaseException:
        await client.close()
        raise
    return client

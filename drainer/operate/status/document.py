"""Document of the status: it says where this Drainer is, what it waits for and for how long it will.

Reads   runner and collector when asked; `run` only notes progress once a second, and asks the pump that
        holds the stream what it waits for while the lag is worth it
Out     `/status` (the Go drainer's keys first, then ours), the gauges of the lag, and `View` for a terminal
"""

from __future__ import annotations

import datetime
import math
import sys
from collections.abc import Callable
from typing import Any, Final, Protocol

from drainer import metrics
from drainer.operate.control.http import NodeState
from drainer.operate.control.pause_and_reload import Control
from drainer.operate.status import lag
from drainer.operate.status.lag import Circumstances, Lag, Places, PumpPlace, Rates
from drainer.operate.status.pump_status import PumpStatusReader
from tidb_binlog import tso, version
from tidb_binlog.clock import Clock, look_later
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.net.tls import TlsConfig
from tidb_binlog.observe import log
from tidb_binlog.observe.show import TerminalLine
from tidb_binlog.quantities import span
from tidb_binlog.status.codec import plain
from tidb_binlog.status.drainer import (
    DrainerDocument,
    LaneStatus,
    MismatchStatus,
    SourceStatus,
)
from tidb_binlog.tso import Ts

PACE_S: Final = 1.0
FLOWS_S: Final = 3.0


class ApplierFacts(Protocol):
    """The runner, as far as the status needs it. Timestamps as in `drainer.sink`."""

    transactions: int
    rows: int

    @property
    def stored_ts(self) -> Ts: ...

    @property
    def resolved_ts(self) -> Ts: ...

    @property
    def handed_over_ts(self) -> Ts: ...

    @property
    def doing(self) -> str: ...

    @property
    def held_up(self) -> str: ...

    def lane_states(self) -> list[LaneStatus]: ...

    def mismatches(self) -> MismatchStatus: ...

    def facts(self) -> dict[str, Any]: ...


class CollectorFacts(Protocol):
    """The collector, as far as the status needs it."""

    @property
    def queued_batches(self) -> int: ...

    @property
    def waits_for(self) -> str: ...

    def positions(self) -> dict[str, int]: ...

    def states(self) -> dict[str, SourceStatus]: ...


@dataclass(frozen=True, slots=True)
class View:
    """What a progress line shows. `applied_s`: seconds since 1970 by the upstream's clock."""

    applied_s: float
    lag_s: float
    rates: Rates
    reason: str


class Status:
    """`more` gives further keys of the document, which come and go with options."""

    def __init__(
        self,
        applier: ApplierFacts,
        collector: CollectorFacts,
        state: NodeState,
        clock: Clock,
        synced_after_s: float,
        *,
        control: Control | None = None,
        pump_status: PumpStatusReader | None = None,
        tls: TlsConfig | None = None,
        more: Callable[[], dict[str, Any]] = dict,
        cluster_id: int | None = None,
        upstream_s: Callable[[], float] | None = None,
        heard: Callable[[int], None] = lambda _: None,
    ) -> None:
        """`upstream_s`: what time it is upstream, seconds since 1970; without it this host's clock counts.
        `heard` gets how far all pumps are: the upstream is at least as far."""
        self._applier = applier
        self._collector = collector
        self._state = state
        self._clock = clock
        self._upstream_s = upstream_s or clock.wall_s
        self._heard = heard
        self._synced_after_s = synced_after_s
        self._control = control
        self._pump_status = pump_status or PumpStatusReader(clock, tls)
        self._more = more
        self._cluster_id = cluster_id
        self._progression = lag.Progression()
        self._arrivals: dict[str, tuple[int, float]] = {}
        self._seen = 0
        self._began_s = 0.0  # when somebody asked for the first time, by the upstream's clock
        self._changed_s = clock.monotonic_s()
        self._held_since_s = math.inf

    @property
    def stored_ts(self) -> Ts:
        """The checkpoint's commit_ts."""
        return self._applier.stored_ts

    async def run(self) -> None:
        """Note progress, and ask who holds the stream what it waits for."""
        while True:
            await look_later(PACE_S)
            await self.note()

    async def note(self) -> None:
        """What `run` does once a second."""
        applier, now_s = self._applier, self._clock.monotonic_s()
        if applier.transactions != self._seen:
            self._seen = applier.transactions
            self._changed_s = now_s
        self._held_since_s = min(self._held_since_s, now_s) if applier.held_up else math.inf
        applied_s = tso.physical_s(applier.resolved_ts)
        self._progression.note(now_s, applied_s, applier.rows, applier.transactions)
        positions = self._collector.positions()
        self._heard(min(positions.values(), default=0))
        for node_id, position in positions.items():
            if self._arrivals.get(node_id, (0, 0.0))[0] != position:
                self._arrivals[node_id] = (position, now_s)
        for node_id in self._arrivals.keys() - positions.keys():
            del self._arrivals[node_id]
        if self._now_s() - applied_s >= lag.IDLE_S and positions:
            holder = min(positions, key=positions.__getitem__)
            state = self._collector.states().get(holder)
            if state is not None and state.connected:
                await self._pump_status.ask(holder, state.address)

    # -- shown -----------------------------------------------------------------------------------

    def document(self) -> dict[str, Any]:
        """The Go drainer's keys first, then ours."""
        applier = self._applier
        idle_s = self._clock.monotonic_s() - self._changed_s
        places, found_lag = self._lag()
        lanes = applier.lane_states()
        rates = self._rates(lanes)
        held_up_s, held_up = self.held_up()
        why = self._reason(found_lag, places, lanes, rates)
        document = DrainerDocument(
            pump_pos=self._collector.positions(),
            synced=idle_s >= self._synced_after_s,
            last_ts=applier.stored_ts,
            applied_ts=applier.resolved_ts,
            lag_seconds=round(found_lag.total_s, 3),
            node_id=self._state.node_id,
            cluster_id=self._cluster_id,
            version=version.release(),
            time=round(self._clock.wall_s(), 3),
            state=self._state.state,
            doing=applier.doing,
            held_up=held_up,
            held_up_s=held_up_s,
            waits_for=self._collector.waits_for,
            transactions=applier.transactions,
            rows=applier.rows,
            lag=lag.status(found_lag, places.pump, why, rates, caught_up_s=lag.IDLE_S),
            control=self._control.facts() if self._control is not None else None,
            lanes=lanes,
            drift=applier.mismatches(),
            pumps=self._collector.states(),
        )
        return {**plain(document), **plain(self._more())}

    def view(self) -> View:
        """For a progress line."""
        places, found_lag = self._lag()
        lanes = self._applier.lane_states()
        rates = self._rates(lanes)
        return View(places.applied_s, found_lag.total_s, rates, self._reason(found_lag, places, lanes, rates))

    def bind_gauges(self) -> None:
        """Let the gauges read the state whenever they are scraped."""

        def seconds(stage: str) -> Callable[[], float]:
            return lambda: self._lag()[1].stages()[stage]

        def eta_s() -> float:
            total_s = self._lag()[1].total_s
            rates = self._rates(self._applier.lane_states())
            left_s = 0.0 if total_s < lag.IDLE_S else rates.eta_s(total_s)
            return math.inf if left_s is None else left_s

        for stage in lag.STAGES:
            metrics.LAG_SECONDS.labels(stage).set_function(seconds(stage))
        metrics.LAG_ETA_SECONDS.set_function(eta_s)
        metrics.QUEUE_SIZE.labels("syncer_input").set_function(lambda: self._collector.queued_batches)

    # -- the parts -------------------------------------------------------------------------------

    def _now_s(self) -> float:
        """By the upstream's clock; a pump that is further proves that it is later."""
        return max(self._upstream_s(), *map(tso.physical_s, self._collector.positions().values()), 0.0)

    def _lag(self) -> tuple[Places, Lag]:
        applier, now_s = self._applier, self._now_s()
        self._began_s = self._began_s or now_s
        # A stream from the very beginning of which nothing came yet is behind since it was asked for.
        applied_s = tso.physical_s(applier.resolved_ts) or self._began_s
        places = Places(now_s, tso.physical_s(applier.handed_over_ts), applied_s, self._holder())
        return places, lag.split(places)

    def _holder(self) -> PumpPlace | None:
        """The pump whose position is the lowest: the stream is as far as it."""
        positions = self._collector.positions()
        if not positions:
            return None
        node_id = min(positions, key=positions.__getitem__)
        state = self._collector.states()[node_id]
        now_s = self._clock.monotonic_s()
        progress = self._pump_status.progress(node_id) if state.connected else None
        return PumpPlace(
            node_id,
            tso.physical_s(positions[node_id]),
            connected=state.connected,
            flows=now_s - self._arrivals.get(node_id, (0, -math.inf))[1] < FLOWS_S,
            published_s=None if progress is None else progress.published_now_s(now_s),
            unfiled_s=None if progress is None else progress.unfiled_s,
            oldest=None if progress is None else progress.oldest,
            error=state.error,
        )

    def held_up(self) -> tuple[float, str]:
        """What keeps a lane, or the sink, from writing, and for how many seconds; "" for nothing."""
        held = [
            (lane.waiting_s or 0.0, f"lane {lane.lane}: {lane.waiting_for}")
            for lane in self._applier.lane_states()
            if lane.waiting_for
        ]
        if text := self._applier.held_up:
            held_s = max(0.0, self._clock.monotonic_s() - self._held_since_s)
            held.append((round(held_s, 1), text))
        return max(held, default=(0.0, ""))

    def _rates(self, lanes: list[LaneStatus]) -> Rates:
        """Of now: what went before nothing could go any more says nothing."""
        paused = self._control is not None and self._control.paused
        waits = any(lane.waiting_for for lane in lanes)
        works = any(lane.queued_bytes and not lane.waiting_for for lane in lanes)
        held = paused or self._applier.held_up or (waits and not works)
        return Rates() if held else self._progression.rates

    def _reason(self, found_lag: Lag, places: Places, lanes: list[LaneStatus], rates: Rates) -> str:
        doing = self._applier.doing
        control = self._control
        facts = Circumstances(
            paused=control is not None and control.paused,
            rate_limited=control is not None and control.limited,
            collector_waits_for=self._collector.waits_for,
            ddl=doing if "DDL" in doing else "",
            sink_waits_for=self.held_up()[1],
            lanes_full=sum(lane.full for lane in lanes),
            lanes=len(lanes),
        )
        return lag.reason(found_lag, places, facts, rates)


# Progress line: where a drainer that catches up is, for an operator at its terminal.
# Never  says that it will be caught up when it will not

LINE_EVERY_S: Final = 10.0
BEHIND_S: Final = 10.0
"""A lag above it is worth a line, until it is below `CURRENT_S`."""
CURRENT_S: Final = 2.0

_logger = log.get("progress")


class Cadence:
    """When to say something. Times are of a clock that never goes back, in seconds."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._said_s: float | None = None
        self.behind = False

    def observe(self, lag_s: float, now_s: float) -> tuple[bool, bool]:
        """(say where it is, say that it has caught up)"""
        was_behind = self.behind
        self.behind = lag_s >= (CURRENT_S if was_behind else BEHIND_S)
        if not self.behind:
            self._said_s = None
            return False, was_behind
        due = self._said_s is None or now_s - self._said_s >= self._every_s
        if due:
            self._said_s = now_s
        return due, False


def text(view: View) -> str:
    """The line."""
    eta_s = view.rates.eta_s(view.lag_s)
    applied_at = datetime.datetime.fromtimestamp(view.applied_s).astimezone()
    line = (
        f"{applied_at:%Y-%m-%d %H:%M:%S} applied, {span(view.lag_s)} behind, {view.rates.rows:,.0f} rows/s, "
        f"caught up: {'never at this rate' if eta_s is None else span(eta_s)}"
    )
    return f"{line}; {view.reason}" if view.reason else line


def fits_terminal(log_file: str) -> bool:
    """Whether a line may be written over and over: standard error is a terminal that the log does not use."""
    return sys.stderr.isatty() and (bool(log_file) or not sys.stdout.isatty())


async def run(read_view: Callable[[], View], clock: Clock, *, on_terminal: bool) -> None:
    """Until cancelled."""
    cadence = Cadence(PACE_S if on_terminal else LINE_EVERY_S)
    terminal = TerminalLine() if on_terminal else None
    try:
        while True:
            await look_later(PACE_S)
            view = read_view()
            due, caught_up = cadence.observe(view.lag_s, clock.monotonic_s())
            if due and terminal is None:
                _logger.info("catching up", progress=text(view))
            elif due and terminal is not None:
                terminal.show(text(view))
            if caught_up:
                if terminal is not None:
                    terminal.clear()
                _logger.info("caught up", lag_s=round(view.lag_s, 3))
    finally:
        if terminal is not None:
            terminal.clear()

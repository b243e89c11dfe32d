"""Lag: how far behind the upstream the downstream is, where on the way the time goes, and what holds it up.

Everything is measured along one frontier, the point of the stream that is applied next. The places it passes
are timestamps of the upstream, `physical` in seconds:

    now                                    committed, anywhere
    stored      write lag        the pump that holds the stream has it in its log but has not filed it yet
    published   sort wait        filed, but an older transaction is open at that pump: its watermark waits
    arrived     pull lag         published, on its way from the pump to us, or left there because we are full
    handed over queue lag        here: in the queue before the lanes
    applied     apply lag        handed to a lane, not committed downstream

Out    seconds by stage, their sum (`total_s`, exactly now - applied), the estimated time until caught up,
       and the reason in words
Holds  a stage is never negative, and the stages add up to the total. The places were not read at one instant:
       what is nearer to the downstream counts, for it proves that the places before it were passed
Why    one number cannot distinguish slow downstreams from stuck transactions or absent pumps, and these
       need different people. An idle stream has a little of it all: watermarks follow the clock in steps

What a pump does not say is not guessed: without it, time before arrival counts as pull lag while the
pump is away or its binlogs keep arriving, and as sort wait when it is connected and sends nothing.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.status.drainer import LagStatus
from tidb_binlog.tso import Ts

WINDOW_S: Final = 30.0
"""Rates are means over so many seconds, less right after the start."""
SAMPLES_MAX: Final = 64
IDLE_S: Final = 2.0
"""A total below it is not worth a reason: the watermarks of quiet pumps are asked for more often
(`pull.collector.QUIET_ASK_S`)."""
STAGES: Final = ("write", "sort_wait", "pull", "queue", "apply")


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """The oldest transaction that is open at a pump, in the pump's words."""

    start_ts: Ts
    age_s: float
    about: str = ""


@dataclass(frozen=True, slots=True)
class PumpPlace:
    """The pump that holds the stream. `arrived_s`: all of it up to here has arrived. `published_s` and
    `unfiled_s` (seconds for which the oldest binlog that is not filed has been in its log) are what the pump
    reports, None if unknown. `flows`: its binlogs arrived within the last seconds."""

    node_id: str
    arrived_s: float
    connected: bool = True
    flows: bool = False
    published_s: float | None = None
    unfiled_s: float | None = None
    oldest: OpenTransaction | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Places:
    """Where the stream stands. Seconds since 1970 by the upstream's clock; `pump` None: none is known yet."""

    now_s: float
    handed_over_s: float
    applied_s: float
    pump: PumpPlace | None = None


@dataclass(frozen=True, slots=True)
class Lag:
    """Seconds by stage; see the module."""

    write_s: float
    sort_wait_s: float
    pull_s: float
    queue_s: float
    apply_s: float

    @property
    def total_s(self) -> float:
        """How far the downstream lies behind the upstream."""
        return self.write_s + self.sort_wait_s + self.pull_s + self.queue_s + self.apply_s

    def stages(self) -> dict[str, float]:
        """Seconds by name, in the order of the way."""
        return dict(
            zip(
                STAGES,
                (self.write_s, self.sort_wait_s, self.pull_s, self.queue_s, self.apply_s),
                strict=True,
            )
        )


def split(places: Places) -> Lag:
    """The stages of the lag."""
    now_s = max(places.now_s, places.applied_s)
    pump = places.pump

    def above(place_s: float, lower_s: float) -> float:
        return min(max(place_s, lower_s), now_s)

    applied_s = places.applied_s
    handed_over_s = above(places.handed_over_s, applied_s)
    if pump is None:
        return Lag(0.0, 0.0, now_s - handed_over_s, 0.0, handed_over_s - applied_s)
    arrived_s = above(pump.arrived_s, handed_over_s)
    stored_s = now_s if pump.unfiled_s is None else above(now_s - pump.unfiled_s, arrived_s)
    if pump.published_s is not None:
        published_s = min(above(pump.published_s, arrived_s), stored_s)
    else:
        published_s = stored_s if pump.flows or not pump.connected else arrived_s
    return Lag(
        now_s - stored_s,
        stored_s - published_s,
        published_s - arrived_s,
        arrived_s - handed_over_s,
        handed_over_s - applied_s,
    )


@dataclass(frozen=True, slots=True)
class Rates:
    """Per second of real time: row changes, transactions, and seconds of the upstream's time (`speed`; the
    upstream itself makes 1)."""

    rows: float = 0.0
    transactions: float = 0.0
    speed: float = 0.0

    def eta_s(self, lag_s: float) -> float | None:
        """Seconds until a lag of `lag_s` is worked off while the upstream continues; None: never."""
        if lag_s <= 0:
            return 0.0
        return lag_s / (self.speed - 1.0) if self.speed > 1.0 else None


class Progression:
    """What was applied when; gives `Rates`. Times are of a clock that never goes back, in seconds."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float, int, int]] = deque()

    def note(self, now_s: float, applied_s: float, rows: int, transactions: int) -> None:
        """Totals and the applied place as of now; call it about once a second."""
        samples = self._samples
        if samples and now_s - samples[-1][0] < WINDOW_S / SAMPLES_MAX:
            return
        samples.append((now_s, applied_s, rows, transactions))
        while len(samples) > 2 and samples[1][0] <= now_s - WINDOW_S:
            samples.popleft()

    @property
    def rates(self) -> Rates:
        """Means over the window; zeros before the second note."""
        if len(self._samples) < 2:
            return Rates()
        (since_s, from_s, rows, transactions), last = self._samples[0], self._samples[-1]
        span_s = last[0] - since_s
        return Rates(
            (last[2] - rows) / span_s, (last[3] - transactions) / span_s, (last[1] - from_s) / span_s
        )


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What the modules say of themselves. Texts are "" where there is nothing to say."""

    paused: bool = False
    rate_limited: bool = False
    collector_waits_for: str = ""
    """What the collector waits for: no listing, no pump, a DDL job that is not in the history."""
    ddl: str = ""
    """The DDL that runs downstream, or what it waits for."""
    sink_waits_for: str = ""
    """Why a lane, or the sink, cannot work: the downstream is away, read-only, or refuses."""
    lanes_full: int = 0
    lanes: int = 0


def reason(lag: Lag, places: Places, facts: Circumstances, rates: Rates) -> str:
    """What holds the stream up, in words for an operator; "" if nothing does.

    What we know to stand still comes before what is merely slow, and what is nearer to the downstream before
    what is further away: a pump that sends nothing because we are full is not the reason.
    """
    if facts.paused:
        return "paused by an operator: PUT /apply/resume continues"
    if facts.sink_waits_for:
        return f"the downstream: {facts.sink_waits_for}"
    if facts.ddl:
        return facts.ddl
    if places.pump is None or lag.total_s < IDLE_S:
        return facts.collector_waits_for if places.pump is None else _if_down(places.pump)
    if facts.rate_limited:
        return "the rate limit: PUT /apply/rate?rows=0&bytes=0 takes it away"
    largest = max(lag.stages().items(), key=lambda item: item[1])[0]
    if facts.lanes_full or largest in ("apply", "queue"):
        full = f"{facts.lanes_full} of {facts.lanes} lanes are full" if facts.lanes_full else "lanes are busy"
        return f"the speed of the downstream: {full}, {rates.rows:,.0f} rows/s"
    return _of_pump(lag, places.pump, largest, facts.collector_waits_for)


def _if_down(pump: PumpPlace) -> str:
    return "" if pump.connected or not pump.error else f"pump {pump.node_id} is not reachable: {pump.error}"


def _of_pump(lag: Lag, pump: PumpPlace, largest: str, collector_waits_for: str) -> str:
    if not pump.connected:
        why = f": {pump.error}" if pump.error else ""
        return f"pump {pump.node_id} is not reachable{why}; `binlogctl -cmd pumps` shows its state"
    if largest == "write":
        return f"pump {pump.node_id} is {lag.write_s:.0f} s behind with filing what it has stored"
    if largest == "sort_wait":
        oldest = pump.oldest
        if oldest is None:
            return f"the watermark of pump {pump.node_id}, {lag.sort_wait_s:.0f} s old"
        about = f" ({oldest.about})" if oldest.about else ""
        return (
            f"the transaction with start_ts {oldest.start_ts}, open for {oldest.age_s:.0f} s at pump "
            f"{pump.node_id}{about}"
        )
    if pump.flows:
        return f"catching up: binlogs of pump {pump.node_id} are on their way"
    return collector_waits_for or f"pump {pump.node_id} sends nothing"


def status(lag: Lag, pump: PumpPlace | None, why: str, rates: Rates, *, caught_up_s: float) -> LagStatus:
    """The part of `/status`; seconds rounded to milliseconds. `eta_s` is null while the lag does not shrink,
    and 0 below `caught_up_s`."""
    total_s = lag.total_s
    eta_s = 0.0 if total_s < caught_up_s else rates.eta_s(total_s)
    held = pump is not None and lag.sort_wait_s + lag.pull_s + lag.write_s >= caught_up_s
    return LagStatus(
        total_s=round(total_s, 3),
        **{f"{name}_s": round(value, 3) for name, value in lag.stages().items()},
        pump=pump.node_id if pump is not None and held else None,
        start_ts=pump.oldest.start_ts if pump is not None and held and pump.oldest else None,
        eta_s=None if eta_s is None else round(eta_s, 1),
        rows_per_s=round(rates.rows, 1),
        transactions_per_s=round(rates.transactions, 1),
        speed=round(rates.speed, 3),
        reason=why,
    )

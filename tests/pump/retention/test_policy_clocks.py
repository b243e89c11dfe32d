"""Retention under clocks that jump: what a drainer needs that was stopped less than the retention ago stays.

A pump's hours: it fills files whose timestamps are the upstream's, retention runs, the upstream's clock or
this host's is set ahead, the pump is started again. The drainer stops at some moment, its lease is gone.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pump.log.value_log import ClosedFile
from pump.retention.age_clock import AgeClock
from pump.retention.policy import DrainerState, Policy, Situation, candidates
from tidb_binlog import tso
from tidb_binlog.cluster import node

HOUR_S, DAY_S = 3600.0, 86_400.0
BEGAN_S = 1_700_000_000.0
POLICY = Policy(7 * DAY_S)


class Pump:
    """What was written when, by true time, and what retention has removed."""

    def __init__(self) -> None:
        self.now_s = BEGAN_S
        self.upstream_ahead_s = self.wall_ahead_s = 0.0
        self.last_ts = 0
        self.stored = ""
        self.written: list[tuple[float, int]] = []  # (true time, largest timestamp) of each file
        self.removed = 0
        self.stopped: tuple[float, DrainerState] | None = None
        self.restart()

    def restart(self) -> None:
        self.ages = AgeClock(self.stored, "this boot")

    def draw(self) -> int:
        self.last_ts = max(self.last_ts + 1, tso.from_wall_s(self.now_s + self.upstream_ahead_s))
        return self.last_ts

    def write(self) -> None:
        self.written.append((self.now_s, self.draw()))

    def stop_drainer(self) -> None:
        if self.stopped is None:
            ts = self.draw()
            self.stopped = self.now_s, DrainerState("d", node.PAUSED, False, ts, ts)

    def retain(self) -> None:
        aged = self.ages.reckon(self.draw(), self.now_s - BEGAN_S, self.now_s + self.wall_ahead_s)
        self.stored = aged.anchor or self.stored
        files = [
            ClosedFile(fid, 1 << 20, max_ts)
            for fid, (_, max_ts) in enumerate(self.written)
            if fid >= self.removed
        ]
        now = Situation(
            now_ts=aged.ts,
            files=files,
            active_bytes=0,
            free_bytes=1 << 40,
            settled_fid=len(self.written),
            watermark=self.last_ts,
            gc_ts=self.written[self.removed - 1][1] if self.removed else 0,
            drainers=[self.stopped[1]] if self.stopped else [],
        )
        for candidate in candidates(POLICY, now):
            self.removed = candidate.file.fid + 1
        self.check()

    def check(self) -> None:
        if self.stopped is not None and self.removed:
            stopped_s, _ = self.stopped
            written_s = self.written[self.removed - 1][0]
            drift_s = 0.001 * (self.now_s - BEGAN_S) + 1
            if self.now_s - stopped_s < POLICY.age_s - drift_s:
                assert written_s <= stopped_s, "it had not read this"


EVENTS = st.one_of(
    st.tuples(st.just("pass"), st.sampled_from((60.0, HOUR_S, DAY_S, 3 * DAY_S))),
    st.tuples(st.just("upstream"), st.sampled_from((0.0, HOUR_S, 8 * DAY_S, 400 * DAY_S))),
    st.tuples(st.just("wall"), st.sampled_from((0.0, HOUR_S, 8 * DAY_S, 400 * DAY_S))),
    st.tuples(
        st.sampled_from(("write", "write", "retain", "retain", "restart", "stop_drainer")), st.just(0.0)
    ),
)


@settings(max_examples=400)
@given(st.lists(EVENTS, max_size=60))
def test_no_clock_makes_it_forget_who_was_stopped_less_than_the_retention_ago(
    events: list[tuple[str, float]],
) -> None:
    pump = Pump()
    pump.retain()
    for what, value in events:
        if what == "pass":
            pump.now_s += value
        elif what == "upstream":
            pump.upstream_ahead_s = value
        elif what == "wall":
            pump.wall_ahead_s = value
        else:
            getattr(pump, what)()
        pump.write()
        pump.retain()


def test_it_does_remove_what_is_old() -> None:
    pump = Pump()
    for _ in range(20):
        pump.now_s += DAY_S
        pump.write()
        pump.retain()
    assert 11 <= pump.removed <= 13

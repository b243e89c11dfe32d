"""Hold state: who holds the stream still between two transactions, where, and for how long yet.

In     what an asker wants (a place, its end), what the stream says (it stands, it has come there), the time
Out    `boundary_ts`: before the first transaction above it the stream stands still; what each is answered
Holds  one hold at a time, each with a token. While it is held nothing is written to the tables downstream:
       they have exactly the transactions at or below its `ts`. It ends at its limit, whatever became of the
       asker; one that is not reached in time is over too. From the moment it is asked for the stream begins
       no transaction and takes no watermark: a timestamp that is drawn afterwards lies above its place
Why    two databases can be compared while both are written to, if both are read as they were at one
       timestamp. A snapshot session sees a database as it was when it was opened: it takes milliseconds in
       which nothing is applied, and then replication goes on

    free -> heading (asked) -> held (come there) -> free (released, over, lost)
                  ^                |
                  +----------------+  goes on to a given place and holds there
"""

from __future__ import annotations

from typing import Final

from tidb_binlog.errors import Conflict, Rejected, Unavailable
from tidb_binlog.late_dataclass import dataclass, replace
from tidb_binlog.tso import Ts

NEVER: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class HoldPoint:
    """Where a downstream stands. `cluster_id`, `epoch`: of the drainer's rows downstream. `waiting`: tables
    of the upstream whose rows wait for a decision, so that they stand elsewhere."""

    ts: Ts
    cluster_id: int = 0
    epoch: int = 0
    waiting: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Released:
    """What a hold was. `valid`: it held until it was released; else `why` it did not."""

    held_s: float
    valid: bool
    why: str = ""


class HoldState:
    """Seconds are of one clock that never goes back."""

    def __init__(self) -> None:
        self.boundary_ts = NEVER
        self._floor_ts: int | None = None  # None: no stream that can be held
        self._token = ""
        self._at_ts = 0
        self._limit_s = 0.0
        self._began_s: float | None = None  # since when no rows go out
        self._held_s = 0.0  # before that
        self._ends_s = 0.0
        self._hold_point: HoldPoint | None = None
        self._stands_for = NEVER  # the boundary before which the stream does what was given
        self._ended: tuple[str, Released] = ("", Released(0.0, False))

    # -- the stream ---------------------------------------------------------------------------------------

    def open(self, floor_ts: Ts) -> None:
        """A stream runs that can be held above `floor_ts`: up to there the downstream may have more."""
        self._floor_ts = floor_ts

    def close(self, why: str, now_s: float) -> None:
        """The stream ends."""
        self._floor_ts = None
        self.lose(self._token, why, now_s)

    def stand(self, now_s: float) -> None:
        """The stream is at the boundary: it gives no more, and what was given is being done."""
        self._look(now_s)
        self._stands_for = self.boundary_ts
        if self._token and self._began_s is None:
            self._began_s = now_s

    def arrive(self, hold_point: HoldPoint, now_s: float) -> None:
        """All that was given is done. The hold may be over by now, or be wanted further on."""
        self._look(now_s)
        if self._token and self.boundary_ts == self._stands_for:
            self._hold_point = replace(hold_point, ts=self._at_ts) if self._at_ts else hold_point
            self._ends_s = now_s + self._limit_s
            self.boundary_ts = NEVER

    @property
    def is_held(self) -> bool:
        """Says that the stream stands."""
        return self._hold_point is not None

    def left_s(self, now_s: float) -> float:
        """How long the stream stands still yet; ends the hold where that is over."""
        self._look(now_s)
        return 0.0 if self._hold_point is None else self._ends_s - now_s

    def _look(self, now_s: float) -> None:
        if self._token and now_s >= self._ends_s:
            why = "the stream did not come there in time"
            if self._hold_point is not None:
                why = f"the limit of {self._limit_s:g} s was over"
            self._end(now_s, valid=False, why=why)

    # -- the asker ----------------------------------------------------------------------------------------

    def ask(self, token: str, limit_s: float, wait_s: float, now_s: float) -> None:
        """Hold at the next place, which is to be reached within `wait_s`. Raises `Conflict` where another
        holds, `Unavailable` without a stream."""
        assert token
        assert limit_s > 0
        self._look(now_s)
        if self._floor_ts is None:
            raise Unavailable("no rows are applied to a database just now", hint="ask again")
        if self._token:
            raise Conflict("another one holds the stream, or is about to", hint="ask again")
        self._token, self._at_ts, self._limit_s, self._ends_s = token, 0, limit_s, now_s + wait_s
        self._began_s, self._held_s = None, 0.0
        self.boundary_ts = self._floor_ts

    def go_on(self, token: str, at_ts: Ts, place_ts: Ts, wait_s: float, now_s: float) -> None:
        """From `place_ts`, where the stream is, to exactly `at_ts`, and hold there. Raises `Rejected`."""
        self._look(now_s)
        hold_point = self.held(token)
        place_ts = place_ts if hold_point is None else hold_point.ts
        if at_ts < max(place_ts, self._floor_ts or 0):
            raise Rejected(f"the stream is at {place_ts} already, and cannot go back to {at_ts}")
        self._count(now_s)
        self._hold_point, self._at_ts, self.boundary_ts, self._ends_s = None, at_ts, at_ts, now_s + wait_s

    def held(self, token: str) -> HoldPoint | None:
        """Where it is held; None: it is on its way there. Raises `Rejected` if this hold is over."""
        if not token or token != self._token:
            ended, released = self._ended
            why = released.why if token and token == ended else "it is not known"
            raise Rejected(f"this hold is over: {why}", hint="ask for another one")
        return self._hold_point

    def release(self, token: str, now_s: float) -> Released:
        """Let go; a hold that is over is said to be. Raises `Rejected` for one that is not known."""
        self._look(now_s)
        if token and token == self._ended[0]:
            return self._ended[1]
        if self.held(token) is None:
            self.lose(token, "it was released before the stream was there", now_s)
        else:
            self._end(now_s, valid=True)
        return self._ended[1]

    def lose(self, token: str, why: str, now_s: float) -> None:
        """A hold that is still wanted ends."""
        if token and token == self._token:
            self._end(now_s, valid=False, why=why)

    def held_s(self, now_s: float) -> float:
        """For how long no rows have gone out because of the hold of now."""
        return self._held_s + (0.0 if self._began_s is None else now_s - self._began_s)

    def _count(self, now_s: float) -> None:
        self._held_s, self._began_s = self.held_s(now_s), None

    def _end(self, now_s: float, *, valid: bool, why: str = "") -> None:
        self._count(now_s)
        self._ended = self._token, Released(self._held_s, valid, why)
        self._token, self._hold_point, self.boundary_ts = "", None, NEVER

"""Resolve schedule: about which open prewrites the upstream is asked, and when.

In     open prewrites with the time since when they are open, answers, the time now
Out    the prewrites to ask about, those that are due the longest first; what was heard about each
Costs  a step: the prewrites that it takes, and so many at most that it forgets, however many wait. Those that
       were asked about stand in a heap by their time; the log has the others in the order of theirs
Pace   at once where the client says that it rolled back, and soon again. Else first after `waited_after_s`
       while a puller waits, after `idle_after_s` otherwise; then with growing pauses up to `pause_max_s`, or
       when the upstream says so. Each prewrite has its own pace
Never  gives a prewrite up: a timer knows nothing, only the upstream does, and its answer is final
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from heapq import heappop, heappush
from itertools import islice
from math import inf
from typing import Final

from pump.index.sorter import OpenPrewrite
from pump.log.record import ValuePointer
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.tso import Ts


class TxnAnswer(StrEnum):
    """What the last question about a prewrite brought."""

    NONE = "not asked yet"
    ALIVE = "it may still commit"
    UNAVAILABLE = "the upstream does not answer"
    DAMAGED = "its record cannot be read"
    ODD = "the upstream's answer cannot be"
    UNKNOWN = "the upstream does not know it any more"
    NOT_WRITTEN = "its end is known, but the value log takes no writes"
    ENDED = "its end is known and stored, the index is behind"


@dataclass(frozen=True, slots=True)
class Heard:
    """The questions about one prewrite so far. `since_s`: when the present kind of answer came first; `hint`:
    what the upstream says an operator can do."""

    asked: int = 0
    answer: TxnAnswer = TxnAnswer.NONE
    detail: str = ""
    since_s: float = 0.0
    hint: str = ""


_UNHEARD: Final = Heard()


@dataclass(slots=True)
class _Asked:
    prewrite: OpenPrewrite
    next_s: float  # infinite while a question is under way
    pause_s: float = 0.0
    heard: Heard = _UNHEARD
    given_up: bool = False  # its client says that it rolled back


_GIVEN_UP_PAUSE_S: Final = 0.02
_FORGET_S: Final = 1.0  # an end that is stored has settled its prewrite by then, or is looked for again
_STEPS_MAX: Final = 1 << 13  # settled ones that are passed over at once: all may end in one moment


class ResolveSchedule:
    """When to ask about which open prewrite. Times are seconds on the caller's clock."""

    def __init__(
        self,
        *,
        waited_after_s: float,
        idle_after_s: float = 1.0,
        pause_max_s: float = 5.0,
        batch_max: int = 256,
    ) -> None:
        self._waited_after_s = waited_after_s
        self._idle_after_s = max(idle_after_s, waited_after_s)
        self._pause_max_s = pause_max_s
        self.batch_max = batch_max
        self._asked: dict[int, _Asked] = {}  # by start_ts; each is under way or stands in `_waiting`
        # (when, start_ts); void where `_asked` has another time.
        self._waiting: list[tuple[float, int]] = []
        self._passed = ValuePointer(-1, 0)  # whatever is open up to this place is in `_asked`

    def given_up(self, prewrite: OpenPrewrite) -> None:
        """Its client says that it rolled back: due now, and soon again while the answer is open."""
        asked = self._asked.get(prewrite.start_ts)
        if asked is None:
            asked = self._asked[prewrite.start_ts] = _Asked(prewrite, prewrite.since_s)
            heappush(self._waiting, (asked.next_s, prewrite.start_ts))
        elif 0.0 < asked.next_s < inf and asked.heard.answer is not TxnAnswer.ENDED:
            self._wait(asked, 0.0)
        asked.given_up, asked.pause_s = True, 0.0

    def says_so(self, start_ts: Ts) -> bool:
        """Whether its client says that it rolled back."""
        asked = self._asked.get(start_ts)
        return asked is not None and asked.given_up

    def due(
        self,
        open_after: Callable[[ValuePointer], Iterable[OpenPrewrite]],
        now_s: float,
        *,
        is_awaited: bool,
        behind_s: float = 0.0,
        at_most: int | None = None,
    ) -> list[OpenPrewrite]:
        """Those to ask about now; each is under way until `undecided`, `ended` or `drop` is called for it.

        `open_after`: prewrites behind a place, ordered by place and `since_s`; settled ones may be among
        them. `behind_s`: for how long there has been something in the log that the sorter has not read; the
        end of a prewrite may stand there.
        """
        after_s = self._waited_after_s if is_awaited else self._idle_after_s
        due: list[OpenPrewrite] = []
        fresh, steps = islice(open_after(self._passed), _STEPS_MAX), iter(range(_STEPS_MAX))
        first = self._first_fresh(fresh)
        for _ in range(at_most or self.batch_max):
            asked = self._first_waiting(now_s, steps)
            fresh_s = inf if first is None else first.since_s + after_s
            # The longest due first, so that none waits for ever for those that are asked about in vain.
            if (
                first is not None
                and fresh_s + behind_s <= now_s
                and (asked is None or fresh_s <= asked.next_s)
            ):
                self._asked[first.start_ts] = _Asked(first, inf)
                self._passed = first.place
                due.append(first)
                first = self._first_fresh(fresh)
            elif asked is not None:
                heappop(self._waiting)
                asked.next_s = inf
                due.append(asked.prewrite)
            else:
                break
        return due

    def _first_fresh(self, fresh: Iterable[OpenPrewrite]) -> OpenPrewrite | None:
        """The next one that nobody has asked about."""
        for prewrite in fresh:
            if not prewrite.settled:
                asked = self._asked.get(prewrite.start_ts)
                if asked is None or asked.prewrite.settled:
                    return prewrite
            self._passed = prewrite.place
        return None

    def _first_waiting(self, now_s: float, steps: Iterator[int]) -> _Asked | None:
        """The one that is due the longest, on top of `_waiting`; what has settled is forgotten on the way, as
        far as there are `steps`."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= now_s and next(steps, None) is not None:
            next_s, start_ts = waiting[0]
            asked = self._asked.get(start_ts)
            if asked is not None and asked.next_s == next_s:
                if asked.prewrite.settled:
                    del self._asked[start_ts]
                elif asked.heard.answer is TxnAnswer.ENDED:
                    self._wait(asked, now_s + _FORGET_S)
                else:
                    return asked
            heappop(waiting)
        return None

    def _wait(self, asked: _Asked, next_s: float) -> None:
        asked.next_s = next_s
        heappush(self._waiting, (next_s, asked.prewrite.start_ts))

    def undecided(
        self,
        start_ts: Ts,
        now_s: float,
        answer: TxnAnswer,
        detail: str = "",
        *,
        retry_after_s: float | None = None,
        hint: str = "",
    ) -> None:
        """The answer was "not yet" (`retry_after_s` if it said when), or there was none."""
        asked = self._asked.get(start_ts)
        if asked is None:
            return
        first_s = _GIVEN_UP_PAUSE_S if asked.given_up else self._waited_after_s
        pause_s = min(asked.pause_s * 2, self._pause_max_s) or first_s
        if asked.given_up and answer is TxnAnswer.ALIVE:
            retry_after_s = None  # its end will come
        wait_s = pause_s if retry_after_s is None else min(max(retry_after_s, 0.0), self._pause_max_s)
        asked.pause_s, asked.heard = pause_s, _after(asked.heard, answer, detail, now_s, hint)
        self._wait(asked, now_s + wait_s)

    def ended(self, start_ts: Ts, now_s: float, detail: str) -> None:
        """Its end is durable: no more questions, the record settles it as soon as it is filed."""
        asked = self._asked.get(start_ts)
        if asked is not None:
            asked.heard = _after(asked.heard, TxnAnswer.ENDED, detail, now_s)
            self._wait(asked, now_s + _FORGET_S)

    def drop(self, start_ts: Ts) -> None:
        """It has settled while a question was under way."""
        self._asked.pop(start_ts, None)

    def heard(self, start_ts: Ts) -> Heard:
        """What is known of the questions about a prewrite."""
        asked = self._asked.get(start_ts)
        return _UNHEARD if asked is None else asked.heard


def _after(heard: Heard, answer: TxnAnswer, detail: str, now_s: float, hint: str = "") -> Heard:
    since_s = heard.since_s if heard.answer == answer else now_s
    return Heard(heard.asked + 1, answer, detail, since_s, hint)

"""Resolve schedule: about which open prewrites the upstream is asked, and when.

In     open prewrites with the time since when they are open, answers, the time now
Out    the prewrites to ask about, those that are due the longest first; what was heard about each
Pace   at once where the client says that it rolled back, and soon again. Else first after `waited_after_s`
       while a puller waits, after `idle_after_s` otherwise; then with growing pauses up to `pause_max_s`, or
       when the upstream says so. Each prewrite has its own pace
Never  gives a prewrite up: a timer knows nothing, only the upstream does, and its answer is final
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from math import inf

from pump.index.sorter import OpenPrewrite


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


@dataclass(slots=True)
class _Asked:
    next_s: float  # infinite while a question is under way, and once the end is stored
    pause_s: float = 0.0
    heard: Heard = Heard()


_GIVEN_UP_PAUSE_S = 0.02


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
        self._batch_max = batch_max
        self._asked: dict[int, _Asked] = {}
        self._given_up: dict[int, OpenPrewrite] = {}

    def given_up(self, prewrite: OpenPrewrite) -> None:
        """Its client says that it rolled back: due now, and soon again while the answer is open."""
        self._given_up[prewrite.start_ts] = prewrite
        asked = self._asked.get(prewrite.start_ts)
        if asked is not None:
            asked.pause_s = 0.0
            if asked.next_s != inf:
                asked.next_s = 0.0

    @property
    def said_so(self) -> Collection[int]:
        """The start_ts of those whose clients say that they rolled back."""
        return self._given_up.keys()

    def due(
        self,
        open_prewrites: Iterable[OpenPrewrite],
        now_s: float,
        *,
        is_awaited: bool,
        behind_s: float = 0.0,
        at_most: int | None = None,
    ) -> list[OpenPrewrite]:
        """Those to ask about now; each is under way until `undecided`, `ended` or `drop` is called for it.

        `open_prewrites` ordered by `since_s`, the longest open first. `behind_s`: for how long there has been
        something in the log that the sorter has not read; the end of a prewrite may stand there.
        """
        after_s = self._waited_after_s if is_awaited else self._idle_after_s
        found: list[tuple[float, OpenPrewrite]] = []
        for prewrite in self._given_up.values():
            asked = self._asked.get(prewrite.start_ts)
            if asked is None or asked.next_s <= now_s:
                found.append((prewrite.since_s if asked is None else asked.next_s, prewrite))
        for prewrite in open_prewrites:
            due_s = prewrite.since_s + after_s
            if due_s + behind_s > now_s:
                break
            if prewrite.start_ts in self._given_up:
                continue
            asked = self._asked.get(prewrite.start_ts)
            if asked is not None:
                due_s = asked.next_s
            if due_s <= now_s:
                found.append((due_s, prewrite))
        # The longest due first, so that none waits for ever for those that are asked about in vain.
        found.sort(key=lambda entry: entry[0])
        due = [prewrite for _, prewrite in found[: at_most or self._batch_max]]
        for prewrite in due:
            self._asked.setdefault(prewrite.start_ts, _Asked(inf)).next_s = inf
        return due

    def undecided(
        self,
        start_ts: int,
        now_s: float,
        answer: TxnAnswer,
        detail: str = "",
        *,
        retry_after_s: float | None = None,
        hint: str = "",
    ) -> None:
        """The answer was "not yet" (`retry_after_s` if it said when), or there was none."""
        asked = self._asked.setdefault(start_ts, _Asked(inf))
        first_s = _GIVEN_UP_PAUSE_S if start_ts in self._given_up else self._waited_after_s
        pause_s = min(asked.pause_s * 2, self._pause_max_s) or first_s
        if start_ts in self._given_up and answer is TxnAnswer.ALIVE:
            retry_after_s = None  # its end will come
        wait_s = pause_s if retry_after_s is None else min(max(retry_after_s, 0.0), self._pause_max_s)
        asked.next_s, asked.pause_s = now_s + wait_s, pause_s
        asked.heard = _after(asked.heard, answer, detail, now_s, hint)

    def ended(self, start_ts: int, now_s: float, detail: str) -> None:
        """Its end is durable: no more questions, the record settles it as soon as it is filed."""
        asked = self._asked.setdefault(start_ts, _Asked(inf))
        asked.next_s, asked.heard = inf, _after(asked.heard, TxnAnswer.ENDED, detail, now_s)

    def drop(self, is_open: Callable[[int], bool]) -> None:
        """Forget what has settled."""
        for known in (self._asked, self._given_up):
            for start_ts in [start_ts for start_ts in known if not is_open(start_ts)]:
                del known[start_ts]

    def heard(self, start_ts: int) -> Heard:
        """What is known of the questions about a prewrite."""
        asked = self._asked.get(start_ts)
        return Heard() if asked is None else asked.heard


def _after(heard: Heard, answer: TxnAnswer, detail: str, now_s: float, hint: str = "") -> Heard:
    since_s = heard.since_s if heard.answer == answer else now_s
    return Heard(heard.asked + 1, answer, detail, since_s, hint)

"""Queue state: what release does with the queue of a waiting DDL, and what makes it begin and stop.

Out    the next state. A pair that `TRANSITIONS` does not list cannot happen: it is refused without effect

    WAITING          release stopped at a DDL without a decision, or before its end
    READY            release is to try: it was asked to, or the drainer has just started
    RELEASING        release is at work
    RELEASING_AGAIN  the same, and it is to try once more after that
    ENDING           release has reached the end of what is kept, and waits for what it took to be committed
    HALTING          rows were refused, and what was taken before them is committed first
    CAUGHT_UP        release has reached the end, nothing was kept since: it may close at a drained point
    FOLLOWING        release has reached the end, something was kept since: it waits for a drained point
    HALTED           the downstream refused rows: nothing is tried until an operator decides
    DECIDING         a decision is being stored: release does not begin before it is durable
    DECIDING_HALTED  the same in a halted queue

Why    KEPT does not start release once it has caught up, or it would run for every transaction. A queue that
       is FOLLOWING is brought to its end at a drained point of the lanes, or when a retry is due (ASKED)
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final


class QueueState(Enum):
    WAITING = auto()
    READY = auto()
    RELEASING = auto()
    RELEASING_AGAIN = auto()
    ENDING = auto()
    HALTING = auto()
    CAUGHT_UP = auto()
    FOLLOWING = auto()
    HALTED = auto()
    DECIDING = auto()
    DECIDING_HALTED = auto()

    @property
    def is_releasing(self) -> bool:
        """Release is at work on the queue."""
        return self in _RELEASING

    @property
    def is_halted(self) -> bool:
        """Rows were refused."""
        return self in (QueueState.HALTING, QueueState.HALTED, QueueState.DECIDING_HALTED)

    @property
    def has_caught_up(self) -> bool:
        """Little or nothing is left."""
        return self in (QueueState.CAUGHT_UP, QueueState.FOLLOWING)


class QueueEvent(Enum):
    KEPT = auto()  # the stream brought rows or a DDL
    ASKED = auto()  # release may come further: rules changed, a DDL is kept durably, a retry is due
    STARTED = auto()  # release begins
    END_REACHED = auto()  # nothing is left of what is kept
    ROWS_REFUSED = auto()
    STOPPED = auto()  # release is over, and what it took is committed
    DECISION_BEGUN = auto()  # a decision is about to be stored
    DECISION_STORED = auto()
    DECISION_FAILED = auto()  # it could not be stored


_S, _E = QueueState, QueueEvent
_RELEASING: Final = frozenset({_S.RELEASING, _S.RELEASING_AGAIN, _S.ENDING, _S.HALTING})

TRANSITIONS: Final[Mapping[tuple[QueueState, QueueEvent], QueueState]] = {
    (_S.WAITING, _E.KEPT): _S.WAITING,
    (_S.WAITING, _E.ASKED): _S.READY,
    (_S.WAITING, _E.STARTED): _S.RELEASING,
    (_S.WAITING, _E.DECISION_BEGUN): _S.DECIDING,
    (_S.READY, _E.KEPT): _S.READY,
    (_S.READY, _E.ASKED): _S.READY,
    (_S.READY, _E.STARTED): _S.RELEASING,
    (_S.READY, _E.DECISION_BEGUN): _S.DECIDING,
    (_S.RELEASING, _E.KEPT): _S.RELEASING,  # release reads it before the end
    (_S.RELEASING, _E.ASKED): _S.RELEASING_AGAIN,
    (_S.RELEASING, _E.END_REACHED): _S.ENDING,
    (_S.RELEASING, _E.ROWS_REFUSED): _S.HALTING,
    (_S.RELEASING, _E.STOPPED): _S.WAITING,
    (_S.RELEASING_AGAIN, _E.KEPT): _S.RELEASING_AGAIN,
    (_S.RELEASING_AGAIN, _E.ASKED): _S.RELEASING_AGAIN,
    (_S.RELEASING_AGAIN, _E.END_REACHED): _S.ENDING,  # all was tried
    (_S.RELEASING_AGAIN, _E.ROWS_REFUSED): _S.HALTING,
    (_S.RELEASING_AGAIN, _E.STOPPED): _S.READY,
    (_S.ENDING, _E.KEPT): _S.RELEASING_AGAIN,
    (_S.ENDING, _E.ASKED): _S.ENDING,  # there is nothing to be tried
    (_S.ENDING, _E.STOPPED): _S.CAUGHT_UP,
    (_S.HALTING, _E.KEPT): _S.HALTING,
    (_S.HALTING, _E.ASKED): _S.HALTING,
    (_S.HALTING, _E.STOPPED): _S.HALTED,
    (_S.CAUGHT_UP, _E.KEPT): _S.FOLLOWING,
    (_S.CAUGHT_UP, _E.ASKED): _S.CAUGHT_UP,
    (_S.CAUGHT_UP, _E.STARTED): _S.RELEASING,
    (_S.CAUGHT_UP, _E.DECISION_BEGUN): _S.DECIDING,  # after a start, before the stream brings its DDL again
    (_S.FOLLOWING, _E.KEPT): _S.FOLLOWING,
    (_S.FOLLOWING, _E.ASKED): _S.READY,
    (_S.FOLLOWING, _E.STARTED): _S.RELEASING,
    (_S.FOLLOWING, _E.DECISION_BEGUN): _S.DECIDING,
    (_S.HALTED, _E.KEPT): _S.HALTED,
    (_S.HALTED, _E.ASKED): _S.HALTED,
    (_S.HALTED, _E.STARTED): _S.RELEASING,  # once more when the stream is over
    (_S.HALTED, _E.DECISION_BEGUN): _S.DECIDING_HALTED,
    (_S.DECIDING, _E.KEPT): _S.DECIDING,
    (_S.DECIDING, _E.ASKED): _S.DECIDING,
    (_S.DECIDING, _E.DECISION_STORED): _S.READY,
    (_S.DECIDING, _E.DECISION_FAILED): _S.READY,
    (_S.DECIDING_HALTED, _E.KEPT): _S.DECIDING_HALTED,
    (_S.DECIDING_HALTED, _E.ASKED): _S.DECIDING_HALTED,
    (_S.DECIDING_HALTED, _E.DECISION_STORED): _S.READY,
    (_S.DECIDING_HALTED, _E.DECISION_FAILED): _S.HALTED,
}  # fmt: skip


def allows(state: QueueState, event: QueueEvent) -> bool:
    return (state, event) in TRANSITIONS


def after(state: QueueState, event: QueueEvent) -> QueueState:
    """The state that follows."""
    assert allows(state, event), f"{event.name} cannot happen to a queue that is {state.name}"
    return TRANSITIONS[state, event]


def merged(first: QueueState, second: QueueState) -> QueueState:
    """Of two queues that become one, while release works on neither: what keeps either from being released
    keeps both. It is asked for once the DDL that joins them is stored."""
    assert not first.is_releasing, first
    assert not second.is_releasing, second
    decides = {first, second} & {QueueState.DECIDING, QueueState.DECIDING_HALTED}
    if first.is_halted or second.is_halted:
        return QueueState.DECIDING_HALTED if decides else QueueState.HALTED
    return QueueState.DECIDING if decides else QueueState.WAITING

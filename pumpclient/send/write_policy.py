"""Write policy: after this failure, the same pump, the next one, the last chance, or give up.

In     PrewritePolicy.after / FinishPolicy.after, one call per failed attempt
Out    NextPump(pause_s), SameAgain(pause_s), LastChance(), GiveUp()
Holds  a prewrite is tried until the write timeout has passed and more attempts were made than there were
       usable pumps, so each of them has had a turn; a commit or rollback never changes its pump
Why    a prewrite may be stored by any pump and must be stored by one; an end belongs to one pump and is
       only a matter of delay, because that pump asks the upstream if it never comes
Never  reads the text of an error: the kind decides

    kind          prewrite                              commit, rollback
    UNREACHABLE   next pump, connection dropped         same pump, connection dropped
    FAILED        next pump                             same pump
    REFUSED       next pump                             same pump
    TOO_LARGE     give up at once: others have the      same pump
                  same limit
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from pumpclient.options import Options
from tidb_binlog.late_dataclass import dataclass


class Failure(Enum):
    """Why an attempt failed, by what follows from it."""

    UNREACHABLE = "unreachable"
    """No answer: connection refused, broken, or the deadline passed."""
    FAILED = "failed"
    """The pump answered the call with an error status."""
    REFUSED = "refused"
    """The pump answered with an error text in the reply: it lives, but nothing was stored."""
    TOO_LARGE = "too large"
    """The message is larger than the pump receives."""


@dataclass(frozen=True, slots=True)
class NextPump:
    """After the pause, ask the selector for another pump."""

    pause_s: float


@dataclass(frozen=True, slots=True)
class SameAgain:
    """After the pause, the same pump again."""

    pause_s: float


@dataclass(frozen=True, slots=True)
class LastChance:
    """Over all pumps that the registry calls online, those that are out as well; then give up."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """No further attempt."""


class PrewritePolicy:
    """Decisions for one prewrite. `usable_count` pumps were usable when it began at `started_s`."""

    def __init__(self, options: Options, usable_count: int, started_s: float) -> None:
        self._options = options
        self._usable_count = usable_count
        self._started_s = started_s
        self.attempts = 0
        self.tried: set[str] = set()

    def after(
        self, failure: Failure, pump_id: str, usable: Sequence[str], now_s: float
    ) -> NextPump | LastChance | GiveUp:
        """The attempt on `pump_id` failed; `usable` are the pumps usable now.

        There is no pause before a pump that has not been tried in this round; once all have, the round is
        over and the pause keeps a failing cluster from being hammered.
        """
        self.attempts += 1
        if failure is Failure.TOO_LARGE:
            return GiveUp()
        if not usable:
            return LastChance()
        elapsed_s = now_s - self._started_s
        if elapsed_s > self._options.write_timeout_s and self.attempts > self._usable_count:
            return LastChance()
        self.tried.add(pump_id)
        if any(other not in self.tried for other in usable):
            return NextPump(0.0)
        self.tried = {pump_id}
        return NextPump(self._options.retry_pause_s)


class FinishPolicy:
    """Decisions for one commit or rollback that began at `started_s`."""

    def __init__(self, options: Options, started_s: float) -> None:
        self._options = options
        self._started_s = started_s

    def after(self, now_s: float) -> SameAgain | GiveUp:
        """An attempt failed, for whatever reason."""
        if now_s - self._started_s > self._options.finish_deadline_s:
            return GiveUp()
        return SameAgain(self._options.finish_retry_pause_s)

"""Committed: what the downstream has confirmed to this process, and whether a server still has it.

In     every position and every write of the store whose COMMIT was answered; what a server has stored
Out    nothing, or why nothing may be written there: a newer drainer took over (`Conflict`), or the server is
       not where it was (`WentBack`)
Holds  a lane moves its row from the position that was confirmed last, by name, in the transaction that
       carries its rows; the store counts its writes in the same way and looks at the lanes before it says
       anything of them. So nothing is written on the strength of a position that the server written to does
       not have, whichever server each session happens to be connected to
Why    a replica that lags is promoted, a data directory is put back, a power cut takes commits that were not
       synced. Sessions come to such a server one by one, while others may still commit on the old one
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from common.errors import Conflict
from drainer.checkpoint.resume import place
from drainer.sink.mysql.change import Position

_HINT: Final = "the drainer goes on from what is stored there; Pumps must still have what comes behind it"


class WentBack(Conflict):
    """The downstream does not have what it had confirmed. Only a start from what it has now goes on."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose place it is: this life of a drainer."""

    cluster_id: int
    epoch: int

    def fenced(self) -> Conflict:
        return Conflict(
            f"another drainer took over cluster {self.cluster_id} (this one has epoch {self.epoch})",
            hint="stop the other drainer first, or leave this one stopped",
        )

    def check_epoch(self, stored: int | None) -> None:
        """`stored`: of the server, None if it has none. Epochs only rise, and no two starts have the same."""
        if stored is not None and stored > self.epoch:
            raise self.fenced()
        if stored != self.epoch:
            found = "nothing of this cluster" if stored is None else f"epoch {stored}"
            raise self.went_back(f"it has {found}, this drainer began there with epoch {self.epoch}")

    def check_position(self, what: str, confirmed: Position | None, stored: Position | None) -> None:
        if confirmed is not None and (stored is None or place(stored) < place(confirmed)):
            raise self.went_back(f"{what} stands at {_text(stored)}, {_text(confirmed)} was committed")

    def check_writes(self, confirmed: int, stored: int | None) -> None:
        if stored is None or stored < confirmed:
            raise self.went_back(
                f"write {confirmed} of the checkpoint's tables was committed, {stored} is there"
            )

    def went_back(self, why: str) -> WentBack:
        return WentBack(
            f"the downstream went back in time (cluster {self.cluster_id}): {why}. Was a replica promoted"
            " that lagged, or a data directory put back?",
            hint=_HINT,
        )


class Committed:
    """The positions of all lanes and the number of the store's last write. Used by all threads."""

    def __init__(self, positions: Sequence[Position] = ()) -> None:
        self._lock = threading.Lock()
        self._positions = dict(enumerate(positions))
        self._writes = 0

    @property
    def writes(self) -> int:
        return self._writes

    def of(self, lane: int) -> Position | None:
        """None of a lane that nobody has told of."""
        return self._positions.get(lane)

    def positions(self) -> Mapping[int, Position]:
        """Of all lanes, as they are now."""
        with self._lock:
            return dict(self._positions)

    def note(self, lane: int, position: Position) -> None:
        """The lane's COMMIT was answered."""
        with self._lock:
            self._positions[lane] = position

    def note_write(self, number: int, lanes: Iterable[Position] | None = None) -> None:
        """The store's COMMIT was answered. `lanes`: where it put them all."""
        with self._lock:
            self._writes = number
            if lanes is not None:
                self._positions = dict(enumerate(lanes))


def _text(position: Position | None) -> str:
    if position is None:
        return "nothing"
    return str(position.commit_ts) if position.rows < 0 else f"{position.commit_ts}:{position.rows}"

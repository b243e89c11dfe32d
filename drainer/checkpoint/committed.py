"""Committed: what the downstream has confirmed to this process: of each lane, and of the checkpoint store.

In     every position and every write of the store whose COMMIT was answered
Out    the same, to be compared with what a server has (`fencing`)
Holds  a lane moves its row from the position that was confirmed last, by name, in the transaction that
       carries its rows; the store counts its writes in the same way and reads the lanes before it writes
       anything about them. So nothing is written that relies on a position which the server written to does
       not have, whichever server each session happens to be connected to
Why    a replica that lags is promoted, a data directory is put back, a power cut takes commits that were not
       synced. Sessions come to such a server one by one, while others may still commit on the old one
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence

from drainer.mysql.rows.change import Position


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
        """None of a lane that has committed nothing yet."""
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

"""Batching: what waits for a batch sink, in order, and what its next batch is.

Out    batches: items, and the position that holds once they are written
Holds  a batch has `rows_max` rows and `bytes_max` bytes at most, or one transaction; DDL and large
       transactions are alone in theirs, so that all before them is written before, and nothing after them
"""

from __future__ import annotations

from collections import deque

from drainer.checkpoint.fencing import WentBack
from drainer.txn import Ddl, LargeTransaction, Transaction
from tidb_binlog.errors import Conflict
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.tso import Ts

Item = Transaction | LargeTransaction | Ddl


@dataclass(frozen=True, slots=True)
class Batch:
    """`position`: everything at or below it has been given when `items` are written."""

    items: tuple[Item, ...]
    position: int


class Batching:
    """The items that wait. `given_ts`: everything at or below it was added, or is not for the sink."""

    def __init__(self, given_ts: Ts, *, rows_max: int, bytes_max: int) -> None:
        assert rows_max > 0
        assert bytes_max > 0
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._waiting: deque[tuple[Item, int, int]] = deque()
        self._rows = 0
        self._alone = 0
        self.given_ts = given_ts
        self.size_bytes = 0

    @property
    def is_complete(self) -> bool:
        """Whether the next batch has all that it can have."""
        return self._alone > 0 or self._rows >= self._rows_max or self.size_bytes >= self._bytes_max

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, item: Item) -> None:
        rows = sum(len(events.rows) for events in item.tables) if isinstance(item, Transaction) else 0
        size = item.size_bytes if isinstance(item, Transaction) else 0
        self._waiting.append((item, rows, size))
        self.size_bytes += size
        self._rows += rows
        self._alone += not isinstance(item, Transaction)
        self.given_ts = item.commit_ts

    def reaches(self, ts: Ts) -> None:
        """Nothing for the sink is at or below `ts` but what was added."""
        self.given_ts = max(self.given_ts, ts)

    def next(self) -> Batch:
        """Without items where none wait."""
        taken: list[Item] = []
        rows = size = 0
        while self._waiting:
            item, more_rows, more_size = self._waiting[0]
            is_alone = not isinstance(item, Transaction)
            fits = rows + more_rows <= self._rows_max and size + more_size <= self._bytes_max
            if taken and (is_alone or not fits):
                break
            self._waiting.popleft()
            taken.append(item)
            rows += more_rows
            size += more_size
            if is_alone:
                self._alone -= 1
                break
        self.size_bytes -= size
        self._rows -= rows
        position = taken[-1].commit_ts if taken and self._waiting else self.given_ts
        return Batch(tuple(taken), position)


def rest_of(batch: Batch, position: int, written_ts: Ts) -> Batch | None:
    """What of a batch is still to be written by a sink that says now that it stands at `position`, and stood
    at `written_ts` before the batch; None: nothing. Raises `WentBack`, `Conflict`."""
    if position < written_ts:
        raise WentBack(
            f"the sink stands at {position}, and had confirmed {written_ts}: its store went back in time"
        )
    if position > batch.position:
        raise Conflict(
            f"the sink stands at {position}, above {batch.position}, which it was to write: another program"
            " moves its position",
            hint="one Drainer for one position: stop the other one, or give each its own",
        )
    if position == batch.position:
        return None
    return Batch(tuple(item for item in batch.items if item.commit_ts > position), batch.position)

"""Reader position: up to where a program has done what a stream gave it.

In     `given(ts)` for each transaction and DDL, `passed(ts)` for the place up to which nothing else comes,
       `done(ts)` when the program has done that one and all before it
Out    `position`: everything at or below it is done, and need not come again
Why    a reader of a table that nobody writes must not hold the pumps' retention at its last row: when all
       that was given is done, the position follows the stream
       Rows of a snapshot, which come first, have all one commit_ts. While they are not all done the position
       lies below it, and `snapshot` says which are
Holds  the position never falls, and never passes an item that was given and is not done
"""

from __future__ import annotations

from drainer.points.rows.snapshot_position import SnapshotPosition
from tidb_binlog.errors import Rejected
from tidb_binlog.tso import Ts


class NotGiven(Rejected):
    """An item was called done that this stream has not given."""


class ReaderPosition:
    """`start_ts`: all at or below it was done in an earlier life, or is not wanted. `snapshot`: but for rows
    of the snapshot at `start_ts` that follow this position."""

    def __init__(self, start_ts: Ts, snapshot: SnapshotPosition | None = None) -> None:
        if snapshot is not None:
            start_ts = Ts(snapshot.ts - 1)
        self._given = self._done = self._passed = start_ts
        self._rest = snapshot
        self._rows_given = snapshot.rows if snapshot is not None else 0

    @property
    def position(self) -> int:
        """Tell up to where all is done."""
        if self._rest is not None:
            return self._rest.ts - 1
        return self._passed if self._done >= self._given else self._done

    @property
    def snapshot(self) -> str:
        """Up to where rows of the snapshot are done; "" when all are."""
        return self._rest.text() if self._rest is not None else ""

    def given(self, ts: Ts, snapshot: SnapshotPosition | None = None) -> None:
        """The next item went to the program."""
        if snapshot is not None:
            self._rows_given = snapshot.rows
            if not snapshot.is_end:
                return
        assert ts > self._given, (ts, self._given)
        self._done = self.position
        self._given = ts
        self._passed = max(self._passed, ts)

    def passed(self, ts: Ts) -> None:
        """Everything at or below it has been given."""
        self._passed = max(self._passed, ts)

    def done(self, ts: Ts, snapshot: str = "") -> None:
        """Of an earlier one than was said already: nothing changes. Raises `NotGiven`."""
        rows = SnapshotPosition.of(snapshot) if snapshot else None
        rest = self._rest
        if rows is not None and rest is not None and not rows.is_end:
            if rows.ts != rest.ts or rows.rows > self._rows_given:
                raise _not_given(f"{rows.rows} rows of the snapshot at {ts}", f"{self._rows_given} rows")
            if rows.rows > rest.rows:
                self._rest = rows
            return
        if ts > self._given:
            raise _not_given(f"commit_ts {ts}", str(self._given))
        if rest is not None and ts >= rest.ts:
            self._rest = None
        self._done = max(self._done, ts)


def _not_given(what: str, last: str) -> NotGiven:
    return NotGiven(
        f"{what} cannot be done: the last one that this stream has given is {last}",
        hint="pass the transaction that the stream gave, after its rows are safe",
    )

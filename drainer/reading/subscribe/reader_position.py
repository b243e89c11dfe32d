"""Reader position: up to where a program has done what a stream gave it.

In     `given(ts)` for each transaction and DDL, `passed(ts)` for the place up to which nothing else comes,
       `done(ts)` when the program has done that one and all before it
Out    `position`: everything at or below it is done, and need not come again
Why    a reader of a table that nobody writes must not hold the pumps' retention at its last row: when all
       that was given is done, the position follows the stream
Holds  the position never falls, and never passes an item that was given and is not done
"""

from __future__ import annotations

from tidb_binlog.errors import Rejected
from tidb_binlog.tso import Ts


class NotGiven(Rejected):
    """An item was called done that this stream has not given."""


class ReaderPosition:
    """`start_ts`: all at or below it was done in an earlier life, or is not wanted."""

    def __init__(self, start_ts: Ts) -> None:
        self._given = self._done = self._passed = start_ts

    @property
    def position(self) -> int:
        """Tell up to where all is done."""
        return self._passed if self._done >= self._given else self._done

    def given(self, ts: Ts) -> None:
        """The next item went to the program."""
        assert ts > self._given, (ts, self._given)
        self._done = self.position
        self._given = ts
        self._passed = max(self._passed, ts)

    def passed(self, ts: Ts) -> None:
        """Everything at or below it has been given."""
        self._passed = max(self._passed, ts)

    def done(self, ts: Ts) -> None:
        """Of an earlier one than was said already: nothing changes. Raises `NotGiven`."""
        if ts > self._given:
            raise NotGiven(
                f"commit_ts {ts} cannot be done: the last one that this stream has given is {self._given}",
                hint="pass the transaction that the stream gave, after its rows are safe",
            )
        self._done = max(self._done, ts)

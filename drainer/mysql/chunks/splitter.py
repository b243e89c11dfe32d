"""Splitter: a table as chunks of about so many rows, one after the other, without reading it first.

Drives  one session that sees the moment to read at; ends no transaction of it, keeps no query open
In      a table, the key to cut by, how many rows a chunk is to have; the chunk after which to go on
Out     chunks in the order of the key, made as they are asked for
Holds   the chunks of a table have every row once, whatever estimates say: where they cut is a matter of speed
Why     an integer key is divided by value, and the server estimates how many rows lie between two values
        without reading them (InnoDB twice as many as there are, so one range is counted); gaps and crowds in
        the key make neither many empty nor huge chunks. For other keys the place of every n-th row is looked
        up in the index, a chunk ahead of who reads. A TiDB estimates by statistics, which may be missing:
        there all keys are looked up
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

from drainer.mysql.chunks.chunk import Chunk, Place, after, at_or_after
from drainer.mysql.chunks.cut_key import CutKey
from drainer.mysql.connection import Connection
from drainer.mysql.literal.quoting import qualified, quote_name
from drainer.mysql.rows.column_match import DownstreamTable
from drainer.mysql.rows.dialect import Dialect
from tidb_binlog.late_dataclass import dataclass

_AT_ONCE: Final = 64
_PIECES_MAX: Final = 16  # of a range that is divided
_MORE: Final = 1.25  # rows of a chunk, beside those that are wanted
_EXCESS_MAX: Final = 4.0


@dataclass(frozen=True, slots=True)
class Splitter:
    """Cuts one table. Raises `SessionError`."""

    table: DownstreamTable
    key: CutKey
    rows_wanted: int

    def chunks(self, connection: Connection, last: Chunk | None = None) -> Iterator[Chunk]:
        """Chunks from the first one on, or those that follow `last`."""
        if last is not None and last.is_last:
            return
        number, low = (last.number + 1, last.high) if last is not None else (0, ())
        if self.key.columns:
            for high in self._places(connection, low):
                yield Chunk(number, self.key.names, low, high)
                number, low = number + 1, high
        yield Chunk(number, self.key.names, low)

    def next_chunks(self, connection: Connection, last: Chunk | None) -> list[Chunk]:
        """Some of those that follow `last`, so that a session is asked once for many."""
        return list(itertools.islice(self.chunks(connection, last), _AT_ONCE))

    def _places(self, connection: Connection, low: Place) -> Iterator[Place]:
        """Where chunks end that begin at `low`, but for the last one, which has no end."""
        if self.key.is_integer and self.table.dialect is not Dialect.TIDB:
            return self._divided(connection, low)
        return self._looked_up(connection, low)

    # -- integers ---------------------------------------------------------------------------------

    def _divided(self, connection: Connection, low: Place) -> Iterator[Place]:
        """Ends of ranges that have about as many rows as wanted; small neighbours are joined."""
        column = quote_name(self.key.names[0])
        where = at_or_after(self.key.names, low) if low else b"TRUE"
        ends = b"SELECT MIN(%b),MAX(%b)" % (column, column)
        ((least, most),) = connection.printed(b"%b FROM %b WHERE %b" % (ends, self._table, where))
        if least is None or most is None:
            return
        waiting = [(int(least), int(most) + 1)]
        goal, gathered, is_measured = float(self.rows_wanted), 0, False
        while waiting:
            begin, end = waiting.pop()
            rows = self._estimate(connection, begin, end)
            if rows > goal * _MORE and end - begin > 1:
                waiting.extend(reversed(divide(begin, end, max(2, round(rows / goal)))))
                continue
            if not is_measured and rows * 4 > goal:
                goal, is_measured = goal * self._excess(connection, begin, end, rows), True
                waiting.append((begin, end))
                continue
            if gathered and gathered + rows > goal * _MORE:
                yield (b"%d" % begin,)
                gathered = 0
            gathered += rows

    def _excess(self, connection: Connection, begin: int, end: int, estimate: int) -> float:
        """How many rows the server estimates for each that there is: of one range, which is read for it."""
        ((rows,),) = connection.printed(
            b"SELECT COUNT(*) FROM %b WHERE %b" % (self._table, self._range(begin, end))
        )
        return min(max(estimate / max(int(rows or 0), 1), 1.0), _EXCESS_MAX)

    def _estimate(self, connection: Connection, begin: int, end: int) -> int:
        """Rows from `begin` on and before `end`, as the optimizer would expect them from the index."""
        column = quote_name(self.key.names[0])
        range_ = b"%b>=%d AND %b<%d" % (column, begin, column, end)
        # A newer MySQL estimates nothing for an index that it is told to take, and explains as a tree.
        table = self._table if self.table.dialect is Dialect.MYSQL else self._by_index
        plan = connection.rows_by_name(
            b"EXPLAIN FORMAT=TRADITIONAL SELECT %b FROM %b WHERE %b" % (column, table, range_)
        )
        return sum(int(step.get("ROWS") or 0) for step in plan)

    def _range(self, begin: int, end: int) -> bytes:
        column = quote_name(self.key.names[0])
        return b"%b>=%d AND %b<%d" % (column, begin, column, end)

    # -- other keys -------------------------------------------------------------------------------

    def _looked_up(self, connection: Connection, low: Place) -> Iterator[Place]:
        """Every n-th row's place in the index."""
        names, order = self.key.names, b",".join(quote_name(name) for name in self.key.names)
        shown = b",".join(column.literal for column in self.key.columns)
        query = b"SELECT %b,%%b FROM %b WHERE %%b ORDER BY %b LIMIT 1" % tuple(
            part.replace(b"%", b"%%") for part in (shown, self._by_index, order)
        )
        while True:
            here = at_or_after(names, low) if low else b"TRUE"
            # Several rows may have one place: chunks have to go on all the same.
            stays = b" AND ".join(_equal(names, low)) if low and not self.key.unique else b"0"
            rows = connection.printed(query % (stays, here) + b" OFFSET %d" % self.rows_wanted)
            if rows and rows[0][-1] == b"1":
                rows = connection.printed(query % (b"0", after(names, low)))
            if not rows:
                return
            place = tuple(literal for literal in rows[0][:-1] if literal is not None)
            yield place
            low = place

    # -- names ------------------------------------------------------------------------------------

    @property
    def _table(self) -> bytes:
        return qualified(self.table.schema, self.table.name)

    @property
    def _by_index(self) -> bytes:
        """The table, to be read by the index that has the order of the key."""
        return self._table + index_hint(self.key)


def index_hint(key: CutKey) -> bytes:
    """What makes a server read a table in the order of its cut key."""
    return b" FORCE INDEX (%b)" % quote_name(key.index) if key.index else b""


def divide(begin: int, end: int, pieces: int) -> list[tuple[int, int]]:
    """A range of integers as pieces of one width, no more than it has numbers."""
    step = -(-(end - begin) // min(pieces, _PIECES_MAX))
    return [(at, min(at + step, end)) for at in range(begin, end, step)]


def _equal(names: tuple[str, ...], place: Place) -> list[bytes]:
    return [b"%b=%b" % (quote_name(name), literal) for name, literal in zip(names, place, strict=True)]

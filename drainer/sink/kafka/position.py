"""Position: what a partition has, as its last message says; and what of a transaction is not there yet.

Out    (commit_ts, seq, half): everything of the stream that goes to the partition is there up to this
Holds  messages of a partition rise in it. `seq` is the ordinal of the last row in the message, counted over
       all rows of the transaction, so that it does not depend on how messages are cut. A message without
       `seq` has all of its commit_ts; `more` says how many messages of its row follow at most
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, NamedTuple

from drainer.formats.obinlog.writer import commit_ts_of
from drainer.txn import TableEvents, Transaction
from tidb_binlog.errors import Corruption
from tidb_binlog.tso import Ts

WHOLE: Final = 1 << 62
COMMIT_TS: Final = "commit_ts"
SEQ: Final = "seq"
MORE: Final = "more"
Headers = list[tuple[str, bytes]]


class Position(NamedTuple):
    """`half` is 1 for the last message of a row, less by one for each that follows."""

    commit_ts: Ts
    seq: int = WHOLE
    half: int = 1


NOTHING: Final = Position(-1, -1)


def headers_of(position: Position) -> Headers:
    headers = [(COMMIT_TS, b"%d" % position.commit_ts)]
    if position.seq != WHOLE:
        headers.append((SEQ, b"%d" % position.seq))
        if position.half != 1:
            headers.append((MORE, b"%d" % (1 - position.half)))
    return headers


def position_of(headers: Iterable[tuple[str, bytes | None]] | None, value: bytes | None) -> Position | None:
    """None: no drainer wrote the message. Without headers it may be an obinlog."""
    header = dict(headers or ())
    try:
        if (ts := header.get(COMMIT_TS)) is not None:
            seq = header.get(SEQ)
            return Position(int(ts), WHOLE if seq is None else int(seq), 1 - int(header.get(MORE) or 0))
        return Position(commit_ts_of(value or b""))
    except (ValueError, Corruption):
        return None


def after(transaction: Transaction, position: Position) -> Transaction:
    """The rows of a transaction that stand above a position."""
    if transaction.commit_ts != position.commit_ts:
        return transaction
    left = []
    for events in transaction.tables:
        stored_rows = min(max(position.seq + 1 - events.first_ordinal, 0), len(events.rows))
        if stored_rows < len(events.rows):
            left.append(_from(events, stored_rows))
    return replace(transaction, tables=tuple(left))


def _from(events: TableEvents, number: int) -> TableEvents:
    if not number:
        return events
    return TableEvents(
        events.table, events.kinds[number:], events.rows[number:], events.first_ordinal + number
    )


def last_ordinal(transaction: Transaction) -> int:
    events = transaction.tables[-1]
    return events.first_ordinal + len(events.rows) - 1

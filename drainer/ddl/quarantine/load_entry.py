"""Load entry: tables that join wait, while the rows that they have upstream are loaded.

In     their names, the place where all lanes stand, what waits under these names already
Out    an entry that takes the place of all of that; or why it cannot
Why    whatever waited up to the load's timestamp is in the load: a DDL that was refused, rows that were

Tests  tests/drainer/ddl/quarantine/test_load_entry.py
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from drainer.ddl.quarantine.entry import LOADS, Entry, Floor, Name
from drainer.ddl.quarantine.queue_state import QueueState
from drainer.ddl.quarantine.waiting_tables import Queue
from drainer.mysql.rows.change import Position
from tidb_binlog.errors import Conflict, Rejected
from tidb_binlog.late_dataclass import dataclass, field

REASON = "rows are loaded"
_DECIDING = (QueueState.DECIDING, QueueState.DECIDING_HALTED)


@dataclass(frozen=True, slots=True)
class LoadAsked:
    """Tables are to join, as soon as the stream comes to a place for it. `left`: the names of all others that
    there are. `also` is stored with their entry, which is the result of `begun`. `rate_rows`: rows a second
    at most, 0: no limit."""

    names: frozenset[Name]
    left: frozenset[Name]
    also: Callable[[Any], None]
    asked_from: str
    rate_rows: int = 0
    begun: asyncio.Future[Entry] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


def load_entry(
    number: int,
    names: frozenset[Name],
    left: frozenset[Name],
    place: Floor,
    queues: Sequence[Queue],
    since_ms: int,
    rate_rows: int = 0,
) -> Entry:
    """`number` of the decision; `queues` hold what waits under the names: names that no table has any more,
    and databases of which no table is `left`, come along. Raises `Conflict`, `Rejected`."""
    flags = f"-rate {rate_rows}" if rate_rows else ""
    since = dict.fromkeys(sorted(names), place.commit_ts + 1)
    position, floor = Position(place.commit_ts), place
    for queue in queues:
        for entry in queue.entries.values():
            _check(queue, entry, left, place)
            since |= {name: min(at_ts, since.get(name, at_ts)) for name, at_ts in entry.tables.items()}
            position = min(position, entry.position, key=Position.order_key)
            floor = min(floor, entry.floor)
    return Entry(LOADS + number, place.commit_ts + 1, floor, since, position, flags, REASON, since_ms)


def _check(queue: Queue, entry: Entry, left: frozenset[Name], place: Floor) -> None:
    if queue.state in _DECIDING or entry.intent_ts > place.commit_ts:
        raise Conflict(
            f"DDL job {entry.job_id} is being carried out, or decided", hint="run the same command again"
        )
    others = sorted(".".join(name) for name in left if name in entry.tables or (name[0], "") in entry.tables)
    if others:
        raise Rejected(
            f"{', '.join(others)} waits together with what is to be loaded, for job {entry.job_id}",
            hint="name it as well, or decide first: `binlogctl ddl list`",
        )

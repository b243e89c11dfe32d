"""Slow chaser: reads the value log for an indexer that fell behind.

When the index is slower than the writers, records are not piled up in memory: the indexer's cursor simply
stays back and this room reads what lies between it and the end of the log, in bounded batches, until the
two meet. The same reading replays the log at start.

Never blocks a writer: it reads only what is durable already.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pump.logged import Logged
from pump.value_log import ValueLog
from pump.value_pointer import ValuePointer


@dataclass(frozen=True, slots=True)
class Chased:
    """A batch of records in log order and the place behind the last of them."""

    records: list[Logged]
    cursor: ValuePointer


def batches(
    log: ValueLog, cursor: ValuePointer, stop: ValuePointer, *, records_max: int = 4096
) -> Iterator[Chased]:
    """Records in [cursor, stop), batch by batch; blocks on the disk. `Corruption` as the log raises it.

    The last batch ends at `stop` exactly, even when a file boundary lies between.
    """
    records: list[Logged] = []
    for record, behind in log.forward(cursor, stop):
        records.append(record)
        cursor = behind
        if len(records) == records_max:
            yield Chased(records, cursor)
            records = []
    yield Chased(records, stop)

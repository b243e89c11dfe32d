"""Slow chaser: reads the value log for an indexer that fell behind.

When the index is slower than the writers, records are not piled up in memory: the indexer's cursor simply
stays back and this room reads what lies between it and the end of the log, in bounded batches, until the
two meet. The same reading replays the log at start.

Never blocks a writer: it reads only what is durable already.
"""

from __future__ import annotations

from collections.abc import Iterator

from pump.log.record import ValuePointer
from pump.log.value_log import Stretch, ValueLog

BATCH_RECORDS = 1024
"""A batch is filed and sorted in one go: large enough for LevelDB, small enough for the event loop."""


def batches(log: ValueLog, cursor: ValuePointer, stop: ValuePointer) -> Iterator[Stretch]:
    """Records in [cursor, stop), batch by batch; blocks on the disk. `Corruption` as the log raises it.

    The last batch ends at `stop` exactly, even when a file boundary lies between.
    """
    for records, behind in log.stretches(cursor, stop):
        for at in range(BATCH_RECORDS, len(records), BATCH_RECORDS):
            yield Stretch(records[at - BATCH_RECORDS : at], records[at].place)
        yield Stretch(records[(len(records) - 1) // BATCH_RECORDS * BATCH_RECORDS :], behind)
    yield Stretch([], stop)

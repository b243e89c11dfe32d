"""The log of a pump, written and read in this process."""

from __future__ import annotations

from pump.log.record import START, ValuePointer
from pump.log.value_log import ValueLog
from tests.pump.support.memory_log import MemoryDirectory

GROUP = 4096


def new_log(directory: MemoryDirectory, **options: object) -> ValueLog:
    log = ValueLog(directory, group_bytes_max=GROUP, **options)  # type: ignore[arg-type]
    log.open(START, START, 0)
    return log


def read_all(log: ValueLog) -> list[tuple[int, int]]:
    first = ValuePointer(log.first_fid, 0)
    return [
        (one.start_ts, one.commit_ts) for records, _ in log.record_batches(first, log.end) for one in records
    ]

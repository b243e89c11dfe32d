"""Lives of a value log on a disk in memory: write, die at some call, open again, compare.

Holds for every life: what was acknowledged, and what an earlier life found and may have served, is there,
byte for byte and in order; whatever else is there was written, in the order of writing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pump.log.log_file import OsLogDirectory
from pump.log.record import START, ValuePointer
from pump.log.value_log import ValueLog
from tests.crash.faults.disk import Disk
from tidb_binlog import binlog

GROUP = 4096
SEGMENT = 700
Mount = Callable[[Disk], OsLogDirectory]


def groups(count: int, first_ts: int, seed: int = 1) -> list[list[bytes]]:
    """Groups of one to four payloads, as a writer would store them."""
    rng = random.Random(seed * 1_000_003 + first_ts)
    made, ts = [], first_ts
    for _ in range(count):
        group = []
        for _ in range(rng.randint(1, 4)):
            group.append(binlog.prewrite(ts, b"k", rng.randbytes(rng.choice([0, 10, 300]))))
            ts += 10
        made.append(group)
    return made


def read_all(log: ValueLog) -> tuple[list[bytes], ValuePointer]:
    """All payloads in log order, and the place of the last."""
    first = ValuePointer(log.first_fid, 0)
    places = [record.place for records, _ in log.record_batches(first, log.end) for record in records]
    return [log.read(place) for place in places], places[-1] if places else START


@dataclass
class History:
    """What the lives so far did. `sure` must be found; `written` is all that may be, in order."""

    sure: list[bytes] = field(default_factory=list)
    written: list[bytes] = field(default_factory=list)
    head: ValuePointer = START  # as far as an index may know the log

    def copy(self) -> History:
        return History(self.sure[:], self.written[:], self.head)

    def open(self, mount: Mount, disk: Disk) -> ValueLog:
        log = ValueLog(mount(disk), group_bytes_max=GROUP, segment_bytes_max=SEGMENT)
        log.open(self.head, START, 0)
        return log

    def check(self, log: ValueLog) -> None:
        """Compare, and take what is found as served from now on."""
        found, last = read_all(log)
        assert found[: len(self.sure)] == self.sure, "something acknowledged or served is missing or altered"
        assert found == self.written[: len(found)], "something that was never written, or in another order"
        self.sure, self.written, self.head = found, found[:], max(self.head, last)

    def live(self, mount: Mount, disk: Disk, made: Sequence[Sequence[bytes]]) -> None:
        """Open, compare, store groups; ends where the disk stops."""
        try:
            log = self.open(mount, disk)
            self.check(log)
            for group in made:
                self.written += group
                places = log.append(group)
                log.commit(places, len(group[-1]), 1, sync=True)
                self.sure += group
                self.head = places[-1]
            log.close(healthy=True)
        except OSError:
            if not disk.faults:
                raise

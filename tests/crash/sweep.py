"""Every truncation and every flipped bit of a 64 KiB log, each with a verdict that is known beforehand.

    python -m tests.crash.sweep [--every N] [--processes N]

Truncated: every whole record is there, the rest is cut; what the index knows refuses to be missing.
Flipped: the record is refused (at opening, or by the indexer that follows) or cut at its very beginning, cut
only where one unsynced group can reach; and whoever reads it is told. Records that contain records, footers
and magics are among them.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import re
import struct
import sys
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable

from pump.log.record import START, ValuePointer
from pump.log.value_log import ValueLog
from tests.crash.faults import disk
from tests.crash.faults.disk import ROOT, Disk, Inode
from tests.crash.lives import GROUP, Mount, read_all
from tidb_binlog import binlog
from tidb_binlog.errors import Corruption
from tidb_binlog.record import encode_value

BYTES = 64 << 10
NAME = "000000.vlog"
_PATH = f"{ROOT}/value/{NAME}"


def image() -> list[bytes]:
    """Payloads that fill the log to the byte."""
    rng = random.Random(6)
    inner = encode_value(binlog.commit(7, 8))
    footer = struct.pack("<qI", 77, 0x123AB922)
    payloads: list[bytes] = []
    size = 0
    while size < BYTES - 2000:
        # Nothing that looks like a record close to the end: there the verdict has to be a cut.
        like = rng.choice([b"", inner, footer, inner[:4]]) if size < BYTES - 3 * GROUP else b""
        value = like + rng.randbytes(rng.choice([0, 20, 300, 900]))
        payloads.append(binlog.prewrite(1 << 58 | len(payloads), b"k", value))
        size += len(encode_value(payloads[-1]))
    smallest = len(encode_value(binlog.prewrite(1 << 58, b"k", bytes(200))))
    payloads.append(binlog.prewrite(1 << 58, b"k", bytes(200 + BYTES - size - smallest)))
    missing = BYTES - sum(len(encode_value(payload)) for payload in payloads)  # a length took one octet more
    payloads[-1] = binlog.prewrite(1 << 58, b"k", bytes(200 + BYTES - size - smallest + missing))
    return payloads


class Sweep:
    """One log, damaged in one place at a time."""

    def __init__(self, mount: Mount) -> None:
        self._mount = mount
        self.payloads = image()
        encoded = [encode_value(payload) for payload in self.payloads]
        self._whole = b"".join(encoded)
        assert len(self._whole) == BYTES
        self._starts = [0]
        for record in encoded:
            self._starts.append(self._starts[-1] + len(record))
        self._starts.pop()
        self._disk = Disk()
        self._file = Inode(bytearray(self._whole), bytearray(self._whole), BYTES)
        self._disk.put(f"{ROOT}/value", None)
        self._disk.put(_PATH, self._file)
        self.refused = self.cut = 0

    def place(self, number: int) -> ValuePointer:
        """Of a record, as the head of an index: (0, 0) for the first one, which is also no head at all."""
        return ValuePointer(0, self._starts[max(number, 0)])

    def open(self, head: ValuePointer) -> ValueLog:
        log = ValueLog(self._mount(self._disk), group_bytes_max=GROUP)
        log.open(head, START, 0)
        return log

    def truncated(self, size: int, *, from_start: bool) -> None:
        """The log ends after `size` bytes."""
        whole = bisect_right(self._starts, size) - 1  # records that are complete
        if size == BYTES:
            whole = len(self._starts)
        self._file.data[:] = self._whole[:size]
        log = self.open(START if from_start else self.place(whole - 1))
        assert log.end == ValuePointer(0, self._starts[whole] if whole < len(self._starts) else BYTES)
        assert len(self._file.data) == log.end.offset, "the torn end is still there"
        if from_start:
            assert read_all(log)[0] == self.payloads[:whole]
        self.cut += size != log.end.offset
        log.close(healthy=False)
        if 0 < whole < len(self._starts):
            self._expect_refusal(self.place(whole), None)

    def flipped(self, bit: int, *, from_start: bool) -> None:
        """One bit is wrong."""
        number = bisect_right(self._starts, bit // 8) - 1
        start = self._starts[number]
        self._file.data[bit // 8] ^= 1 << bit % 8
        try:
            if number:
                self._expect_refusal(self.place(number), start)  # the index knows the record
            # The index knows all: the damage is met by whoever reads, the record alone or all in a row.
            if number < len(self._starts) - 1:
                self._told(number, start)
            head = START if from_start else self.place(number - 1)
            if self._starts[-1] > start + GROUP:
                self._expect_refusal(head, start)
            else:
                log = self.open(head)
                assert log.end == ValuePointer(0, start)
                log.close(healthy=False)
                self.cut += 1
        finally:
            self._file.data[:] = self._whole
            self._file.clean = 0
            self._file.synced()

    def _told(self, number: int, start: int) -> None:
        """Whoever reads the record, alone or with its neighbours, is told."""
        log = self.open(self.place(len(self._starts) - 1))
        assert _names(_refusal(lambda: log.read(ValuePointer(0, start))), start)
        seen: list[int] = []

        def walk() -> None:
            seen.extend(len(records) for records, _ in log.record_batches(self.place(number - 1), log.end))

        assert _names(_refusal(walk), start)
        assert sum(seen) <= 1, "records after the damage were believed"
        log.close(healthy=False)

    def _expect_refusal(self, head: ValuePointer, start: int | None) -> None:
        """By opening, or by the indexer, which reads from the head on at once; and nothing is cut."""

        def open_and_follow() -> None:
            log = self.open(head)
            try:
                for _ in log.record_batches(head, log.end):
                    pass
            finally:
                log.close(healthy=False)

        size = len(self._file.data)
        error = _refusal(open_and_follow)
        assert start is None or _names(error, start), error
        assert len(self._file.data) == size, "refused, but cut"
        self.refused += 1


def _refusal(function: Callable[[], object]) -> Corruption:
    try:
        function()
    except Corruption as error:
        return error
    raise AssertionError("damaged bytes were taken for good ones")


def _names(error: Corruption, offset: int) -> bool:
    return re.search(rf"{NAME}: offset {offset}: ", error.message) is not None


def run(mount: Mount, sizes: Iterable[int], bits: Iterable[int], *, from_start: bool) -> tuple[int, int, int]:
    """(damages, refusals, cuts)"""
    sweep, count = Sweep(mount), 0
    for size in sizes:
        sweep.truncated(size, from_start=from_start)
        count += 1
    sweep._file.data[:] = sweep._whole
    for bit in bits:
        sweep.flipped(bit, from_start=from_start)
        count += 1
    return count, sweep.refused, sweep.cut


def _part(job: tuple[int, int, int]) -> tuple[int, int, int]:
    part, parts, every = job
    step = parts * every
    with disk.mounted() as mount:
        return run(
            mount, range(part, BYTES + 1, step), range(part * every, BYTES * 8, step), from_start=False
        )


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="tests.crash.sweep", allow_abbrev=False)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    chosen = parser.parse_args(arguments)
    began_s = time.monotonic()
    jobs = [(part, chosen.processes, chosen.every) for part in range(chosen.processes)]
    with multiprocessing.Pool(chosen.processes) as pool:
        damages, refused, cut = (sum(column) for column in zip(*pool.map(_part, jobs), strict=True))
    print(
        f"{damages} damages ({BYTES + 1} truncations, {BYTES * 8} flips, every {chosen.every}): "
        f"{refused} refusals, {cut} cuts, each as foretold, in {time.monotonic() - began_s:.0f} s"
    )


if __name__ == "__main__":
    main(sys.argv[1:])

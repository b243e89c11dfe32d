"""Opening: the files of a data directory, brought into a state that a storage can work on.

Drives  `recovery` (through the value log)
Order   index (set aside if it is damaged), then log, verified from the index's head on and its torn end cut,
        then what is known to be purged: the index is told when it was built anew, the directory when a pump
        that kept this in the index alone was here before
Never   reads the log further than that: the indexer does, while writes go on

All calls block.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from common import binlog, log, moment
from common.tso import TS_MAX
from pump.data_dir import DataDir
from pump.index import Index, IndexDamaged
from pump.log_file import LogDirectory
from pump.value_log import SEGMENT_BYTES_MAX, Opened, ValueLog
from pump.value_pointer import START, ValuePointer

_logger = log.get("storage")


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one storage, in bytes where not said otherwise."""

    write_queue_bytes_max: int = 64 << 20  # reached: writers wait
    group_bytes_max: int = 1 << 20  # of several records together; one may be larger, alone
    group_records_max: int = 4096
    index_queue_bytes_max: int = 32 << 20  # reached: the slow chaser reads the log instead
    recent_bytes_max: int = 32 << 20  # reached: older commits are served from the log
    segment_bytes_max: int = SEGMENT_BYTES_MAX

    @property
    def torn_bytes_max(self) -> int:
        """Most bytes of file that a group of several records takes."""
        return self.group_bytes_max + self.group_records_max * 16


@dataclass(frozen=True, slots=True)
class Found:
    """What is open now."""

    index: Index
    value_log: ValueLog
    opened: Opened

    def close(self) -> None:
        """Let go of it without finishing anything."""
        self.value_log.close(healthy=False)
        self.index.close()


def open_all(
    data_dir: DataDir,
    directory: LogDirectory,
    limits: Limits,
    loss_accepted: Callable[[str, int], bool],
    *,
    write_buffer_bytes: int,
    cache_bytes: int,
    limit_ts: int = TS_MAX,
) -> Found:
    """`limit_ts`: no timestamp of the upstream is larger now.

    Raises `Corruption` naming file and offset, `ConfigError`, `OSError`.
    """
    data_dir.take_rebuild()
    index = _open_index(data_dir, write_buffer_bytes, cache_bytes)
    if index.max_commit_ts > limit_ts:
        index = _from_the_future(index, data_dir, write_buffer_bytes, cache_bytes)
    rebuilt = index.head == START and index.max_commit_ts == 0
    value_log = ValueLog(
        directory,
        group_bytes_max=limits.torn_bytes_max,
        segment_bytes_max=limits.segment_bytes_max,
        loss_accepted=loss_accepted,
    )
    try:
        opened = value_log.open(index.head, index.handle, index.edge_ts(largest=True))
        _know_purged(data_dir, index, value_log, rebuilt)
    except BaseException:
        value_log.close(healthy=False)
        index.close()
        raise
    return Found(index, value_log, opened)


def _know_purged(data_dir: DataDir, index: Index, value_log: ValueLog, rebuilt: bool) -> None:
    """Let the index know what is gone, whichever of the two was lost."""
    purged = data_dir.purged_ts
    if rebuilt and not purged and value_log.first_fid > 0:
        # An older pump purged files, and only its index knew how far.
        purged = max(oldest_whole_commit(value_log) - 1, 0)
        data_dir.keep_purged_ts(purged)
    if purged > index.gc_ts:
        index.set_gc_ts(purged)


def oldest_whole_commit(value_log: ValueLog) -> int:
    """A timestamp such that every transaction committed at or above it is stored whole, though the oldest
    files are gone: that of the first commit whose prewrite is stored too.

    Its commit_ts was drawn after its prewrite was acknowledged, and so after everything in the files that
    are gone was written, whose timestamps had been drawn by then. Without one: behind everything stored.
    """
    prewrites: set[int] = set()
    largest = 0
    for records, _ in value_log.stretches(ValuePointer(value_log.first_fid, 0), value_log.end):
        for record in records:
            if record.tp == binlog.PREWRITE:
                prewrites.add(record.start_ts)
            elif record.start_ts in prewrites and record.commit_ts and not record.is_mark:
                return record.commit_ts
            largest = max(largest, record.index_ts)
    return largest + 1


def _from_the_future(index: Index, data_dir: DataDir, write_buffer_bytes: int, cache_bytes: int) -> Index:
    """An index whose watermark upstream has not reached: a new one, for which the log is read again."""
    watermark = index.max_commit_ts
    index.close()
    aside = data_dir.set_aside("kv", "future")
    _logger.error(
        "the watermark stored here lies in the future, a writer with a wrong clock brought it: building the "
        "index anew from the value log, without such timestamps",
        watermark=watermark,
        moment=moment.utc(watermark),
        set_aside=aside,
        hint="restart each drainer, it goes on from its checkpoint; one whose checkpoint lies in the future, "
        "too, is refused, and needs initial-commit-ts or a checkpoint of before. Retention keeps the files "
        "that hold such timestamps",
    )
    return _open_index(data_dir, write_buffer_bytes, cache_bytes)


def _open_index(data_dir: DataDir, write_buffer_bytes: int, cache_bytes: int) -> Index:
    """The index; one that cannot be read is set aside and built anew from the log."""

    def attempt() -> Index:
        return Index.open(data_dir.index_path, write_buffer_bytes=write_buffer_bytes, cache_bytes=cache_bytes)

    try:
        return attempt()
    except IndexDamaged as error:
        aside = data_dir.set_aside("kv", "damaged")
        _logger.error("index is damaged, building it anew from the value log", error=error, set_aside=aside)
        return attempt()

"""Opening: the files of a data directory, brought into a state that a storage can work on.

Order   index (cut where its end is lost, renamed if more is, or if another backend is to be), then log,
        verified from the index's head on and its torn end cut, then what is known to be purged: the index
        learns it when it was built anew, the directory when a pump that kept this in the index alone was here
        before
Never   reads the log further than that: the indexer does, while writes continue

All calls block.

Tests  tests/crash/test_index_damage.py
"""

from __future__ import annotations

import os
from contextlib import closing

from pump.index import backends
from pump.index.index import Index
from pump.index.sorter import OPEN_MAX
from pump.index.store import IndexDamaged
from pump.log.log_file import OsLogDirectory
from pump.log.record import START, ValuePointer
from pump.log.value_log import SEGMENT_BYTES_MAX, OpenedLog, ValueLog
from pump.storage.accepted_losses import AcceptedLosses
from pump.storage.data_dir import DataDir
from tidb_binlog import binlog, time_text
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.observe import log
from tidb_binlog.tso import TS_MAX, Ts

_logger = log.get("storage")


@dataclass(frozen=True, slots=True)
class StorageLimits:
    """Bounds of one storage, in bytes where not said otherwise."""

    write_queue_bytes_max: int = 64 << 20  # reached: writers wait
    group_bytes_max: int = 1 << 20  # of several records together; one may be larger, alone
    group_records_max: int = 4096
    index_queue_bytes_max: int = 16 << 20  # reached: the slow chaser reads the log instead
    open_prewrites_max: int = OPEN_MAX  # reached: no prewrite enters
    recent_bytes_max: int = 32 << 20  # reached: older commits are served from the log
    segment_bytes_max: int = SEGMENT_BYTES_MAX

    @property
    def torn_bytes_max(self) -> int:
        """Most bytes of file that a group of several records takes."""
        return self.group_bytes_max + self.group_records_max * 16


@dataclass(frozen=True, slots=True)
class OpenFiles:
    """What is open now."""

    index: Index
    value_log: ValueLog
    opened: OpenedLog
    losses: AcceptedLosses
    index_is_new: bool

    def close(self) -> None:
        """Close it without finishing anything."""
        self.value_log.close(healthy=False)
        self.index.close()


def open_all(
    data_dir: DataDir,
    directory: OsLogDirectory,
    limits: StorageLimits,
    losses: AcceptedLosses,
    *,
    index_backend: str,
    write_buffer_bytes: int,
    cache_bytes: int,
    limit_ts: Ts = TS_MAX,
) -> OpenFiles:
    """`index_backend`: see `backends`. `limit_ts`: no timestamp of the upstream is larger now.

    Raises `Corruption` naming file and offset, `ConfigError`, `OSError`.
    """
    data_dir.take_rebuild()
    present = backends.present_in(data_dir.index_path)
    backend = backends.choose(index_backend, present)

    def leave(other: str) -> ValuePointer:
        return _leave(data_dir, directory, limits, losses, other, backend)

    decided = max([leave(other) for other in present if other != backend], default=START)

    def attempt() -> OpenFiles:
        index = Index.open(
            data_dir.index_path,
            backend=backend,
            write_buffer_bytes=write_buffer_bytes,
            cache_bytes=cache_bytes,
        )
        try:
            if index.head == START and decided != START:
                index.set_handle(decided)
            if index.max_commit_ts > limit_ts:
                raise _FromTheFuture(index.max_commit_ts)
            return _open_log(data_dir, directory, limits, losses, index)
        except BaseException:
            index.close()
            raise

    try:
        return attempt()
    except IndexDamaged as error:
        renamed = data_dir.set_aside("kv", "damaged")
        _logger.error("index is damaged, building it anew from the value log", error=error, set_aside=renamed)
    except _FromTheFuture as error:
        error.report(data_dir.set_aside("kv", "future"))
    return attempt()


def _leave(
    data_dir: DataDir,
    directory: OsLogDirectory,
    limits: StorageLimits,
    losses: AcceptedLosses,
    old: str,
    new: str,
) -> ValuePointer:
    """Set an index aside for one of another backend, which is built from the value log. What a new one cannot
    learn from there: what was purged; what was acknowledged, where damage would be taken for a torn end, so
    the log is verified with the old one first; and up to which record all is decided, which is returned: a Go
    pump stores no end of a prewrite that was rolled back.

    A directory has two only where a Go pump, which sees its own alone, went on beside the other: that one is
    of before, and of no use.
    """
    decided, purged_fid = START, data_dir.purged_fid
    try:
        with closing(Index.open(data_dir.index_path, backend=old)) as index:
            data_dir.keep_purged(index.gc_ts, purged_fid)
            _open_log(data_dir, directory, limits, losses, index).value_log.close(healthy=False)
            decided = index.handle
    except (IndexDamaged, backends.Missing) as error:
        _logger.warning("the index that is left cannot be asked what was purged", index=old, error=error)
    if old == backends.SQLITE and new in backends.present_in(data_dir.index_path):
        for name in backends.files(old, data_dir.index_path):
            os.unlink(os.path.join(data_dir.index_path, name))
        return decided
    _logger.warning(
        "building the index anew from the value log for another backend",
        was=old,
        index=new,
        set_aside=data_dir.set_aside("kv", old),
    )
    return decided


class _FromTheFuture(Exception):
    """An index whose watermark upstream has not reached: the log is read again for a new one."""

    def __init__(self, watermark: int) -> None:
        super().__init__()
        self._watermark = watermark

    def report(self, renamed: str) -> None:
        _logger.error(
            "the watermark stored here lies in the future, a writer with a wrong clock brought it: building "
            "the index anew from the value log, and the watermark from the oracle alone",
            watermark=self._watermark,
            moment=time_text.utc(self._watermark),
            set_aside=renamed,
            hint="restart each drainer, it continues from its checkpoint; one whose checkpoint lies in the "
            "future, too, is refused, and needs initial-commit-ts or a checkpoint of before "
            "(`binlogctl savepoint at TIME`). Retention keeps the files that hold such timestamps",
        )


def _open_log(
    data_dir: DataDir,
    directory: OsLogDirectory,
    limits: StorageLimits,
    losses: AcceptedLosses,
    index: Index,
) -> OpenFiles:
    """The log after an index that is open. `IndexDamaged` as well where the log ends before what the index
    knows: nothing may lead to what is written there next."""
    head = index.head
    value_log = ValueLog(
        directory,
        group_bytes_max=limits.torn_bytes_max,
        segment_bytes_max=limits.segment_bytes_max,
        loss_accepted=losses.accepted,
    )
    try:
        opened = value_log.open(head, index.handle, index.last_ts(), losses.last_cut)
        if (cut := opened.cut) is not None and not losses.was_cut(
            ValuePointer(value_log.active.fid, cut.offset)
        ):
            report = _logger.error if cut.suspect else _logger.warning
            report(
                "cut the torn end of the value log: bytes that were never acknowledged",
                file=opened.cut_path,
                offset=cut.offset,
                bytes=opened.cut_bytes,
                held_valid_records=cut.suspect,
            )
        losses.forget_before(value_log.first_fid)
        if head != START and head >= value_log.end:
            raise IndexDamaged(f"the index knows records after the end of the log, {value_log.end}")
        _know_purged(data_dir, index, value_log)
    except BaseException:
        value_log.close(healthy=False)
        raise
    return OpenFiles(index, value_log, opened, losses, head == START)


def _know_purged(data_dir: DataDir, index: Index, value_log: ValueLog) -> None:
    """Let index and directory know what is gone.

    Each may know it better: the index may have lost its end, and a pump that keeps it in the index alone may
    have been here. Where files are gone that neither knows of, the log decides.
    """
    purged, first_fid = max(data_dir.purged_ts, index.gc_ts), value_log.first_fid
    if first_fid > data_dir.purged_fid:
        purged = max(purged, oldest_whole_commit(value_log) - 1)
    if first_fid:
        data_dir.keep_purged(purged, first_fid)
    if purged > index.gc_ts:
        index.set_gc_ts(purged)


def oldest_whole_commit(value_log: ValueLog) -> int:
    """A timestamp such that every transaction committed at or above it is stored whole, though the oldest
    files are gone: that of the first commit whose prewrite is stored too.

    Its commit_ts was drawn after its prewrite was acknowledged, and so after everything in the files that
    are gone was written, whose timestamps had been drawn by then. Without one: above everything stored.
    """
    prewrites: set[int] = set()
    largest = 0
    for records, _ in value_log.record_batches(ValuePointer(value_log.first_fid, 0), value_log.end):
        for record in records:
            if record.tp == binlog.PREWRITE:
                prewrites.add(record.start_ts)
            elif record.start_ts in prewrites and record.commit_ts and not record.is_mark:
                return record.commit_ts
            largest = max(largest, record.index_ts)
    return largest + 1

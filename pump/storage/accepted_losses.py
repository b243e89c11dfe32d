"""Accepted losses: damage of the value log that was given up with `--accept-loss`, remembered for good.

    .losses   a line each: `000003.vlog:1234`; `000003.vlog:1234 cut` where the file was cut off there;
              `000003.vlog:0-000004.vlog:99` for whatever is damaged or missed from there to before there

Why    what was lost is missed again later: by the next start that reads the file, by a commit whose prewrite
       stood there, by a puller that the index leads there. Each continues past it, and reports what is lost
Holds  a line as long as its file is there. Of damage in a range the first places are noted as lines of their
       own: a prewrite may have stood there. What is written where a file was cut off is no part of the loss
"""

from __future__ import annotations

import threading
from typing import Final

from pump import metrics
from pump.log import segment
from pump.log.record import START, ValuePointer
from pump.storage.data_dir import DataDir
from tidb_binlog.errors import ConfigError
from tidb_binlog.observe import log
from tidb_binlog.tso import Ts

_REPORTED_MAX: Final = 1 << 16
_DIGITS_MAX: Final = 20
_NOTED_MAX: Final = 1 << 12
_logger = log.get("storage")


class AcceptedLosses:
    """The losses of one data directory. `given`: FILE:OFFSET of one accepted now, a range, or empty."""

    def __init__(self, data_dir: DataDir, given: str = "") -> None:
        self._data_dir = data_dir
        self._damaged: set[ValuePointer] = set()
        self._cut: set[ValuePointer] = set()
        self._ranges: set[tuple[ValuePointer, ValuePointer]] = set()
        self._reported: set[int] = set()
        self._lock = threading.Lock()
        for line in data_dir.losses:
            self._take(line)
        if given:
            self._take(given)
            self._keep()

    def _take(self, line: str) -> None:
        place, _, kind = line.partition(" ")
        first, _, after = place.partition("-")
        if after:
            self._ranges.add((_place(first), _place(after)))
        else:
            (self._cut if kind == "cut" else self._damaged).add(_place(place))

    def accepted(self, name: str, offset: int) -> bool:
        """Whether the damage at this place is given up."""
        if not self._damaged and not self._ranges:
            return False
        place = _place(f"{name}:{offset}")
        accepted = self.has(place)
        with self._lock:
            if accepted and place not in self._damaged and len(self._damaged) < _NOTED_MAX:
                self._damaged.add(place)
                self._keep()
        return accepted

    def has(self, place: ValuePointer) -> bool:
        """Whether what stands at this place is given up if it is damaged."""
        return place in self._damaged or any(first <= place < after for first, after in self._ranges)

    def was_cut(self, place: ValuePointer) -> bool:
        """The newest file was cut off at this place. Whether that is a loss, which is durable then. Raises
        `OSError`."""
        if place not in self._damaged:
            return False
        self._damaged.discard(place)
        self._cut.add(place)
        self._keep()
        _logger.error("loss accepted", cut_off_at=f"{segment.name_of(place.fid)}:{place.offset}")
        return True

    def forget_before(self, first_fid: int) -> None:
        """Files below this one are gone."""
        gone = {place for place in self._damaged | self._cut if place.fid < first_fid}
        ranges = {lost for lost in self._ranges if lost[1] <= (first_fid, 0)}
        if gone or ranges:
            self._damaged -= gone
            self._cut -= gone
            self._ranges -= ranges
            self._keep()

    def before(self, place: ValuePointer) -> tuple[list[ValuePointer], list[ValuePointer]]:
        """(given up if damaged, cut off) of those that a record at a place of the log came after."""
        with self._lock:
            damaged = [lost for lost in self._damaged if lost < place]
        return damaged, [lost for lost in self._cut if lost <= place]

    @property
    def last_cut(self) -> ValuePointer:
        """Everything in front of it was acknowledged; START without one."""
        return max(self._cut, default=START)

    def _keep(self) -> None:
        lines = [f"{segment.name_of(fid)}:{offset}" for fid, offset in sorted(self._damaged)]
        lines += [f"{segment.name_of(fid)}:{offset} cut" for fid, offset in sorted(self._cut)]
        lines += ["-".join([f"{segment.name_of(f)}:{at}" for f, at in pair]) for pair in sorted(self._ranges)]
        self._data_dir.keep_losses(lines)

    def passed_over(self, ts: Ts, start_ts: Ts, place: ValuePointer, lost: ValuePointer) -> None:
        """A puller does not get what is filed under `ts`. `start_ts`: 0 where it cannot be read."""
        with self._lock:
            if ts in self._reported or len(self._reported) == _REPORTED_MAX:
                return
            self._reported.add(ts)
        metrics.PASSED_OVER.inc()
        _logger.error(
            "binlog is not delivered: its loss was accepted",
            commit_ts=ts,
            start_ts=start_ts,
            file=segment.name_of(place.fid),
            offset=place.offset,
            lost_at=f"{segment.name_of(lost.fid)}:{lost.offset}",
        )


def _place(text: str) -> ValuePointer:
    name, _, offset = text.partition(":")
    fid = segment.fid_of(name)
    if fid is None or not offset.isascii() or not offset.isdigit() or len(offset) > _DIGITS_MAX:
        raise ConfigError(f"{text!r} is no FILE:OFFSET of a loss", hint="correct .losses in data-dir")
    return ValuePointer(fid, int(offset))

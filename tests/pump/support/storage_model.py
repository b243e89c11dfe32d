"""What a storage must answer, from a list of what was stored; nothing here knows how it does it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pump.log.delivery import Delivery
from tidb_binlog import binlog


@dataclass(frozen=True)
class Stored:
    """One acknowledged payload."""

    payload: bytes
    tp: int
    start_ts: int
    commit_ts: int

    @classmethod
    def of(cls, payload: bytes) -> Stored:
        return cls(payload, *binlog.header(binlog.parse(payload)))


@dataclass
class Model:
    """`log`: everything stored, in order. `marks`: (length of the log then, timestamp) of this life.
    `purged`: so many of the first records are gone."""

    log: list[Stored] = field(default_factory=list)
    marks: list[tuple[int, int]] = field(default_factory=list)
    purged: int = 0

    def prewrites(self) -> dict[int, bytes]:
        return {one.start_ts: one.payload for one in reversed(self.log) if one.tp == binlog.PREWRITE}

    def open(self) -> list[int]:
        """Start timestamps of prewrites without an end, as they were first written."""
        ended = {one.start_ts for one in self.log if one.tp != binlog.PREWRITE}
        found = dict.fromkeys(one.start_ts for one in self.log if one.tp == binlog.PREWRITE)
        return [start_ts for start_ts in found if start_ts not in ended]

    def watermark(self) -> int:
        """Largest drawn timestamp in front of the first open prewrite."""
        still = set(self.open())
        first = next(
            (at for at, one in enumerate(self.log) if one.tp == binlog.PREWRITE and one.start_ts in still),
            len(self.log),
        )
        return max((ts for at, ts in self.marks if at <= first), default=0)

    def between(self, after: int, upto: int) -> list[Delivery]:
        """What a puller gets of (after, upto]."""
        prewrites, found = self.prewrites(), {}
        for one in self.log:
            if one.tp == binlog.PREWRITE or not after < one.commit_ts <= upto:
                continue
            if one.start_ts == one.commit_ts:
                found.setdefault(one.commit_ts, Delivery(one.commit_ts, one.start_ts, one.payload))
            else:
                joined = binlog.join(prewrites[one.start_ts], one.payload)
                found[one.commit_ts] = Delivery(one.commit_ts, one.start_ts, joined)
        return [found[ts] for ts in sorted(found)]

    def survived(self, found: Iterable[bytes], acknowledged: int) -> None:
        """After a crash: `found` is what the log holds. Of what is in the list, everything between the
        purged records and those from `acknowledged` on (never acknowledged) must be there."""
        held, begin = list(found), self.purged
        end = begin + len(held)
        assert held == [one.payload for one in self.log[begin:end]], "altered, or in another order"
        assert end >= acknowledged, "acknowledged records are missing"
        del self.log[end:]

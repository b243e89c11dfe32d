"""Leases: which open transactions have to be kept alive, and when.

In     opened, closed, due(now_s)
Out    start_ts and ttl of each lease to renew
Holds  a lease is due after a third of its time, so two renewals may fail before it runs out
Never  renews anything; `publisher` drives it
"""

from __future__ import annotations

from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.tso import Ts


@dataclass(frozen=True, slots=True)
class Renewal:
    """Renew the lease of this transaction for `ttl_s` seconds."""

    start_ts: Ts
    ttl_s: float


class Leases:
    def __init__(self) -> None:
        self._open: dict[int, tuple[float, float]] = {}  # start_ts -> (ttl_s, due_s)

    def __len__(self) -> int:
        return len(self._open)

    def opened(self, start_ts: Ts, ttl_s: float, now_s: float) -> None:
        """A transaction began, or its lease was renewed."""
        self._open[start_ts] = (ttl_s, now_s + ttl_s / 3)

    def closed(self, start_ts: Ts) -> None:
        """The transaction needs its lease no longer."""
        self._open.pop(start_ts, None)

    def next_due_s(self) -> float | None:
        """When the next lease is due; None without open transactions."""
        return min((due_s for _, due_s in self._open.values()), default=None)

    def due(self, now_s: float) -> list[Renewal]:
        """Leases to renew now; each is put off by a third of its time."""
        renewals = [
            Renewal(start_ts, ttl_s) for start_ts, (ttl_s, due_s) in self._open.items() if due_s <= now_s
        ]
        for renewal in renewals:
            self.opened(renewal.start_ts, renewal.ttl_s, now_s)
        return renewals

"""Delivery: what a drainer gets of one transaction, and pages of it.

Values only; made by `recent_commits` and `history`, taken by the pull streams. A joined payload is kept as
its two halves (the commit's fields first, then the prewrite's): they are put together once, in the
message that carries them. Of a transaction that is too large for that only the place of the second half is
kept; `storage.readers` reads it in parts.

Tests  tests/pump/storage/test_storage.py
"""

from __future__ import annotations

from typing import NamedTuple

from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.tso import Ts


class Delivery(NamedTuple):
    """One transaction as a drainer gets it. A stored time mark has equal timestamps."""

    commit_ts: Ts
    start_ts: Ts
    head: bytes
    tail: bytes | memoryview = b""

    @property
    def payload(self) -> bytes:
        return b"".join((self.head, self.tail))

    @property
    def size(self) -> int:
        """Bytes of the payload."""
        return len(self.head) + len(self.tail)

    def __eq__(self, other: object) -> bool:
        """Where the halves join makes no difference."""
        if not isinstance(other, Delivery):
            return NotImplemented
        return self[:2] == other[:2] and self.payload == other.payload


@dataclass(frozen=True, slots=True)
class StoredTail:
    """Where the second half of a payload lies in the log: from `begin` to `length` of a record's payload.

    `checksum`: of the record's whole payload.
    """

    fid: int
    offset: int  # of the record
    length: int
    checksum: int
    begin: int


@dataclass(frozen=True, slots=True)
class LargeDelivery:
    """A transaction that is to be sent in parts. `size`: bytes of its joined payload."""

    commit_ts: Ts
    head: bytes
    tail: bytes | memoryview | StoredTail
    size: int


class Oversized(Exception):
    """What is read next is a single record of more bytes than there is memory for."""

    def __init__(self, size: int) -> None:
        super().__init__(f"a record of {size} bytes")
        self.size = size


@dataclass(frozen=True, slots=True)
class Page:
    """Commits in order; everything after the position asked for, up to `covered`, is among them.

    `large` is the last of them: its commit_ts is `covered`.
    """

    deliveries: list[Delivery]
    covered: int
    large: LargeDelivery | None = None


def large_among(deliveries: list[Delivery], parts_above: int) -> int | None:
    """Where the first delivery of more bytes stands; None if there is none."""
    for at, (_, _, head, tail) in enumerate(deliveries):
        if len(head) + len(tail) > parts_above:
            return at
    return None

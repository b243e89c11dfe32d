"""The upstream: where timestamps come from, what became of a transaction, which DDL has run.

Three ports, written from the need of pump, drainer and embedding programs. Adapter: `standalone` (all in
etcd). `Upstream` bundles the three with the cluster id.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Committed:
    """The transaction is committed for good."""

    commit_ts: int


@dataclass(frozen=True, slots=True)
class RolledBack:
    """The transaction is rolled back for good; it can never commit any more."""


@dataclass(frozen=True, slots=True)
class Undecided:
    """Its lease is still valid: ask again after `retry_after_s` seconds."""

    retry_after_s: float


Outcome = Committed | RolledBack | Undecided


class TimestampOracle(Protocol):
    async def timestamp(self) -> int:
        """A timestamp larger than every one that any client got before this call began.

        Raises `Unavailable` when the oracle does not answer.
        """
        ...


class TransactionStatus(Protocol):
    async def outcomes(self, transactions: list[tuple[int, bytes]]) -> list[Outcome]:
        """What became of each (start_ts, prewrite_key), in order.

        An expired or absent lease is rolled back by this call, which makes the answer final.
        Raises `Unavailable` when the store does not answer.
        """
        ...


class SchemaHistory(Protocol):
    async def job(self, job_id: int) -> bytes | None:
        """JSON of a finished DDL job, None while it is not in the history yet."""
        ...

    async def jobs(self, after_id: int = 0) -> list[bytes]:
        """JSON of every finished DDL job whose id is above `after_id`, ascending job id."""
        ...


class Upstream(Protocol):
    """All of one cluster. `close` ends its connections."""

    @property
    def cluster_id(self) -> int: ...

    @property
    def oracle(self) -> TimestampOracle: ...

    @property
    def transactions(self) -> TransactionStatus: ...

    @property
    def history(self) -> SchemaHistory: ...

    async def close(self) -> None: ...

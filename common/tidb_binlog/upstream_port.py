"""The upstream: where timestamps come from, what became of a transaction, which DDL has run.

Ports, written from the need of pump, drainer and embedding programs. Adapters: `tidb` (PD and TiKV) and
`standalone` (all in etcd). `Upstream` bundles them with the cluster id.

Tests  tests/common/upstream/test_contract.py
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Collection
from typing import Protocol, runtime_checkable

from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.tso import Ts


@dataclass(frozen=True, slots=True)
class Committed:
    """The transaction is committed for good."""

    commit_ts: Ts


@dataclass(frozen=True, slots=True)
class RolledBack:
    """The transaction is rolled back for good; it can never commit any more."""


@dataclass(frozen=True, slots=True)
class Undecided:
    """Its lease is still valid: ask again after `retry_after_s` seconds.

    `unanswered`: or there was no answer about this one among others, and why. `hint`: what an operator does
    where it stays so.
    """

    retry_after_s: float
    unanswered: str = ""
    hint: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Unknown:
    """There is no trace of it, and if there was one it may have been collected: only a person can find out.

    `reason` says what was checked. Ask again after `retry_after_s` seconds all the same.
    """

    reason: str
    retry_after_s: float = field(default=60.0, compare=False)


Outcome = Committed | RolledBack | Undecided | Unknown


class TimestampOracle(Protocol):
    """Gives timestamps that only grow."""

    async def timestamp(self) -> Ts:
        """A timestamp larger than every one that any client got before this call began.

        Raises `Unavailable` when the oracle does not answer.
        """
        ...


@runtime_checkable
class ReadableOracle(Protocol):
    """An oracle that can tell where it stands, which costs less than a timestamp and hinders nobody."""

    async def latest(self) -> Ts:
        """At or above every timestamp that any client got before this call began, and below all whose drawing
        begins after it has ended. Raises `Unavailable` when the oracle does not answer.
        """
        ...


class TransactionStatus(Protocol):
    @property
    def clients_know(self) -> bool:
        """Whether a client that says "rolled back" has asked before. TiDB's says so of every commit that had
        an error, also where it took place."""
        ...

    async def outcomes(
        self, transactions: list[tuple[int, bytes]], given_up: Collection[int] = ()
    ) -> list[Outcome]:
        """What became of each (start_ts, prewrite_key), in order; of those `given_up` (start_ts) the client
        has said that it rolled back, and nothing of them is on its way any more.

        An expired or absent lease is rolled back by this call, which makes the answer final.
        Raises `Unavailable` when the store does not answer.
        """
        ...


@dataclass(frozen=True, slots=True)
class SchemaPage:
    """A part of a schema as it was at a timestamp; all JSON as TiDB stores it."""

    databases: tuple[bytes, ...]
    tables: tuple[tuple[int, bytes], ...]
    """(id of its database, definition)."""


@dataclass(frozen=True, slots=True)
class SchemaAt:
    """The schema at a timestamp, as binlogs up to there have it: with every job whose last step is committed,
    without any step of those under way.

    `pages` is read once; a database comes before its tables; close it where it is not read to the end.
    `unfinished` are jobs under way then. Whatever has become of the schema since is among the history's jobs
    above `history_after`; most of these are in here already: those up to `version` and not `unfinished`.
    """

    version: int
    pages: AsyncGenerator[SchemaPage, None]
    history_after: int = 0
    unfinished: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class UnderWay:
    """A DDL job that works on a table now, and the definition in the middle of it: JSON, of one timestamp.

    What is not public in the definition any more is on its way out, for good where the job runs.
    """

    job: bytes
    definition: bytes


class SchemaHistory(Protocol):
    async def job(self, job_id: int) -> bytes | None:
        """JSON of a finished DDL job, None while it is not in the history yet. Raises `Unavailable`."""
        ...

    def pages(self, after_id: int = 0) -> AsyncIterator[list[bytes]]:
        """JSON of the finished DDL jobs with an id above `after_id`, ascending id, in pages of bounded size.

        Raises `Unavailable`.
        """
        ...

    async def schema_at(self, ts: Ts) -> SchemaAt | None:
        """The schema at `ts`; None where only the history has it (nothing else is kept, or `ts` is so old
        that what stood then is collected). Raises `Unavailable`.
        """
        ...

    async def under_way(self, *, table_id: int = 0, job_id: int = 0) -> UnderWay | None:
        """The unfinished job of that id, or the one that works on a table now. Raises `Unavailable`.

        None without one. A job that has ended when this is asked is in the history by then.
        """
        ...


class GarbageHold(Protocol):
    async def hold(self, name: str, ts: Ts, ttl_s: int) -> int:
        """Keep what stands at `ts` and later readable for `ttl_s` seconds, under a name of the holder.

        Returns the timestamp from which on everything is still there: above `ts` means that it came too late.
        A `ttl_s` of 0 lets go. Raises `Unavailable`.
        """
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

    @property
    def garbage(self) -> GarbageHold: ...

    async def close(self) -> None: ...

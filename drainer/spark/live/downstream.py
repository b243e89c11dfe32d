"""Live downstream: the port to where a stream goes, kept by `database`.

Holds  work that was begun is finished by whoever calls `work` for the same batch again: each change is
       there once. What `reach` was told is where the next life begins
Tests  tests/spark/live/test_stream.py
"""

from __future__ import annotations

from typing import Final, Protocol

from drainer.checkpoint.fencing import SPARK_OWNER
from drainer.config.options import DrainerConfig
from drainer.ddl.derive.values import Route
from drainer.reading.archive.decode.definitions import Definitions, of_schema
from drainer.reading.archive.decode.pump_range import PumpSlice, packed
from drainer.spark.replay.epochs import Rows
from drainer.spark.replay.plan import CHUNK_ROWS, SMALL_BYTES, buckets_of
from drainer.spark.source.stream_offsets import INTERVAL_S
from drainer.stream.rules.rule_set import Rules
from drainer.stream.schema.tracker import SchemaTracker
from drainer.txn import Ddl
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.tso import Ts

LIVE_BATCH_BYTES: Final = 256 << 20
CHANGELOG: Final = "changelog"


@dataclass(frozen=True)
class LiveSettings:
    """`drainer`: rules, downstream and upstream as a Drainer has them. `name`: of the reader in the registry,
    for which Pumps keep what it has not done; `listen`: where it tells /status, "": at a free port. `once`:
    end at what is there now. `small_bytes`: batches up to it are done here, without Spark. `mode`: of tables
    of a lake."""

    drainer: DrainerConfig
    name: str
    listen: str = ""
    once: bool = False
    interval_s: float = INTERVAL_S
    batch_bytes: int = LIVE_BATCH_BYTES
    small_bytes: int = SMALL_BYTES
    chunk_rows: int = CHUNK_ROWS
    mode: str = CHANGELOG

    @property
    def owner(self) -> str:
        """Whose a checkpoint is while this runs."""
        return SPARK_OWNER + self.name


@dataclass(frozen=True)
class KnownSchema:
    """The schema at one place of the stream, and nothing of the Pumps, which come and go without a DDL.
    `tracker`: packed, for tasks. `partial`: changes of a table are withheld."""

    generation: int
    tracker: bytes = field(repr=False)
    definitions: Definitions
    partial: bool

    @classmethod
    def of(cls, tracker: SchemaTracker, rules: Rules) -> KnownSchema:
        """As the tracker has it now."""
        tables = of_schema(tracker, rules)
        partial = any(table.version.partial for table in tables)
        return cls(tracker.generation, packed(tracker), Definitions(tables), partial)


@dataclass(frozen=True)
class LiveBatch:
    """Everything from `first_ts` to `stop_ts`: the rows of `slices`, then `ddl`, if one ends it."""

    first_ts: Ts
    stop_ts: Ts
    slices: tuple[PumpSlice, ...]
    ddl: Ddl | None
    schema: KnownSchema
    route: Route

    @property
    def rows(self) -> Rows:
        """Of which its rows are."""
        return Rows(self.first_ts, self.stop_ts - (self.ddl is not None))

    def buckets(self, small_bytes: int) -> int:
        """Into how many buckets its effects go; 0: it is so small that it is done here."""
        size = sum(part.size for part in self.slices)
        return 0 if size <= small_bytes else buckets_of(size)


class BatchWaits(Exception):
    """A batch is not there as a whole: from here on it is a Drainer's."""

    def __init__(self, rows: int, drift: int, reason: str) -> None:
        super().__init__(reason)
        self.rows, self.drift = rows, drift


class DdlWaits(BatchWaits):
    """Its rows are, its DDL was refused: a Drainer lets its tables wait."""


class RowsWait(BatchWaits):
    """All is there up to its DDL but tables whose rows were refused: that is stored, and that these wait."""


class LiveDownstream(Protocol):
    """Opened where the stream goes on: `floor_ts`, with the schema of there, which the stream moves on."""

    floor_ts: Ts
    tracker: SchemaTracker

    def begun(self, position: Ts) -> Ts:
        """Where the batch after a position ends that has to be finished as it is; 0 for none."""
        ...

    def waits(self, ddl: Ddl) -> str:
        """Why a DDL that comes next cannot run yet, "" where it can. The same whenever it is asked."""
        return ""

    def work(self, batch: LiveBatch) -> tuple[int, int]:
        """Rows written, and rows that were not as they should be. Raises `DdlWaits`, `RowsWait`."""
        ...

    def passed(self, ddl: Ddl) -> None:
        """The tracker has followed it, and so has the downstream."""
        ...

    async def reach(self, commit_ts: Ts) -> None:
        """The batch that ends there is done."""
        ...

    async def give_back(self, commit_ts: Ts) -> None:
        """The stream ends there, between two batches."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...

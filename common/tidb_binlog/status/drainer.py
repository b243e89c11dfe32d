"""Status of a drainer: the document of `GET /status`, the Go drainer's keys first.

Holds  as `tidb_binlog.status.pump`: fields in the order in which they are written, each with the default that
       a reader gets where a node does not say it. A drainer that stands by, or waits for its downstream,
       leaves out what it cannot know (UNSET)
Tests  tests/common/status/test_codec.py
"""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType, field

from tidb_binlog.status.pump import ClockStatus
from tidb_binlog.status.reload import ReloadStatus
from tidb_binlog.tso import Ts


class LagStatus(Struct, kw_only=True):
    """Seconds behind the upstream, in all and by stage. `pump`, `start_ts`: what holds the stream up;
    `eta_s`: None while the lag does not shrink; `speed`: upstream seconds applied in a second."""

    total_s: float = 0.0
    write_s: float | None = None
    sort_wait_s: float | None = None
    pull_s: float | None = None
    queue_s: float | None = None
    apply_s: float | None = None
    pump: str | None = None
    start_ts: Ts | None = None
    eta_s: float | None = None
    rows_per_s: float = 0.0
    transactions_per_s: float = 0.0
    speed: float = 0.0
    reason: str = ""

    @property
    def behind_s(self) -> float:
        """The total; 0 where nothing is on its way: how old a quiet stream's last word is says nothing."""
        is_quiet = self.eta_s == 0.0 and not (self.queue_s or self.apply_s)
        return 0.0 if is_quiet else self.total_s


class ControlStatus(Struct, kw_only=True):
    """What operators have changed. Rates a second, 0 for none."""

    paused: bool = False
    rate_rows: int = 0
    rate_bytes: int = 0
    waited_s: float = 0.0


class LaneStatus(Struct, kw_only=True):
    """One lane. `trouble`, `waiting_s`, `tries`: of the attempt that it repeats."""

    lane: int = 0
    queued_bytes: int = 0
    full: bool = False
    waiting_for: str = ""
    trouble: str | UnsetType = UNSET
    waiting_s: float | UnsetType = UNSET
    tries: int | UnsetType = UNSET


class MismatchStatus(Struct, kw_only=True, rename="pascal"):
    """Rows by table that were not downstream as they should be, values that a column cannot have. `last_s`,
    `texts_last_s`: when the last of them came, seconds since 1970."""

    rows: dict[str, int] = {}
    texts: dict[str, dict[str, int]] = {}
    last_s: float = 0.0
    texts_last_s: float = 0.0


class SourceStatus(Struct, kw_only=True):
    """The stream of one pump. `holds`: the merged stream waits for it. `compression`: of what it sends."""

    state: str = ""
    alive: bool | None = None
    address: str = ""
    position: int = 0
    lag_s: float = 0.0
    connected: bool = False
    protocol: str = ""
    compression: str = ""
    held_bytes: int = 0
    spilled_bytes: int = 0
    waits_for_start_ts: Ts = 0
    holds: bool = False
    error: str = ""


class WaitingDdl(Struct, kw_only=True):
    """A DDL, or refused rows, that waits for an operator's decision. `possible`: the decisions that the node
    would take now. `loads`: tables that join, whose rows are loaded."""

    job_id: int = 0
    commit_ts: Ts = 0
    tables: list[str] = []
    query: str = ""
    reason: str = ""
    since_ms: int = 0
    state: str = ""
    decision: str = ""
    text: str = ""
    applied_ts: Ts = 0
    kept_bytes: int = 0
    possible: list[str] = []
    loads: bool = False

    @property
    def goes_on(self) -> bool:
        """By itself: nobody is asked."""
        return self.loads and not self.possible


class LackStatus(Struct, kw_only=True):
    """What the downstream lacks of a DDL that ran: a line each."""

    job_id: int = 0
    commit_ts: Ts = 0
    tables: list[str] = []
    missing: list[str] = []

    def __str__(self) -> str:
        return f"since job {self.job_id} ({', '.join(self.tables)}): {'; '.join(self.missing)}"


class DdlStatus(Struct, kw_only=True):
    """`progress` of the statement that runs, what the downstream lacks, and what waits. `held_at`: the
    commit_ts that the checkpoint stays at or below."""

    progress: str = ""
    missing: list[LackStatus] = []
    waiting: list[WaitingDdl] = []
    held_at: int = 0
    kept_bytes: int = 0
    full: bool = False


class EarlyRowsStatus(Struct):
    """A DDL before which rows were as they are after it: what that makes of them did not come with them.
    `last_s`: when it was taken, seconds since 1970. `schema_version`: of the definitions after it."""

    job_id: int = 0
    commit_ts: Ts = 0
    last_s: float = 0.0
    tables: list[str] = []
    schema_version: int = 0


class EarlyRowsKept(Struct):
    """What was told, and by table id the last DDL that took a partition."""

    told: list[EarlyRowsStatus] = []
    took: dict[str, EarlyRowsStatus] = {}


class FindingsKept(Struct):
    """Outlives the process."""

    early_rows: EarlyRowsKept = field(default_factory=EarlyRowsKept)
    missing: list[LackStatus] = []
    drift: MismatchStatus = field(default_factory=MismatchStatus)


class RelayStatus(Struct, kw_only=True):
    on: bool = False
    waiting_for: str = ""


class ArchiveStatus(Struct, kw_only=True):
    waiting_for: str = ""
    last_commit_ts: Ts = 0


class SinkStatus(Struct, kw_only=True):
    """A sink that takes batches. `held`: until an operator resumes."""

    name: str = ""
    held: bool = False
    error: str = ""


class StandbyFacts(Struct, kw_only=True):
    """A second drainer with the same node id, ready to follow."""

    waits_for: str = ""
    waiting_s: float = 0.0
    trouble: str = ""


class LoadedTable(Struct, kw_only=True):
    """`rows_expected`: as the upstream estimates them, 0 for unknown."""

    table: str = ""
    rows: int = 0
    rows_expected: int = 0
    done: bool = False


class LoadStatus(Struct, kw_only=True):
    """A load that runs. `ts`: of the copy, 0 while it is prepared. `tables`: those that are copied now first,
    then those that wait, cut; `table_count`: of all."""

    stage: str = ""
    note: str = ""
    ts: Ts = 0
    rows: int = 0
    rows_expected: int = 0
    table_count: int = 0
    tables: list[LoadedTable] = []


class ChunkGrid(Struct, kw_only=True):
    """One table that is compared. `cells`: a character for each chunk, or for several where there are many:
    `=` equal, `!` differs, `.` not compared yet. `chunks`: those that are known; `is_cut`: they are all."""

    table: str = ""
    cells: str = ""
    chunks: int = 0
    is_cut: bool = False
    rows: int = 0
    rows_expected: int = 0


class VerifyStatus(Struct, kw_only=True):
    """The comparison with the upstream that a drainer makes every so often. `state` of the last one that came
    to an end: equal, differs or not comparable, "" for none so far; `trouble`: why those since then did not.
    Times are seconds since 1970, 0 for none. `wrong`: rows that differ, `wrong_rows`: of some tables;
    `left_out`: tables that could not be compared, `not_compared`: why some of them could not.
    `progress`, `grid`: of the one that runs now; some of its tables, those with a difference first."""

    state: str = ""
    ts: Ts = 0
    began_s: float = 0.0
    ended_s: float = 0.0
    rows: int = 0
    tables: int = 0
    wrong: int = 0
    left_out: int = 0
    wrong_rows: dict[str, int] = {}
    not_compared: dict[str, str] = {}
    held_ms: float = 0.0
    running_since_s: float = 0.0
    progress: str = ""
    grid: list[ChunkGrid] = []
    next_s: float = 0.0
    failures: int = 0
    trouble: str = ""


class WentBackStatus(Struct, kw_only=True):
    """The downstream lost what it had confirmed. `time`: seconds since 1970."""

    time: float = 0.0
    why: str = ""


class DrainerDocument(Struct, kw_only=True, rename="pascal"):
    """The whole document."""

    pump_pos: dict[str, int] | None = None
    synced: bool = False
    last_ts: Ts = field(default=0, name="LastTS")
    ts_map: str = ""
    applied_ts: int | UnsetType = field(default=UNSET, name="AppliedTS")
    lag_seconds: float | UnsetType = UNSET
    node_id: str = field(default="", name="NodeID")
    cluster_id: int | UnsetType | None = field(default=UNSET, name="ClusterID")
    version: str | UnsetType = UNSET
    time: float | UnsetType = UNSET
    state: str = ""
    doing: str = ""
    held_up: str = ""  # what keeps it from writing downstream
    held_up_s: float = 0.0
    waits_for: str = ""
    transactions: int | UnsetType = UNSET
    rows: int | UnsetType = UNSET
    lag: LagStatus | UnsetType = UNSET
    control: ControlStatus | UnsetType | None = UNSET
    lanes: list[LaneStatus] | UnsetType = UNSET
    drift: MismatchStatus | UnsetType = UNSET
    pumps: dict[str, SourceStatus] | UnsetType = UNSET
    ddl: DdlStatus | UnsetType = field(default=UNSET, name="DDL")
    early_rows: list[EarlyRowsStatus] | UnsetType = UNSET
    relay: RelayStatus | UnsetType = UNSET
    archive: ArchiveStatus | UnsetType = UNSET
    sink: SinkStatus | UnsetType = UNSET
    standby: StandbyFacts | UnsetType = UNSET
    went_back: list[WentBackStatus] | UnsetType = UNSET
    upstream_time: ClockStatus | UnsetType | None = UNSET
    verify: VerifyStatus | UnsetType | None = UNSET
    load: LoadStatus | UnsetType | None = UNSET
    configuration: ReloadStatus | UnsetType | None = UNSET

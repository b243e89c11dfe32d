"""Status of a pump: the document of `GET /status`, the Go pump's keys first.

Holds  fields are in the order in which they are written. Every field has a default, which is what a reader
       gets where a node does not say it: a Go pump has no `pump`, an older one lacks what came later. UNSET:
       the key is left out
Tests  tests/common/status/test_codec.py
"""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct, UnsetType, field

from tidb_binlog.status.reload import ReloadStatus
from tidb_binlog.tso import Ts


class ClockStatus(Struct, kw_only=True):
    """The upstream's clock. `ahead_of_host_s`: of this host's. `error`: why no timestamp could be drawn."""

    ts: Ts = 0
    ahead_of_host_s: float = 0.0
    limit_ts: Ts = 0
    error: str | UnsetType | None = UNSET


class OpenPrewriteStatus(Struct, kw_only=True):
    """A prewrite whose end is not known. `upstream`: what the upstream answered; `next`: what happens now."""

    start_ts: Ts = 0
    started_s: float = 0.0
    age_s: float = 0.0
    ddl_job_id: int | UnsetType = UNSET
    ddl_query: str | UnsetType = UNSET
    table_id: int | UnsetType = UNSET
    tables: int | UnsetType = UNSET
    asked: int = 0
    upstream: str = ""
    next: str = ""


class StageStatus(Struct, kw_only=True):
    """What waits in front of a stage. Each stage has some of the keys."""

    records: int | UnsetType = UNSET
    lag_bytes: int | UnsetType = UNSET
    lag_s: float | UnsetType = UNSET
    open_prewrites: int | UnsetType = UNSET
    watermark: int | UnsetType = UNSET


class StagesStatus(Struct, kw_only=True):
    accepted: StageStatus = field(default_factory=StageStatus)
    written: StageStatus = field(default_factory=StageStatus)
    indexed: StageStatus = field(default_factory=StageStatus)
    sorted: StageStatus = field(default_factory=StageStatus)
    published: StageStatus = field(default_factory=StageStatus)


class ResolverStatus(Struct, kw_only=True):
    """Questions to the upstream about open prewrites, and answers, since the start."""

    asked: int = 0
    committed: int = 0
    rolled_back: int = 0
    undecided: int = 0
    unanswered: int = 0
    unknown: int = 0
    rounds_under_way: int = 0
    unavailable_s: float = 0.0


class RecentCommitsStatus(Struct, kw_only=True):
    bytes: int = 0
    floor: int = 0


class StreamsStatus(Struct, kw_only=True):
    """Open pull streams by protocol."""

    entity: int = 0
    batch: int = 0


class PullerStatus(Struct, kw_only=True):
    """An open pull stream. `lag_s`: upstream seconds from its position to the watermark. `compression`: how
    its messages are compressed, `compressed_share`: what is left of them then, of 1."""

    protocol: str = ""
    compression: str | UnsetType = UNSET
    compressed_share: float | UnsetType = UNSET
    position: int = 0
    lag_s: float = 0.0
    credit_bytes: int | UnsetType = UNSET
    waits_for: int | UnsetType = UNSET


class DiskStatus(Struct, kw_only=True):
    """Free bytes of the data directory's file system; no prewrite enters at `floor` or below."""

    available: int | None = None
    floor: int | None = None


class PurgeOutlook(Struct, kw_only=True):
    """How long what a drainer has not applied is kept. `lost`: it is purged already; `alarm`: soon."""

    node_id: str = ""
    checkpoint: int = 0
    live: bool = False
    lost: bool = False
    alarm: bool = False
    left_s: float | None = None
    limit: str = ""


class RetentionStatus(Struct, kw_only=True):
    """`age_s`: how long binlogs are kept; `alarm_s`: how long before a purge it is warned of."""

    working: bool = False
    age_s: float | None = None
    alarm_s: float | None = None
    last_run_s_ago: float | None = None
    gc_ts: Ts = 0
    first_file: str = ""
    purged_files: int = 0
    purged_bytes: int = 0
    held_up_by: list[str] = []
    drainers: list[PurgeOutlook] = []


class AwaitedDrainer(Struct, kw_only=True):
    """A drainer that a close waits for."""

    node_id: str = ""
    state: str = ""
    alive: bool | None = None
    checkpoint: int = 0
    behind_s: float = 0.0
    left_s: float | None = None


class LeavingStatus(Struct, kw_only=True):
    """What a close waits for. `left_s`: None where it cannot be told."""

    stage: str = ""
    forced: bool = False
    since_s: float = 0.0
    target_ts: Ts = 0
    open_prewrites: int = 0
    waits_for: str = ""
    left_s: float | None = None
    drainers: list[AwaitedDrainer] = []


class LateStatus(Struct, kw_only=True):
    """Commits that came below the published watermark; when the last one did, seconds since 1970."""

    commits: int = 0
    last_s: float = 0.0


class PumpStatus(Struct, kw_only=True):
    """One pump, from memory alone."""

    version: str = ""
    cluster_id: int | None = None
    time_s: float | None = None
    upstream_time: ClockStatus = field(default_factory=ClockStatus)
    uptime_s: float = 0.0
    node_id: str = ""
    state: str = ""
    watermark: int = 0
    open_prewrites: int = 0
    oldest_open: OpenPrewriteStatus | None = None
    oldest: list[OpenPrewriteStatus] = []
    stages: StagesStatus = field(default_factory=StagesStatus)
    resolver: ResolverStatus = field(default_factory=ResolverStatus)
    index_lag_bytes: int = 0
    slow_chaser: bool = False
    late: LateStatus = field(default_factory=LateStatus)
    index_error: str | None = None
    writer: str = ""
    writer_error: str | None = None
    write_queue_bytes: int = 0
    gc_ts: Ts | None = None
    recent_commits: RecentCommitsStatus = field(default_factory=RecentCommitsStatus)
    streams: StreamsStatus = field(default_factory=StreamsStatus)
    pullers: list[PullerStatus] = []
    disk: DiskStatus = field(default_factory=DiskStatus)
    retention: RetentionStatus | None = None
    leaving: LeavingStatus | None = None
    configuration: ReloadStatus | None = None


class PumpDocument(Struct, kw_only=True):
    """The whole document. `status`: entries of all pumps by node id, None while the registry is away;
    `commit_ts`: the upstream's time; `error`: what is missing and why; `pump`: None of a Go pump."""

    status: dict[str, Any] | None = None
    commit_ts: Ts = field(default=0, name="CommitTS")
    checkpoint: dict[str, Any] = field(default_factory=dict, name="Checkpoint")
    error: str = field(default="", name="ErrMsg")
    pump: PumpStatus | None = None

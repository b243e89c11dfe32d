"""Pump sections: what the page of a pump shows of it.

Out    headline, facts, the way of a binlog through it, what is open, who pulls, retention
Tests  tests/common/page/test_sections.py
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tidb_binlog.cluster.node import ONLINE
from tidb_binlog.page.markup import NOTHING, Markup, behind, element, facts, first, join, length, place, table
from tidb_binlog.page.way import Stage, picture
from tidb_binlog.quantities import size, span
from tidb_binlog.status.pump import (
    LeavingStatus,
    OpenPrewriteStatus,
    PullerStatus,
    PumpDocument,
    PumpStatus,
    PurgeOutlook,
    RetentionStatus,
    StageStatus,
)
from tidb_binlog.tso import Ts

_OPEN: Final = ("start_ts", "open for", "about", "the upstream says", "what to do")
_PULLERS: Final = ("protocol", "position", "behind the watermark", "credit")
_OUTLOOK: Final = ("drainer", "checkpoint", "alive", "kept for", "limited by")


def headline(document: PumpDocument) -> str:
    """What it does while nothing is wrong."""
    pump = document.pump or PumpStatus()
    if pump.state != ONLINE:
        return f"This pump is {pump.state}"
    return f"Takes binlogs; sorted up to {behind(document.commit_ts, pump.watermark)} ago"


def sections(document: PumpDocument) -> Iterator[tuple[str, Markup]]:
    """Titles and what stands below them."""
    pump = document.pump or PumpStatus()
    yield "Now", facts(_facts(document, pump))
    yield "Way of a binlog", _way(document, pump)
    if pump.leaving is not None:
        yield "Closing", _leaving(pump.leaving)
    yield f"Open transactions ({pump.open_prewrites:,})", _open(pump)
    yield f"Pull streams ({len(pump.pullers):,})", _pullers(pump.pullers)
    yield "Retention", _retention(pump.retention, pump.gc_ts)


def _facts(document: PumpDocument, pump: PumpStatus) -> Iterator[tuple[str, object]]:
    yield "sorted up to", place(pump.watermark)
    yield "the upstream's time", place(document.commit_ts)
    disk = pump.disk
    if disk.available is not None:
        yield "disk free", f"{size(disk.available)}; prewrites are refused at {size(disk.floor or 0)}"
    yield "stored since the start", _said(pump.stages.written.records, "{:,} binlogs")
    yield "write queue", size(pump.write_queue_bytes)
    yield "pull streams", f"{pump.streams.batch} of this protocol, {pump.streams.entity} of the old one"
    asked = pump.resolver
    yield (
        "transactions asked upstream",
        f"{asked.asked:,}: {asked.committed:,} committed, {asked.rolled_back:,} rolled back",
    )
    yield "up for", span(pump.uptime_s)


def _said(value: object, form: str) -> str:
    return form.format(value) if isinstance(value, int) else NOTHING


def _seconds(stage: StageStatus) -> float | None:
    return stage.lag_s if isinstance(stage.lag_s, int | float) else None


def _bytes(stage: StageStatus) -> str:
    return f"{size(stage.lag_bytes)} wait" if isinstance(stage.lag_bytes, int) else ""


def _way(document: PumpDocument, pump: PumpStatus) -> Markup:
    """How long what waits in front of each stage has waited."""
    stages = pump.stages
    failed = pump.writer == "failed"
    unread_s = _seconds(stages.indexed)
    sorted_s = _seconds(stages.sorted)
    # The age of the oldest open transaction counts for the sorter what the index has not read yet, too.
    waits_s = None if sorted_s is None else max(0.0, sorted_s - (unread_s or 0.0))
    away = pump.streams.batch + pump.streams.entity
    readers = f"{away:,} stream{'' if away == 1 else 's'}"
    return picture(
        (
            Stage("Accept", 0.0, _bytes(stages.accepted)),
            Stage("Write", None if failed else 0.0, "failed" if failed else "synced to the log"),
            Stage("Index", unread_s, _bytes(stages.indexed)),
            Stage("Sort", waits_s, f"{pump.open_prewrites:,} open"),
            Stage("Pull", max((puller.lag_s for puller in pump.pullers), default=None), readers),
        ),
        "How long what waits at each stage has waited",
    )


def _open(pump: PumpStatus) -> Markup:
    rows = (
        (_place(entry), span(entry.age_s), _about(entry), entry.upstream, entry.next) for entry in pump.oldest
    )
    if not pump.oldest:
        return element("p", "No transaction is open for long.", class_="soft")
    return table("Open transactions", _OPEN, rows, pump.open_prewrites)


def _place(prewrite: OpenPrewriteStatus) -> Markup:
    return element("code", prewrite.start_ts)


def _about(prewrite: OpenPrewriteStatus) -> str:
    if prewrite.ddl_job_id:
        return f"DDL job {prewrite.ddl_job_id}: {prewrite.ddl_query or ''}"
    return f"table {prewrite.table_id}" if prewrite.table_id else NOTHING


def _pullers(pullers: list[PullerStatus]) -> Markup:
    if not pullers:
        return element("p", "Nobody pulls from this pump.", class_="soft")
    worst = sorted(pullers, key=lambda puller: -puller.lag_s)
    rows = (
        (
            puller.protocol,
            place(puller.position),
            span(puller.lag_s),
            size(puller.credit_bytes) if isinstance(puller.credit_bytes, int) else NOTHING,
        )
        for puller in worst
    )
    return table("Pull streams", _PULLERS, rows, len(pullers))


def _retention(retention: RetentionStatus | None, gc_ts: Ts | None) -> Markup:
    if retention is None:
        return element("p", "Nothing is purged by this pump.", class_="soft")
    pairs: list[tuple[str, object]] = [
        ("binlogs are kept for", length(retention.age_s)),
        ("purged up to", place(retention.gc_ts or gc_ts or 0)),
        ("the oldest file", retention.first_file or NOTHING),
        ("purged since the start", f"{retention.purged_files:,} files, {size(retention.purged_bytes)}"),
        ("last run", "now" if retention.working else _ago(retention.last_run_s_ago)),
    ]
    held: object = ""
    if retention.held_up_by:
        by = element("ul", *first(element("li", line) for line in retention.held_up_by))
        held = join(element("p", "Purges less than it should:", class_="wrong"), by)
    rows = (_outlook(outlook) for outlook in sorted(retention.drainers, key=_urgency))
    protects = (
        table("What drainers have not applied", _OUTLOOK, rows, len(retention.drainers))
        if retention.drainers
        else element("p", "No drainer needs what is stored.", class_="soft")
    )
    return join(facts(pairs), held, element("h3", "What each drainer has not applied yet"), protects)


def _ago(seconds: float | None) -> str:
    return "none yet" if seconds is None else f"{span(seconds)} ago"


def _urgency(entry: PurgeOutlook) -> tuple[bool, float]:
    return not entry.lost, float("inf") if entry.left_s is None else entry.left_s


def _outlook(entry: PurgeOutlook) -> tuple[object, ...]:
    kept = element("span", "purged already", class_="wrong") if entry.lost else length(entry.left_s)
    return entry.node_id, place(entry.checkpoint), "yes" if entry.live else "no", kept, entry.limit or NOTHING


def _leaving(leaving: LeavingStatus) -> Markup:
    said = f"{leaving.stage}: waits for {leaving.waits_for}" if leaving.waits_for else leaving.stage
    if not leaving.drainers:
        return element("p", said)
    rows = (
        (entry.node_id, entry.state, place(entry.checkpoint), span(entry.behind_s), length(entry.left_s))
        for entry in leaving.drainers
    )
    heads = ("drainer", "state", "checkpoint", "behind", "about to take")
    return join(element("p", said), table("Closing waits for", heads, rows, len(leaving.drainers)))

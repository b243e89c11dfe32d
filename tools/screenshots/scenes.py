"""Scenes: what the nodes of an example say, and which pictures are made of their pages.

A shop: three Pumps, of which one dies later, and two Drainers, one whose database was away for a while.
Figures are an example's; pages and pictures are made by the code that nodes run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from tidb_binlog import tso
from tidb_binlog.cluster.node import ONLINE, NodeStatus
from tidb_binlog.cluster.overview import NodeSnapshot, build
from tidb_binlog.cluster.registry import DRAINERS, PUMPS, ClusterView, NodeEntry
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.observe.recent_events import Event
from tidb_binlog.page import cluster_page, status_page
from tidb_binlog.page.cluster_page import ShownCluster
from tidb_binlog.page.status_page import Shown
from tidb_binlog.status.codec import plain
from tidb_binlog.status.drainer import (
    ChunkGrid,
    DrainerDocument,
    LagStatus,
    LoadedTable,
    LoadStatus,
    VerifyStatus,
)
from tidb_binlog.status.history import EVERY_S, PLACES, History, Look
from tidb_binlog.status.pump import (
    PumpDocument,
    PumpStatus,
    PurgeOutlook,
    RetentionStatus,
    StagesStatus,
    StageStatus,
)

NOW_S = 1_772_444_460.0
"""2026-03-02T09:41:00Z."""
NOW_TS = tso.from_wall_s(NOW_S)


@dataclass(frozen=True)
class Picture:
    """`html` is seen from `top` on, `height` high, in a window of that width."""

    name: str
    html: Callable[[], str]
    width: int = 1160
    height: int = 900
    top: str = ""
    dark: bool = False


def ago(seconds: float) -> int:
    return tso.from_wall_s(NOW_S - seconds)


def behind_s(minute: float) -> float:
    """The database was away from minute 22 to 27; what had come was applied until minute 51."""
    if not 22 <= minute < 51:
        return 0.6 + 0.4 * math.sin(minute * 3)
    return (minute - 22) * 60 if minute < 27 else 300 * (51 - minute) / 24


def last_hour() -> History:
    history, rows = History(), 0.0
    for number in range(PLACES):
        minute = number * EVERY_S / 60
        rate = 4200 + 500 * math.sin(minute * 1.7) + 250 * math.sin(minute * 7.1)
        rows += EVERY_S * (0 if 22 <= minute < 27 else rate * (1.25 if 27 <= minute < 51 else 1.0))
        free = (180 - minute * 1.4 + (62 if minute > 40 else 0)) * (1 << 30)
        history.note(number * EVERY_S, Look(behind_s(minute), int(rows)), int(free))
    return history


def drainer(node_id: str, late_s: float = 0.0, **more: Any) -> DrainerDocument:
    """`late_s`: it waits so long for pump-c, which is gone."""
    lag = LagStatus(
        total_s=late_s or 0.4,
        write_s=0.1,
        sort_wait_s=0.0,
        pull_s=late_s,
        queue_s=0.0,
        apply_s=0.0,
        pump="pump-c" if late_s else None,
        eta_s=None if late_s else 0.0,
        rows_per_s=0.0 if late_s else 4502.0,
        transactions_per_s=0.0 if late_s else 211.0,
        reason="pump pump-c is not connected" if late_s else "",
    )
    place_ts = ago(late_s or 0.4)
    said: dict[str, Any] = {"applied_ts": place_ts, "last_ts": place_ts, "lag": lag, **more}
    return DrainerDocument(
        node_id=node_id, state=ONLINE, cluster_id=7, rows=18_204_771, transactions=722_190, **said
    )


def pump(node_id: str, *, opened: int = 3) -> PumpDocument:
    left_s = 5.1 * 86400
    outlook = [
        PurgeOutlook(node_id=name, checkpoint=ago(64), live=True, left_s=left_s)
        for name in ("reports", "shop-copy")
    ]
    status = PumpStatus(
        node_id=node_id,
        state=ONLINE,
        watermark=ago(0.4),
        open_prewrites=opened,
        writer="ok",
        stages=StagesStatus(sorted=StageStatus(lag_s=0.4)),
        retention=RetentionStatus(drainers=outlook),
    )
    return PumpDocument(commit_ts=NOW_TS, pump=status)


VERIFY = VerifyStatus(
    state="equal",
    ts=ago(6 * 3600),
    began_s=NOW_S - 6 * 3600,
    ended_s=NOW_S - 6 * 3600 + 512,
    rows=34_800_112,
    tables=12,
    held_ms=14.2,
    running_since_s=NOW_S - 310,
    progress="3 of 12 tables, at shop.orders: 21,050,000 rows",
    grid=[
        ChunkGrid(
            table="shop.orders",
            cells="=" * 57 + "!" + "=" * 24 + "." * 12,
            chunks=94,
            rows=4_100_000,
            rows_expected=5_200_000,
        ),
        ChunkGrid(
            table="shop.items",
            cells="=" * 161,
            chunks=322,
            is_cut=True,
            rows=16_100_000,
            rows_expected=16_000_000,
        ),
        ChunkGrid(table="shop.customers", cells="=" * 17, chunks=17, is_cut=True, rows=850_000),
    ],
)
LOAD = LoadStatus(
    stage="copying",
    ts=ago(140),
    rows=1_260_000,
    rows_expected=2_300_000,
    table_count=3,
    tables=[
        LoadedTable(table="crm.contacts", rows=760_000, rows_expected=1_500_000),
        LoadedTable(table="crm.notes", rows=80_000, rows_expected=400_000),
        LoadedTable(table="crm.tags", rows=420_000, rows_expected=400_000, done=True),
    ],
)
NODES: Mapping[str, tuple[str, str, PumpDocument | DrainerDocument | None]] = {
    "pump-a": (PUMPS, "pump-a:8250", pump("pump-a")),
    "pump-b": (PUMPS, "pump-b:8250", pump("pump-b", opened=11)),
    "pump-c": (PUMPS, "pump-c:8250", None),
    "reports": (DRAINERS, "drainer-2:8249", drainer("reports", 64.0)),
    "shop-copy": (DRAINERS, "drainer-1:8249", drainer("shop-copy", 64.0)),
}


def view() -> ClusterView:
    """While all live."""

    def of(kind: str) -> dict[str, NodeEntry]:
        return {
            node_id: NodeEntry(NodeStatus(node_id, address, ONLINE, ago(2), ago(1)), 1, True)
            for node_id, (node_kind, address, _) in NODES.items()
            if node_kind == kind
        }

    return ClusterView(1, of(PUMPS), of(DRAINERS))


def of_drainer() -> str:
    events = [
        Event(NOW_S - 1980, "INFO", "downstream answers again", "seconds: 300", "lanes"),
        Event(NOW_S - 2280, "WARN", "waiting for the downstream", "reason: connection refused", "lanes"),
    ]
    shown = Shown(DRAINERS, drainer("shop-copy"), "", view(), "", events, NOW_S, last_hour())
    return status_page.html(shown)


def of_progress() -> str:
    document = drainer("shop-copy", verify=VERIFY, load=LOAD)
    return status_page.html(Shown(DRAINERS, document, "", view(), "", [], NOW_S, last_hour()))


def of_cluster() -> str:
    nodes = [
        NodeSnapshot(
            kind,
            node_id,
            address,
            ONLINE,
            document is not None,
            ago(64),
            ago(61),
            None if document is None else plain(document),
            "" if document else "Connection refused",
        )
        for node_id, (kind, address, document) in NODES.items()
    ]
    return cluster_page.html(ShownCluster(PUMPS, "pump-a", build(nodes, NOW_S), "", NOW_S))


PICTURES = (
    Picture("drainer", of_drainer, height=740),
    Picture("progress", of_progress, height=710, top="Load"),
    Picture("cluster", of_cluster, height=1080),
    Picture("cluster-phone", of_cluster, width=390, height=844, dark=True),
)

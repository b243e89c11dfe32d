"""What is wrong with a cluster, from what its nodes say; and what is said of it when they say nonsense."""

from __future__ import annotations

import copy
import io
import json
import random
import re
from dataclasses import replace
from typing import Any

import pytest

from binlogctl.commands import status
from binlogctl.doctor.gather import answers
from tidb_binlog import tso
from tidb_binlog.cluster.node import CLOSING, OFFLINE, ONLINE, PAUSED
from tidb_binlog.cluster.overview import NodeSnapshot, Overview, build
from tidb_binlog.cluster.registry import DRAINERS, PUMPS
from tidb_binlog.observe import show
from tidb_binlog.quantities import span
from tidb_binlog.status.troubles import ERROR, WARNING

NOW_S = 1_700_000_000.0
NOW_TS = tso.from_wall_s(NOW_S)


def ago(seconds: float) -> int:
    return tso.from_wall_s(NOW_S - seconds)


PUMP = {
    "CommitTS": NOW_TS,
    "ErrMsg": "",
    "pump": {
        "watermark": ago(1),
        "open_prewrites": 3,
        "oldest": [{"start_ts": 5, "age_s": 0.1, "next": "wait"}],
        "writer": "ok",
        "writer_error": None,
        "index_error": None,
        "disk": {"available": 90 << 30, "floor": 1 << 30},
        "retention": {"alarm_s": 72000, "drainers": [{"node_id": "d", "left_s": 1e6, "lost": False}]},
        "leaving": None,
    },
}
DRAINER = {
    "AppliedTS": ago(2),
    "LastTS": ago(3),
    "Doing": "applies",
    "Control": {"paused": False},
    "DDL": {"waiting": []},
    "Lag": {
        "total_s": 2.0, "write_s": 0.1, "sort_wait_s": 0.2, "pull_s": 0.3, "queue_s": 0.4, "apply_s": 1.0,
        "eta_s": 0.0, "rows_per_s": 1500.4, "reason": "",
    },
}  # fmt: skip


def pump(**changes: Any) -> NodeSnapshot:
    fields = {"state": ONLINE, "alive": True, "document": PUMP, "error": "", **changes}
    return NodeSnapshot(PUMPS, "p", "h:8250", told_ts=ago(4), update_ts=ago(5), **fields)


def drainer(**changes: Any) -> NodeSnapshot:
    fields = {"state": ONLINE, "alive": True, "document": DRAINER, "error": "", **changes}
    return NodeSnapshot(DRAINERS, "d", "h:8249", told_ts=ago(6), update_ts=ago(7), **fields)


def changed(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    found = copy.deepcopy(document)
    *inner, last = path.split(".")
    part = found
    for key in inner:
        part = part[key]
    part[last] = value
    return found


def of(*seen: NodeSnapshot) -> Overview:
    return build(seen, NOW_S)


def test_all_is_well() -> None:
    seen = of(pump(), drainer())
    assert (seen.worst, seen.now_ts) == ("", NOW_TS)
    first, second = seen.nodes
    assert (first.position_ts, first.behind_s, first.doing) == (ago(1), 1.0, "3 open prewrites")
    assert (second.position_ts, second.doing) == (ago(2), "1,500 rows/s, applies")
    assert list(second.stages_s.items()) == [
        ("write", 0.1), ("sort_wait", 0.2), ("pull", 0.3), ("queue", 0.4), ("apply", 1.0)
    ]  # fmt: skip


def test_a_quiet_cluster_is_not_behind_and_a_watermark_that_stands_is() -> None:
    """The positions of both are seconds old where nothing is written; what came is sorted and applied."""
    sorted_now = {"stages": {"sorted": {"lag_s": 0.0}}}
    quiet = PUMP | {"pump": PUMP["pump"] | sorted_now | {"watermark": ago(3)}}  # type: ignore[operator]
    waits = {"total_s": 1.4, "pull_s": 1.4, "queue_s": 0.0, "apply_s": 0.0, "eta_s": 0.0}
    seen = of(pump(document=quiet), drainer(document=DRAINER | {"Lag": waits}))
    assert [line.behind_s for line in seen.nodes] == [0.0, 0.0]
    stands = PUMP | {"pump": PUMP["pump"] | sorted_now | {"watermark": ago(60)}}  # type: ignore[operator]
    seen = of(pump(document=stands), drainer(document=DRAINER | {"Lag": waits | {"apply_s": 0.1}}))
    assert [line.behind_s for line in seen.nodes] == [60.0, 1.4]


def test_how_near_a_purge_is_goes_by_the_checkpoint_of_now() -> None:
    """The pump looked ten minutes ago; the registry has had the checkpoint since."""
    outlooks = [
        {"node_id": "d", "left_s": 1000.0, "checkpoint": ago(620)},
        {"node_id": "stands", "left_s": 1000.0, "checkpoint": ago(620)},
        {"node_id": "lost", "left_s": 0.0, "lost": True, "checkpoint": ago(620)},
    ]
    document = changed(
        changed(PUMP, "pump.retention.drainers", outlooks), "pump.retention.last_run_s_ago", 600.0
    )
    seen = of(pump(document=document), drainer())
    kept = {one.node_id: (round(one.left_s), round(one.behind_s)) for one in seen.nodes[0].kept}
    assert kept == {"d": (1014, 6), "stands": (400, 620), "lost": (0, 620)}


def test_on_a_terminal_bars_show_where_time_goes_and_what_a_purge_reaches_next() -> None:
    kept = [
        {"node_id": "far", "left_s": 500_000.0, "checkpoint": ago(2)},
        {"node_id": "near", "left_s": 100.0, "checkpoint": ago(300)},
        {"node_id": "new", "left_s": None, "checkpoint": 0},
    ]
    seen = of(pump(document=changed(PUMP, "pump.retention.drainers", kept)), drainer())
    assert [one.node_id for one in seen.nodes[0].kept] == ["near", "far"]
    assert seen.nodes[1].rows_per_s == 1500.4

    def printed(*, bars: bool) -> str:
        file = io.StringIO()
        show.console(file).print(status.page(seen, [("d", "▁█", "9 s", "█▁", "7")], bars=bars))
        return file.getvalue()

    terminal, plain = printed(bars=True), printed(bars=False)
    assert "██ write 0.1 s sort wait 0.2 s pull 0.3 s queue 0.4 s apply 1.0 s" in terminal
    assert "\n1 pump at " in f"\n{terminal}"
    assert "\n1 drainer " in terminal
    assert re.search(r"p +near +━{10}◆─{29} +100 s until a purge reaches it, 5 min behind", terminal)
    assert re.search(r"p +far +━{39}◆ +5.8 d until", terminal)
    assert "▁█" in terminal
    assert "█ write" not in plain
    assert "until a purge" not in plain
    assert re.search(r"d +0.1 s +0.2 s +0.3 s +0.4 s +1.0 s", plain)


def test_a_drainer_that_compares_by_itself_says_since_when_all_is_equal() -> None:
    found = {"state": "equal", "ts": ago(60), "wrong": 0, "failures": 0}
    seen = of(pump(), drainer(document=DRAINER | {"Verify": found}))
    assert seen.worst == ""
    assert seen.nodes[1].doing == "1,500 rows/s, applies, equal at 2023-11-14T22:12:20.000Z"


def test_go_nodes_give_a_position_and_nothing_is_made_up() -> None:
    seen = of(
        pump(alive=None, document={"status": {}, "CommitTS": NOW_TS, "Checkpoint": {}, "ErrMsg": ""}),
        drainer(alive=None, document={"PumpPos": {}, "Synced": False, "LastTS": ago(9), "TsMap": ""}),
    )
    assert seen.worst == ""
    assert [(line.position_ts, line.doing, line.stages_s) for line in seen.nodes] == [
        (ago(4), "", {}),
        (ago(9), "", {}),
    ]


def test_the_upstreams_clock_counts_before_ours() -> None:
    assert build([pump(), drainer()], NOW_S + 3600).now_ts == NOW_TS
    assert build([pump(document=None, error="x"), drainer()], NOW_S).now_ts == tso.from_wall_s(NOW_S)


def test_two_entries_with_one_address_are_named() -> None:
    twin = NodeSnapshot(PUMPS, "h:8250", "h:8250", PAUSED, None, ago(4), ago(5), PUMP)
    assert [trouble.text for trouble in of(pump(), twin, drainer()).troubles] == [
        "pump p and pump h:8250 are both registered at h:8250"
    ]
    assert not of(pump(), drainer(), replace(twin, state=OFFLINE)).troubles


WRONG: list[tuple[NodeSnapshot, NodeSnapshot, str, str]] = [
    (
        pump(),
        drainer(document=DRAINER | {"Verify": {"state": "differs", "wrong": 6, "wrong_rows": {"shop.c": 6}}}),
        ERROR,
        "differs from the upstream in 6 rows: shop.c (6)",
    ),
    (
        pump(),
        drainer(document=DRAINER | {"Verify": {"failures": 1, "trouble": "the upstream is away"}}),
        WARNING,
        "could not compare its downstream with the upstream: the upstream is away",
    ),
    (
        pump(document=changed(PUMP, "pump.upstream_time", {"ahead_of_host_s": 691200.0})),
        drainer(),
        WARNING,
        f"the upstream's clock is {span(691200.0)} ahead of its host's",
    ),
    (
        pump(),
        drainer(document=changed(DRAINER, "UpstreamTime", {"ahead_of_host_s": -60.0})),
        WARNING,
        f"the upstream's clock is {span(60.0)} behind its host's",
    ),
    (
        pump(document=changed(PUMP, "pump.retention.held_up_by", ["the upstream's clock ran ahead"])),
        drainer(),
        WARNING,
        "purges less than it should: the upstream's clock ran ahead",
    ),
    (pump(alive=False, document=None), drainer(), ERROR, "pump p is dead: drainers wait"),
    (pump(state=PAUSED, alive=False, document=None), drainer(), ERROR, "pump p is paused: drainers wait"),
    (pump(document=None, error="timed out"), drainer(), ERROR, "does not answer at h:8250: timed out"),
    (pump(alive=None, document=None, error="x"), drainer(), ERROR, "it last renewed its entry 5 s ago"),
    (pump(document=changed(PUMP, "ErrMsg", "etcd is away")), drainer(), WARNING, "cut off: etcd is away"),
    (pump(document=changed(PUMP, "pump.writer", "failed")), drainer(), ERROR, "stores nothing any more"),
    (
        pump(document=changed(PUMP, "pump.disk.available", 1 << 30)),
        drainer(),
        ERROR,
        "refuses prewrites: 1.0 GiB",
    ),
    (pump(document=changed(PUMP, "pump.index_error", "bad")), drainer(), ERROR, "its index fails: bad"),
    (
        pump(state=CLOSING, document=changed(PUMP, "pump.leaving", {"waits_for": "d"})),
        drainer(),
        WARNING,
        "is closing and waits for d",
    ),
    (
        pump(document=changed(PUMP, "pump.oldest", [{"start_ts": 7, "age_s": 30.0, "next": "end it"}])),
        drainer(),
        WARNING,
        "start_ts 7 has been open for 30 s and holds replication up",
    ),
    (
        pump(document=changed(PUMP, "pump.oldest", [{"start_ts": 7, "age_s": 61.0, "next": "end it"}])),
        drainer(),
        ERROR,
        "start_ts 7 has been open for 61 s and holds replication up",
    ),
    (
        pump(document=changed(PUMP, "pump.retention.drainers", [{"node_id": "d", "left_s": 36000}])),
        drainer(),
        WARNING,
        "purges what drainer d has not applied in 10.0 h",
    ),
    (
        pump(document=changed(PUMP, "pump.retention.drainers", [{"node_id": "d", "left_s": 7200}])),
        drainer(),
        ERROR,
        "purges what drainer d has not applied in 2.0 h",
    ),
    (
        pump(document=changed(PUMP, "pump.retention.drainers", [{"node_id": "d", "lost": True}])),
        drainer(),
        ERROR,
        "has purged binlogs that drainer d has not applied",
    ),
    (pump(), drainer(alive=False, document=None), ERROR, "drainer d is dead: pumps keep"),
    (pump(), drainer(document=changed(DRAINER, "Control.paused", True)), WARNING, "holds applying back"),
    (
        pump(),
        drainer(document=changed(DRAINER, "DDL.waiting", [{"job_id": 42, "query": "DROP"}, {"job_id": 43}])),
        ERROR,
        "1 DDL and the rows of their tables and refused rows of 1 table wait for a decision: job 42, 43",
    ),
    (
        pump(),
        drainer(document=changed(DRAINER, "DDL.waiting", [{"job_id": 42}, {"job_id": 43}])),
        ERROR,
        "drainer d refused rows of 2 tables wait for a decision: job 42, 43",
    ),
    (
        pump(),
        drainer(document=changed(DRAINER, "Lag", {"total_s": 60, "eta_s": None, "reason": "pump p is away"})),
        ERROR,
        "is 60 s behind: pump p is away",
    ),
    (
        pump(),
        drainer(document=changed(DRAINER, "Lag", {"total_s": 60, "eta_s": 20.0, "reason": "catching up"})),
        WARNING,
        "is 60 s behind: catching up",
    ),
]


def test_a_reader_that_ended_in_order_is_no_error() -> None:
    """What it holds back or loses the pumps say; a program that died is another matter."""
    reader = NodeSnapshot(DRAINERS, "r", "h:1", PAUSED, False, ago(9), ago(8), None, "gone", reader=True)
    assert of(pump(), drainer(), reader).troubles == ()
    assert of(pump(), drainer(), replace(reader, state=ONLINE)).worst == ERROR


@pytest.mark.parametrize(("one", "other", "severity", "text"), WRONG, ids=[case[3][:40] for case in WRONG])
def test_what_is_wrong_is_said(one: NodeSnapshot, other: NodeSnapshot, severity: str, text: str) -> None:
    seen = of(one, other)
    found = [trouble for trouble in seen.troubles if text in f"{trouble.node} {trouble.text}"]
    assert [trouble.severity for trouble in found] == [severity]


def test_nobody_there() -> None:
    assert [trouble.text for trouble in of().troubles] == [
        "no pump is online: no binlogs are taken",
        "no drainer is online: nothing is replicated",
    ]
    assert of(pump(state=OFFLINE), drainer()).worst == ERROR


def test_nonsense_in_documents_is_not_believed_and_does_no_harm() -> None:
    rng = random.Random(7)
    values = (
        None,
        [],
        {},
        "x",
        -1,
        1.5,
        True,
        [None],
        [{}],
        {"a": 1},
        "9" * 30,
        10**400,
        float("inf"),
        float("nan"),
    )

    def spoil(document: Any) -> Any:
        if isinstance(document, dict):
            return {key: spoil(value) for key, value in document.items() if rng.random() < 0.9}
        if isinstance(document, list):
            return [spoil(one) for one in document]
        return rng.choice(values) if rng.random() < 0.4 else document

    for _ in range(500):
        one, other = spoil({**PUMP, "status": {}, "Checkpoint": {}}), spoil({**DRAINER, "NodeID": "d"})
        seen = of(pump(document=one), drainer(document=other))
        assert len(seen.nodes) == 2
        answers.read_pump(json.dumps(one).encode())
        answers.read_drainer(json.dumps(other).encode())

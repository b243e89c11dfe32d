"""The node table: ages are by the clock that nodes go by, wherever this host's stands."""

from __future__ import annotations

from dataclasses import replace

import pytest

from binlogctl.cluster import node_table
from tidb_binlog import tso
from tidb_binlog.clock import SystemClock
from tidb_binlog.cluster.node import ONLINE, NodeStatus, label_of
from tidb_binlog.cluster.registry import DRAINERS, PUMPS, NodeEntry, clock_s


def entry(name: str, moment_s: float, *, alive: bool | None = True) -> NodeEntry:
    return NodeEntry(NodeStatus(name, "h:1", ONLINE, 7, tso.from_wall_s(moment_s)), 1, alive)


@pytest.mark.parametrize("apart_s", [-136_000.0, 691_200.0])
def test_a_living_node_was_not_heard_of_hours_ago(apart_s: float, capsys: pytest.CaptureFixture[str]) -> None:
    now_s = SystemClock().wall_s() + apart_s
    pumps = [entry("p1", now_s), entry("p2", now_s - 1), entry("dead", now_s - 7200, alive=False)]
    node_table.print_entries([(PUMPS, one) for one in pumps], "pumps")
    told = capsys.readouterr().out
    assert [line for line in told.splitlines() if " ago" in line and "2.0 h" not in line]
    assert "2.0 h ago" in told or "120 min ago" in told
    assert "the clock that pumps go by is" in told
    assert [clock_s([one], 5.0) for one in pumps[2:]] == [5.0], "the dead tell nothing"


def test_where_the_clocks_agree_this_hosts_counts() -> None:
    wall_s = SystemClock().wall_s()
    assert clock_s([entry("p1", wall_s - 20)], wall_s) == wall_s
    assert clock_s([], wall_s) == wall_s
    assert node_table.document(DRAINERS, entry("d", wall_s - 2), wall_s)["updated_s_ago"] == pytest.approx(
        2, abs=0.1
    )


def test_label_and_score_where_a_pump_has_labels(capsys: pytest.CaptureFixture[str]) -> None:
    moment_s = SystemClock().wall_s()
    go, drainer = entry("go", moment_s), entry("d1", moment_s)
    node_table.print_entries([(PUMPS, go), (DRAINERS, drainer)], "nodes")
    assert "score" not in capsys.readouterr().out
    status = replace(go.status, node_id="p1", score=-1, label=label_of({"zone": "a", "rack": "r1"}))
    node_table.print_entries([(PUMPS, go), (PUMPS, NodeEntry(status, 1, True)), (DRAINERS, drainer)], "nodes")
    told = capsys.readouterr().out.split()
    assert told.index("score") == told.index("label") + 1
    assert {"rack=r1,", "zone=a", "-1"} <= set(told)


def test_a_narrow_terminal_has_addresses_that_can_be_copied(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now_ts = tso.from_wall_s(SystemClock().wall_s())
    status = NodeStatus("host:8250", "127.0.0.1:8250", ONLINE, now_ts, now_ts)
    for columns in (80, 120):
        monkeypatch.setenv("COLUMNS", str(columns))
        node_table.print_entries([(PUMPS, NodeEntry(status, 1, True))], "nodes")
        told = capsys.readouterr().out
        assert all(len(line) <= columns for line in told.splitlines())
        assert {"host:8250", "127.0.0.1:8250"} <= set(told.split())
        assert (str(status.max_commit_ts) in told) == (columns == 120)

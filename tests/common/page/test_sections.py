"""Sections: what is shown of a node, worst first, and the commands that can be copied."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import pytest

from binlogctl.cli import command_line
from tests.common.page.support.reading import Element, read
from tidb_binlog import tso
from tidb_binlog.cluster.node import CLOSING, OFFLINE, ONLINE, PAUSED, READER, NodeStatus
from tidb_binlog.cluster.registry import PUMPS, ClusterView, NodeEntry
from tidb_binlog.page import drainer_sections, markup, nodes, pump_sections
from tidb_binlog.status.drainer import (
    ArchiveStatus,
    ControlStatus,
    DdlStatus,
    DrainerDocument,
    LackStatus,
    LagStatus,
    LaneStatus,
    MismatchStatus,
    RelayStatus,
    SourceStatus,
    StandbyFacts,
    VerifyStatus,
    WaitingDdl,
    WentBackStatus,
)
from tidb_binlog.status.pump import (
    AwaitedDrainer,
    DiskStatus,
    LeavingStatus,
    OpenPrewriteStatus,
    PullerStatus,
    PumpDocument,
    PumpStatus,
    PurgeOutlook,
    RetentionStatus,
    StagesStatus,
    StageStatus,
    StreamsStatus,
)

WALL_S = 1_700_000_000.0
NOW_TS = tso.from_wall_s(WALL_S)


def ago(seconds: float) -> int:
    return tso.from_wall_s(WALL_S - seconds)


def entry(
    node_id: str,
    host: str = "h:8250",
    state: str = ONLINE,
    *,
    alive: bool | None = True,
    label: dict[str, object] | None = None,
) -> NodeEntry:
    status = NodeStatus(node_id, host, state, ago(3), ago(1), label=label)
    return NodeEntry(status, 1, alive)


def view(pumps: list[NodeEntry], drainers: Sequence[NodeEntry] = ()) -> ClusterView:
    named = [{one.status.node_id: one for one in some} for some in (pumps, drainers)]
    return ClusterView(1, *named)


def cluster(seen: ClusterView | None, kind: str = PUMPS, node_id: str = "own", why: str = "") -> Element:
    return read(nodes.section(seen, why, kind, node_id, NOW_TS, WALL_S))


def parsed(line: str) -> command_line.Call:
    """A line as binlogctl gets it from a shell."""
    program, *words = shlex.split(line)
    assert program == "binlogctl"
    found = command_line.parse(words, {})
    assert isinstance(found, command_line.Call)
    return found


def rows(page: Element) -> list[list[str]]:
    return [[cell.text for cell in one.named("td")] for one in page.named("tr")[1:]]


def of_drainer(document: DrainerDocument) -> dict[str, Element]:
    return {title: read(content) for title, content in drainer_sections.sections(document)}


def of_pump(pump: PumpStatus) -> dict[str, Element]:
    found = pump_sections.sections(PumpDocument(commit_ts=NOW_TS, pump=pump))
    return {title: read(content) for title, content in found}


# -- the cluster ---------------------------------------------------------------------------------------------


def test_a_node_is_a_line_with_a_link_to_its_page() -> None:
    page = cluster(view([entry("own"), entry("p2", "10.0.0.2:8250")], [entry("d", "[::1]:8249")]))
    told = ["p2", "pump", "online", "yes", "up to date", "10.0.0.2:8250", tso_text(ago(3)), "1.0 s ago"]
    assert rows(page)[1] == told
    links = {one.text: one.attributes["href"] for one in page.named("a")}
    assert links == {"p2": "//10.0.0.2:8250/", "d": "//[::1]:8249/"}
    assert page.text.startswith("2 pumps, 1 drainer")
    assert rows(page)[0][0] == "own (this page)"


@pytest.mark.parametrize(
    "host",
    ["javascript:alert(1)", "evil.example", "h:1/../x", "h:1?x", "a@h:1", "h:1\n", "", "h:123456", "[::1]"],
)
def test_what_is_no_address_is_no_link(host: str) -> None:
    assert not cluster(view([entry("p", host)])).named("a")


def test_what_was_told_a_while_ago_is_not_behind_for_that() -> None:
    """An entry of a quiet pump is written every ten seconds; of one that is dead nothing can be known."""
    told = NodeStatus("p", "h:1", ONLINE, ago(9), ago(8))
    assert [row[4] for row in rows(cluster(view([NodeEntry(told, 1, True)], [])))] == ["up to date"]
    assert [row[4] for row in rows(cluster(view([NodeEntry(told, 1, False)], [])))] == ["9.0 s"]


def test_a_go_node_has_its_status_and_readers_and_nodes_that_left_have_no_page() -> None:
    seen = view(
        [entry("go", alive=None), entry("left", state=OFFLINE, alive=False)], [entry("program", label=READER)]
    )
    page = cluster(seen)
    assert {one.text: one.attributes["href"] for one in page.named("a")} == {"go": "//h:8250/status"}
    assert [row[:4] for row in rows(page)] == [
        ["go", "pump", "online", "?"],
        ["program", "reader", "online", "yes"],
        ["left", "pump", "offline", "no"],
    ]
    assert rows(page)[2][4] == rows(page)[2][7] == "-"
    assert "1 pump, 1 reader, 1 offline" in page.text


def test_labels_stand_beside_the_name() -> None:
    page = cluster(view([entry("p", label={"labels": {"zone": "<a>", "rack": "r1"}})]))
    assert rows(page)[0][0] == "p rack=r1, zone=<a>"


def test_who_is_not_well_comes_first_so_that_a_long_list_does_not_hide_him() -> None:
    many = [entry(f"p{number:04d}") for number in range(3000)]
    dead, paused = entry("zz-dead", alive=False), entry("zz-paused", state=PAUSED, alive=False)
    page = cluster(view([*many, dead, paused]))
    assert [row[0] for row in rows(page)[:3]] == ["zz-dead", "zz-paused", "p0000"]
    assert [row[3] for row in rows(page)[:2]] == ["dead", "no"]
    assert "3,002 pumps, 1 dead" in page.text
    assert "100 of 3,002 are shown" in page.text


def test_a_registry_that_is_away_and_an_empty_one() -> None:
    assert "The registry cannot be read: etcd is away" in cluster(None, why="etcd is away").text
    assert "No node is registered." in cluster(view([])).text


# -- a drainer -----------------------------------------------------------------------------------------------

WAITING = WaitingDdl(
    job_id=12,
    commit_ts=ago(60),
    tables=["db.t"],
    query="ALTER TABLE t",
    reason="Duplicate column",
    since_ms=int(WALL_S * 1000),
    state="waiting for a decision",
    possible=["retry", "skip", "rewrite"],
)


def test_a_decision_is_a_command_that_binlogctl_understands() -> None:
    """In a shell, whatever the drainer is called."""
    for node_id in ("d1", "it's $(touch /tmp/x) `y`; z", "-d", "a b"):
        lines = drainer_sections.commands(WAITING, node_id)
        called = [parsed(line) for line in lines]
        assert [call.command.words for call in called] == ["ddl retry", "ddl skip", "ddl rewrite"]
        assert {call.settings.node_id for call in called} == {node_id}
        assert {call.words for call in called} == {("12",)}
        assert called[2].settings.text == "ALTER TABLE ..."


def test_waiting_ddl_is_shown_with_the_decisions_that_are_possible() -> None:
    nothing_to_decide = WaitingDdl(job_id=13, state="its tables catch up")
    decided = WaitingDdl(
        job_id=14, state="decided", decision="rewrite", text="DROP TABLE x", possible=["retry"]
    )
    ddl = DdlStatus(
        waiting=[WAITING, nothing_to_decide, decided],
        held_at=ago(60),
        missing=[LackStatus(job_id=11, tables=["db.t"], missing=["an expression key", "a check"])],
        progress="ADD INDEX 40 %",
        full=True,
    )
    document = DrainerDocument(node_id="d", ddl=ddl)
    page = of_drainer(document)["Waiting for a decision (3)"]
    first, second, third = page.named("article")
    assert [one.text for one in first.named("code") if one.attributes["class"] == "command"] == [
        "binlogctl ddl retry 12 --node-id=d",
        "binlogctl ddl skip 12 --node-id=d",
        "binlogctl ddl rewrite 12 --text 'ALTER TABLE ...' --node-id=d",
    ]
    assert "ALTER TABLE t" in first.named("pre")[0].text
    assert "Duplicate column" in first.text
    assert "Nothing is to be decided now." in second.text
    assert "rewrite: DROP TABLE x" in third.text
    assert "ADD INDEX 40 %" in page.text
    assert "missing downstream since job 11 (db.t): an expression key; a check" in page.text
    assert "stands still" in page.text
    none = of_drainer(DrainerDocument(ddl=DdlStatus()))["Waiting for a decision (0)"]
    assert none.text == "No DDL waits."


def test_many_waiting_ddl_are_cut_and_the_command_that_lists_them_is_there() -> None:
    ddl = DdlStatus(waiting=[WAITING] * 5000)
    page = of_drainer(DrainerDocument(node_id="d", ddl=ddl))["Waiting for a decision (5,000)"]
    assert len(page.named("article")) == 100
    assert "4,900 more: binlogctl ddl list --node-id=d" in page.text
    assert parsed("binlogctl ddl list --node-id=d").command.words == "ddl list"


def test_the_way_has_the_lag_of_each_stage_and_what_holds_it() -> None:
    lag = LagStatus(
        total_s=12.0, write_s=0.5, sort_wait_s=8.0, pull_s=1.0, queue_s=0.5, apply_s=2.0,
        pump="p1", start_ts=7, eta_s=30.0, rows_per_s=1234.5, reason="the transaction with start_ts 7",
    )  # fmt: skip
    document = DrainerDocument(lag=lag)
    assert drainer_sections.headline(document) == "12 s behind the upstream; caught up in about 30 s"
    page = of_drainer(document)["Way of the stream"]
    said = page.named("svg")[0].attributes["aria-label"]
    for words in (
        "Write 0.5 s",
        "Index and sort 8.0 s",
        "Pull 1.0 s",
        "Merge, translate 0.5 s",
        "Apply 2.0 s",
    ):
        assert words in said
    assert "most of it in Index and sort" in said
    assert "the transaction with start_ts 7" in page.text
    assert "1,234 rows/s" in of_drainer(document)["Now"].text


def test_lanes_that_wait_come_first() -> None:
    lanes = [LaneStatus(lane=number, queued_bytes=number) for number in range(4000)]
    lanes[77] = LaneStatus(lane=77, waiting_for="read-only", waiting_s=61.0, tries=9, full=True)
    page = of_drainer(DrainerDocument(lanes=lanes))["Lanes (4,000)"]
    assert rows(page)[0] == ["77", "0 B (full)", "waits: read-only, for 61 s", "9"]
    assert rows(page)[1][:3] == ["3999", "3.9 KiB", "works"]
    assert len(rows(page)) == 100
    assert "1 wait, 1 are full" in page.text


def test_streams_of_pumps_that_hold_the_stream_come_first() -> None:
    pumps = {
        "a": SourceStatus(connected=True, state="online", position=ago(1), lag_s=1.0),
        "b": SourceStatus(connected=False, error="refused"),
        "c": SourceStatus(connected=True, state="online", holds=True, held_bytes=1 << 20),
    }
    found = rows(of_drainer(DrainerDocument(pumps=pumps))["Streams of pumps (3)"])
    assert [row[0] for row in found] == ["c", "b", "a"]
    assert found[0][4:] == ["1.0 MiB", "holds the stream"]
    assert (found[1][1], found[1][5]) == ("not connected", "refused")


def test_the_last_verify_or_the_command_for_one() -> None:
    none = of_drainer(DrainerDocument())["Last verify"]
    (line,) = none.named("code")
    assert parsed(line.text).command.words == "verify"
    assert "result" in of_drainer(DrainerDocument(verify=VerifyStatus(next_s=WALL_S)))["Last verify"].text
    verify = VerifyStatus(
        state="differs", ts=ago(9), ended_s=WALL_S, rows=1000, tables=3, wrong=2, left_out=1, failures=2,
        wrong_rows={"db.t": 2}, not_compared={"db.v": "a view"}, trouble="etcd is away",
        running_since_s=WALL_S, progress="half", next_s=WALL_S,
    )  # fmt: skip
    page = of_drainer(DrainerDocument(verify=verify))["Last verify"]
    for words in ("differs", "1,000 rows of 3 tables", "db.t", "a view", "2 times: etcd is away", "half"):
        assert words in page.text


def test_what_protects_and_what_went_wrong_before() -> None:
    document = DrainerDocument(
        last_ts=ago(5),
        ddl=DdlStatus(held_at=ago(70)),
        relay=RelayStatus(on=True, waiting_for="the disk"),
        archive=ArchiveStatus(last_commit_ts=ago(6), waiting_for="space"),
        drift=MismatchStatus(rows={"db.t": 3}, texts={"db.u": {"c": 4}}),
        went_back=[WentBackStatus(time=WALL_S, why="a backup was restored")],
        control=ControlStatus(rate_rows=10, rate_bytes=1 << 20),
        standby=StandbyFacts(waiting_s=5.0, trouble="cannot log in"),
        doing="applies",
        waits_for="pump p",
    )
    found = of_drainer(document)
    assert f"held by a waiting DDL at{tso_text(ago(70))}" in found["Retention"].text
    assert "waits: the disk" in found["Retention"].text
    assert "space" in found["Retention"].text
    texts = found["Rows that were not as they should be"].text
    assert "3 rows were not there" in texts
    assert "4 values of c" in texts
    assert "a backup was restored" in found["The downstream went back"].text
    for words in ("10 rows/s and 1.0 MiB/s", "cannot log in", "applies", "pump p"):
        assert words in found["Now"].text


def tso_text(ts: int) -> str:
    return read(str(markup.place(ts))).text


def test_a_drainer_that_says_little_has_a_headline_too() -> None:
    assert drainer_sections.headline(DrainerDocument(doing="standing by")) == "standing by"
    assert drainer_sections.headline(DrainerDocument(state="paused")) == "This drainer is paused"
    assert set(of_drainer(DrainerDocument())) == {"Now", "Retention", "Last verify"}


# -- a pump --------------------------------------------------------------------------------------------------


def test_a_pump_says_how_far_it_is_and_what_waits_where() -> None:
    pump = PumpStatus(
        state=ONLINE,
        watermark=ago(4),
        open_prewrites=2,
        stages=StagesStatus(
            accepted=StageStatus(lag_bytes=2048),
            written=StageStatus(records=9),
            indexed=StageStatus(lag_bytes=0, lag_s=0.5),
            sorted=StageStatus(lag_s=20.5, open_prewrites=2),
        ),
        disk=DiskStatus(available=3 << 30, floor=1 << 30),
        pullers=[PullerStatus(protocol="batch", position=ago(5), lag_s=1.0, credit_bytes=1 << 20)],
        streams=StreamsStatus(batch=1),
        oldest=[
            OpenPrewriteStatus(start_ts=5, age_s=20.0, table_id=77, upstream="alive", next="wait"),
            OpenPrewriteStatus(start_ts=6, age_s=2.0, ddl_job_id=8, ddl_query="DROP TABLE x"),
        ],
    )  # fmt: skip
    assert pump_sections.headline(PumpDocument(commit_ts=NOW_TS, pump=pump)) == (
        "Takes binlogs; sorted up to 4.0 s ago"
    )
    found = of_pump(pump)
    assert "3.0 GiB; prewrites are refused at 1.0 GiB" in found["Now"].text
    said = found["Way of a binlog"].named("svg")[0].attributes["aria-label"]
    for words in (
        "Accept 0.0 s (2.0 KiB wait)",
        "Index 0.5 s",
        "Sort 20 s (2 open)",
        "Pull 1.0 s (1 stream)",
    ):
        assert words in said
    assert [row[:3] for row in rows(found["Open transactions (2)"])] == [
        ["5", "20 s", "table 77"],
        ["6", "2.0 s", "DDL job 8: DROP TABLE x"],
    ]
    assert rows(found["Pull streams (1)"]) == [["batch", tso_text(ago(5)), "1.0 s", "1.0 MiB"]]


def test_what_is_lost_or_kept_the_shortest_comes_first() -> None:
    outlook = [
        PurgeOutlook(node_id="safe", left_s=None, live=True, limit=""),
        PurgeOutlook(node_id="near", left_s=60.0, live=True, limit="disk"),
        PurgeOutlook(node_id="lost", lost=True, left_s=None),
    ]
    retention = RetentionStatus(
        age_s=86400.0, gc_ts=ago(90000), first_file="000007.vlog", last_run_s_ago=30.0, purged_files=6,
        held_up_by=["the safe point of gc"], drainers=outlook,
    )  # fmt: skip
    page = of_pump(PumpStatus(retention=retention))["Retention"]
    found = rows(page)
    assert [row[0] for row in found] == ["lost", "near", "safe"]
    assert [row[3] for row in found] == ["purged already", "60 s", "-"]
    for words in ("24.0 h", "000007.vlog", "30 s ago", "the safe point of gc", "Purges less than it should"):
        assert words in page.text
    none = of_pump(PumpStatus(retention=RetentionStatus()))["Retention"].text
    assert "none yet" in none
    assert "No drainer needs what is stored." in none
    assert "Nothing is purged by this pump." in of_pump(PumpStatus())["Retention"].text


def test_a_pump_that_closes_says_what_it_waits_for() -> None:
    awaited = AwaitedDrainer(node_id="d", state=ONLINE, checkpoint=ago(9), behind_s=9.0, left_s=3.0)
    leaving = LeavingStatus(stage="reading", waits_for="drainers: d", drainers=[awaited])
    page = of_pump(PumpStatus(state=CLOSING, leaving=leaving))["Closing"]
    assert "reading: waits for drainers: d" in page.text
    assert rows(page) == [["d", "online", tso_text(ago(9)), "9.0 s", "3.0 s"]]
    assert of_pump(PumpStatus(leaving=LeavingStatus(stage="settling")))["Closing"].text == "settling"
    headline = pump_sections.headline(PumpDocument(pump=PumpStatus(state=CLOSING)))
    assert headline == "This pump is closing"


def test_a_go_pump_says_nothing_of_itself() -> None:
    found = dict(pump_sections.sections(PumpDocument()))
    assert set(found) == {
        "Now", "Way of a binlog", "Open transactions (0)", "Pull streams (0)", "Retention",
    }  # fmt: skip


# -- moments -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ts", [0, -1, 1 << 63, 1 << 64])
def test_what_is_no_timestamp_has_no_time(ts: int) -> None:
    assert (markup.place(ts), markup.behind(NOW_TS, ts)) == ("-", "-")


def test_times() -> None:
    assert tso_text(NOW_TS) == f"2023-11-14T22:13:20.000Z {NOW_TS}"
    assert markup.wall(WALL_S) == "2023-11-14T22:13:20.000Z"
    assert [markup.wall(time_s) for time_s in (0.0, -5.0, 1e30)] == ["-", "-", "-"]
    assert markup.behind(0, NOW_TS) == "-"
    assert markup.length(None) == "-"

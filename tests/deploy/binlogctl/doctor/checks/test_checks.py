"""doctor's cores: facts in, findings out, by table; and what a mend says can be done as it stands."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from binlog_playground.cluster.mariadb import DRAINER_RIGHTS
from binlogctl.doctor.checks import grants
from binlogctl.doctor.checks.checkpoint import check_checkpoint
from binlogctl.doctor.checks.clocks import check_clocks
from binlogctl.doctor.checks.downstream import check_downstream
from binlogctl.doctor.checks.nodes import check_nodes
from binlogctl.doctor.checks.storage import check_disk, check_disks, check_retention
from binlogctl.doctor.checks.upstream import check_members, check_stores, check_tidb
from binlogctl.doctor.facts import (
    Answer,
    CheckpointFacts,
    ClockFacts,
    DownstreamFacts,
    MemberFacts,
    NodeFacts,
    Replicated,
    StoreFacts,
    TableFacts,
    TidbFacts,
)
from binlogctl.doctor.findings import (
    EXIT_ERROR,
    EXIT_WARNING,
    Check,
    Finding,
    Report,
    Severity,
)
from binlogctl.doctor.gather import answers
from tests.cases import case
from tests.docs.pages import Page
from tidb_binlog import tso
from tidb_binlog.cluster.node import OFFLINE, ONLINE, PAUSED
from tidb_binlog.cluster.registry import DRAINERS, PUMPS
from tidb_binlog.status.pump import DiskStatus, PumpStatus, PurgeOutlook, RetentionStatus
from tidb_binlog.status.troubles import WARNING, Trouble

NOW_S = 1_700_000_000.0
NOW_TS = tso.from_wall_s(NOW_S)
DAY_S = 86400.0
GIB = 1 << 30
RETENTION = RetentionStatus(age_s=7 * DAY_S)
STATUS = PumpStatus(disk=DiskStatus(available=50 * GIB, floor=10 * GIB), gc_ts=0, retention=RETENTION)
OURS = Answer(False, "p", 7, "v1", pump=STATUS, capacity=100 * GIB)
PUMP = NodeFacts(PUMPS, "p", "10.0.0.1:8250", ONLINE, True, NOW_TS, NOW_TS, ("10.0.0.1",), OURS)
SECOND = replace(PUMP, node_id="q", host="10.0.0.2:8250", answer=replace(OURS, node_id="q"))
DRAINER = NodeFacts(
    DRAINERS, "d", "10.0.0.3:8249", ONLINE, True, NOW_TS, NOW_TS, ("10.0.0.3",), Answer(False, "d", 7, "v1")
)
HEALTHY = (PUMP, SECOND, DRAINER)


def ts_before(seconds: float) -> int:
    return tso.from_wall_s(NOW_S - seconds)


def bad(findings: list[Finding]) -> dict[str, Severity]:
    """Whatever is worse than a remark, by check."""
    return {one.check: one.severity for one in findings if one.severity.rank > Severity.INFO.rank}


# -- report ----------------------------------------------------------------------------------------


def test_report_is_sorted_and_its_exit_code_is_that_of_the_worst() -> None:
    fine, remark = Check("a", "x").ok("y"), Check("b", "x").info("y")
    alarm, broken = Check("c", "x").warning("y", "w", "m"), Check("d", "x").error("y", "w", "m")
    assert (Report.of([]).exit_code, Report.of(fine + remark).exit_code) == (0, 0)
    assert Report.of(fine + alarm + remark).exit_code == EXIT_WARNING
    report = Report.of(fine + alarm + broken + remark + alarm)
    assert report.exit_code == EXIT_ERROR
    assert [one.check for one in report.findings] == ["d", "c", "b", "a"]


# -- nodes -----------------------------------------------------------------------------------------


def checked(*nodes: NodeFacts, cluster_id: int | None = 7, one_host: bool = False) -> dict[str, Severity]:
    return bad(check_nodes(nodes, cluster_id, NOW_S, one_host=one_host))


def test_healthy_nodes() -> None:
    assert checked(*HEALTHY) == {}
    gone = replace(PUMP, node_id="old", state=OFFLINE, alive=False, answer=None)
    assert checked(*HEALTHY, gone) == {}
    local = [
        replace(one, host=f"127.0.0.1:{port}", resolved=("127.0.0.1",)) for port, one in enumerate(HEALTHY, 1)
    ]
    assert checked(*local, one_host=True) == {}


GO = Answer(foreign=True, registered=frozenset({"p", "q"}))


def test_one_wrong_node() -> None:
    for node, expected in [
        (replace(PUMP, alive=False, answer=None, error="refused"), {"node.dead": "error"}),
        (replace(DRAINER, alive=False, answer=None, error="refused"), {"node.dead": "error"}),
        (replace(PUMP, alive=True, answer=None, error="refused"), {"node.reachable": "error"}),
        (replace(PUMP, alive=None, answer=None, error="x"), {"node.reachable": "error"}),
        (replace(PUMP, alive=None, answer=None, update_ts=ts_before(300)), {"node.dead": "error"}),
        (replace(PUMP, alive=None, answer=GO), {"node.identity": "unchecked"}),
        (replace(PUMP, alive=None, answer=GO, update_ts=ts_before(300)), {"node.identity": "unchecked"}),
        (
            replace(PUMP, alive=None, answer=replace(GO, registered=frozenset({"z"}))),
            {"node.cluster": "error", "node.identity": "unchecked"},
        ),
        (replace(PUMP, state=PAUSED, alive=False, answer=None), {"node.paused": "error"}),
        (replace(DRAINER, state=PAUSED, alive=False, answer=None), {"node.paused": "error"}),
        (replace(DRAINER, state=PAUSED, alive=False, answer=None, reader=True), {}),
        (replace(PUMP, state="asleep"), {"node.state": "warning"}),
        (replace(PUMP, answer=replace(OURS, node_id="q")), {"node.identity": "error"}),
        (replace(PUMP, answer=replace(OURS, cluster_id=8)), {"node.cluster": "error"}),
        (replace(PUMP, answer=replace(OURS, registered=frozenset())), {"node.cluster": "error"}),
        (replace(PUMP, answer=replace(OURS, version="v2")), {"cluster.versions": "warning"}),
        (
            replace(PUMP, answer=replace(OURS, troubles=(Trouble(WARNING, "p", "disk is gone"),))),
            {"node.trouble": "warning"},
        ),
        (replace(PUMP, host="0.0.0.0:8250"), {"node.address": "error"}),
        (replace(PUMP, host="localhost:8250"), {"node.address": "error"}),
        (replace(PUMP, host="127.0.0.1:8250"), {"node.address": "error"}),
        (replace(PUMP, host="own-name:8250", resolved=("127.0.1.1",)), {"node.address": "error"}),
        (replace(PUMP, host="box.internal:8250", resolved=None), {"node.address": "error"}),
        (replace(PUMP, host="169.254.0.9:8250"), {"node.address": "warning"}),
        (replace(PUMP, host="240.0.0.1:8250"), {"node.address": "error"}),
        (
            replace(PUMP, host="10.0.0.2:8250", answer=None, alive=True),
            {"node.duplicate": "error", "node.reachable": "error"},
        ),
    ]:
        with case(node, expected):
            others = [one for one in HEALTHY if one.node_id != node.node_id]
            assert checked(node, *others) == expected


def test_roles() -> None:
    assert checked(DRAINER) == {"cluster.pumps": "error"}
    assert checked(replace(PUMP, state=PAUSED, alive=False, answer=None), DRAINER) == {
        "cluster.pumps": "error",
        "node.paused": "error",
    }
    assert checked(PUMP) == {}


def test_cluster_id_that_is_not_known_is_not_compared() -> None:
    assert checked(*HEALTHY, cluster_id=None) == {}


# -- clocks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offsets", "expected"),
    [
        ([], []),
        ([0.0, 0.4, -0.4], ["ok"]),
        ([0.0, 0.0, 5.0], ["warning"]),
        ([0.0, 0.0, -300.0], ["error"]),
        ([0.0, 10.0, -300.0], ["warning", "error"]),
        ([50.0, 50.2, 49.9], ["info"]),
        ([50.0, 50.2, 90.0], ["warning", "warning", "error"]),
        ([90.0], ["error"]),
    ],
)
def test_clocks(offsets: list[float], expected: list[str]) -> None:
    seen = [ClockFacts(f"c{number}", offset, 0.01) for number, offset in enumerate(offsets)]
    assert [one.severity for one in check_clocks(seen)] == expected


def test_slow_answer_proves_no_skew() -> None:
    assert bad(check_clocks([ClockFacts("far", 4.0, 3.0), ClockFacts("near", 0.0, 0.0)])) == {}


# -- storage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("disk", "capacity", "expected", "says"),
    [
        (DiskStatus(available=50 * GIB, floor=10 * GIB), 100 * GIB, "ok", ""),
        (DiskStatus(available=9 * GIB, floor=10 * GIB), 10 * GIB, "error", "smaller than the free space"),
        (DiskStatus(available=9 * GIB, floor=None), 10 * GIB, "error", "smaller than the free space"),
        (DiskStatus(available=10 * GIB, floor=10 * GIB), 100 * GIB, "error", "refuses prewrites"),
        (DiskStatus(available=11 * GIB, floor=10 * GIB), 100 * GIB, "warning", "little is left"),
        (DiskStatus(available=1, floor=0), None, "warning", "little is left"),
        (DiskStatus(available=0, floor=0), None, "error", "refuses prewrites"),
    ],
)
def test_disks(disk: DiskStatus, capacity: int | None, expected: str, says: str) -> None:
    (found,) = check_disk("p", disk, capacity)
    assert found.severity == expected
    assert says in found.why


def answering(gc_ts: int | None = 0, retention: RetentionStatus = RETENTION) -> NodeFacts:
    status = PumpStatus(disk=STATUS.disk, gc_ts=gc_ts, retention=retention)
    return replace(PUMP, answer=replace(OURS, pump=status))


def retention(behind_s: float, gc_ts: int = 0, **told: Any) -> dict[str, Severity]:
    pump = answering(gc_ts, RetentionStatus(**{"age_s": 7 * DAY_S} | told))
    return bad(check_retention([pump, replace(DRAINER, max_commit_ts=ts_before(behind_s))], NOW_S))


def test_retention() -> None:
    assert retention(5) == {}
    assert retention(6 * DAY_S) == {}
    assert retention(6.5 * DAY_S) == {"retention": "warning"}
    assert retention(6.5 * DAY_S, alarm_s=3600.0) == {}
    assert retention(5, age_s=3600.0) == {}
    assert retention(2000, age_s=3600.0) == {"retention": "error"}
    assert retention(5, drainers=[PurgeOutlook(node_id="d", left_s=60.0)]) == {"retention": "error"}
    assert retention(6 * DAY_S, gc_ts=ts_before(5 * DAY_S)) == {"retention": "error"}
    assert retention(6 * DAY_S, age_s=None) == {"retention": "unchecked"}
    offline = replace(DRAINER, state=OFFLINE, max_commit_ts=ts_before(30 * DAY_S))
    assert check_retention([PUMP, offline], NOW_S) == []


@pytest.mark.parametrize("silent", [replace(SECOND, answer=None), answering(None)])
def test_what_not_every_pump_has_told_is_not_fine(silent: NodeFacts) -> None:
    for pumps, expected in (((PUMP, SECOND), {"ok"}), ((PUMP, silent), {"unchecked"})):
        told = check_retention([*pumps, DRAINER], NOW_S)
        assert {one.severity for one in told} == expected


def test_pump_that_does_not_tell_its_disk_is_said() -> None:
    assert bad(check_disks([replace(PUMP, answer=GO)])) == {"pump.disk": "unchecked"}


# -- upstream --------------------------------------------------------------------------------------

MEMBERS = tuple(MemberFacts(f"http://pd{n}:2379", True, None, 7, f"pd{n}", True) for n in range(3))
AWAY = replace(MEMBERS[2], error="refused", name="", cluster_id=None)


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        (MEMBERS, {}),
        (MEMBERS[:1], {}),
        ((*MEMBERS[:2], AWAY), {"upstream.reachable": "warning"}),
        ((MEMBERS[0], AWAY, replace(AWAY, url="http://pd1:2379")),
         {"upstream.reachable": "warning", "upstream.quorum": "error"}),
        ((AWAY,), {"upstream.reachable": "error"}),
        ((*MEMBERS[:2], replace(MEMBERS[2], cluster_id=8)), {"upstream.cluster": "error"}),
        (tuple(replace(one, has_leader=False) for one in MEMBERS), {"upstream.leader": "error"}),
    ],
)  # fmt: skip
def test_members(members: tuple[MemberFacts, ...], expected: dict[str, str]) -> None:
    assert bad(check_members(members)) == expected


def test_stores() -> None:
    up = StoreFacts(1, "tikv:20160", "Up", "7.0.0")
    assert bad(check_stores([up, replace(up, state="Offline")])) == {}
    assert bad(check_stores([replace(up, error="refused")])) == {"upstream.store": "warning"}


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        (TidbFacts("t:10080", "On", False), {}),
        (TidbFacts("t:10080", "Off"), {"tidb.binlog": "error"}),
        (TidbFacts("t:10080", "Skipping"), {"tidb.skipping": "error"}),
        (TidbFacts("t:10080", "On", True), {"tidb.skipping": "error"}),
        (TidbFacts("t:10080", "Unknown"), {"tidb.binlog": "unchecked"}),
        (TidbFacts("t:10080", None, error="refused"), {"tidb.binlog": "unchecked"}),
        (TidbFacts("t:10080", "On", error="refused"), {"tidb.reachable": "warning"}),
    ],
)
def test_tidb_servers(server: TidbFacts, expected: dict[str, str]) -> None:
    assert bad(check_tidb([server], expected=True, asked=False)) == expected


def test_no_tidb_server_is_said_where_there_should_be_some() -> None:
    assert bad(check_tidb([], expected=True, asked=False)) == {"tidb.binlog": "unchecked"}
    assert check_tidb([], expected=False, asked=False) == []


# -- answers ---------------------------------------------------------------------------------------


def test_go_pump_tells_its_disk_and_what_it_purged_in_its_metrics() -> None:
    status = b'{"status":{"a:8250":{"nodeId":"a:8250"}},"CommitTS":4,"Checkpoint":{},"ErrMsg":""}\n'
    exposition = (
        b"# TYPE binlog_pump_storage_storage_size_bytes gauge\n"
        b'binlog_pump_storage_storage_size_bytes{type="available"} 2.147483648e+09\n'
        b'binlog_pump_storage_storage_size_bytes{type="capacity"} 4.294967296e+09\n'
        b"binlog_pump_storage_gc_ts 1.7e+12\n"
    )
    answer = answers.read_pump(status, exposition)
    assert answer is not None
    assert (answer.foreign, answer.node_id, answer.registered) == (True, None, frozenset({"a:8250"}))
    assert (answer.pump.disk, answer.capacity) == (DiskStatus(available=2 * GIB), 4 * GIB)
    assert answer.pump.gc_ts == tso.compose(1_700_000_000_000)


def test_go_drainer_is_told_from_ours_and_from_anything_else() -> None:
    go = b'{"PumpPos":{"pump-a:8250":4},"Synced":false,"LastTS":4,"TsMap":""}'
    assert answers.read_drainer(go) == Answer(foreign=True)
    assert answers.read_drainer(b'{"status":"ok"}') is None
    assert answers.read_pump(go) is None
    assert answers.read_pump(b"<html>") is None
    assert answers.read_drainer(b"[" * 10_000) is None


# -- grants ----------------------------------------------------------------------------------------


def test_rights_are_those_of_the_page_and_of_the_playground() -> None:
    ours = {*grants.ROWS, *grants.TABLES, *grants.NICE, *grants.GLOBAL, *grants.GLOBAL_MARIADB}
    assert ours == {right.strip() for right in DRAINER_RIGHTS.split(",")}
    page = " ".join(Page("docs/drainer.md").text.split())
    listed = page.partition("A Drainer needs a user with `")[2].partition("`")[0]
    assert {right.strip() for right in listed.split(",")} == ours - set(grants.GLOBAL_MARIADB)


ALL_RIGHTS = f"GRANT {DRAINER_RIGHTS} ON *.* TO `d`@`%` IDENTIFIED BY PASSWORD '*AB'"


@pytest.mark.parametrize(
    ("lines", "databases", "lacking"),
    [
        ([ALL_RIGHTS], None, {}),
        (["GRANT ALL PRIVILEGES ON *.* TO `d`@`%` WITH GRANT OPTION"], None, {}),
        (["GRANT USAGE ON *.* TO `d`@`%`", "GRANT ALL PRIVILEGES ON `shop`.* TO `d`@`%`"], ["shop"],
         {"tidb_binlog", "*"}),
        (["GRANT PROCESS, SET USER ON *.* TO `d`@`%`", "GRANT ALL PRIVILEGES ON `shop`.* TO `d`@`%`",
          r"GRANT ALL PRIVILEGES ON `tidb\_binlog`.* TO `d`@`%`"], ["shop"], {}),
        (["GRANT PROCESS, SUPER ON *.* TO `d`@`%`", "GRANT ALL PRIVILEGES ON `sh%`.* TO `d`@`%`",
          "GRANT ALL PRIVILEGES ON `tidb_binlog`.* TO `d`@`%`"], ["shop", "other"], {"other"}),
        (["GRANT ALL PRIVILEGES ON `shop`.`t` TO `d`@`%`", "GRANT SELECT (a) ON `shop`.* TO `d`@`%`"],
         ["shop"], {"shop", "tidb_binlog", "*"}),
        (["GRANT `role` TO `d`@`%`", "SET DEFAULT ROLE `role` FOR `d`@`%`", ALL_RIGHTS], None, {}),
        (["GRANT ALL ON *.* TO 'd'@'%'"], None, {}),
        ([ALL_RIGHTS, "REVOKE INSERT ON `shop`.* FROM `d`@`%`"], None, {"shop"}),
        ([ALL_RIGHTS, "REVOKE INSERT ON `shop`.* FROM `d`@`%`"], ["other"], {}),
        ([ALL_RIGHTS, "REVOKE INSERT, CREATE ON `mysql`.* FROM `d`@`%`"], None, {}),
    ],
)  # fmt: skip
def test_grants(lines: list[str], databases: list[str] | None, lacking: set[str]) -> None:
    found = grants.missing(grants.parse(lines), databases, "tidb_binlog", apart=grants.apart_of((10, 11)))
    assert set(found) == set(lacking)


def test_each_right_that_lacks_is_named() -> None:
    names = [right.strip() for right in DRAINER_RIGHTS.split(",")]
    for count, mariadb in itertools.product((1, 2), (True, False)):
        for lacking in itertools.combinations(names, count):
            line = f"GRANT {', '.join(name for name in names if name not in lacking)} ON *.* TO `d`@`%`"
            found = grants.missing(
                grants.parse([line]), None, "s", apart=grants.apart_of((10, 11) if mariadb else None)
            )
            expected = {name for name in lacking if mariadb or name != "SET USER"}
            assert set(found.get("*", [])) == expected


def test_old_mariadb_has_another_name_for_a_right() -> None:
    assert grants.apart_of((10, 4)) == ("PROCESS", "SUPER")
    assert grants.apart_of((10, 5)) == ("PROCESS", "SET USER")


# -- downstream ------------------------------------------------------------------------------------

GOOD = {
    "sql_mode": "STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION",
    "character_set_server": "utf8mb4",
    "collation_server": "utf8mb4_bin",
    "max_allowed_packet": "67108864",
    "max_connections": "151",
    "read_only": "OFF",
    "time_zone": "SYSTEM",
    "system_time_zone": "UTC",
    "default_storage_engine": "InnoDB",
    "wait_timeout": "28800",
    "max_statement_time": "0.000000",
}
SERVER = DownstreamFacts("db:3306", "d@%", "10.11.6-MariaDB", GOOD, (ALL_RIGHTS,), 0.0, True)
WRITTEN = Replicated(None, "tidb_binlog", 4, "d")


def downstream(**changed: str) -> dict[str, Severity]:
    return bad(check_downstream(replace(SERVER, variables=GOOD | changed), WRITTEN))


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("read_only", "OFF", {}),
        ("read_only", "ON", {"downstream.writable": "error"}),
        ("super_read_only", "ON", {"downstream.writable": "error"}),
        ("tidb_super_read_only", "ON", {"downstream.writable": "error"}),
        ("read_only", "NO_LOCK_NO_ADMIN", {"downstream.writable": "error"}),
        ("innodb_force_recovery", "3", {"downstream.writable": "error"}),
        ("sql_mode", "", {"downstream.sql_mode": "warning"}),
        ("sql_mode", "STRICT_ALL_TABLES,ANSI_QUOTES", {"downstream.sql_mode": "warning"}),
        ("max_allowed_packet", "4194304", {"downstream.max_allowed_packet": "warning"}),
        ("max_allowed_packet", "16777216", {}),
        ("max_connections", "11", {"downstream.max_connections": "warning"}),
        ("max_statement_time", "60.000000", {"downstream.max_statement_time": "warning"}),
        ("wait_timeout", "10", {"downstream.wait_timeout": "warning"}),
        ("character_set_server", "latin1", {"downstream.charset": "warning"}),
        ("collation_server", "utf8mb4_general_ci", {}),
        ("lower_case_table_names", "1", {}),
        ("default_storage_engine", "MyISAM", {"downstream.engine": "error"}),
        ("sql_require_primary_key", "ON", {"downstream.primary_key": "warning"}),
        ("wsrep_on", "ON", {}),
        ("innodb_flush_log_at_trx_commit", "2", {}),
    ],
)
def test_variables(name: str, value: str, expected: dict[str, str]) -> None:
    assert downstream(**{name: value}) == expected


def test_statement_based_binary_log_is_an_error_only_where_there_is_one() -> None:
    assert downstream(log_bin="OFF", binlog_format="STATEMENT") == {}
    assert downstream(log_bin="ON", binlog_format="MIXED") == {}
    assert downstream(log_bin="ON", binlog_format="STATEMENT") == {"downstream.binlog_format": "error"}


def test_what_means_something_else_in_tidb_is_passed_over() -> None:
    variables = GOOD | {
        "log_bin": "ON",
        "binlog_format": "STATEMENT",
        "wait_timeout": "0",
        "max_connections": "0",
    }
    seen = replace(SERVER, version="8.0.11-TiDB-v7.5.0", variables=variables)
    assert bad(check_downstream(seen, WRITTEN)) == {}


def test_tables_without_transactions_are_named() -> None:
    tables = (
        *(TableFacts("shop", f"t{number}", "MyISAM", has_key=True) for number in range(12)),
        TableFacts("shop", "log`s", "Aria", has_key=False),
        TableFacts("other", "x", "CSV", has_key=False),
    )
    seen = replace(SERVER, untransactional=tables)
    found = [
        one
        for one in check_downstream(seen, replace(WRITTEN, databases=("shop",)))
        if one.check == "downstream.transactions"
    ]
    assert [one.severity for one in found] == ["error", "warning"]
    assert "shop.log`s (Aria)" in found[0].seen
    assert "other" not in found[0].seen
    assert "`shop`.`log``s`" in found[0].mend
    assert "and 2 more" in found[1].seen
    # It is not known what is replicated.
    assert bad(check_downstream(seen, WRITTEN)) == {"downstream.transactions": "warning"}


def test_what_a_server_does_not_tell_is_said() -> None:
    seen = replace(SERVER, variables={}, grants=None, zone_offset_s=None)
    assert set(bad(check_downstream(seen, WRITTEN)).values()) == {Severity.UNCHECKED}
    assert len(bad(check_downstream(seen, WRITTEN))) == 6


@pytest.mark.parametrize(
    ("offset_s", "upstream_s", "expected"),
    [
        (0, None, "ok"),
        (28800, None, "info"),
        (28800, 28800.0, "ok"),
        (0, 28800.0, "warning"),
        (-18000, 0.0, "warning"),
    ],
)
def test_time_zones(offset_s: float, upstream_s: float | None, expected: str) -> None:
    found = check_downstream(replace(SERVER, zone_offset_s=offset_s), WRITTEN, upstream_s)
    assert [one.severity for one in found if one.check == "downstream.time_zone"] == [expected]


@pytest.mark.parametrize(
    ("version", "is_old"),
    [("10.11.6-MariaDB", False), ("5.5.5-10.1.48-MariaDB", True), ("8.0.36", False), ("5.6.51", True),
     ("8.0.11-TiDB-v7.5.0", False), ("5.7.25-TiDB-v5.0.0", False)],
)  # fmt: skip
def test_versions(version: str, is_old: bool) -> None:
    found = check_downstream(replace(SERVER, version=version), WRITTEN)
    assert any(one.check == "downstream.version" for one in found) is is_old


def test_hash_of_a_password_in_grants_is_not_shown() -> None:
    seen = replace(SERVER, grants=("GRANT SELECT ON *.* TO `d`@`%` IDENTIFIED BY PASSWORD '*HASH'",))
    assert "HASH" not in repr(check_downstream(seen, WRITTEN))


# -- checkpoint ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "owner", "expected"),
    [
        (None, None, {}),
        ({}, None, {}),
        ({7: f'{{"commitTS":{ts_before(5)}}}'}, "d", {}),
        ({7: f'{{"commitTS":{ts_before(5)}}}', 8: "{}"}, None, {}),
        ({8: "{}"}, None, {"checkpoint": "warning"}),
        ({7: f'{{"commitTS":{ts_before(-900)}}}'}, None, {"checkpoint": "error"}),
        ({7: f'{{"commitTS":{ts_before(9 * DAY_S)}}}'}, None, {"checkpoint": "error"}),
        ({7: "nonsense"}, None, {"checkpoint": "error"}),
        ({7: f'{{"commitTS":{ts_before(5)}}}'}, "other", {"checkpoint.owner": "error"}),
        ({7: f'{{"commitTS":{ts_before(5)}}}'}, "gone", {}),
    ],
)
def test_checkpoints(rows: dict[int, str] | None, owner: str | None, expected: dict[str, str]) -> None:
    pump = answering(gc_ts=ts_before(8 * DAY_S))
    nodes = [pump, DRAINER, replace(DRAINER, node_id="other", host="10.0.0.9:8249")]
    seen = CheckpointFacts("tidb_binlog", "checkpoint", rows, owner)
    assert bad(check_checkpoint(seen, 7, NOW_TS, nodes, WRITTEN)) == expected


def test_checkpoint_that_moved_on_while_the_doctor_asked_is_not_ahead() -> None:
    seen = CheckpointFacts("tidb_binlog", "checkpoint", {7: f'{{"commitTS":{ts_before(-5)}}}'})
    for since_s, expected in ((4.5, {}), (1.0, {"checkpoint": "error"})):
        assert bad(check_checkpoint(seen, 7, NOW_TS, [], WRITTEN, since_s)) == expected


def test_owner_is_known_by_its_address_where_the_file_has_no_node_id() -> None:
    seen = CheckpointFacts("tidb_binlog", "checkpoint", {7: f'{{"commitTS":{NOW_TS}}}'}, "d")
    for address, expected in ((DRAINER.host, {}), ("10.0.0.9:8249", {"checkpoint.owner": "error"})):
        mine = replace(WRITTEN, node_id="", address=address)
        assert bad(check_checkpoint(seen, 7, NOW_TS, [DRAINER], mine)) == expected


def test_checkpoint_that_cannot_be_judged_is_said() -> None:
    seen = CheckpointFacts("s", "t", {7: "{}"})
    assert bad(check_checkpoint(seen, None, None, [], WRITTEN)) == {"checkpoint": "unchecked"}
    assert bad(check_checkpoint(replace(seen, error="1142: no"), 7, None, [], WRITTEN)) == {
        "checkpoint": "unchecked"
    }


def test_a_page_is_asked_for_as_the_doctor_does() -> None:
    silent = replace(PUMP, answer=None, error="silence", tls=True)
    found = check_nodes([silent], 7, NOW_S, one_host=True)
    mends = [one.mend for one in found if one.check == "node.reachable"]
    assert len(mends) == 1
    assert f"curl -s --cacert CA --cert CERT --key KEY 'https://{PUMP.host}/status'" in mends[0]

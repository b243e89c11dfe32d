"""Prepared transactions that nobody has settled: status and doctor name them, and what ends them."""

from __future__ import annotations

import json

import pytest

from binlogctl.cluster import in_doubt
from binlogctl.cluster.in_doubt import AGE_S, Doubt
from binlogctl.doctor import DoctorOptions, Severity, examine
from binlogctl.doctor.checks.upstream import check_prepared
from tests.deploy.binlogctl.conftest import Ctl
from tidb_binlog import tso
from tidb_binlog.clock import ManualClock, SystemClock
from tidb_binlog.errors import Corruption
from tidb_binlog.etcd.client import EtcdClient
from tidb_binlog.upstream.standalone import StandaloneUpstream
from tidb_binlog.upstream.standalone.layout import Prepared, txn_key

NOW_S = 1_700_000_000.0


def begun(seconds: float) -> int:
    return tso.from_wall_s(NOW_S - seconds)


def prepared(database: str = "shop", *, left_s: float = -1.0) -> Prepared:
    return Prepared(int((NOW_S + left_s) * 1000), 3000, begun(0), database)


def test_those_of_the_last_minute_are_nobodys_business() -> None:
    assert in_doubt.doubts({}, NOW_S) == []
    assert in_doubt.doubts({begun(AGE_S - 1): prepared()}, NOW_S) == []


def test_old_ones_are_named_by_database() -> None:
    old = begun(300)
    found = {begun(200): prepared(), old: prepared(left_s=2), begun(61): prepared("bank", left_s=2)}
    assert in_doubt.doubts(found, NOW_S) == [
        Doubt("bank", f"transaction {begun(61)}, begun 61 s ago, is prepared in database bank", False),
        Doubt("shop", f"transaction {old} and 1 more, begun 5 min ago, is prepared in database shop", True),
    ]


@pytest.mark.parametrize(
    ("entries", "severity"),
    [
        ({}, None),
        ({begun(99): prepared()}, Severity.ERROR),
        ({begun(99): prepared(left_s=2)}, Severity.WARNING),
        (Corruption("entry txn/5 is damaged"), Severity.ERROR),
    ],
)
def test_the_doctors_finding(entries: dict[int, Prepared] | Corruption, severity: Severity | None) -> None:
    found = check_prepared(entries, NOW_S)
    assert [one.severity for one in found] == ([] if severity is None else [severity])


@pytest.mark.integration
async def test_status_and_doctor_name_them(etcd_clean: str, ctl: Ctl) -> None:
    clock = ManualClock(SystemClock().wall_s() - 300)
    upstream = await StandaloneUpstream.connect(etcd_clean, clock=clock)
    client = await EtcdClient.connect(etcd_clean)
    try:
        start_ts = await upstream.transactions.begin()
        await upstream.transactions.prepare(start_ts, "shop")
        before = await client.get(txn_key(start_ts))

        text = f"transaction {start_ts}, begun 5 min ago, is prepared in database shop"
        status = await ctl("status", "-pd-urls", etcd_clean, "-output", "json")
        troubles = [one for one in json.loads(status.out)["troubles"] if one["node"] == "upstream"]
        assert [(one["severity"], one["hint"]) for one in troubles] == [("error", in_doubt.MEND)]
        assert troubles[0]["text"].startswith(text)
        report = await examine(DoctorOptions(pd_urls=etcd_clean))
        assert [one.seen for one in report.findings if one.check == "upstream.prepared"] == [text]
        assert await client.get(txn_key(start_ts)) == before  # looking ends nothing

        await client.put(txn_key(start_ts), b"what")
        status = await ctl("status", "-pd-urls", etcd_clean)
        assert "error: upstream its table of transactions: " in status.out
        assert "no pump is online" in status.out
    finally:
        await client.close()
        await upstream.close()

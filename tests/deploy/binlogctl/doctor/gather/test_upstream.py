"""doctor on PD: members, also those that only PD tells of, stores, time; and its two outputs."""

from __future__ import annotations

import asyncio
import datetime
import json
from dataclasses import replace

import pytest

from binlogctl.doctor import EXIT_ERROR, DoctorOptions, Report, Severity, examine, main
from tests.fakes.cluster import FakeCluster
from tests.fakes.pd import FakePd
from tests.waiting import PATIENCE_S
from tidb_binlog.clock import ManualClock, SystemClock
from tidb_binlog.errors import ConfigError
from tidb_binlog.net.port import free_ports


def checks(report: Report) -> dict[tuple[str, str], Severity]:
    """Severity by check and subject; without what has no etcd here."""
    return {(one.check, one.subject): one.severity for one in report.findings}


@pytest.mark.parametrize("kind", ["auto", "tidb"])
async def test_members_stores_and_time_of_pd(kind: str) -> None:
    cluster = FakeCluster(stores=2, clock=ManualClock(SystemClock().wall_s() + 600))
    listening = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    cluster.stores[1] = replace(cluster.stores[1], address=f"127.0.0.1:{port}")
    cluster.stores[2] = replace(cluster.stores[2], address=f"127.0.0.1:{free_ports(1)[0]}")
    pd = await FakePd.start(cluster, members=3)
    try:
        await pd.members[2].stop()
        first = pd.endpoints.partition(",")[0]
        found = checks(await examine(DoctorOptions(pd_urls=first, upstream=kind, timeout_s=PATIENCE_S)))
    finally:
        listening.close()
        await listening.wait_closed()
        await pd.close()
    reachable = {
        subject: severity for (check, subject), severity in found.items() if check == "upstream.reachable"
    }
    assert reachable == {
        f"http://{pd.members[0].address}": Severity.OK,
        f"http://{pd.members[1].address}": Severity.OK,
        f"http://{pd.members[2].address}": Severity.WARNING,
    }
    assert found["upstream.quorum", "PD"] is Severity.INFO
    stores = [severity for (check, _), severity in found.items() if check == "upstream.store"]
    assert sorted(stores) == [Severity.OK, Severity.WARNING]
    assert found["upstream.timestamp", "upstream"] is Severity.OK
    assert found["clock.skew", "PD"] is Severity.ERROR


async def test_an_etcd_where_no_pump_was_started_yet(etcd_clean: str) -> None:
    report = await examine(DoctorOptions(pd_urls=etcd_clean, timeout_s=PATIENCE_S))
    (found,) = (one for one in report.findings if one.check == "upstream.timestamp")
    assert (found.severity, found.mend) == (
        Severity.ERROR,
        "start a pump, which makes it; or correct the address",
    )
    assert checks(report)["upstream.quorum", "etcd"] is Severity.INFO


async def test_pd_without_a_leader_is_found() -> None:
    pd = await FakePd.start(FakeCluster(), members=3)
    try:
        pd.elect(None)
        found = checks(await examine(DoctorOptions(pd_urls=pd.endpoints, timeout_s=2.0)))
    finally:
        await pd.close()
    assert found["upstream.leader", f"http://{pd.members[0].address}"] is Severity.ERROR
    assert found["upstream.timestamp", "upstream"] is Severity.ERROR


def test_main_prints_the_report_to_one_stream_and_progress_to_the_other(
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = DoctorOptions(pd_urls=f"http://127.0.0.1:{free_ports(1)[0]}", output="json", timeout_s=0.5)
    assert main(options) == EXIT_ERROR
    out, err = capsys.readouterr()
    assert json.loads(out)["exit_code"] == EXIT_ERROR
    assert "examining pumps and drainers\n" in err
    assert main(replace(options, output="table")) == EXIT_ERROR
    assert capsys.readouterr().out.splitlines()[-1].startswith("1 error, ")


@pytest.mark.parametrize(
    "options",
    [
        DoctorOptions(pd_urls="ftp://x:1"),
        DoctorOptions(tidb="nobody"),
        DoctorOptions(output="yaml"),
        DoctorOptions(upstream="mysql"),
        DoctorOptions(time_zone="Mars/Olympus"),
        DoctorOptions(timeout_s=0),
        DoctorOptions(ssl_ca="x", ssl_cert="y"),
    ],
)
async def test_options_that_cannot_be_meant(options: DoctorOptions) -> None:
    with pytest.raises(ConfigError):
        await examine(options)


@pytest.mark.parametrize(
    ("zone", "offset_s"), [("+08:00", 28800), ("-05:30", -19800), ("UTC", 0), ("Asia/Tokyo", 32400)]
)
def test_time_zones_by_name_and_by_offset(zone: str, offset_s: float) -> None:
    assert DoctorOptions(time_zone=zone).zone_offset_s == offset_s


def test_the_time_zone_of_this_host() -> None:
    offset = datetime.datetime.now().astimezone().utcoffset()
    assert offset is not None
    assert DoctorOptions(time_zone="Local").zone_offset_s == offset.total_seconds()

"""doctor on files: configurations that a daemon would refuse or that contradict themselves, and TLS files."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from binlog_playground.cluster.etcd_server import EtcdServer
from binlogctl.doctor import DoctorOptions, Finding, Severity, examine
from binlogctl.doctor.config_files import ConfigFiles
from tests import certificates
from tests.waiting import PATIENCE_S
from tidb_binlog import mount
from tidb_binlog.clock import SystemClock

NOW_S = SystemClock().wall_s()


def checked(tmp_path: Path, kind: str, text: str, mode: int = 0o600) -> list[Finding]:
    path = tmp_path / f"{kind}.toml"
    path.write_text('pd-urls = "http://pd:2379"\n' + text)
    path.chmod(mode)
    files = ConfigFiles(str(path), "") if kind == "pump" else ConfigFiles("", str(path))
    return files.check(NOW_S)


@pytest.mark.parametrize("kind", ["pump", "drainer"])
def test_good_file_is_fine(tmp_path: Path, kind: str) -> None:
    assert {one.severity for one in checked(tmp_path, kind, "")} == {Severity.OK}


def test_channel_of_the_go_drainers_own_file_is_not_meant(tmp_path: Path) -> None:
    found = checked(tmp_path, "drainer", "[syncer]\nloopback-control = false\nchannel-id = 1")
    assert {one.severity for one in found} == {Severity.OK}


@pytest.mark.parametrize(
    ("kind", "text", "severity", "says"),
    [
        ("pump", 'data_dir = "x"', Severity.ERROR, "did you mean data-dir"),
        ("pump", 'advertise-addr = "0.0.0.0:8250"', Severity.ERROR, "what other hosts can reach"),
        ("pump", 'gc = "7d"', Severity.ERROR, "unsupported gc time"),
        ("pump", "[storage]\nsync-log = false", Severity.WARNING, "power cut"),
        ("pump", '[storage]\nretention-free-space = "1 GiB"', Severity.ERROR, "above stop-write"),
        ("pump", '[security]\nssl-cert = "x"', Severity.ERROR, "without ssl-ca"),
        ("drainer", "[syncer]\nworker_count = 3", Severity.ERROR, "did you mean syncer.worker-count"),
        ("drainer", '[syncer]\nsql-mode = "NO_ENGINE_SUBSTITUTION"', Severity.WARNING, "not strict"),
        ("drainer", '[syncer]\nreplicate-do-db = ["mysql"]', Severity.WARNING, "in replicate-do-db and in"),
        ("drainer", "standby = true", Severity.WARNING, "without node-id"),
        ("drainer", "[syncer]\nchannel-id = 3", Severity.WARNING, "loopback-control"),
        ("drainer", '[syncer.to.checkpoint]\nhost = "elsewhere"', Severity.WARNING, "but no type"),
        ("drainer", '[syncer.to.security]\nssl-cert = "x"', Severity.ERROR, "without ssl-ca"),
        ("drainer", '[[syncer.replicate-do-table]]\ndb-name = "a"', Severity.ERROR, ""),
        ("drainer", "[syncer.to.params]\ntime_zone = 'UTC'", Severity.INFO, "passed over"),
    ],
)
def test_wrong_file_is_found(tmp_path: Path, kind: str, text: str, severity: Severity, says: str) -> None:
    (found,) = [one for one in checked(tmp_path, kind, text) if one.severity is not Severity.OK]
    assert found.severity is severity
    assert says in f"{found.seen} {found.why} {found.mend}"


async def test_urls_of_another_cluster_are_found_and_others_of_the_same_are_fine(
    tmp_path: Path, etcd: str
) -> None:
    path = tmp_path / "pump.toml"
    second = EtcdServer.start(tmp_path / "second")
    try:
        for urls, severity in (
            (etcd, Severity.OK),
            (etcd.replace("127.0.0.1", "localhost"), Severity.OK),
            (second.endpoint, Severity.ERROR),
            ("http://127.0.0.1:1", Severity.UNCHECKED),
        ):
            path.write_text(f'pd-urls = "{urls}"\naddr = "127.0.0.1:8250"')
            report = await examine(DoctorOptions(pd_urls=etcd, pump_config=str(path), timeout_s=PATIENCE_S))
            found = [one.severity for one in report.findings if one.check == "pump.config"]
            assert max(found, key=lambda one: one.rank) is severity
    finally:
        second.stop()


def test_password_that_everybody_may_read_is_found_and_not_shown(tmp_path: Path) -> None:
    text = '[syncer.to]\npassword = "hidden-word"'
    for mode in (0o600, 0o640):
        assert {one.severity for one in checked(tmp_path, "drainer", text, mode)} == {Severity.OK}
    (found,) = checked(tmp_path, "drainer", text, 0o644)[1:]
    assert (found.severity, found.mend.partition("   ")[0]) == (
        Severity.WARNING,
        f"chmod o= {tmp_path / 'drainer.toml'}",
    )
    assert "hidden-word" not in repr(found)


def test_missing_file_is_found() -> None:
    (found,) = ConfigFiles("/no/such/pump.toml", "").check(NOW_S)
    assert found.severity is Severity.ERROR


def _tls(tmp_path: Path, node: certificates.Pair, *authorities: certificates.Pair) -> list[Finding]:
    tls = certificates.write(tmp_path / "tls", ca=authorities, node=node)
    found = ConfigFiles.check_tls("[security]", tls, ("127.0.0.1",), NOW_S + 60)
    return [one for one in found if "ssl-cert" in one.subject]


DAYS = datetime.timedelta(days=1)


def test_certificates(tmp_path: Path) -> None:
    now = datetime.datetime.fromtimestamp(NOW_S, datetime.UTC)
    ca, other = certificates.authority(), certificates.authority("other")
    middle = certificates.authority("middle", issuer=ca)
    late = now + 90 * DAYS
    cases = [
        (certificates.leaf("n", ca=ca, not_after=late), ca, Severity.OK, "tls.files"),
        (certificates.leaf("n", ca=middle, not_after=late), ca, Severity.OK, "tls.files"),
        (certificates.leaf("n", ca=ca, not_after=now + 5 * DAYS), ca, Severity.WARNING, "tls.expiry"),
        (certificates.expired_leaf("n", ca=ca), ca, Severity.ERROR, "tls.expiry"),
        (
            certificates.leaf("n", ca=ca, not_before=now + DAYS, not_after=late),
            ca,
            Severity.ERROR,
            "tls.expiry",
        ),
        (certificates.leaf("n", ca=other, not_after=late), ca, Severity.ERROR, "tls.authority"),
        (certificates.leaf("n", ca=ca, not_after=late, sans=["pump-7"]), ca, Severity.ERROR, "tls.names"),
        (certificates.leaf("n", ca=ca, not_after=late, sans=[]), ca, Severity.ERROR, "tls.names"),
    ]
    for node, authority, severity, check in cases:
        found = _tls(tmp_path, node, authority)
        assert [(one.severity, one.check) for one in found] == [(severity, check)], found


async def test_unusable_tls_files_are_a_finding_and_not_the_end(tmp_path: Path, etcd: str) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    report = await examine(DoctorOptions(pd_urls=etcd, ssl_ca=str(tmp_path / "ca.pem"), timeout_s=PATIENCE_S))
    checks = {one.check: one.severity for one in report.findings}
    assert checks["tls.files"] is Severity.ERROR
    assert checks["registry"] is Severity.UNCHECKED


async def test_downstream_on_the_drainers_own_host_is_not_looked_for_here(tmp_path: Path, etcd: str) -> None:
    path = tmp_path / "drainer.toml"
    path.touch(mode=0o600)
    for address, severity in (("192.0.2.9:8249", Severity.UNCHECKED), ("127.0.0.1:8249", Severity.ERROR)):
        path.write_text(
            f'pd-urls = "{etcd}"\naddr = "{address}"\n[syncer.to]\nhost = "localhost"\nport = 1\n'
        )
        report = await examine(DoctorOptions(pd_urls=etcd, drainer_config=str(path), timeout_s=PATIENCE_S))
        (found,) = [one for one in report.findings if one.check.startswith("downstream")]
        assert found.severity is severity


def test_volume_of_a_pump_that_worked_here_is_judged(tmp_path: Path) -> None:
    text = f'data-dir = "{tmp_path}/data"\n[storage]\nstop-write-at-available-space = "4 EiB"'
    assert [one.check for one in checked(tmp_path, "pump", text)] == ["pump.config"]
    (tmp_path / "data" / "value").mkdir(parents=True)
    found = checked(tmp_path, "pump", text)
    assert [(one.check, one.severity) for one in found if one.severity is not Severity.OK] == [
        ("pump.disk", Severity.ERROR)
    ]


def test_each_of_several_downstreams_is_examined(tmp_path: Path) -> None:
    path = tmp_path / "drainer.toml"
    path.write_text('[syncer.to]\nhost = ["a", "b:3307"]\n')
    plans = ConfigFiles("", str(path)).downstreams()
    assert [(plan.target.host, plan.target.port) for plan in plans] == [("a", 3306), ("b", 3307)]
    assert all(plan.target.addresses is None for plan in plans), "each is asked itself"
    path.write_text('[syncer.to]\nhost = "a"\n')
    assert len(ConfigFiles("", str(path)).downstreams()) == 1
    assert ConfigFiles("", "").downstreams() == []


@pytest.mark.parametrize(
    ("kind", "key", "options", "severity", "says"),
    [
        ("pump", "data-dir", "vers=4.2", Severity.ERROR, "locked in two ways"),
        ("drainer", "data-dir", "vers=4.2,nolock", Severity.ERROR, "on this host alone"),
        ("drainer", "data-dir", "vers=3", Severity.WARNING, "without vers=4"),
    ],
)
def test_directories_on_nfs_are_judged_as_a_start_does(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    key: str,
    options: str,
    severity: Severity,
    says: str,
) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(f"40 22 0:50 / {tmp_path.resolve()}/nas rw - nfs4 nas:/export rw,hard,{options}\n")
    monkeypatch.setattr(mount, "MOUNTINFO", str(table))
    found = checked(tmp_path, kind, f'{key} = "{tmp_path}/nas/{kind}"')
    assert [one.severity for one in found if says in one.seen] == [severity]

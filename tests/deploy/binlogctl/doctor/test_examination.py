"""doctor on a real cluster: nothing is found while it is healthy, and everything that is planted is.

One cluster for the module; each test plants something, looks, and takes it away again. The drainer goes on to
miss pumps that were planted, so whatever wants a report without any warning comes before those.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import io
import json
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from binlog_playground.cluster.cluster import KEPT_DAYS, Cluster
from binlogctl.doctor import EXIT_ERROR, EXIT_WARNING, DoctorOptions, Finding, Report, Severity, examine
from binlogctl.doctor.gather import answers
from binlogctl.doctor.show import show
from tests.waiting import PATIENCE_S
from tidb_binlog import tso
from tidb_binlog.clock import SystemClock
from tidb_binlog.cluster.node import OFFLINE, ONLINE, PAUSED, NodeStatus
from tidb_binlog.cluster.registry import DRAINERS, PUMPS, announced_key, status_key
from tidb_binlog.etcd.client import EtcdClient, delete
from tidb_binlog.etcd.registry import EtcdRegistry, connect_registry
from tidb_binlog.net.port import free_ports

pytestmark = pytest.mark.integration

NOW = SystemClock().wall_s


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """etcd, MariaDB, two pumps and a drainer; a third pump asks for more free space than its volume has."""
    cluster = Cluster(SystemClock())

    async def start() -> None:
        try:
            await cluster.start_base(None)
            await cluster.start_pumps(2)
            await cluster.start_drainer()
        finally:
            await cluster.close()

    try:
        asyncio.run(start())
        yield cluster
    finally:
        cluster.stop(at_once=True)
        cluster.remove()


@pytest.fixture
async def registry(cluster: Cluster) -> AsyncIterator[EtcdRegistry]:
    registry = await connect_registry(cluster.etcd_endpoint)
    yield registry
    await registry.close()


Plant = Callable[..., Awaitable[NodeStatus]]


@pytest.fixture
async def plant(cluster: Cluster) -> AsyncIterator[Plant]:
    """Writes an entry as a Go node does, which keeps no lease; the fixture takes it away."""
    client = await EtcdClient.connect(cluster.etcd_endpoint)
    keys: list[bytes] = []

    async def write(
        kind: str, node_id: str, host: str, *, state: str = ONLINE, age_s: float = 0.0, behind_s: float = 0.0
    ) -> NodeStatus:
        status = NodeStatus(
            node_id, host, state, tso.from_wall_s(NOW() - behind_s), tso.from_wall_s(NOW() - age_s)
        )
        keys.append(status_key(kind, node_id))
        await client.put(keys[-1], status.to_json())
        return status

    async def raw(key: bytes, value: bytes) -> None:
        keys.append(key)
        await client.put(key, value)

    write.raw = raw  # type: ignore[attr-defined]
    yield write
    await client.txn([], [delete(key) for key in keys])
    await client.close()


class Doctor:
    """Examinations of the cluster."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.cluster = cluster
        self.config = cluster.directory / "drainer.toml"
        self._directory = directory
        self._secrets = {cluster.mariadb.password}

    async def report(self, **options: object) -> Report:
        values: dict[str, object] = {
            "pd_urls": self.cluster.etcd_endpoint,
            "drainer_config": str(self.config),
            "timeout_s": 3.0,
        }
        whole = await examine(DoctorOptions(**(values | options)))  # type: ignore[arg-type]
        # Which etcd this machine has is no fault of the cluster: see checks/test_etcd_release.py.
        found = tuple(one for one in whole.findings if one.check != "upstream.etcd")
        report = dataclasses.replace(whole, findings=found)
        text = json.dumps(report.to_json())
        assert not any(secret in text for secret in self._secrets), "a secret is shown"
        return report

    async def found(self, check: str, severity: Severity, **options: object) -> Finding:
        """The one finding of a check and a severity."""
        report = await self.report(**options)
        found = [one for one in report.findings if one.check == check and one.severity is severity]
        assert len(found) == 1, report.findings
        assert report.exit_code == (EXIT_ERROR if report.worst is Severity.ERROR else EXIT_WARNING)
        return found[0]

    def with_config(self, change: Callable[[str], str], name: str = "changed.toml") -> str:
        """Path of the drainer's file with something else in it."""
        path = self._directory / name
        path.touch(mode=0o600)
        path.write_text(change(self.config.read_text()))
        return str(path)

    def run_sql(self, *statements: str) -> None:
        connection = self.cluster.mariadb.connect()
        try:
            with connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
        finally:
            connection.close()

    @contextlib.contextmanager
    def globally(self, name: str, value: str) -> Iterator[None]:
        """A global variable of the downstream, for a while."""
        connection = self.cluster.mariadb.connect()
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT @@global.{name}")
            ((before,),) = cursor.fetchall()
        self.run_sql(f"SET GLOBAL {name} = {value}")
        try:
            yield
        finally:
            shown = f"'{before}'" if isinstance(before, str) else before
            self.run_sql(f"SET GLOBAL {name} = {shown}")
            connection.close()


@pytest.fixture
def doctor(cluster: Cluster, tmp_path: Path) -> Doctor:
    return Doctor(cluster, tmp_path)


def sql(mend: str) -> str:
    return mend.partition("   --")[0].rstrip(";")


async def test_healthy_cluster_gives_no_warning(doctor: Doctor) -> None:
    report = await doctor.report(time_zone="UTC")
    assert report.worst.rank <= Severity.INFO.rank, report.findings
    assert report.exit_code == 0
    made = {finding.check for finding in report.findings if finding.severity is Severity.OK}
    disks = [finding.seen for finding in report.findings if finding.check == "pump.disk"]
    assert all("below 256 MiB" in seen for seen in disks), "it runs where little room is left, too"
    assert made >= {
        *("upstream.reachable", "upstream.timestamp", "node.reachable", "cluster.versions", "clock.skew"),
        *("pump.disk", "checkpoint", "drainer.config", "downstream.reachable"),
        *("downstream.rights", "downstream.sql_mode", "downstream.time_zone", "downstream.charset"),
        *("downstream.writable", "downstream.max_allowed_packet"),
    }


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


async def test_healthy_report_for_people_and_for_programs(doctor: Doctor) -> None:
    report = await doctor.report()
    for output in ("table", "json"):
        file = io.StringIO()
        show(report, output, file)
        assert "downstream.rights" in file.getvalue()
    document = json.loads(file.getvalue())
    terminal = Terminal()
    show(report, "table", terminal)
    fine = [line for line in terminal.getvalue().splitlines() if "OK" in line]
    assert len(fine) == 1, "what is fine is one line"
    assert "node.reachable (3)" in terminal.getvalue().replace("\n", " ")
    assert document["exit_code"] == 0
    assert sum(document["counts"].values()) == len(document["findings"])


async def test_nodes_say_their_cluster_and_their_time(doctor: Doctor) -> None:
    report = await doctor.report()
    told = next(one.seen for one in report.findings if one.check == "upstream.timestamp")
    assert doctor.cluster.drainer is not None
    for node in doctor.cluster.pumps:
        answer = answers.read_pump(json.dumps(await node.status()).encode())
        assert answer is not None
        assert (answer.node_id, told.endswith(f"cluster {answer.cluster_id}")) == (node.name, True)
        assert abs((answer.time_s or 0) - NOW()) < 30
        retention = answer.pump.retention
        assert retention is not None
        assert (retention.age_s, retention.alarm_s) == (KEPT_DAYS * 86400, 20 * 3600)
    own = answers.read_drainer(json.dumps(await doctor.cluster.drainer.status()).encode())
    assert own is not None
    assert (own.node_id, told.endswith(f"cluster {own.cluster_id}")) == ("drainer", True)
    assert abs((own.time_s or 0) - NOW()) < 30
    assert own.version is not None


# -- downstream ------------------------------------------------------------------------------------


async def test_missing_rights_are_found_and_the_mend_gives_them(doctor: Doctor) -> None:
    doctor.run_sql(
        "CREATE USER 'poor'@'%' IDENTIFIED BY 'hidden-word'",
        "GRANT SELECT, INSERT, UPDATE ON *.* TO 'poor'@'%'",
        "GRANT ALL ON tidb_binlog.* TO 'poor'@'%'",
    )
    doctor._secrets.add("hidden-word")
    server = doctor.cluster.mariadb
    config = doctor.with_config(
        lambda text: text.replace(f'user = "{server.drainer_user}"', 'user = "poor"').replace(
            server.password, "hidden-word"
        )
    )
    try:
        found = await doctor.found("downstream.rights", Severity.ERROR, drainer_config=config)
        assert "DELETE" in found.seen
        assert "SET USER" in found.seen
        doctor.run_sql(*filter(None, (part.strip() for part in found.mend.split(";"))))
        report = await doctor.report(drainer_config=config)
        assert [one.severity for one in report.findings if one.check == "downstream.rights"] == [Severity.OK]
    finally:
        doctor.run_sql("DROP USER 'poor'@'%'")


@pytest.mark.parametrize(
    ("name", "value", "check", "severity"),
    [
        ("sql_mode", "''", "downstream.sql_mode", Severity.WARNING),
        ("sql_mode", "'STRICT_TRANS_TABLES,NO_BACKSLASH_ESCAPES'", "downstream.sql_mode", Severity.WARNING),
        ("max_allowed_packet", "1048576", "downstream.max_allowed_packet", Severity.WARNING),
        ("time_zone", "'-05:00'", "downstream.time_zone", Severity.WARNING),
        ("character_set_server", "'latin1'", "downstream.charset", Severity.WARNING),
        ("read_only", "1", "downstream.writable", Severity.ERROR),
        ("default_storage_engine", "'MyISAM'", "downstream.engine", Severity.ERROR),
        ("max_statement_time", "30", "downstream.max_statement_time", Severity.WARNING),
        ("wait_timeout", "10", "downstream.wait_timeout", Severity.WARNING),
    ],
)
async def test_wrong_setting_is_found_and_the_mend_mends_it(
    doctor: Doctor, name: str, value: str, check: str, severity: Severity
) -> None:
    with doctor.globally(name, value):
        found = await doctor.found(check, severity, time_zone="UTC")
        assert found.why
        doctor.run_sql(sql(found.mend))
        report = await doctor.report(time_zone="UTC")
        assert report.exit_code == 0, report.findings


async def test_tables_without_transactions_are_found(doctor: Doctor) -> None:
    doctor.run_sql(
        "CREATE DATABASE doctored",
        "CREATE TABLE doctored.bare (a INT) ENGINE=MyISAM",
        "CREATE TABLE doctored.keyed (a INT PRIMARY KEY, b INT UNIQUE) ENGINE=Aria",
        "CREATE TABLE doctored.fine (a INT) ENGINE=InnoDB",
        "CREATE VIEW doctored.seen AS SELECT a FROM doctored.bare",
    )
    try:
        report = await doctor.report(time_zone="UTC")
        found = [one for one in report.findings if one.check == "downstream.transactions"]
        assert [one.severity for one in found] == [Severity.WARNING] * 2
        assert "without a key, of engines without transactions: doctored.bare (MyISAM)" in found[0].seen
        assert "with a key, of engines without transactions: doctored.keyed (Aria)" in found[1].seen
        doctor.run_sql(*(sql(one.mend) for one in found))
        report = await doctor.report(time_zone="UTC")
        assert not any(one.check == "downstream.transactions" for one in report.findings)
    finally:
        doctor.run_sql("DROP DATABASE doctored")


async def test_wrong_password_is_found(doctor: Doctor) -> None:
    password = doctor.cluster.mariadb.password
    config = doctor.with_config(lambda text: text.replace(password, "wrong-word"))
    doctor._secrets.add("wrong-word")
    found = await doctor.found("downstream.login", Severity.ERROR, drainer_config=config)
    assert "Access denied" in found.seen


async def test_downstream_that_is_not_there_is_found(doctor: Doctor) -> None:
    (port,) = free_ports(1)
    config = doctor.with_config(
        lambda text: text.replace(f"port = {doctor.cluster.mariadb.port}", f"port = {port}")
    )
    found = await doctor.found("downstream.reachable", Severity.ERROR, drainer_config=config)
    assert "cannot be reached" in found.seen


async def test_a_drainer_without_a_database_is_no_finding(doctor: Doctor, tmp_path: Path) -> None:
    config = tmp_path / "archive.toml"
    config.write_text(
        f'data-dir = "{tmp_path}"\n[syncer]\ndb-type = "file"\n[syncer.to]\ndir = "{tmp_path}/a"\n'
    )
    report = await doctor.report(drainer_config=str(config))
    (found,) = [one for one in report.findings if one.check == "downstream"]
    assert found.severity is Severity.INFO
    assert "db-type file" in found.seen


@pytest.mark.parametrize(
    ("cluster_id", "text", "severity", "says"),
    [
        (77, '{"commitTS":5}', Severity.WARNING, "has rows of clusters 77"),
        (None, '{"commitTS":9000000000000000000}', Severity.ERROR, "ahead of the upstream"),
        (None, "{", Severity.ERROR, "cannot be read"),
    ],
)
async def test_checkpoint_of_another_cluster_or_time_is_found(
    doctor: Doctor, cluster_id: int | None, text: str, severity: Severity, says: str
) -> None:
    if cluster_id is None:
        report = await doctor.report()
        seen = next(one.seen for one in report.findings if one.check == "upstream.timestamp")
        cluster_id = int(seen.rpartition(" ")[2])
    doctor.run_sql(
        "CREATE DATABASE other",
        "CREATE TABLE other.checkpoint (clusterID BIGINT UNSIGNED PRIMARY KEY, checkPoint MEDIUMTEXT)",
        f"INSERT INTO other.checkpoint VALUES ({cluster_id}, '{text}')",
    )
    try:
        config = doctor.with_config(lambda text: text + '[syncer.to.checkpoint]\nschema = "other"\n')
        found = await doctor.found("checkpoint", severity, drainer_config=config)
        assert says in found.seen
    finally:
        doctor.run_sql("DROP DATABASE other")


# -- TiDB, PD, time --------------------------------------------------------------------------------


class StatusPort:
    """Stands for the status port of a TiDB server."""

    def __init__(self, binlog: str, *, skipping: bool = False, date: str = "") -> None:
        self.binlog, self.skipping, self.date = binlog, skipping, date
        self.port = 0

    async def __aenter__(self) -> StatusPort:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    @property
    def document(self) -> bytes:
        info = {"ddl_id": "x", "ip": "127.0.0.1", "listening_port": 4000, "status_port": self.port}
        return json.dumps({**info, "binlog_status": self.binlog, "version": "8.0.11-TiDB-v7.0.0"}).encode()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        body = self.document
        if b"/binlog/recover?op=status" in head:
            body = json.dumps({"Skipped": self.skipping, "SkippedCommitterCounter": 3}).encode()
        date = f"Date: {self.date}\r\n" if self.date else ""
        writer.write(f"HTTP/1.1 200 OK\r\n{date}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()


async def test_tidb_server_with_binlog_on_is_fine(doctor: Doctor, plant: Plant) -> None:
    async with StatusPort("On") as server:
        await plant.raw(b"/tidb/server/info/x", server.document)  # type: ignore[attr-defined]
        report = await doctor.report()
    assert report.exit_code == 0
    assert [one.severity for one in report.findings if one.check == "tidb.binlog"] == [Severity.OK]


async def test_tidb_server_without_binlog_is_found(doctor: Doctor, plant: Plant) -> None:
    async with StatusPort("Off") as server:
        await plant.raw(b"/tidb/server/info/x", server.document)  # type: ignore[attr-defined]
        found = await doctor.found("tidb.binlog", Severity.ERROR)
    assert "Off" in found.seen


@pytest.mark.parametrize(("binlog", "skipping"), [("Skipping", False), ("On", True)])
async def test_tripped_ignore_error_is_found(doctor: Doctor, binlog: str, skipping: bool) -> None:
    async with StatusPort(binlog, skipping=skipping) as server:
        found = await doctor.found("tidb.skipping", Severity.ERROR, tidb=f"127.0.0.1:{server.port}")
    assert f"curl -s 'http://127.0.0.1:{server.port}/binlog/recover'" in found.mend


async def test_clock_that_is_off_is_found(doctor: Doctor) -> None:
    async with StatusPort("On", date="Sat, 01 Jan 2000 00:00:00 GMT") as server:
        found = await doctor.found("clock.skew", Severity.ERROR, tidb=f"127.0.0.1:{server.port}")
    assert found.subject == f"TiDB 127.0.0.1:{server.port}"
    assert "behind" in found.seen


async def test_member_that_is_away_and_a_second_cluster_are_found(doctor: Doctor, etcd: str) -> None:
    (port,) = free_ports(1)
    own = doctor.cluster.etcd_endpoint
    report = await doctor.report(pd_urls=f"{own},http://127.0.0.1:{port}")
    found = [
        one
        for one in report.findings
        if one.check == "upstream.reachable" and one.severity is Severity.WARNING
    ]
    assert [one.subject for one in found] == [f"http://127.0.0.1:{port}"]
    assert (await doctor.found("upstream.cluster", Severity.ERROR, pd_urls=f"{own},{etcd}")).mend


# -- nodes -----------------------------------------------------------------------------------------


async def test_dead_nodes_that_are_still_online_are_found(
    doctor: Doctor, plant: Plant, registry: EtcdRegistry
) -> None:
    (port,) = free_ports(1)
    announced = await registry.announce(PUMPS, "gone", 10)
    await registry.put(
        PUMPS, NodeStatus("gone", f"127.0.0.1:{port}", ONLINE, 1, tso.from_wall_s(NOW())), None
    )
    await announced.withdraw()
    await plant(DRAINERS, "go-drainer", f"127.0.0.1:{free_ports(1)[0]}", age_s=3600)
    try:
        report = await doctor.report()
    finally:
        client = await EtcdClient.connect(doctor.cluster.etcd_endpoint)
        await client.txn([], [delete(status_key(PUMPS, "gone")), delete(announced_key(PUMPS, "gone"))])
        await client.close()
    dead = {one.subject: one for one in report.findings if one.check == "node.dead"}
    assert dead.keys() == {"pump gone", "drainer go-drainer"}
    assert "60 min" in dead["drainer go-drainer"].seen
    assert "binlogctl forget gone" in dead["pump gone"].mend


async def test_living_node_that_does_not_answer_is_found(doctor: Doctor, plant: Plant) -> None:
    await plant(PUMPS, "walled", f"127.0.0.1:{free_ports(1)[0]}")
    found = await doctor.found("node.reachable", Severity.ERROR)
    assert "refused" in found.seen


async def test_duplicate_address_and_the_wrong_node_behind_it_are_found(doctor: Doctor, plant: Plant) -> None:
    await plant(PUMPS, "copy", doctor.cluster.pumps[0].address)
    report = await doctor.report()
    found = {one.check: one for one in report.findings if one.severity is Severity.ERROR}
    assert found.keys() == {"node.duplicate", "node.identity"}
    assert "answers pump-1" in found["node.identity"].seen
    assert "binlogctl forget copy" in found["node.duplicate"].mend
    assert "pump-1" not in found["node.duplicate"].mend


@pytest.mark.parametrize("host", ["0.0.0.0:8250", "[::]:8250", ":8250", "pump.invalid:8250"])
async def test_address_that_nobody_reaches_is_found(doctor: Doctor, plant: Plant, host: str) -> None:
    await plant(PUMPS, "lost", host)
    found = await doctor.found("node.address", Severity.ERROR)
    assert found.subject == "pump lost"


async def test_paused_nodes_are_found_and_offline_ones_are_fine(doctor: Doctor, plant: Plant) -> None:
    await plant(PUMPS, "resting", f"127.0.0.1:{free_ports(1)[0]}", state=PAUSED)
    await plant(PUMPS, "left", f"127.0.0.1:{free_ports(1)[0]}", state=OFFLINE)
    found = await doctor.found("node.paused", Severity.ERROR)
    assert found.subject == "pump resting"


async def test_forgotten_drainer_that_retention_reaches_is_found(doctor: Doctor, plant: Plant) -> None:
    behind_s = (KEPT_DAYS - 0.1) * 86400
    await plant(DRAINERS, "forgotten", f"127.0.0.1:{free_ports(1)[0]}", state=PAUSED, behind_s=behind_s)
    report = await doctor.report()
    found = [one for one in report.findings if one.check == "retention" and one.severity is Severity.ERROR]
    assert {one.subject for one in found} == {"drainer forgotten"}
    assert "binlogctl forget forgotten" in found[0].mend


async def test_entry_that_breaks_listings_is_found(doctor: Doctor, plant: Plant) -> None:
    await plant.raw(b"/tidb-binlog/v1/pumps/a/b", b"{}")  # type: ignore[attr-defined]
    found = await doctor.found("registry.entry", Severity.ERROR)
    assert found.subject == "/tidb-binlog/v1/pumps/a/b"


# -- it never hangs --------------------------------------------------------------------------------


async def test_servers_that_say_nothing_or_drip_do_not_hold_it_up(doctor: Doctor, plant: Plant) -> None:
    drips: list[asyncio.Future[None]] = []

    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        drips.append(ended := asyncio.get_running_loop().create_future())
        try:
            while True:
                writer.write(b"H")
                await writer.drain()
                await asyncio.sleep(0.01)
        except ConnectionError:
            writer.close()
            ended.set_result(None)

    silent = socket.create_server(("127.0.0.1", 0))  # the kernel takes connections, nobody reads them
    dripping = await asyncio.start_server(drip, "127.0.0.1", 0)
    ports = [silent.getsockname()[1], dripping.sockets[0].getsockname()[1]]
    for number, port in enumerate(ports):
        await plant(PUMPS, f"slow-{number}", f"127.0.0.1:{port}")
    config = doctor.with_config(
        lambda text: text.replace(f"port = {doctor.cluster.mariadb.port}", f"port = {ports[0]}")
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            report = await doctor.report(
                drainer_config=config,
                timeout_s=2.0,  # those that answer do so in it
                tidb=f"127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}",
                pd_urls=f"{doctor.cluster.etcd_endpoint},http://127.0.0.1:{ports[0]}",
            )
    finally:
        silent.close()
        dripping.close()
        await asyncio.wait_for(asyncio.gather(*drips), PATIENCE_S)  # they end with their connections
    found = {(one.check, one.severity) for one in report.findings}
    assert ("downstream.reachable", Severity.ERROR) in found
    assert ("tidb.binlog", Severity.UNCHECKED) in found
    assert ("downstream.rights", Severity.OK) not in found
    assert (
        sum(one.check == "node.reachable" and one.severity is Severity.ERROR for one in report.findings) == 2
    )
    assert sum(one.check == "node.reachable" and one.severity is Severity.OK for one in report.findings) == 3


async def test_without_any_upstream_the_rest_is_examined(doctor: Doctor) -> None:
    (port,) = free_ports(1)
    report = await doctor.report(pd_urls=f"http://127.0.0.1:{port}")
    found = {one.check: one.severity for one in report.findings}
    assert found["upstream.reachable"] is Severity.ERROR
    assert found["registry"] is Severity.UNCHECKED
    assert found["downstream.rights"] is Severity.OK
    assert os.path.exists(doctor.config)


# -- last: the drainer misses this pump from then on


async def test_volume_that_is_too_small_is_found(doctor: Doctor) -> None:
    cluster = doctor.cluster
    (port,) = free_ports(1)
    config = cluster.directory / "greedy.toml"
    config.write_text('gc = "1h"\n[storage]\nstop-write-at-available-space = "4 EiB"\n')
    arguments = [f"--config={config}", f"--addr=127.0.0.1:{port}", f"--pd-urls={cluster.etcd_endpoint}"]
    arguments += [f"--data-dir={cluster.directory / 'greedy'}", "--node-id=greedy"]
    arguments += ["--stop-write-at-available-space=4EiB"]
    process = cluster.supervisor.adopt(cluster.command("greedy", "pump", arguments))
    process.start()
    try:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                report = await doctor.report(pump_config=str(config))
                disks = [one for one in report.findings if one.check == "pump.disk"]
                if len(disks) == 3:
                    break
                await asyncio.sleep(0.1)
        (found,) = [one for one in disks if one.severity is Severity.ERROR]
        assert found.subject == "pump greedy"
        assert "smaller than the free space" in found.why
    finally:
        process.stop(10)
        client = await EtcdClient.connect(cluster.etcd_endpoint)
        await client.txn([], [delete(status_key(PUMPS, "greedy"))])
        await client.close()

"""A real Prometheus scrapes a cluster at work: every panel shows something, alerts are silent, then fire.

Two pumps, a drainer with a relay log, MariaDB; a job of binlog-spark left its file. What `for:` says is tried
with made series in tests/deploy/prometheus/test_alerts.py; here two alerts wait four seconds, not a minute.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import http.server
import json
import re
import shlex
import signal
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

import pumpclient
from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.mysql.connection import Connection, Target, connect
from drainer.mysql.errors import SessionError
from drainer.spark import program as binlog_spark
from drainer.spark.replay import job_metrics
from drainer.spark.replay.stream_jobs import Batch
from tests import waiting
from tests.deploy.binlogctl.conftest import Ctl
from tests.deploy.binlogctl.conftest import ctl as ctl
from tests.deploy.prometheus import exported
from tests.deploy.prometheus.pages import ALERTS, MONITORING, TROUBLES, shell_lines
from tests.deploy.prometheus.rules import RULE_FILES, alerts, panel_queries, program, records
from tests.drainer.reading.archive.support import corpus
from tests.drainer.support.relay_world import items
from tests.forked import Forked
from tests.waiting import PATIENCE_S
from tidb_binlog.net.port import free_ports
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.table_info import LONG, Column, FieldType, Index, IndexColumn, TableInfo
from tidb_binlog.upstream.standalone import StandaloneUpstream

pytestmark = pytest.mark.integration

RATE: Final = "10s"
"""In the place of Grafana's `$__rate_interval`."""
DATABASES: Final = ("tidb_binlog", "metered")
PUMPS: Final = ("pump-1", "pump-2")
AT_ONCE: Final = ("BinlogPumpDown", "BinlogDrainerDdlWaits")
NEVER_HERE: Final = {
    "binlog_drainer_drift_text_values_total",  # needs a column of another character set
    "binlog_common_door_refused_total",  # needs a peer that reaches a limit
    "binlog_pump_detected_drainer_binlog_purge_count",  # needs a disk that is full
}
"""Series whose first labels come with trouble; their names are compared with what the code declares."""

COLUMNS = (Column(1, "a", 0, FieldType(LONG)), Column(2, "b", 1, FieldType(LONG)))
WAITS = TableInfo(101, "waits", COLUMNS)
FLOWS = TableInfo(102, "flows", COLUMNS)
JOB = 7


@dataclass
class Prometheus:
    address: str
    process: subprocess.Popen[bytes]

    def ask(self, path: str, **parameters: str) -> Any:
        """The data of an answer. Raises `OSError` while it does not answer."""
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as reply:
            return json.load(reply)["data"]

    def query(self, expression: str) -> list[Any]:
        found: list[Any] = self.ask("query", query=expression)["result"]
        return found

    def firing(self) -> set[str]:
        return {
            one["labels"]["alertname"] for one in self.ask("alerts")["alerts"] if one["state"] == "firing"
        }


@dataclass
class Scene:
    """The cluster, and what watches it."""

    etcd: str
    directory: Path
    server: MariaDbServer
    connection: Connection
    addresses: dict[str, str]
    processes: dict[str, Forked] = field(default_factory=dict)
    rows: int = 0

    def start(self, name: str, module: str, *more: str) -> None:
        own = [f"--pd-urls={self.etcd}", f"--addr={self.addresses[name]}", f"--node-id={name}"]
        places = [f"--data-dir={self.directory / name}", f"--log-file={self.directory / name}.log"]
        self.processes[name] = Forked(module, [*own, *places, *more])

    def answers(self, name: str, path: str) -> bool:
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"http://{self.addresses[name]}{path}", timeout=PATIENCE_S),
        ):
            return True
        return False

    def purge(self, pump: str) -> None:
        url = f"http://{self.addresses[pump]}/debug/gc/trigger"
        urllib.request.urlopen(urllib.request.Request(url, method="POST"), timeout=PATIENCE_S).close()

    def count(self, table: str) -> int:
        with contextlib.suppress(SessionError):
            ((found,),) = self.connection.rows(f"SELECT COUNT(*) FROM metered.{table}".encode())
            return int(found)
        return 0


async def until(condition: Callable[[], bool], what: str) -> None:
    await waiting.until(lambda: asyncio.to_thread(condition), what)


class Files(http.server.SimpleHTTPRequestHandler):
    """Serves a directory, as node_exporter serves what its textfile collector finds."""

    def log_message(self, format: str, *args: object) -> None:
        """Not on standard error."""


@pytest.fixture
def files(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A directory, and the address that serves it."""
    directory = tmp_path / "files"
    directory.mkdir()

    def handler(*arguments: Any) -> Files:
        return Files(*arguments, directory=str(directory))

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield directory, f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
async def scene(etcd_clean: str, mariadb: MariaDbServer, tmp_path: Path) -> AsyncIterator[Scene]:
    """All nodes are up; nothing is written yet."""
    await (await StandaloneUpstream.connect(etcd_clean)).close()
    names = (*PUMPS, "drainer")
    addresses = {name: f"127.0.0.1:{port}" for name, port in zip(names, free_ports(3), strict=True)}
    connection = connect(Target(mariadb.host, mariadb.port, mariadb.user, mariadb.password))
    connection.autocommit(True)
    made = Scene(etcd_clean, tmp_path, mariadb, connection, addresses)
    drop(connection)
    config = tmp_path / "drainer.toml"
    config.write_text(
        f'pd-urls = "{etcd_clean}"\nnode-id = "drainer"\naddr = "{addresses["drainer"]}"\n'
        f'data-dir = "{tmp_path}/drainer"\ninitial-commit-ts = 0\n'
        f'[syncer]\nworker-count = 2\n[syncer.relay]\nlog-dir = "{tmp_path}/relay"\n'
        f'[syncer.to]\nhost = "127.0.0.1"\nport = {mariadb.port}\n'
        f'user = "{mariadb.user}"\npassword = "{mariadb.password}"\n'
    )
    try:
        for name in PUMPS:
            made.start(name, "pump")
        made.start("drainer", "drainer", f"--config={config}")
        for name in names:
            await until(lambda name=name: made.answers(name, "/readyz"), f"{name} is ready")  # type: ignore[misc]
        yield made
    finally:
        for process in made.processes.values():
            process.kill()
            process.wait()
        drop(connection)
        connection.close()


def drop(connection: Connection) -> None:
    for name in DATABASES:
        connection.run(f"DROP DATABASE IF EXISTS {name}".encode())


@contextlib.contextmanager
def prometheus(directory: Path, targets: dict[str, Sequence[str]]) -> Iterator[Prometheus]:
    """With the rules that are shipped. `targets`: addresses, or addresses with a path, by job."""
    rules = []
    for path in RULE_FILES:
        text = path.read_text()
        for name in AT_ONCE:
            text = re.sub(rf"(- alert: {name}\n +expr: .*\n +for:) \w+", r"\1 4s", text)
        rules.append(directory / path.name)
        rules[-1].write_text(text)
    jobs = [
        {
            "job_name": job,
            "metrics_path": "/metrics" if "/" not in addresses[0] else "/" + addresses[0].partition("/")[2],
            "static_configs": [{"targets": [address.partition("/")[0] for address in addresses]}],
        }
        for job, addresses in targets.items()
    ]
    pace = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "500ms"}
    config = directory / "prometheus.yml"  # JSON is YAML
    config.write_text(
        json.dumps({"global": pace, "rule_files": [str(path) for path in rules], "scrape_configs": jobs})
    )
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    command = [
        *(program("prometheus"), f"--config.file={config}", f"--web.listen-address={address}"),
        *(f"--storage.tsdb.path={directory / 'tsdb'}", "--log.level=warn"),
    ]
    with (directory / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield Prometheus(address, process)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


async def write(scene: Scene, publisher: pumpclient.Publisher, rows: int) -> None:
    """Rows in both tables."""
    encoders = {info.id: RowEncoder(info) for info in (WAITS, FLOWS)}
    for number in range(scene.rows, scene.rows + rows):
        async with publisher.transaction(ttl_s=300.0) as transaction:
            for table, encoder in encoders.items():
                transaction.insert(table, encoder.insert({"a": number, "b": 0}, rowid=number + 1))
    scene.rows += rows


async def make_tables(publisher: pumpclient.Publisher) -> None:
    database = pumpclient.create_database_job(1, 100, "metered", schema_version=1)
    await publisher.ddl(database, "CREATE DATABASE `metered`")
    for number, info in enumerate((WAITS, FLOWS), 2):
        job = pumpclient.create_table_job(number, 100, "metered", info, schema_version=number)
        await publisher.ddl(job, f"CREATE TABLE `{info.name}` (`a` INT, `b` INT)")


async def let_a_ddl_wait(scene: Scene, publisher: pumpclient.Publisher) -> None:
    """Upstream no value is twice; downstream somebody wrote one."""
    scene.connection.run(b"INSERT INTO metered.waits VALUES (5, 5)")
    key = Index(1, "u", (IndexColumn("a", 0),), primary=False, unique=True)
    table = dataclasses.replace(WAITS, indexes=(key,))
    document = json.loads(pumpclient.create_table_job(JOB, 100, "metered", table, schema_version=4))
    document["type"] = 7
    await publisher.ddl(json.dumps(document).encode(), "ALTER TABLE `waits` ADD UNIQUE KEY `u`(`a`)")


async def let_rows_drift(scene: Scene, publisher: pumpclient.Publisher) -> None:
    """A row is removed that another program removed before."""
    scene.connection.run(b"DELETE FROM metered.flows WHERE a = 3")
    async with publisher.transaction(ttl_s=300.0) as transaction:
        transaction.delete(FLOWS.id, RowEncoder(FLOWS).delete({"a": 3, "b": 0}, rowid=4))


def leave_files(directory: Path, archive: Path) -> None:
    """What jobs of binlog-spark leave, and a counter of TiDB."""
    uri = corpus.our_archive(items("basic"), archive, 64 << 10).uri
    assert binlog_spark.run(["files", "--archive", uri, "--metrics", str(directory / "nightly.prom")]) == 0
    with job_metrics.published(str(directory / "jobs.prom"), "stream") as job:
        job.note(rows=100, read_bytes=1000, drift=0)
        job.note_batch(
            Batch(1, 1, int(time.time() * 1000) << 18, rows=10, ddl=0, drift=0, seconds=0.5, lag_s=0.2)
        )
        job.exit_code = 0
    (directory / "tidb").write_text("tidb_server_critical_error_total 0\n")


def queries() -> dict[str, str]:
    """What is asked for, by where: queries of panels as they are, of rules each series with its labels, since
    a rule that has nothing to say returns nothing."""
    found = {
        name: re.sub(r"\$(instance|name)\b", ".*", query["expr"].replace("$__rate_interval", RATE))
        for name, query in panel_queries().items()
    }
    for name, expression in {**{one.name: one.expression for one in alerts().values()}, **records()}.items():
        for series in exported.asked_for(expression) - NEVER_HERE:
            for chosen in re.findall(rf"\b{series}(\{{[^}}]*\}})?", expression):
                found[f"{name}: {series}{chosen}"] = series + chosen
    return found


async def all_answered(found: Prometheus) -> None:
    """Each query returns something, at one time or another."""
    left = queries()
    end = time.monotonic() + PATIENCE_S
    while left:
        left = {where: one for where, one in left.items() if not await asyncio.to_thread(found.query, one)}
        assert time.monotonic() < end, "\n".join(["these return nothing:", *left])
        await asyncio.sleep(0.1)


async def test_prometheus_sees_a_cluster_through_its_good_and_bad_times(
    scene: Scene, files: tuple[Path, str], tmp_path: Path, ctl: Ctl
) -> None:
    directory, served = files
    leave_files(directory, tmp_path / "archive")
    targets = {
        "pump": [scene.addresses[name] for name in PUMPS],
        "drainer": [scene.addresses["drainer"]],
        "spark": [f"{served}/jobs.prom"],
        "tidb": [f"{served}/tidb"],
    }
    watching = tmp_path / "prometheus"
    watching.mkdir()
    with prometheus(watching, targets) as found:
        async with await pumpclient.open_publisher(scene.etcd) as publisher:
            await make_tables(publisher)
            await write(scene, publisher, 200)
            await until(lambda: scene.count("flows") == 200, "rows downstream")
            ups = f"sum(count_over_time(up[1m]) >= bool 3) == {sum(map(len, targets.values()))}"
            await until(lambda: answered(found, ups), "Prometheus has scraped")
            await until(
                lambda: answered(found, "min(up) == 1"), "every target answers, one slow scrape aside"
            )
            (scraped,) = found.ask("metadata", metric="binlog_drainer_error_count").values()
            assert scraped[0]["type"] == "unknown", "as OpenMetrics has a counter without _total"
            assert found.firing() == set()

            await let_a_ddl_wait(scene, publisher)
            await let_rows_drift(scene, publisher)
            await write(scene, publisher, 100)
            await until(
                lambda: found.firing() == {"BinlogDrainerDdlWaits", "BinlogDrainerDrift"}, "two alerts"
            )
            await write(scene, publisher, 100)
            for name in PUMPS:  # else what retention leaves is looked at twice a minute
                await asyncio.to_thread(scene.purge, name)
            await all_answered(found)
        scene.processes["pump-2"].kill()
        expected = {"BinlogDrainerDdlWaits", "BinlogDrainerDrift", "BinlogPumpDown"}
        await until(lambda: found.firing() == expected, "the alert of a pump")
        await follow_the_pages(scene, ctl)
        for one in found.ask("alerts")["alerts"]:
            described = one["annotations"]["description"]
            assert one["labels"].get("instance", one["labels"]["job"]) in described
            assert not re.search(r"<no value>|<error|\{\{|%!", described)


async def follow_the_pages(scene: Scene, ctl: Ctl) -> None:
    """What docs/alerts.md and docs/troubleshooting.md say to look at, and to do where it changes no data."""
    addresses = {"127.0.0.1:8250": scene.addresses["pump-1"], "127.0.0.1:8249": scene.addresses["drainer"]}
    lines = {line for page in (ALERTS, TROUBLES, MONITORING) for line in shell_lines(page)}
    asked = sorted(line for line in lines if line.startswith("curl ") and "--cacert" not in line)
    assert len(asked) >= 9
    for line in asked:
        for shown, real in addresses.items():
            line = line.replace(shown, real)
        done = await asyncio.to_thread(
            subprocess.run,
            [*shlex.split(line), "--fail-with-body"],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert (done.returncode, bool(done.stdout)) == (0, True), (line, done.stdout, done.stderr)
    looks = {"binlogctl status", "binlogctl nodes", "binlogctl ddl list", "binlogctl ddl show 112"}
    assert looks <= lines
    for line in sorted(looks):
        done_here = await ctl(*shlex.split(line.replace("112", str(JOB)))[1:], f"-pd-urls={scene.etcd}")
        assert done_here.code in (0, 11, 12), done_here.err
        assert done_here.out
    for line in ("binlogctl config check drainer.toml", "binlogctl config show drainer.toml"):
        assert line in lines
        file = str(scene.directory / "drainer.toml")
        done_here = await ctl(*shlex.split(line.replace("drainer.toml", file))[1:])
        assert done_here.code == 0, done_here.err


def answered(found: Prometheus, expression: str) -> bool:
    assert found.process.poll() is None, "Prometheus ended"
    with contextlib.suppress(OSError):
        return bool(found.query(expression))
    return False

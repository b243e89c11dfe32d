"""The drainer as a process: what wrong surroundings get is one line and an exit code of its own."""

from __future__ import annotations

import json
import signal
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from tests.forked import Forked
from tests.integration.support.drainer_command import command, downstream, ended
from tests.waiting import PATIENCE_S, until_served
from tidb_binlog.net.port import free_ports

pytestmark = pytest.mark.integration


def test_no_etcd(tmp_path: Path, free_port: Callable[[], int], mariadb: MariaDbServer) -> None:
    endpoint = f"http://127.0.0.1:{free_port()}"
    code, line = ended(command(tmp_path, endpoint, free_port(), 'start-wait = "0s"\n' + downstream(mariadb)))
    assert code == 3
    assert endpoint.removeprefix("http://") in line
    assert "--pd-urls" in line


def test_login_refused(
    tmp_path: Path, etcd_clean: str, free_port: Callable[[], int], mariadb: MariaDbServer
) -> None:
    toml = downstream(mariadb, password="wr0ng-s3cret")
    code, line = ended(command(tmp_path, etcd_clean, free_port(), toml))
    assert code == 7
    assert "refused the login" in line
    assert "[syncer.to]" in line
    assert "wr0ng-s3cret" not in line + (tmp_path / "drainer.log").read_text()


def test_port_taken(
    tmp_path: Path, etcd_clean: str, free_port: Callable[[], int], mariadb: MariaDbServer
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, line = ended(command(tmp_path, etcd_clean, port, downstream(mariadb)))
    assert code == 8
    assert str(port) in line
    assert "addr" in line


WRONG = {
    "[syncer]\nworker-cuont = 3\n": ("worker-cuont", "worker-count", "line 2"),
    '[syncer]\nworker-count = "three"\n': ("worker-count", "line 2", "whole number"),
    "[syncer]\nworker-count = 0\n": ("worker-count", "at least 1"),
    '[syncer]\ndb-type = "flash"\n': ("db-type", "flash", "mysql"),
    '[[syncer.ignore-table]]\ndb-name = "a"\n': ("ignore-table", "tbl-name"),
    '[syncer.binlog-filter-rule.x]\nignore-event = ["delte"]\n': ("binlog-filter-rule.x", "delete"),
}


@pytest.fixture(scope="module")
def refused(etcd: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str]]:
    """Exit code and last line for each wrong configuration; the processes run side by side."""
    ports = free_ports(len(WRONG))
    with ThreadPoolExecutor(len(WRONG)) as threads:
        commands = [
            command(tmp_path_factory.mktemp("wrong"), etcd, port, toml)
            for port, toml in zip(ports, WRONG, strict=True)
        ]
        return dict(zip(WRONG, threads.map(ended, commands), strict=True))


@pytest.mark.parametrize(("toml", "words"), WRONG.items())
def test_wrong_configuration(refused: dict[str, tuple[int, str]], toml: str, words: tuple[str, ...]) -> None:
    code, line = refused[toml]
    assert code == 1
    for word in words:
        assert word in line


def test_unknown_flag() -> None:
    code, line = ended(["--pd-url=x"])
    assert code == 2
    assert "pd-urls" in line


def test_life_of_a_process(
    tmp_path: Path, etcd_clean: str, free_port: Callable[[], int], mariadb: MariaDbServer
) -> None:
    """Up, seen in status and registry, a second one with its id refused, gone with code 0 on SIGTERM."""
    forget(mariadb)
    status_port = free_port()
    (tmp_path / "data").mkdir()
    early_rows = {"job_id": 7, "commit_ts": 100, "last_s": 1.5, "tables": ["d.t"], "schema_version": 3}
    lack = {"job_id": 6, "commit_ts": 90, "tables": ["d.t"], "missing": ["key k"]}
    drift = {"Rows": {"d.t": 3}, "Texts": {"d.t": {"c": 2}}, "LastS": 1.5, "TextsLastS": 2.5}
    findings = {"early_rows": {"told": [early_rows]}, "missing": [lack], "drift": drift}
    (tmp_path / "data" / "findings.json").write_text(json.dumps(findings))
    process = Forked("drainer", command(tmp_path, etcd_clean, status_port, downstream(mariadb)))
    try:
        until_served(f"http://127.0.0.1:{status_port}/status", process)
        with urllib.request.urlopen(f"http://127.0.0.1:{status_port}/metrics") as reply:
            assert b"binlog_drainer_checkpoint_tso" in reply.read()
        page = b""
        while b"Disk free" not in page:  # it asks the file system on a thread
            with urllib.request.urlopen(f"http://127.0.0.1:{status_port}/") as reply:
                page = reply.read()
        with urllib.request.urlopen(f"http://127.0.0.1:{status_port}/cluster") as reply:
            cluster = reply.read()
        assert b"drainer-under-test" in cluster
        assert b"Cluster no pump is online" in cluster
        with urllib.request.urlopen(f"http://127.0.0.1:{status_port}/status") as reply:
            status = json.load(reply)
        assert (status["EarlyRows"], status["DDL"]["missing"], status["Drift"]) == (
            [early_rows],
            [lack],
            drift,
        )
        other = tmp_path / "other"
        other.mkdir()
        code, line = ended(command(other, etcd_clean, free_port(), downstream(mariadb)))
        assert code == 5
        assert "drainer-under-test" in line
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()


class Receiver(HTTPServer):
    """Of what `notify-url` posts."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        events = self.events

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                events.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


def test_it_is_changed_while_it_runs(
    tmp_path: Path, etcd_clean: str, free_port: Callable[[], int], mariadb: MariaDbServer
) -> None:
    """Pause, rate and reload over HTTP and by SIGHUP; a wrong file changes nothing; the end lets go."""
    forget(mariadb)
    port = free_port()
    receiver = Receiver()
    tell = f'notify-url = "http://127.0.0.1:{receiver.server_port}/hook"\n'
    here = '["127.0.0.1:1", "127.0.0.1"]'  # nobody listens at the first one
    arguments = command(tmp_path, etcd_clean, port, tell + downstream(mariadb, host=here))
    process = Forked("drainer", arguments)
    file = tmp_path / "drainer.toml"

    def put(path: str) -> tuple[int, dict[str, Any]]:
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method="PUT", data=b"")
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as reply:
                return reply.status, json.loads(reply.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def shown(path: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE_S) as reply:
            found: dict[str, Any] = json.loads(reply.read())
            return found

    try:
        until_served(f"http://127.0.0.1:{port}/readyz", process)
        assert put("/apply/rate?rows=500")[0] == 200
        assert shown("/status")["Control"]["rate_rows"] == 500
        live = f'{tell}log-level = "warn"\n[syncer]\nignore-schemas = "mysql"\ntxn-batch = 77\n'
        file.write_text(live + "worker-count = 3\n" + downstream(mariadb, host=here))
        process.send_signal(signal.SIGHUP)
        deadline_s = time.monotonic() + PATIENCE_S
        while not (found := shown("/status")["Configuration"])["time_s"]:
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        assert found["changed"] == ["log-level", "syncer.ignore-schemas", "syncer.txn-batch"]
        assert found["needs_restart"] == ["syncer.worker-count"]
        assert shown("/config")["syncer.txn-batch"] == 77
        rule = '[[syncer.ddl-rule]]\nkind = ["create view"]\naction = "skip"\n'
        file.write_text(
            live + "checkpoint-interval = 1\nrate-rows = 9\n" + rule + downstream(mariadb, host=here)
        )
        status, body = put("/reload")
        assert (status, body["data"]["changed"]) == (
            200,
            ["syncer.checkpoint-interval", "syncer.ddl-rule", "syncer.rate-rows"],
        )
        configuration = shown("/config")
        assert configuration["syncer.txn-batch"] == 77
        assert configuration["syncer.to.password"] == "******"
        assert shown("/status")["Control"]["rate_rows"] == 9
        for wrong in ("this is not TOML", ""):
            file.write_text(wrong)
            assert put("/reload")[0] == 400
        assert not shown("/status")["Configuration"]["ok"]
        assert put("/apply/pause")[1]["data"]["paused"] is True
        with pytest.raises(urllib.error.HTTPError, match="503"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=PATIENCE_S)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
        assert [(event["type"], event["details"]["exit_code"]) for event in receiver.events] == [("ended", 0)]
        # An empty server among several is not the one that was written to: nothing begins anew there.
        forget(mariadb)
        file.write_text(downstream(mariadb, host=here))
        code, line = ended(arguments)
        assert (code, "has nothing of cluster" in line) == (5, True), line
        # Nor at a single one, unless it is said where.
        file.write_text(downstream(mariadb))
        code, line = ended(arguments)
        assert (code, "has nothing of cluster" in line) == (5, True), line
        assert "initial-commit-ts" in line
        assert "the downstream is not the first address" in (tmp_path / "drainer.log").read_text()
        assert mariadb.password not in (tmp_path / "drainer.log").read_text()
    finally:
        process.kill()
        process.wait()
        receiver.shutdown()
        receiver.server_close()
        forget(mariadb)


def forget(server: MariaDbServer) -> None:
    """No checkpoint of another test's cluster."""
    connection = server.connect()
    with connection.cursor() as cursor:
        cursor.execute("DROP DATABASE IF EXISTS tidb_binlog")
    connection.close()

"""Every command of the README runs, with only ports, directories and durations of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from common.net.port import free_ports
from deploy.playground.cluster.etcd_server import EtcdServer
from deploy.playground.cluster.mariadb import MariaDbServer
from drainer.sink.mysql.connection import Connection, Target, connect
from drainer.sink.mysql.errors import NoSuchTable

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
PROGRAMS = Path(sys.executable).parent
DEADLINE_S = 120

pytestmark = pytest.mark.integration


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.M | re.S)


def commands() -> list[str]:
    return [line for block in blocks("sh") for line in block.splitlines()]


def spark_commands() -> list[str]:
    programs = (".venv/bin/binlog-spark ", "spark-submit ", "mkdir ", "gunzip ", "tar ")
    return [line for line in commands() if line.startswith(programs)]


def test_every_command_is_known_here() -> None:
    """A new command needs a test below."""
    assert commands() == [
        "make demo",
        'make demo ARGS="--chaos --seconds 120"',
        "make demo-spark",
        "make test",
        ".venv/bin/pump --config deploy/pump.toml --addr 127.0.0.1:8250",
        ".venv/bin/drainer --config deploy/drainer.toml",
        ".venv/bin/binlogctl status -pd-urls http://127.0.0.1:2379",
        ".venv/bin/binlogctl top -once -pd-urls http://127.0.0.1:2379",
        ".venv/bin/binlogctl nodes -pd-urls http://127.0.0.1:2379",
        ".venv/bin/binlogctl doctor -pd-urls http://127.0.0.1:2379 -drainer-config deploy/drainer.toml",
        ".venv/bin/binlogctl config check deploy/pump.toml",
        ".venv/bin/binlogctl position -2h",
        ".venv/bin/binlogctl -cmd pumps -pd-urls http://127.0.0.1:2379",
        ".venv/bin/binlogctl -cmd drainers -pd-urls http://127.0.0.1:2379 --output table",
        "curl http://127.0.0.1:8250/readyz",
        "curl http://127.0.0.1:8250/status",
        "curl http://127.0.0.1:8249/metrics",
        ".venv/bin/binlogctl ddl list -pd-urls http://127.0.0.1:2379",
        "curl -X PUT http://127.0.0.1:8249/apply/pause",
        "curl -X PUT http://127.0.0.1:8249/apply/resume",
        'curl -X PUT "http://127.0.0.1:8249/apply/rate?rows=5000"',
        "curl -X PUT http://127.0.0.1:8249/reload",
        ".venv/bin/binlog-playground --replay tests/golden/corpus/basic",
        '.venv/bin/python examples/transfer.py --etcd 127.0.0.1:2379 --user root --password "" 1 2 30',
        *spark_commands(),  # tests/spark/test_readme_spark.py runs them in one session
    ]
    assert len(blocks("python")) == 4
    assert len(blocks("sql")) == 1


def run(*arguments: str, codes: tuple[int, ...] = (0,), **environment: str) -> str:
    result = subprocess.run(
        arguments,
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert result.returncode in codes, result.stdout + result.stderr
    return result.stdout


def test_demo() -> None:
    """What `make` hands on; with --chaos it is run by `tests/deploy/playground/test_run.py`."""
    demo = run("make", "demo", "ARGS=--seconds 3")
    assert re.search(r"^verified: \d+ tables, \d+ rows identical$", demo, re.M)


def test_test_sets_up_lints_and_tests() -> None:
    told = run("make", "--dry-run", "--always-make", "test")
    for word in ("deploy/install.sh", "ruff", "mypy", "pytest"):
        assert word in told


def test_replay() -> None:
    told = run(str(PROGRAMS / "binlog-playground"), "--replay", "tests/golden/corpus/basic")
    assert "verified: 2 tables, 30 rows identical" in told


def test_analysts_script() -> None:
    (script,) = [block for block in blocks("python") if "RECORDING" in block]
    printed = run(sys.executable, "-c", script, PYTHONPATH=str(ROOT)).splitlines()
    assert len(printed) > 10
    assert any("customer (1, 'customer 0'" in line for line in printed)


@dataclass
class Nodes:
    """A pump and a drainer, started with the README's commands."""

    environment: dict[str, str]
    etcd: str
    pump_status: str
    drainer_status: str


@pytest.fixture(scope="module")
def nodes(mariadb: MariaDbServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    data = tmp_path_factory.mktemp("nodes")
    etcd_server = EtcdServer.start(data / "etcd")  # of its own: the README's job ids begin at 1
    etcd = etcd_server.endpoint
    statuses = [f"127.0.0.1:{free_ports(1)[0]}" for _ in range(2)]
    environment = {
        **os.environ,
        "MYSQL_HOST": "127.0.0.1",
        "MYSQL_PORT": str(mariadb.port),
        "MYSQL_USER": mariadb.user,
        "MYSQL_PSWD": mariadb.password,
    }
    started = []
    try:
        for program, status in zip(("pump", "drainer"), statuses, strict=True):
            (command,) = [line for line in commands() if f"/{program} --config" in line]
            arguments = [
                str(PROGRAMS / program),
                *command.split()[1:],
                f"--addr={status}",
                f"--pd-urls={etcd}",
                f"--data-dir={data / program}",
                f"--log-file={data / program}.log",
                f"--node-id={program}-of-the-readme",
            ]
            started.append(subprocess.Popen(arguments, cwd=ROOT, env=environment))
            wait_for(f"http://{status}/readyz", started[-1])
        yield Nodes(environment, etcd, *statuses)
        for process in started:
            process.send_signal(signal.SIGTERM)
        assert [process.wait(DEADLINE_S) for process in started] == [0, 0]
    finally:
        for process in started:
            process.kill()
            process.wait()
        etcd_server.stop()


def wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        assert process.poll() is None, f"ended with {process.returncode}"
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"{url} does not answer")


def test_operator_asks_the_nodes(nodes: Nodes) -> None:
    for kind, shown in (("pumps", "pump-of-the-readme"), ("drainers", "drainer-of-the-readme")):
        (command,) = [line for line in commands() if f"-cmd {kind}" in line]
        words = command.replace("http://127.0.0.1:2379", nodes.etcd).split()[1:]
        assert shown in run(str(PROGRAMS / "binlogctl"), *words, COLUMNS="200")
    asked = (("8250/readyz", nodes.pump_status), ("8250/status", nodes.pump_status))
    for url, status in (*asked, ("8249/metrics", nodes.drainer_status)):
        (command,) = [line for line in commands() if url in line]
        with urllib.request.urlopen(f"http://{status}/{command.rpartition('/')[2]}") as reply:
            assert reply.status == 200


def test_operator_sees_how_the_cluster_is(nodes: Nodes, tmp_path: Path) -> None:
    config = tmp_path / "drainer.toml"  # which says on this host what the fixture says by flags
    written = (ROOT / "deploy" / "drainer.toml").read_text()
    written = written.replace("http://127.0.0.1:2379", nodes.etcd)
    config.write_text(written.replace("127.0.0.1:8249", nodes.drainer_status))
    config.chmod(0o600)

    def told(command: str, *codes: int) -> str:
        (line,) = [line for line in commands() if f"binlogctl {command}" in line]
        words = line.replace("http://127.0.0.1:2379", nodes.etcd)
        words = words.replace("deploy/drainer.toml", str(config)).split()[1:]
        environment = {**nodes.environment, "COLUMNS": "200"}
        return run(str(PROGRAMS / "binlogctl"), *words, codes=codes or (0,), **environment)

    for command in ("status", "top", "nodes"):
        page = told(command)
        assert "pump-of-the-readme" in page
        assert "drainer-of-the-readme" in page
    # A test's server is not set up as one that is meant to last, which the doctor may remark.
    assert "max_allowed_packet" in told("doctor", 0, 11)
    assert told("config")
    assert re.search(r"\d{18}", told("position"))


def test_operator_changes_a_drainer_that_runs(nodes: Nodes) -> None:
    (command,) = [line for line in commands() if "binlogctl ddl" in line]
    run(str(PROGRAMS / "binlogctl"), *command.replace("http://127.0.0.1:2379", nodes.etcd).split()[1:])
    for line in [line for line in commands() if "-X PUT" in line]:
        url = line.split()[-1].strip('"').replace("127.0.0.1:8249", nodes.drainer_status)
        with urllib.request.urlopen(urllib.request.Request(url, method="PUT")) as reply:
            assert reply.status == 200


def test_python_programs_reach_the_downstream(nodes: Nodes, mariadb: MariaDbServer) -> None:
    """The stream alone, then with a database of the program, here one of the downstream's server."""
    endpoint = nodes.etcd.removeprefix("http://")
    account = f'"port": {mariadb.port}, "user": "{mariadb.user}", "password": "{mariadb.password}"'
    connection = connect(Target("127.0.0.1", mariadb.port, mariadb.user, mariadb.password))
    connection.run(b"CREATE DATABASE app")
    try:
        alone, beside = [block for block in blocks("python") if "open_publisher_sync" in block]
        printed = ""
        for script in (alone, beside):
            script = script.replace("127.0.0.1:2379", endpoint)
            script = script.replace('"port": 3306, "user": "root", "password": ""', account)
            printed = run(sys.executable, "-c", script, PYTHONPATH=str(ROOT))
        commit_ts = int(printed.split()[-1])
        (statements,) = blocks("sql")
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end:
            connection.rollback()
            answers = [connection.rows(line.encode()) for line in statements.splitlines()]
            assert answers[0]
            assert answers[1]
            if f'"commitTS":{commit_ts}' in str(answers[0]) or passed(str(answers[0]), commit_ts):
                break
            time.sleep(0.1)
        rows = [(1, "pen"), (2, "ink"), (3, "paper")]
        assert connection.rows(b"SELECT * FROM shop.orders ORDER BY id") == rows
        assert connection.rows(b"SELECT * FROM app.orders") == rows[2:]
    finally:
        connection.run(b"DROP DATABASE IF EXISTS shop")
        connection.run(b"DROP DATABASE IF EXISTS app")
        connection.close()


def test_the_example_that_moves_money(nodes: Nodes, mariadb: MariaDbServer) -> None:
    (command,) = [line for line in commands() if "examples/transfer.py" in line]
    arguments = command.replace("127.0.0.1:2379", nodes.etcd.removeprefix("http://"))
    arguments = arguments.replace(
        '--user root --password ""',
        f"--port {mariadb.port} --user {mariadb.user} --password {mariadb.password}",
    )
    assert "committed at" in run(sys.executable, *arguments.split()[1:], PYTHONPATH=str(ROOT))
    connection = connect(Target("127.0.0.1", mariadb.port, mariadb.user, mariadb.password))
    try:
        accounts = [(1, 70), (2, 130)]
        query = b"SELECT id, CAST(balance AS INT) FROM %s.account ORDER BY id"
        assert connection.rows(query % b"app_bank") == accounts
        end = time.monotonic() + DEADLINE_S
        while arrived(connection, query % b"bank") != accounts and time.monotonic() < end:
            time.sleep(0.1)
        assert arrived(connection, query % b"bank") == accounts
    finally:
        connection.run(b"DROP DATABASE IF EXISTS app_bank")
        connection.run(b"DROP DATABASE IF EXISTS bank")
        connection.close()


def arrived(connection: Connection, query: bytes) -> list[tuple[object, ...]]:
    """The rows as they are now; none while their table is on its way."""
    connection.rollback()
    try:
        return list(connection.rows(query))
    except NoSuchTable:
        return []


def passed(row: str, commit_ts: int) -> bool:
    found = re.search(r'"commitTS":(\d+)', row)
    return found is not None and int(found[1]) >= commit_ts

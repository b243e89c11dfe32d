"""Every command of the README and of the first pages runs, with only ports, directories and durations of its
own."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from binlog_playground.cluster.etcd_server import EtcdServer
from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.mysql.connection import Connection, Target, connect
from drainer.mysql.errors import NoSuchTable
from tests.docs.pages import (
    DRAINER,
    OPERATE,
    PUBLISH,
    PUMP,
    QUICK_START,
    README,
    RECORDINGS,
    SPARK,
    UPGRADE,
    run,
)
from tests.waiting import PATIENCE_S, until_served
from tidb_binlog.net.port import free_ports

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(sys.executable).parent
PD = " -pd-urls http://127.0.0.1:2379"

pytestmark = pytest.mark.integration


def test_every_command_is_known_here() -> None:
    """A new command needs a test below, or where the comment says."""
    assert README.commands() == [
        'make demo ARGS="--keep --seconds 5"',
        ".venv/bin/binlogctl status",
        ".venv/bin/binlogctl tail -from oldest -limit 10",
        ".venv/bin/pump --config deploy/pump.toml --addr 127.0.0.1:8250",
        ".venv/bin/drainer --config deploy/drainer.toml",
        ".venv/bin/binlogctl doctor -drainer-config deploy/drainer.toml",
        *SPARK.commands()[:3],
    ]
    assert QUICK_START.commands() == [
        'make demo ARGS="--keep --seconds 5"',
        f".venv/bin/binlogctl status{PD}",
        f".venv/bin/binlogctl tail -from oldest -limit 10{PD}",
        f".venv/bin/binlogctl tail{PD}",
        ".venv/bin/python books.py",
        "curl -X PUT http://127.0.0.1:8249/apply/pause",
        f".venv/bin/binlogctl status{PD}",
        "curl -X PUT http://127.0.0.1:8249/apply/resume",
    ]
    assert OPERATE.commands() == [
        f"binlogctl status{PD}",
        f"binlogctl top -once{PD}",
        f"binlogctl nodes{PD}",
        f"binlogctl doctor{PD} -drainer-config deploy/drainer.toml",
        "binlogctl config check deploy/pump.toml",
        "binlogctl position -2h",
        f"binlogctl -cmd pumps{PD}",
        f"binlogctl -cmd drainers{PD} --output table",
        "curl http://127.0.0.1:8250/readyz",
        "curl http://127.0.0.1:8250/status",
        "curl http://127.0.0.1:8249/metrics",
        "etcdctl --endpoints 127.0.0.1:2379 snapshot save etcd.snapshot",
        "binlogctl pause NODE",
        "binlogctl close NODE",
        "binlogctl forget NODE",
    ]
    assert PUMP.commands() == ["curl -X POST http://127.0.0.1:8250/debug/gc/trigger"]
    assert DRAINER.commands() == [
        "binlogctl ddl list",
        "curl -X PUT http://127.0.0.1:8249/apply/pause",
        "curl -X PUT http://127.0.0.1:8249/apply/resume",
        'curl -X PUT "http://127.0.0.1:8249/apply/rate?rows=5000"',
        "curl -X PUT http://127.0.0.1:8249/reload",
    ]
    assert PUBLISH.commands() == [
        '.venv/bin/python examples/transfer.py --etcd 127.0.0.1:2379 --user root --password "" 1 2 30'
    ]
    assert RECORDINGS.commands() == [".venv/bin/python -m tests.rig --replay tests/golden/corpus/basic"]
    counts = {page.path: (len(page.blocks("python")), len(page.blocks("sql"))) for page in PROGRAM_PAGES}
    assert counts == {
        "README.md": (4, 0),
        "docs/quick-start.md": (2, 1),
        "docs/publish.md": (3, 0),
        "docs/recordings.md": (1, 0),
        "docs/drainer.md": (0, 2),
    }


PROGRAM_PAGES = (README, QUICK_START, PUBLISH, RECORDINGS, DRAINER)


@pytest.fixture(scope="module")
def kept() -> Iterator[Kept]:
    """`make demo` that stays."""
    arguments = ["make", "demo", "ARGS=--keep --seconds 3"]
    process = subprocess.Popen(
        arguments,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        told = []
        for line in process.stdout:
            told.append(line.rstrip("\n"))
            if line.startswith("Ctrl-C ends everything"):
                break
        yield Kept(told)
        os.killpg(process.pid, signal.SIGINT)  # as the terminal does it
        process.communicate(timeout=PATIENCE_S)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


class Kept:
    """What the demo has said at its end."""

    def __init__(self, told: list[str]) -> None:
        self.told = told
        self.etcd = self.after("etcd:")
        self.drainer = self.after("drainer:").partition(",")[0]

    def after(self, word: str) -> str:
        return next(line for line in self.told if line.startswith(word)).removeprefix(word).strip()

    def own(self, command: str) -> str:
        """A command of a page, for the addresses that there are."""
        command = command.replace("http://127.0.0.1:2379", self.etcd)
        return command.replace("127.0.0.1:8249", self.drainer)

    def mariadb(self) -> Connection:
        words = self.after("MariaDB:").split()
        assert words[:2] == ["mariadb", "-h"]
        host, port, user, password = words[2], int(words[4]), words[6], words[7].removeprefix("-p")
        return connect(Target(host, port, user, password))


def test_demo(kept: Kept) -> None:
    """What `make` hands on; with faults it is run by `tests/rig/test_rig.py`."""
    assert any(re.fullmatch(r"verified: \d+ tables, \d+ rows identical", line) for line in kept.told)
    (example,) = [block for block in QUICK_START.blocks("text") if "Ctrl-C" in block]
    shown = [re.sub(r"\d+", "N", line)[:40] for line in example.splitlines()]
    told = [re.sub(r"\d+", "N", line)[:40] for line in kept.told[-len(shown) :]]
    assert [line for line in shown if not line.startswith(("summary", "files"))] == [
        line for line in told if not line.startswith(("summary", "files"))
    ]


def test_the_first_hour(kept: Kept, tmp_path: Path) -> None:
    """The quick start from its second step to its last, in the demo that stays."""
    status, oldest, live, program, pause, again, resume = QUICK_START.commands()[1:]
    ctl = str(PROGRAMS / "binlogctl")
    end = time.monotonic() + PATIENCE_S
    while "all is well" not in run(ctl, *shlex.split(kept.own(status))[1:], codes=(0, 11, 12)):
        assert time.monotonic() < end
    listed = run(ctl, *shlex.split(kept.own(oldest))[1:]).splitlines()
    (example,) = [block for block in QUICK_START.blocks("text") if "customer 0" in block]
    assert listed[4:6] == example.splitlines()
    (example,) = README.blocks("text")
    assert listed[-6:] == example.splitlines()
    assert len([line for line in listed if "  ddl  " not in line]) == 10
    tail = subprocess.Popen(
        [ctl, *shlex.split(kept.own(live))[1:], "-from", "oldest"], stdout=subprocess.PIPE, text=True
    )
    try:
        script, _ = QUICK_START.blocks("python")
        (tmp_path / "books.py").write_text(
            script.replace("127.0.0.1:2379", kept.etcd.removeprefix("http://"))
        )
        assert program.endswith(" books.py")
        assert "committed at" in run(sys.executable, str(tmp_path / "books.py"), PYTHONPATH=str(ROOT))
        assert tail.stdout is not None
        seen = ""
        while "books.title  insert  id=2" not in (line := tail.stdout.readline()):
            assert line
            seen += line
        assert "books  ddl     CREATE TABLE" in seen
    finally:
        tail.send_signal(signal.SIGINT)
        tail.communicate(timeout=PATIENCE_S)
    connection = kept.mariadb()
    try:
        rows, checkpoint = QUICK_START.blocks("sql")[0].splitlines()
        end = time.monotonic() + PATIENCE_S
        while arrived(connection, rows.encode()) != [(1, "Ink"), (2, "Paper")]:
            assert time.monotonic() < end
            time.sleep(0.1)
        assert arrived(connection, checkpoint.encode())
    finally:
        connection.close()
    put(kept.own(pause).split()[-1])
    held = run(ctl, *shlex.split(kept.own(again))[1:], codes=(11,))
    assert "binlogctl resume" in held
    put(kept.own(resume).split()[-1])


def test_test_sets_up_lints_and_tests() -> None:
    told = run("make", "--dry-run", "--always-make", "test")
    for word in ("deploy/install.sh", "ruff", "mypy", "pytest"):
        assert word in told


def test_replay() -> None:
    told = run(sys.executable, "-m", "tests.rig", "--replay", "tests/golden/corpus/basic")
    assert "verified: 2 tables, 30 rows identical" in told
    assert "times kill -9" not in told


def test_analysts_script() -> None:
    (script,) = RECORDINGS.blocks("python")
    printed = run(sys.executable, "-c", script, PYTHONPATH=str(ROOT)).splitlines()
    assert len(printed) > 10
    assert any("customer (1, 'customer 0'" in line for line in printed)


def put(url: str) -> None:
    with urllib.request.urlopen(urllib.request.Request(url, method="PUT")) as reply:
        assert reply.status == 200


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
            (command,) = [line for line in README.commands() if f"/{program} --config" in line]
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
            until_served(f"http://{status}/readyz", started[-1])
        yield Nodes(environment, etcd, *statuses)
        for process in started:
            process.send_signal(signal.SIGTERM)
        assert [process.wait(PATIENCE_S) for process in started] == [0, 0]
    finally:
        for process in started:
            process.kill()
            process.wait()
        etcd_server.stop()


def test_operator_asks_the_nodes(nodes: Nodes) -> None:
    for kind, shown in (("pumps", "pump-of-the-readme"), ("drainers", "drainer-of-the-readme")):
        (command,) = [line for line in OPERATE.commands() if f"-cmd {kind}" in line]
        words = command.replace("http://127.0.0.1:2379", nodes.etcd).split()[1:]
        assert shown in run(str(PROGRAMS / "binlogctl"), *words, COLUMNS="200")
    asked = (("8250/readyz", nodes.pump_status), ("8250/status", nodes.pump_status))
    for url, status in (*asked, ("8249/metrics", nodes.drainer_status)):
        (command,) = [line for line in OPERATE.commands() if url in line]
        with urllib.request.urlopen(f"http://{status}/{command.rpartition('/')[2]}") as reply:
            assert reply.status == 200


def test_operator_sees_how_the_cluster_is(nodes: Nodes, tmp_path: Path) -> None:
    config = tmp_path / "drainer.toml"  # which says on this host what the fixture says by flags
    written = (ROOT / "deploy" / "drainer.toml").read_text()
    written = written.replace("http://127.0.0.1:2379", nodes.etcd)
    config.write_text(written.replace("127.0.0.1:8249", nodes.drainer_status))
    config.chmod(0o600)

    def told(command: str, *codes: int) -> str:
        (line,) = [line for line in OPERATE.commands() if f"binlogctl {command}" in line]
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
    for command in dict.fromkeys(UPGRADE.commands()):  # once before the move and once after it
        words = command.replace("http://127.0.0.1:2379", nodes.etcd).split()
        if words[0] == "binlogctl" and words[1] != "verify":  # which tests/integration/verify runs
            files = {"drainer.toml": str(config), "pump.toml": "deploy/pump.toml"}
            words = [files.get(word, word) for word in words[1:]]
            run(str(PROGRAMS / "binlogctl"), *words, codes=(0, 11), **nodes.environment)
    assert re.search(r"\d{18}", told("position"))


def test_operator_changes_a_drainer_that_runs(nodes: Nodes) -> None:
    listing, *puts = DRAINER.commands()
    run(str(PROGRAMS / "binlogctl"), *listing.split()[1:], "-pd-urls", nodes.etcd)
    for line in puts:
        put(line.split()[-1].strip('"').replace("127.0.0.1:8249", nodes.drainer_status))
    (purge,) = PUMP.commands()
    url = purge.split()[-1].replace("127.0.0.1:8250", nodes.pump_status)
    with urllib.request.urlopen(urllib.request.Request(url, method="POST")) as reply:
        assert reply.status == 200


def test_python_programs_reach_the_downstream(nodes: Nodes, mariadb: MariaDbServer) -> None:
    """The stream alone, then with a database of the program, here one of the downstream's server."""
    endpoint = nodes.etcd.removeprefix("http://")
    account = f'"port": {mariadb.port}, "user": "{mariadb.user}", "password": "{mariadb.password}"'
    connection = connect(Target("127.0.0.1", mariadb.port, mariadb.user, mariadb.password))
    connection.run(b"CREATE DATABASE app")
    try:
        printed = ""
        for script in PUBLISH.blocks("python"):
            script = script.replace("127.0.0.1:2379", endpoint)
            script = script.replace('"port": 3306, "user": "root", "password": ""', account)
            printed = run(sys.executable, "-c", script, PYTHONPATH=str(ROOT))
        commit_ts = int(printed.split()[-1])
        (statements,) = [block for block in DRAINER.blocks("sql") if block.startswith("SELECT")]
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            connection.rollback()
            answers = [connection.rows(line.encode()) for line in statements.splitlines()]
            assert answers[0]
            assert answers[1]
            if f'"commitTS":{commit_ts}' in str(answers[0]) or passed(str(answers[0]), commit_ts):
                break
            time.sleep(0.1)
        assert connection.rows(b"SELECT * FROM shop.orders ORDER BY id") == [(1, "pen"), (2, "ink")]
        assert connection.rows(b"SELECT * FROM app.orders") == [(3, "paper")]
    finally:
        connection.run(b"DROP DATABASE IF EXISTS shop")
        connection.run(b"DROP DATABASE IF EXISTS app")
        connection.close()


def test_the_readmes_programs(nodes: Nodes, mariadb: MariaDbServer) -> None:
    """The embedder's door, then the developer's, which reads what the first one wrote; both in both forms."""
    read, read_by_asyncio, publish, publish_by_asyncio = README.blocks("python")
    seen = "books.title insert {'id': 1, 'title': 'Ink'}"
    endpoint = nodes.etcd.removeprefix("http://")
    connection = connect(Target("127.0.0.1", mariadb.port, mariadb.user, mariadb.password))
    try:
        for script, shown in (
            (publish, "committed at"),
            (publish_by_asyncio, "committed at"),
            (read, seen),
            (read_by_asyncio, seen),
        ):
            script = script.replace("127.0.0.1:2379", endpoint)
            assert shown in run(sys.executable, "-c", script, PYTHONPATH=str(ROOT))
        end = time.monotonic() + PATIENCE_S
        rows = [(1, "Ink"), (2, "Paper")]
        while arrived(connection, b"SELECT * FROM books.title ORDER BY id") != rows:
            assert time.monotonic() < end
            time.sleep(0.1)
    finally:
        connection.run(b"DROP DATABASE IF EXISTS books")
        connection.close()


def test_the_example_that_moves_money(nodes: Nodes, mariadb: MariaDbServer) -> None:
    (command,) = PUBLISH.commands()
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
        end = time.monotonic() + PATIENCE_S
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

"""`db-type = "kafka"` as a process: it waits for brokers, is killed and succeeded; no message is lost or
there twice, and a Go drainer's savepoint is taken over and left."""

from __future__ import annotations

import itertools
import json
import random
import signal
import subprocess
import tomllib
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from drainer.formats.obinlog.writer import commit_ts_of
from tests.benchmarks.drainer import workloads
from tests.benchmarks.drainer.file_sink import Rows, verify
from tests.fakes.kafka import Message, MockKafka
from tests.forked import Forked
from tests.integration.sinks.pump_scene import PumpScene, killed, on, status, stored, through
from tests.kafka_broker import KafkaBroker
from tests.waiting import PATIENCE_S, until_here
from tidb_binlog.wire import secondary_binlog_pb2 as pb

pytestmark = pytest.mark.integration
TRANSACTIONS = 6000
TOPIC = "orders_obinlog"
SECRET = "words-that-nobody-reads"


@pytest.fixture
def kafka() -> Iterator[MockKafka]:
    cluster = MockKafka()
    yield cluster
    cluster.close()


@pytest.fixture(params=["mock", "broker"])
def brokers(request: pytest.FixtureRequest) -> MockKafka | KafkaBroker:
    made: MockKafka | KafkaBroker
    made = request.getfixturevalue("kafka" if request.param == "mock" else "kafka_broker")
    made.create(TOPIC)
    return made


class Scene(PumpScene):
    """Drainers that send to Kafka, with the keys of a Go drainer."""

    def start_drainer(
        self, kafka: MockKafka | KafkaBroker, more: str = "", *arguments: str
    ) -> tuple[Forked, str]:
        return self.start_sink(
            f'db-type = "kafka"\n[syncer.to]\nkafka-addrs = "{kafka.servers}"\nkafka-version = "0.8.2.0"\n'
            f'kafka-max-messages = 1024\nkafka-client-id = "tidb_binlog"\ntopic-name = "{TOPIC}"\n{more}',
            *arguments,
        )


def folded(messages: list[Message]) -> Rows:
    """Tables by their first column, as the messages leave them."""
    tables: Rows = {}
    for message in messages:
        for table in pb.Binlog.FromString(message.value).dml_data.tables:
            rows = tables.setdefault(table.table_name, {})
            for mutation in table.mutations:
                old = mutation.change_row if mutation.type == pb.Update else mutation.row
                if mutation.type != pb.Insert:
                    del rows[str(_values(old)[0])]
                if mutation.type != pb.Delete:
                    new = _values(mutation.row)
                    rows[str(new[0])] = new
    return tables


def _values(row: pb.Row) -> tuple[str | int, ...]:
    return tuple(
        column.int64_value if column.HasField("int64_value") else column.string_value
        for column in row.columns
    )


def starting(url: str) -> str:
    """What a start waits for, by `/status`."""
    try:
        with urllib.request.urlopen(url, timeout=5):
            return ""
    except urllib.error.HTTPError as error:
        return str(json.load(error).get("WaitsFor", ""))
    except OSError:
        return ""


async def test_kills_and_a_successor(
    etcd_clean: str, free_port: Callable[[], int], tmp_path: Path, brokers: MockKafka | KafkaBroker
) -> None:
    kafka = brokers
    scene = Scene(etcd_clean, tmp_path, free_port)
    scenario = await stored(etcd_clean, tmp_path, workloads.hot(TRANSACTIONS))
    rng = random.Random(12)
    kafka.go_down()
    try:
        scene.start_pump()
        process, url = scene.start_drainer(kafka)
        until_here(lambda: "does not answer" in starting(url))
        kafka.come_up()
        for _ in range(2):
            until_here(on(lambda: len(kafka.messages(TOPIC)), url, scenario))
            killed(process, rng)
            process, url = scene.start_drainer(kafka)
        successor, url = scene.start_drainer(kafka, "", "--standby")
        until_here(lambda: (status(url) or {}).get("State") == "standby")
        killed(process, rng)
        until_here(through(url, scenario))
        document = status(url) or {}
        assert document["Kafka"]["topics"] == {TOPIC: 1}
        successor.send_signal(signal.SIGTERM)
        assert successor.wait(PATIENCE_S) == 0
    finally:
        scene.end()
    found = kafka.messages(TOPIC)
    stamps = [commit_ts_of(one.value[:32]) for one in found]
    assert all(a < b for a, b in itertools.pairwise(stamps))
    assert all(one.key is None and not one.headers for one in found)
    verify(folded(found), scenario.checksums)
    savepoint = tomllib.loads((tmp_path / "drainer" / "savepoint").read_text())
    assert savepoint["consistent"] is True
    assert savepoint["commitTS"] >= stamps[-1]


async def test_a_go_drainers_savepoint_is_where_it_begins(
    etcd_clean: str, free_port: Callable[[], int], tmp_path: Path, kafka: MockKafka
) -> None:
    """As a Go drainer leaves it, and as one can read it again."""
    scene = Scene(etcd_clean, tmp_path, free_port)
    kafka.create(TOPIC)
    scenario = await stored(etcd_clean, tmp_path, workloads.hot(300))
    middle_ts = scenario.last_commit_ts - 50 * workloads.SPACING
    directory = tmp_path / "drainer"
    directory.mkdir()
    (directory / "savepoint").write_text(f"commitTS = {middle_ts}\nschema-version = 0\n")
    password = tmp_path / "password"
    password.write_text(SECRET)
    password.chmod(0o600)
    try:
        scene.start_pump()
        process, url = scene.start_drainer(kafka, f'user = "me"\npassword-file = "{password}"\n')
        until_here(through(url, scenario))
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    finally:
        scene.end()
    stamps = [commit_ts_of(one.value[:32]) for one in kafka.messages(TOPIC)]
    assert stamps
    assert middle_ts < stamps[0] <= middle_ts + 2 * workloads.SPACING
    savepoint = tomllib.loads((directory / "savepoint").read_text())
    assert set(savepoint) == {"consistent", "commitTS", "schema-version"}
    assert SECRET not in (tmp_path / "log").read_text()


def test_config_check_passes_a_go_drainers_file(tmp_path: Path) -> None:
    from tests.drainer.config.go_kafka_file import GO_FILE

    file = tmp_path / "drainer.toml"
    file.write_text(GO_FILE)
    done = subprocess.run(
        [".venv/bin/binlogctl", "config", "check", str(file)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


async def test_a_login_that_brokers_do_not_answer_is_waited_for_and_its_password_is_not_shown(
    etcd_clean: str, free_port: Callable[[], int], tmp_path: Path, kafka: MockKafka
) -> None:
    """The mock cluster knows no SASL: it closes the connection, and that is waited for with its reason."""
    scene = Scene(etcd_clean, tmp_path, free_port)
    await stored(etcd_clean, tmp_path, workloads.hot(10))
    password = tmp_path / "password"
    password.write_text(SECRET)
    password.chmod(0o600)
    try:
        scene.start_pump()
        more = f'sasl-mechanism = "PLAIN"\nuser = "me"\npassword-file = "{password}"\n'
        process, url = scene.start_drainer(kafka, more)
        until_here(lambda: starting(url) or process.poll() is not None)
        said = (tmp_path / "log").read_text() + starting(url)
        assert "Kafka at" in said
        assert SECRET not in said
        command = Path(f"/proc/{process.pid}/cmdline")
        assert not command.exists() or SECRET.encode() not in command.read_bytes()
    finally:
        scene.end()

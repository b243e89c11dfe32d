from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from common.etcd import EtcdRegistry, connect
from common.node import OFFLINE, ONLINE, PAUSED, NodeStatus
from common.registry import DRAINERS, PUMPS
from deploy.ctl import __main__ as ctl

ROOT = Path(__file__).parents[3]

ONLINE_PUMP = NodeStatus("a:8250", "10.0.0.5:8250", ONLINE, 408012403141509121, 408012402512363520)

pytestmark = pytest.mark.integration


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "deploy.ctl", *arguments],
        cwd=ROOT,
        env={**os.environ, "TZ": "UTC"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
async def registry(etcd_clean: str) -> AsyncIterator[EtcdRegistry]:
    registry = await connect(etcd_clean)
    await registry.put(
        PUMPS, NodeStatus("a:8250", "10.0.0.5:8250", ONLINE, 408012403141509121, 408012402512363520), 0
    )
    await registry.put(PUMPS, NodeStatus("b:8250", "10.0.0.6:8250", OFFLINE), 0)
    await registry.announce(DRAINERS, "d", 10)
    await registry.put(DRAINERS, NodeStatus("d", "10.0.0.7:8249", ONLINE), 0)
    yield registry
    await registry.close()


def test_listing_in_the_go_form(registry: EtcdRegistry, etcd: str) -> None:
    done = run("-cmd", "pumps", "-pd-urls", etcd)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(
        r"\[\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{3} \+00:00\] \[INFO\] \[__main__\.py:\d+\] "
        r'\["query node"\] \[type=pump\] \[node="\{NodeID: a:8250, Addr: 10\.0\.0\.5:8250, State: online, '
        r'MaxCommitTS: 408012403141509121, UpdateTime: 2019-04-28 09:29:5\d \+0000 UTC\}"\]\n',
        done.stdout,
    )


def test_offline_nodes_on_request(registry: EtcdRegistry, etcd: str) -> None:
    done = run("--pd-urls", etcd, "--show-offline-nodes")
    assert re.findall(r"NodeID: (\S+),.*State: (\w+),", done.stdout) == [
        ("a:8250", "online"),
        ("b:8250", "offline"),
    ]


def test_json_and_table(registry: EtcdRegistry, etcd: str) -> None:
    done = run("-cmd=drainers", f"-pd-urls={etcd}", "--output", "json")
    assert json.loads(done.stdout)["drainers"][0] == {
        "nodeId": "d",
        "host": "10.0.0.7:8249",
        "state": "online",
        "isAlive": False,
        "score": 0,
        "label": None,
        "maxCommitTS": 0,
        "updateTS": 0,
        "alive": True,
    }
    table = run("-cmd=drainers", f"-pd-urls={etcd}", "--output", "table").stdout
    assert "1 drainers" in table
    assert "10.0.0.7:8249" in table


async def test_update(registry: EtcdRegistry, etcd: str) -> None:
    done = run("-cmd", "update-pump", "-node-id", "a:8250", "-state", "paused", "-pd-urls", etcd)
    assert (done.returncode, done.stderr) == (0, "")
    status = (await registry.view()).pumps["a:8250"].status
    assert status == ONLINE_PUMP.with_state(PAUSED)
    running = run("-cmd", "update-drainer", "-node-id", "d", "-state", "offline", "-pd-urls", etcd)
    assert running.returncode == 0
    assert "will write its own state again" in running.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (
            ["-cmd", "dance"],
            2,
            "cmd dance not supported (use pumps, drainers, update-pump, update-drainer, ddl-list, ddl-show,",
        ),
        (["ddl"], 2, "ddl: nothing is no command of it (binlogctl ddl list|show JOB"),
        (["ddl", "forget", "7"], 2, "ddl: forget is no command of it"),
        (["ddl", "skip", "x"], 2, "ddl: 'x' is no number of a DDL job"),
        (["ddl", "skip"], 2, "ddl-skip needs the number of a DDL job"),
        (["ddl", "rewrite", "7"], 2, "ddl-rewrite needs the statement to run"),
        (["-cmd", "ddl-skip", "-job-id", "7", "-text", "x"], 2, "ddl-skip takes no text"),
        (["-pd-url", "x"], 2, "flag provided but not defined: -pd-url (did you mean -pd-urls?)"),
        (["-output", "xml"], 2, "output 'xml' is unknown"),
        (["-cmd", "update-pump"], 2, "update-pump needs a node"),
        (["-cmd", "update-pump", "-node-id", "x", "-state", "asleep"], 4, "state asleep is illegal"),
        (["-pd-urls", "http://h"], 1, 'does not have the form "host:port"'),
        (["-ssl-ca", "/no/file"], 1, "could not read ssl-ca /no/file"),
        (["-ssl-ca", "a", "-ssl-cert", "b"], 1, "belong together"),
    ],
)
def test_errors_are_one_line_with_a_code(arguments: list[str], code: int, text: str) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith("binlogctl: error: ")
    assert text in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_missing_node_and_a_missing_etcd(etcd_clean: str, free_port: Callable[[], int]) -> None:
    done = run("-cmd", "update-pump", "-node-id", "x", "-state", "paused", "-pd-urls", etcd_clean)
    assert done.returncode == 4
    assert "key /tidb-binlog/v1/pumps/x in etcd not found" in done.stderr
    done = run("-pd-urls", f"127.0.0.1:{free_port()}")
    assert done.returncode == 3
    assert "cannot be reached (start etcd or pass --pd-urls)" in done.stderr


def test_help_documents_commands_and_exit_codes() -> None:
    done = run("--help")
    assert done.returncode == 0
    for command in ctl.COMMANDS:
        assert command in done.stdout
    for code in range(6):
        assert re.search(rf"^  {code}  \w", done.stdout, re.MULTILINE)
    assert run("-V").stdout.startswith("Release Version: ")

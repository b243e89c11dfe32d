"""`-cmd ...`: lines as the Go binlogctl prints them, and what it does not do: fail when a node refused.

The golden lines were printed by the Go binlogctl from the same registry; the file and line of its source, and
the moment, are its own.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from binlog_playground.cluster.etcd_server import EtcdServer
from binlogctl.cli import commands
from drainer.config import password
from tests.certificates import authority, leaf, write
from tests.deploy.binlogctl.conftest import Ctl
from tests.deploy.binlogctl.support.scripted_node import ScriptedNode, listening, said
from tests.waiting import PATIENCE_S
from tidb_binlog.cluster.node import OFFLINE, ONLINE, PAUSED, NodeStatus
from tidb_binlog.cluster.registry import DRAINERS, PUMPS
from tidb_binlog.errors import ConfigError, Unavailable
from tidb_binlog.etcd.registry import EtcdRegistry, connect_registry
from tidb_binlog.net import node_http

ROOT = Path(__file__).parents[4]
ONLINE_PUMP = NodeStatus("a:8250", "10.0.0.5:8250", ONLINE, 408012403141509121, 408012402512363520)

GO_PUMPS = """\
["query node"] [type=pump] [node="{NodeID: a:8250, Addr: 10.0.0.5:8250, State: online, \
MaxCommitTS: 408012403141509121, UpdateTime: 2019-04-28 09:29:56 +0000 UTC}"]
["query node"] [type=pump] [node="{NodeID: z:8250, Addr: 10.0.0.5:8250, State: online, \
MaxCommitTS: 0, UpdateTime: 1970-01-01 00:00:00 +0000 UTC}"]
"""
GO_PUMPS_IN_SHANGHAI = """\
["query node"] [type=pump] [node="{NodeID: a:8250, Addr: 10.0.0.5:8250, State: online, \
MaxCommitTS: 408012403141509121, UpdateTime: 2019-04-28 17:29:56 +0800 CST}"]
["query node"] [type=pump] [node="{NodeID: z:8250, Addr: 10.0.0.5:8250, State: online, \
MaxCommitTS: 0, UpdateTime: 1970-01-01 08:00:00 +0800 CST}"]
"""
GO_FATAL = '["fail to execute command"] [command=update-pump] [error="{error}"]\n'
HEAD = re.compile(r"^\[\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{3} \+00:00\] \[([A-Z]+)\] \[\w+\.py:\d+\] ", re.M)


def bare(out: str) -> str:
    """Lines without what changes: moment, level, place. Each must have had them."""
    assert len(HEAD.findall(out)) == out.count("\n")
    return HEAD.sub("", out)


@pytest.fixture
async def filled(registry: EtcdRegistry) -> EtcdRegistry:
    await registry.put(PUMPS, NodeStatus("z:8250", "10.0.0.5:8250", ONLINE), 0)
    await registry.put(PUMPS, ONLINE_PUMP, 0)
    await registry.put(PUMPS, NodeStatus("b:8250", "10.0.0.6:8250", OFFLINE), 0)
    await registry.announce(DRAINERS, "d", 600)
    await registry.put(DRAINERS, NodeStatus("d", "10.0.0.7:8249", ONLINE), 0)
    return registry


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def change(name: str) -> None:
        monkeypatch.setenv("TZ", name)
        time.tzset()

    return change


async def test_listing_in_the_go_form(
    filled: EtcdRegistry, etcd: str, ctl: Ctl, zone: Callable[[str], None]
) -> None:
    zone("UTC")
    done = await ctl("-cmd", "pumps", "-pd-urls", etcd)
    assert (done.code, done.err) == (0, "")
    assert bare(done.out) == GO_PUMPS
    assert bare((await ctl(f"--pd-urls={etcd}")).out) == GO_PUMPS, "pumps is the default"
    zone("Asia/Shanghai")
    assert bare((await ctl("-pd-urls", etcd)).out) == GO_PUMPS_IN_SHANGHAI
    zone("UTC")
    done = await ctl("--pd-urls", etcd, "--show-offline-nodes")
    states = re.findall(r"NodeID: (\S+),.*State: (\w+),", done.out)
    assert states == [("a:8250", "online"), ("b:8250", "offline"), ("z:8250", "online")]


async def test_listing_as_json_and_table(filled: EtcdRegistry, etcd: str, ctl: Ctl) -> None:
    done = await ctl("-cmd=drainers", f"-pd-urls={etcd}", "--output", "json")
    assert json.loads(done.out)["drainers"][0] == {
        "nodeId": "d",
        "host": "10.0.0.7:8249",
        "state": "online",
        "isAlive": False,
        "score": 0,
        "label": None,
        "maxCommitTS": 0,
        "updateTS": 0,
        "kind": "drainer",
        "alive": True,
        "updated_s_ago": None,
    }
    table = (await ctl("-cmd=drainers", f"-pd-urls={etcd}", "--output", "table")).out
    assert "1 drainers" in table
    assert "10.0.0.7:8249" in table


async def test_update(filled: EtcdRegistry, etcd: str, ctl: Ctl) -> None:
    done = await ctl("-cmd", "update-pump", "-node-id", "a:8250", "-state", "paused", "-pd-urls", etcd)
    assert (done.code, done.out, done.err) == (0, "", ""), "as Go: no news are good news"
    assert (await filled.view()).pumps["a:8250"].status == ONLINE_PUMP.with_state(PAUSED)
    running = await ctl("-cmd", "update-drainer", "-node-id", "d", "-state", "offline", "-pd-urls", etcd)
    assert running.code == 0
    assert "will write its own state again" in running.out


async def test_failures_in_the_go_form(filled: EtcdRegistry, etcd: str, ctl: Ctl) -> None:
    done = await ctl("-cmd", "update-pump", "-node-id", "q", "-state", "paused", "-pd-urls", etcd)
    error = "key /tidb-binlog/v1/pumps/q in etcd not found"
    assert (done.code, bare(done.out)) == (4, GO_FATAL.format(error=error))
    assert HEAD.findall(done.out) == ["FATAL"]
    assert error in done.err
    done = await ctl("-cmd", "update-pump", "-node-id", "a:8250", "-state", "foo", "-pd-urls", etcd)
    assert (done.code, bare(done.out)) == (4, GO_FATAL.format(error="state foo is illegal"))


@pytest.mark.parametrize(
    ("cmd", "kind", "action"),
    [
        ("pause-pump", PUMPS, "pause"),
        ("offline-pump", PUMPS, "close"),
        ("pause-drainer", DRAINERS, "pause"),
        ("offline-drainer", DRAINERS, "close"),
    ],
)
async def test_actions(cmd: str, kind: str, action: str, registry: EtcdRegistry, etcd: str, ctl: Ctl) -> None:
    node = ScriptedNode()
    async with listening(node) as address:
        await registry.put(kind, NodeStatus("n:8250", address, ONLINE), 0)
        done = await ctl("-cmd", cmd, "-node-id", "n:8250", "-pd-urls", etcd)
    assert (done.code, done.err) == (0, "")
    assert bare(done.out) == f'["Apply action on node success"] [action={action}] [NodeID=n:8250]\n'
    assert node.asked == [f"/state/n:8250/{action}"]


@pytest.mark.parametrize(
    ("message", "code", "status"),
    [
        ("this pump's state is paused, apply pause failed!", 3, 200),  # a Go node
        ("this pump's state is paused, apply pause failed!", 3, 409),  # one of ours
        ("invalide nodeID n, this pump's nodeID is m", 3, 404),
    ],
)
async def test_a_refusal_fails(
    message: str, code: int, status: int, registry: EtcdRegistry, etcd: str, ctl: Ctl
) -> None:
    async with listening(ScriptedNode(answer=said(message, code, status))) as address:
        await registry.put(PUMPS, NodeStatus("n", address, ONLINE), 0)
        done = await ctl("-cmd", "pause-pump", "-node-id", "n", "-pd-urls", etcd)
    assert done.code == 4
    assert "success" not in done.out
    assert f"pump n refused: {message}" in done.err


async def test_a_node_that_says_nothing_fails_in_time(
    registry: EtcdRegistry, etcd: str, ctl: Ctl, monkeypatch: pytest.MonkeyPatch, free_port: Callable[[], int]
) -> None:
    monkeypatch.setattr("tidb_binlog.net.node_http.DEADLINE_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        await registry.put(PUMPS, NodeStatus("n", f"127.0.0.1:{silent.getsockname()[1]}", ONLINE), 0)
        done = await ctl("-cmd", "pause-pump", "-node-id", "n", "-pd-urls", etcd)
    assert (done.code, "does not answer: nothing was heard within 0.1 s" in done.err) == (3, True)
    await registry.put(DRAINERS, NodeStatus("n", f"127.0.0.1:{free_port()}", ONLINE), 0)
    done = await ctl("-cmd", "offline-drainer", "-node-id", "n", "-pd-urls", etcd)
    assert (done.code, "does not answer: the connection is refused" in done.err) == (3, True)


async def test_tls_to_etcd_and_nodes(ctl: Ctl, tmp_path: Path) -> None:
    ca = authority()
    server = write(tmp_path / "s", ca=[ca], node=leaf("node", ca=ca))
    client = write(tmp_path / "c", ca=[ca], node=leaf("ctl", ca=ca))
    flags = ("-ssl-ca", client.ca, "-ssl-cert", client.cert, "-ssl-key", client.key)
    node = ScriptedNode(status={"CommitTS": 0, "ErrMsg": "", "pump": {"open_prewrites": 7}})
    etcd = EtcdServer.start(tmp_path / "etcd", tls=server)
    try:
        registry = await connect_registry(etcd.endpoint, tls=client)
        async with listening(node, server.server_tls()) as address:
            await registry.put(PUMPS, NodeStatus("n", address, ONLINE), 0)
            done = await ctl("-cmd", "pause-pump", "-node-id", "n", "-pd-urls", etcd.endpoint, *flags)
            assert (done.code, node.asked) == (0, ["/state/n/pause"]), done.err
            assert "7 open prewrites" in (await ctl("status", "-pd-urls", etcd.endpoint, *flags)).out
        async with listening(node) as plain:
            await registry.put(DRAINERS, NodeStatus("n", plain, ONLINE), 0)
            done = await ctl("-cmd", "pause-drainer", "-node-id", "n", "-pd-urls", etcd.endpoint, *flags)
            assert (done.code, "does not answer over TLS" in done.err) == (3, True), "https or nothing"
        await registry.close()
    finally:
        etcd.stop()
    async with listening(node, server.server_tls()) as address:
        with pytest.raises(Unavailable, match="does not answer: "):
            await node_http.ask("pump n", address, "GET", "/status", None)


async def test_generate_meta(etcd_clean: str, ctl: Ctl, tmp_path: Path, zone: Callable[[str], None]) -> None:
    from tidb_binlog.upstream.standalone import StandaloneUpstream

    await (await StandaloneUpstream.connect(etcd_clean)).close()
    zone("UTC")
    where = tmp_path / "deep" / "meta"
    done = await ctl("-cmd", "generate_meta", "-data-dir", str(where), "-pd-urls", etcd_clean)
    text = (where / "savepoint").read_text()
    (ts,) = re.fullmatch(r"commitTS = (\d{18})\n", text).groups()
    assert bare(done.out) == f'["save meta"] [meta="commitTS: {ts}"]\n'
    assert where.stat().st_mode & 0o777 == 0o700
    assert (where / "savepoint").stat().st_mode & 0o777 == 0o644
    again = await ctl(
        "-cmd",
        "generate_meta",
        "-data-dir",
        str(where),
        "-pd-urls",
        etcd_clean,
        "-time-zone",
        "Asia/Shanghai",
    )
    assert again.code == 0
    assert re.fullmatch(
        r"commitTS = \d{18}\n\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \+0000 UTC\n"
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \+0800 CST",
        (where / "savepoint").read_text(),
    )
    odd = await ctl(
        "-cmd", "generate_meta", "-data-dir", str(where), "-pd-urls", etcd_clean, "-time-zone", "Nowhere/X"
    )
    assert odd.code == 0
    assert (
        '["fail to load location"] ["time zone"=Nowhere/X] [error="unknown time zone Nowhere/X"]' in odd.out
    )


async def test_encrypt(ctl: Ctl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(password.KEY_VARIABLE, raising=False)
    done = await ctl("-cmd", "encrypt", "-text", "abc")
    warned, told = bare(done.out).splitlines()
    assert warned == '["use the default secret key to encrypt"]'
    encrypted = re.fullmatch(r'\["encrypt text"\] \[encrypted="?([A-Za-z0-9+/]+=*)"?\]', told)[1]
    assert password.decrypt("p", encrypted, {}) == "abc"
    assert password.decrypt("p", "gf4TX5X1foFrzOezMfruvEA6Nes=", {}) == "abc", "what the Go one printed"
    monkeypatch.setenv(password.KEY_VARIABLE, "00" * 16)
    done = await ctl("-cmd", "encrypt", "-text", "abc")
    encrypted = re.search(r'encrypted="?([A-Za-z0-9+/]+=*)', done.out)[1]
    assert "default secret key" not in done.out
    assert password.decrypt("p", encrypted, {password.KEY_VARIABLE: "00" * 16}) == "abc"
    # With the wrong key a short text may come out as some other text.
    done = await ctl("-cmd", "encrypt", "-text", "abc" * 40)
    encrypted = re.search(r'encrypted="?([A-Za-z0-9+/]+=*)', done.out)[1]
    with pytest.raises(ConfigError, match="cannot be decrypted"):
        password.decrypt("p", encrypted, {})
    assert (await ctl("-cmd", "encrypt")).code == 2


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["-cmd", "dance"], 2, "cmd dance not supported (use pumps, drainers, update-pump, update-drainer,"),
        (["ddl"], 2, "ddl: nothing is no command of it (binlogctl ddl list|show JOB"),
        (["ddl", "forget", "7"], 2, "ddl: forget is no command of it"),
        (["ddl", "skip", "x"], 2, "ddl: 'x' is no number of a DDL job"),
        (["ddl", "skip"], 2, "the following arguments are required: JOB"),
        (["-cmd", "ddl-skip"], 2, "ddl-skip needs the number of a DDL job"),
        (["ddl", "rewrite", "7"], 2, "ddl-rewrite needs the statement to run"),
        (["-cmd", "ddl-skip", "-job-id", "7", "-text", "x"], 2, "ddl-skip takes no text"),
        (["-pd-url", "x"], 2, "flag provided but not defined: -pd-url (did you mean -pd-urls?)"),
        (["-output", "xml"], 2, "output 'xml' is unknown"),
        (["-cmd", "update-pump"], 2, "update-pump needs a node"),
        (["-cmd", "pause-pump"], 2, "pause-pump needs a node"),
        (["-pd-urls", "http://h"], 1, 'does not have the form "host:port"'),
        (["-ssl-ca", "/no/file"], 1, "could not read ssl-ca /no/file"),
        (["-ssl-ca", "a", "-ssl-cert", "b"], 1, "belong together"),
    ],
)
async def test_errors_are_one_line_with_a_code(arguments: list[str], code: int, text: str, ctl: Ctl) -> None:
    done = await ctl(*arguments)
    assert done.code == code
    assert done.err.startswith("binlogctl: error: ")
    assert text in done.err
    assert done.err.count("\n") == 1


def test_the_program_starts_quickly_and_ends_with_its_code(free_port: Callable[[], int]) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-X", "importtime", "-m", "binlogctl", *arguments],
            cwd=ROOT,
            env=dict(os.environ),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    helped = run("--help")
    assert helped.returncode == 0
    for command in commands.TABLE_OF_COMMANDS:
        assert (command.cmd or command.words.split()[0]) in helped.stdout
    for code in (*range(7), 11, 12, 13, 130):
        assert re.search(rf"^  {code} +\w", helped.stdout, re.MULTILINE)
    imported = set(re.findall(r"\| +([\w.]+)$", helped.stderr, re.M))
    assert not imported & {"grpc", "aetcd", "rich", "cryptography", "drainer", "pump"}
    assert run("-V").stdout.startswith("Release Version: ")
    away = run("-pd-urls", f"127.0.0.1:{free_port()}")
    assert away.returncode == 3
    assert "cannot be reached (start etcd, or correct its address)" in away.stderr
    imported = set(re.findall(r"\| +([\w.]+)$", away.stderr, re.M))
    assert not imported & {"rich", "cryptography", "drainer", "pump", "pymysql"}

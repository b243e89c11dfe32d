"""forget against nodes of both makes, and the commands that need no cluster: config, encrypt."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from binlogctl.commands import encrypt as encryption
from drainer.config import password
from tests.deploy.binlogctl.conftest import Ctl
from tests.deploy.binlogctl.support.scripted_node import ScriptedNode, listening, said
from tidb_binlog import tso
from tidb_binlog.clock import SystemClock
from tidb_binlog.cluster.node import OFFLINE, ONLINE, NodeStatus
from tidb_binlog.cluster.registry import DRAINERS, PUMPS
from tidb_binlog.etcd.registry import EtcdRegistry

ROOT = Path(__file__).parents[4]


def told(node_id: str, address: str, *, ago_s: float, ts: int = 100) -> NodeStatus:
    update_ts = tso.from_wall_s(SystemClock().wall_s() - ago_s)
    return NodeStatus(node_id, address, ONLINE, ts, update_ts)


async def test_only_the_dead_are_forgotten(
    registry: EtcdRegistry, etcd: str, ctl: Ctl, free_port: Callable[[], int]
) -> None:
    nowhere = f"127.0.0.1:{free_port()}"
    at = ("-pd-urls", etcd)
    await registry.put(PUMPS, told("fresh", nowhere, ago_s=5), 0)
    done = await ctl("forget", "fresh", *at)
    assert (done.code, "may live: it renewed its entry 5" in done.err) == (4, True), done.err
    async with listening(ScriptedNode(status={"status": {}, "ErrMsg": ""})) as address:
        await registry.put(PUMPS, told("go", address, ago_s=900), 0)
        done = await ctl("forget", "go", *at)
        assert (done.code, f"pump go lives: it answers at {address}" in done.err) == (4, True)
    async with listening(ScriptedNode(status={"pump": {"node_id": "other"}})) as address:
        await registry.put(PUMPS, told("moved", address, ago_s=900), 0)
        assert (await ctl("forget", "moved", *at)).code == 0, "somebody else has its address"
    assert (await registry.view()).pumps["moved"].status.state == OFFLINE
    announced = await registry.announce(DRAINERS, "held", 600)
    await registry.put(DRAINERS, told("held", nowhere, ago_s=900), 0)
    done = await ctl("forget", "held", *at)
    assert (done.code, "drainer held lives" in done.err) == (4, True)
    await announced.withdraw()
    done = await ctl("forget", "held", *at)
    assert (done.code, "pumps no longer keep for it" in done.out) == (0, True)


async def test_a_pump_that_is_needed_needs_a_yes(
    registry: EtcdRegistry, etcd: str, ctl: Ctl, free_port: Callable[[], int]
) -> None:
    nowhere, at = f"127.0.0.1:{free_port()}", ("-pd-urls", etcd)
    await registry.put(PUMPS, told("p", nowhere, ago_s=900, ts=100 << 18), 0)
    await registry.put(DRAINERS, told("d", nowhere, ago_s=0, ts=90 << 18), 0)
    done = await ctl("forget", "p", *at)
    assert done.code == 4
    assert "pump p is needed: drainer d has applied up to" in done.err
    assert "give that up with -yes" in done.err
    assert (await registry.view()).pumps["p"].status.state == ONLINE
    done = await ctl("forget", "p", "-yes", *at)
    assert (done.code, "what lies between is lost to it" in done.out) == (0, True)
    assert (await registry.view()).pumps["p"].status.state == OFFLINE
    assert "is offline already" in (await ctl("forget", "p", *at)).out
    assert (await ctl("forget", "p", "-delete", *at)).code == 0
    assert "p" not in (await registry.view()).pumps


async def test_a_node_that_lives_or_changed_is_not_removed(registry: EtcdRegistry) -> None:
    from tidb_binlog.errors import Conflict

    revision = await registry.put(PUMPS, NodeStatus("p", "h:1", OFFLINE), 0)
    with pytest.raises(Conflict):
        await registry.remove(PUMPS, "p", revision - 1)
    announced = await registry.announce(PUMPS, "p", 600)
    with pytest.raises(Conflict):
        await registry.remove(PUMPS, "p", revision)
    await announced.withdraw()
    await registry.remove(PUMPS, "p", revision)
    assert not (await registry.view()).pumps


async def test_refusals_of_the_readable_commands(registry: EtcdRegistry, etcd: str, ctl: Ctl) -> None:
    at = ("-pd-urls", etcd)
    refusing = ScriptedNode(answer=said("no drainer is registered that could read what is stored", 3, 409))
    async with listening(refusing) as address:
        await registry.put(PUMPS, told("p", address, ago_s=0), 0)
        done = await ctl("close", "p", *at)
        assert (done.code, "pump p refused: no drainer is registered" in done.err) == (4, True)
        assert "was asked" not in done.out
        refusing.answer = said("apply action close success!")
        forced = await ctl("close", "p", "-force", "-no-wait", *at)
        assert (forced.code, refusing.asked[-1]) == (0, "/state/p/close?force=true")
        done = await ctl("close", "p", "-timeout", "1ms", *at)
        assert (done.code, "it goes on" in done.err) == (13, True)
    done = await ctl("pause", "q", *at)
    assert (done.code, "there is no node 'q'" in done.err) == (4, True)


# Files ---------------------------------------------------------------------------------------------------


WRONG = """\
addr = "127.0.0.1:8249"
heartbeat-intervall = 2
[syncer]
worker-count = "x"
worker-cont = 4
[syncer.to]
host = "h"
password = "hidden"
"""


async def test_config_check_prints_every_wrong_key(ctl: Ctl, tmp_path: Path) -> None:
    file = tmp_path / "d.toml"
    file.write_text(WRONG)
    done = await ctl("config", "check", str(file))
    assert done.code == 1
    lines = done.out.splitlines()
    assert len(lines) == 3
    assert "heartbeat-intervall (line 2) (did you mean heartbeat-interval?)" in lines[0]
    assert "line 4: syncer.worker-count: a whole number is expected" in lines[1]
    assert "syncer.worker-cont (line 5) (did you mean syncer.worker-count?)" in lines[2]
    told = json.loads((await ctl("config", "check", str(file), "-output", "json")).out)
    assert (told["kind"], len(told["problems"])) == ("drainer", 3)
    assert "hidden" not in done.out


async def test_config_check_says_what_the_daemon_says_at_its_start(ctl: Ctl, tmp_path: Path) -> None:
    """Go's defaults count as not set, and where they do the settings in force show it."""
    file = tmp_path / "drainer.toml"
    file.write_text("[syncer]\nworker-count = 16\n")
    done = await ctl("config", "check", str(file))
    right, remark = done.out.splitlines()
    assert (done.code, right) == (0, f"{file} is right for a drainer")
    assert remark.startswith(
        "syncer.worker-count = 16 is the Go drainer's default and counts as not set: it is 4"
    )
    told = json.loads((await ctl("config", "check", str(file), "-output", "json")).out)
    assert (told["problems"], told["remarks"]) == ([], [remark])
    told = json.loads((await ctl("config", "show", str(file), "-output", "json")).out)
    (setting,) = [one for one in told["settings"] if one["key"] == "syncer.worker-count"]
    assert (setting["value"], setting["source"]) == (4, f"{file}:2: Go's default, not set")


async def test_config_of_the_shipped_files_and_of_what_does_not_fit(ctl: Ctl, tmp_path: Path) -> None:
    for kind in ("pump", "drainer"):
        done = await ctl("config", "check", str(ROOT / "deploy" / f"{kind}.toml"))
        assert (done.code, done.out.endswith(f"is right for a {kind}\n")) == (0, True)
    file = tmp_path / "any.toml"
    file.write_text('log-level = "info"\n')
    done = await ctl("config", "check", str(file))
    assert (done.code, "pass -kind pump or -kind drainer" in done.err) == (1, True)
    assert (await ctl("config", "check", str(file), "-kind", "pump")).code == 0
    file.write_text('[storage]\nretention-protects = "nobody"\n')
    done = await ctl("config", "check", str(file))
    assert (done.code, "retention-protects is 'nobody'" in done.out) == (1, True), "relations are checked"
    file.write_text("addr = \n")
    assert "is not TOML" in (await ctl("config", "check", str(file))).err
    assert (await ctl("config", "check", str(tmp_path / "none"))).code == 1


async def test_config_show_says_where_each_value_is_from(
    ctl: Ctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BINLOG_SERVER_C", "7")
    file = tmp_path / "d.toml"
    file.write_text('addr = "127.0.0.1:9"\n[syncer]\ntxn-batch = 5\n[syncer.to]\npassword = "hidden"\n')
    done = await ctl("config", "show", str(file), "-output", "json")
    assert done.code == 0
    by_key = {one["key"]: (one["value"], one["source"]) for one in json.loads(done.out)["settings"]}
    assert by_key["addr"] == ("127.0.0.1:9", f"{file}:1")
    assert by_key["syncer.txn-batch"] == (5, f"{file}:3")
    assert by_key["syncer.worker-count"] == (7, "BINLOG_SERVER_C")
    assert by_key["syncer.to.password"] == ("******", f"{file}:5")
    assert by_key["data-dir"] == ("data.drainer", "default")
    table = await ctl("config", "show", str(file))
    assert "hidden" not in table.out + done.out
    assert "BINLOG_SERVER_C" in table.out


async def test_encrypt_reads_standard_input(ctl: Ctl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(password.KEY_VARIABLE, raising=False)
    for given in ("geh eim\n", "geh eim", "geh eim\r\n"):
        monkeypatch.setattr("sys.stdin", io.StringIO(given, newline=""))
        done = await ctl("encrypt")
        assert done.code == 0
        assert password.decrypt("p", done.out.strip(), {}) == "geh eim"
        assert "anybody can read" in done.err
    for given in ("", "\n", "two\nlines\n", "x" * 5000):
        monkeypatch.setattr("sys.stdin", io.StringIO(given))
        assert (await ctl("encrypt")).code == 4


async def test_encrypt_asks_twice_on_a_terminal(ctl: Ctl, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setenv(password.KEY_VARIABLE, "11" * 32)
    typed = ["one", "one", "one", "two"]
    monkeypatch.setattr(encryption.getpass, "getpass", lambda _: typed.pop(0))
    done = await ctl("encrypt")
    assert password.decrypt("p", done.out.strip(), {password.KEY_VARIABLE: "11" * 32}) == "one"
    assert done.err == ""
    assert "the two differ" in (await ctl("encrypt")).err

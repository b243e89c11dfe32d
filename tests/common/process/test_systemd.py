"""What the service manager is told, on real datagram sockets, and the units that are shipped."""

from __future__ import annotations

import asyncio
import configparser
import os
import re
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from drainer.config.options import DrainerConfig
from pump.config import PumpConfig
from pump.log.block_cache import BLOCK_BYTES, BLOCKS_MAX
from pump.pull.pages import ALONE_BYTES
from tests.docs.pages import EXIT_CODES
from tidb_binlog import errors
from tidb_binlog.config import declaring
from tidb_binlog.door.limits import CALL_BYTES, CONNECTION_BYTES
from tidb_binlog.observe import log
from tidb_binlog.process.daemon import Daemon
from tidb_binlog.process.systemd import Notifier
from tidb_binlog.quantities import size_bytes
from tidb_binlog.serving.node_config import NodeConfig

ROOT = Path(__file__).parents[3]
UNITS = {"pump": PumpConfig, "drainer": DrainerConfig}


class Manager:
    """The service manager's end."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self._socket.settimeout(5)

    def take(self) -> list[str]:
        """The lines of the next message."""
        return self._socket.recv(4096).decode().split("\n")

    def pending(self) -> list[list[str]]:
        """All that has come so far."""
        found: list[list[str]] = []
        self._socket.setblocking(False)
        try:
            while True:
                found.append(self._socket.recv(4096).decode().split("\n"))
        except BlockingIOError:
            return found
        finally:
            self._socket.settimeout(5)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    found = Manager(str(tmp_path / "n") if request.param == "path" else f"@binlog-{secrets.token_hex(8)}")
    yield found
    found.close()


def test_messages(manager: Manager) -> None:
    environ = {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "7"}
    notifier = Notifier.from_environment(environ, 7)
    assert notifier.is_on
    assert notifier.watchdog_s == 3.0
    notifier.ready("online\nas p1")
    assert manager.take() == ["READY=1", "STATUS=online as p1"]
    notifier.status("x" * 9000)
    assert manager.take() == ["STATUS=" + "x" * 500]
    notifier.stopping("stopping")
    assert manager.take() == ["STOPPING=1", "STATUS=stopping"]
    notifier.alive()
    assert manager.take() == ["WATCHDOG=1"]
    notifier.extend(1.5)
    assert manager.take() == ["EXTEND_TIMEOUT_USEC=1500000"]


@pytest.mark.parametrize(
    ("environ", "on", "watchdog_s"),
    [
        ({}, False, 0.0),
        ({"WATCHDOG_USEC": "5000000"}, False, 0.0),
        ({"NOTIFY_SOCKET": "/x"}, True, 0.0),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "5000000"}, True, 5.0),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "5000000", "WATCHDOG_PID": "8"}, True, 0.0),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "soon", "WATCHDOG_PID": "7"}, True, 0.0),
    ],
)
def test_environment(environ: dict[str, str], on: bool, watchdog_s: float) -> None:
    notifier = Notifier.from_environment(environ, 7)
    assert (notifier.is_on, notifier.watchdog_s) == (on, watchdog_s)


def test_a_manager_that_is_gone_is_said_once_and_harms_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for address in (str(tmp_path / "none"), "/" + "x" * 200):
        caplog.clear()
        notifier = Notifier(address, 1.0)
        for _ in range(3):
            notifier.alive()
        assert [record.levelname for record in caplog.records] == ["WARNING"]
    full = Manager(str(tmp_path / "full"))
    notifier = Notifier(full.address)
    for _ in range(2000):  # nobody reads: what does not fit is dropped, nothing waits
        notifier.alive()
    assert len(full.pending()) < 2000
    full.close()


async def test_daemon_tells_ready_stopping_and_that_its_loop_turns(tmp_path: Path) -> None:
    manager = Manager(str(tmp_path / "n"))
    process = Daemon("test", log.get("test"), notifier=Notifier(manager.address, 0.04))
    up = asyncio.Event()

    async def slow_end() -> None:
        await asyncio.sleep(0.1)

    async def setup(process: Daemon) -> None:
        process.on_stop("slow", slow_end, 5.0)
        process.status("starting: waits for etcd")
        await asyncio.sleep(0.03)
        process.ready("online")
        up.set()

    running = asyncio.create_task(process.run(setup))
    await up.wait()
    begun = manager.pending()
    assert ["STATUS=starting: waits for etcd"] in begun
    assert begun[-1] == ["READY=1", "STATUS=online"]
    assert ["EXTEND_TIMEOUT_USEC=60000000"] in begun, "a long start asks for time"
    await asyncio.sleep(0.1)
    assert {tuple(lines) for lines in manager.pending()} == {("WATCHDOG=1",)}
    time.sleep(0.2)  # a loop that is stuck says nothing
    assert manager.pending() == []
    await asyncio.sleep(0.1)
    assert manager.pending()
    process.stop()
    assert await running == 0
    ended = manager.pending()
    assert ["STOPPING=1", "STATUS=stopping"] in ended
    assert ["EXTEND_TIMEOUT_USEC=60000000"] in ended
    await asyncio.sleep(0.1)
    assert manager.pending() == []
    manager.close()


async def test_a_reload_is_told_from_its_begin_to_its_end(tmp_path: Path) -> None:
    manager = Manager(str(tmp_path / "n"))
    process = Daemon("test", log.get("test"), notifier=Notifier(manager.address), reloads=True)
    reloaded, gate = asyncio.Event(), asyncio.Event()
    began_us = time.monotonic_ns() // 1000

    async def reload() -> None:
        await gate.wait()
        reloaded.set()

    async def setup(process: Daemon) -> None:
        process.ready("online as p")
        process.on_reload(reload)
        os.kill(os.getpid(), signal.SIGHUP)

    running = asyncio.create_task(process.run(setup))
    async with asyncio.timeout(5):
        while not (told := [lines for lines in manager.pending() if lines[0] == "RELOADING=1"]):
            await asyncio.sleep(0.01)
    assert int(told[0][1].removeprefix("MONOTONIC_USEC=")) >= began_us
    gate.set()
    await reloaded.wait()
    async with asyncio.timeout(5):
        while ["READY=1", "STATUS=online as p"] not in manager.pending():
            await asyncio.sleep(0.01)
    process.stop()
    assert await running == 0
    manager.close()


async def test_ready_is_said_again_until_it_fits(tmp_path: Path) -> None:
    manager = Manager(str(tmp_path / "n"))
    notifier = Notifier(manager.address, 0.02)
    process = Daemon("test", log.get("test"), notifier=notifier)
    while notifier.ready("filling"):  # until the manager's queue is full
        pass
    manager_reads = asyncio.Event()

    async def setup(process: Daemon) -> None:
        process.ready("online")
        await manager_reads.wait()

    running = asyncio.create_task(process.run(setup))
    await asyncio.sleep(0.05)
    assert ["READY=1", "STATUS=online"] not in manager.pending()
    async with asyncio.timeout(5):
        while ["READY=1", "STATUS=online"] not in manager.pending():
            await asyncio.sleep(0.01)
    manager_reads.set()
    process.stop()
    assert await running == 0
    manager.close()


# -- units -----------------------------------------------------------------------------------------


def unit(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(ROOT / "deploy" / "systemd" / f"{name}.service")
    return parser


@pytest.mark.parametrize("name", UNITS)
def test_units_start_what_is_there_and_name_documented_codes(name: str) -> None:
    service = unit(name)["Service"]
    assert (service["Type"], service["NotifyAccess"]) == ("notify", "main")
    assert int(service["WatchdogSec"]) > 0
    assert shlex.split(service["ExecReload"])[1:] == ["-HUP", "$MAINPID"]
    program, *words = shlex.split(service["ExecStart"])
    assert Path(program).name == name
    flags = {option.flag for option in declaring.options(UNITS[name]).values()} | {"config"}
    named = [word.lstrip("-").partition("=")[0] for word in words if word.startswith("-")]
    assert named
    assert set(named) <= flags
    # The numbers in the comment are those that count, and each is one of our errors and on the page.
    comment = (ROOT / "deploy" / "systemd" / f"{name}.service").read_text()
    explained = re.search(r"end the same way:(.*?)\nRestartPreventExitStatus", comment, re.S)
    assert explained
    final = set(service["RestartPreventExitStatus"].split())
    assert final == set(re.findall(r"\d+", explained[1]))
    codes = {
        str(one.exit_code)
        for one in vars(errors).values()
        if isinstance(one, type) and hasattr(one, "exit_code")
    }
    assert final < codes
    assert not final & {"0", "2", "3"}, "a crash or a peer that is away: another start may do"
    page = EXIT_CODES.text
    assert all(f"\n| {code} |" in page for code in final)


@pytest.mark.parametrize("name", UNITS)
def test_units_bound_memory_above_what_the_limits_allow(name: str) -> None:
    """And leave no image of it on the disk."""
    settings = UNITS[name]()
    assert isinstance(settings, NodeConfig)
    limits = settings.effective()
    held = limits.receive_bytes_max + limits.send_bytes_max + limits.calls_max * CALL_BYTES
    held += limits.connections_max * CONNECTION_BYTES
    if isinstance(settings, PumpConfig):
        held += settings.write_queue_bytes + settings.index_queue_bytes + 3 * settings.recent_bytes
        held += 2 * settings.write_buffer_bytes + settings.cache_bytes + BLOCKS_MAX * BLOCK_BYTES
        held += settings.pull_streams * 2 * ALONE_BYTES
    service = unit(name)["Service"]
    high, most = size_bytes(service["MemoryHigh"] + "iB"), size_bytes(service["MemoryMax"] + "iB")
    assert held < high < most
    assert held + 3 * limits.connections_max * CONNECTION_BYTES < most, "all of them over TLS"
    assert service["LimitCORE"] == "0"


@pytest.mark.parametrize("name", UNITS)
def test_systemd_understands_the_units(name: str, tmp_path: Path) -> None:
    """By systemd's own check where it is installed; every key is of a section that systemd has anywhere."""
    parser = unit(name)
    assert parser.sections() == ["Unit", "Service", "Install"]
    text = (ROOT / "deploy" / "systemd" / f"{name}.service").read_text()
    copy = tmp_path / f"{name}.service"
    copy.write_text(text.replace(f"/usr/bin/{name}", sys.executable))
    analyze = shutil.which("systemd-analyze")
    if analyze is not None:
        checked = subprocess.run([analyze, "verify", str(copy)], capture_output=True, text=True, timeout=60)
        assert f"{name}.service" not in checked.stderr, checked.stderr

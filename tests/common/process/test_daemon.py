""""""

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
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from drainer.config.options import DrainerConfig
from pump.config import PumpConfig
from pump.log.block_cache import BLOCK_BYTES, BLOCKS_MAX
from pump.pull.pages import ALONE_BYTES
from tests.docs.pages import EXIT_CODES
from tests.waiting import PATIENCE_S, settle, until
from tidb_binlog import errors
from tidb_binlog.config import declaring
from tidb_binlog.door.limits import CALL_BYTES, CONNECTION_BYTES
from tidb_binlog.errors import Conflict, Rejected, Unavailable
from tidb_binlog.observe import log
from tidb_binlog.process import daemon
from tidb_binlog.process.daemon import Daemon, Notifier
from tidb_binlog.quantities import size_bytes
from tidb_binlog.serving.node_config import NodeConfig

ROOT = Path(__file__).parents[3]


def make(cancel_deadline_s: float = 1.0) -> Daemon:
    return Daemon("test", log.get("test"), cancel_deadline_s=cancel_deadline_s)


async def _forever() -> None:
    await asyncio.Event().wait()


async def test_a_clean_stop_runs_phases_in_order_and_cancels_tasks_last() -> None:
    events: list[str] = []
    process = make()

    async def work() -> None:
        try:
            await _forever()
        finally:
            events.append("task cancelled")

    async def setup(process: Daemon) -> None:
        process.task("work", work())
        for name in ("stop taking", "drain", "close"):

            async def phase(name: str = name) -> None:
                await asyncio.sleep(0)
                events.append(name)

            process.on_stop(name, phase, 1.0)
        process.task("stopper", stopper())

    async def stopper() -> None:
        process.stop()

    assert await process.run(setup) == 0
    assert events == ["stop taking", "drain", "close", "task cancelled"]


async def test_a_hang_up_reloads_also_one_that_came_early_and_whatever_comes_of_it() -> None:
    process = Daemon("test", log.get("test"), reloads=True)
    reloads: list[int] = []

    async def reload() -> None:
        reloads.append(len(reloads))
        if len(reloads) == 1:
            os.kill(os.getpid(), signal.SIGHUP)
            raise ValueError("an error of the program")
        process.stop()

    async def setup(process: Daemon) -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        await settle()
        assert not process.stopping
        process.on_reload(reload)

    async with asyncio.timeout(PATIENCE_S):
        assert await process.run(setup) == 0
    assert reloads == [0, 1]


async def test_a_hang_up_stops_who_does_not_reload() -> None:
    async def setup(process: Daemon) -> None:
        os.kill(os.getpid(), signal.SIGHUP)

    async with asyncio.timeout(PATIENCE_S):
        assert await make().run(setup) == 0


async def test_the_first_failure_is_the_cause(capsys: pytest.CaptureFixture[str]) -> None:
    process = make()

    async def fail(error: Exception) -> None:
        raise error

    async def setup(process: Daemon) -> None:
        process.task("a", fail(Conflict("lost the lease", hint="look\nfor the other")))
        process.task("b", fail(Unavailable("second")))
        process.task("c", _forever())

    assert await process.run(setup) == Conflict.exit_code
    assert capsys.readouterr().err == "test: error: lost the lease (look for the other)\n"


async def test_a_task_may_return() -> None:
    process = make()

    async def setup(process: Daemon) -> None:
        process.task("short", asyncio.sleep(0))
        process.task("later", later())

    async def later() -> None:
        for _ in range(5):
            await asyncio.sleep(0)
        assert not process.stopping
        process.stop()

    assert await process.run(setup) == 0


async def test_a_failed_setup_still_runs_the_phases_so_far(capsys: pytest.CaptureFixture[str]) -> None:
    closed: list[str] = []

    async def close() -> None:
        closed.append("closed")

    async def setup(process: Daemon) -> None:
        process.on_stop("close", close, 1.0)
        raise Rejected("port taken")

    assert await make().run(setup) == Rejected.exit_code
    assert closed == ["closed"]
    assert capsys.readouterr().err == "test: error: port taken\n"


async def test_stop_during_setup_cancels_it() -> None:
    async def setup(process: Daemon) -> None:
        asyncio.get_running_loop().call_soon(process.stop)
        await _forever()

    assert await asyncio.wait_for(make().run(setup), PATIENCE_S) == 0


async def test_a_phase_that_overruns_is_left_behind() -> None:
    events: list[str] = []

    async def hangs() -> None:
        try:
            await _forever()
        finally:
            events.append("cancelled")

    async def next_phase() -> None:
        events.append("next")

    async def setup(process: Daemon) -> None:
        process.on_stop("hangs", hangs, 0.01)
        process.on_stop("next", next_phase, 1.0)
        process.stop()

    assert await make().run(setup) == 0
    assert events == ["cancelled", "next"]


async def test_a_failing_phase_does_not_stop_the_others_but_decides_the_code() -> None:
    events: list[str] = []

    async def fails() -> None:
        raise Unavailable("no etcd")

    async def next_phase() -> None:
        events.append("next")

    async def setup(process: Daemon) -> None:
        process.on_stop("fails", fails, 1.0)
        process.on_stop("next", next_phase, 1.0)
        process.stop()

    assert await make().run(setup) == Unavailable.exit_code
    assert events == ["next"]


async def test_a_task_that_ignores_cancellation_does_not_block_the_end() -> None:
    release = asyncio.Event()

    async def stubborn() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                pass

    async def setup(process: Daemon) -> None:
        process.task("stubborn", stubborn())
        process.task("stop", stop(process))

    async def stop(process: Daemon) -> None:
        process.stop()

    assert await asyncio.wait_for(make(cancel_deadline_s=0.01).run(setup), PATIENCE_S) == 0
    release.set()
    await asyncio.sleep(0)


async def test_what_the_system_says_of_a_file_is_told_with_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    async def setup(process: Daemon) -> None:
        (tmp_path / "no" / "such").read_bytes()

    assert await make().run(setup) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"test: error: {tmp_path}/no/such: No such file or directory (look at its disk")
    assert not any(record.exc_info for record in caplog.records), "it is no surprise"


async def test_an_unexpected_error_has_its_own_code(capsys: pytest.CaptureFixture[str]) -> None:
    async def setup(process: Daemon) -> None:
        raise ValueError("oops")

    assert await make().run(setup) == 2
    assert capsys.readouterr().err == "test: error: unexpected ValueError: oops\n"


PROGRAM = """
    import asyncio, sys
    from tidb_binlog.observe import log
    from tidb_binlog.process import daemon
    from tidb_binlog.errors import Conflict

    async def run(argv):
        log.setup(file=argv[1] if len(argv) > 1 else "")
        mode = argv[0]
        if mode == "raise":
            raise Conflict("the id is taken", hint="choose another")
        process = daemon.Daemon("prog", log.get("prog"))

        async def slow():
            print("stopping", flush=True)
            if mode == "hang":
                await asyncio.Event().wait()
            print("stopped", flush=True)

        async def setup(process):
            process.on_stop("slow", slow, 30.0)
            print("ready", flush=True)

        return await process.run(setup)

    daemon.main("prog", run)
"""


def start(tmp_path: Path, *arguments: str, options: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    return subprocess.Popen(
        [sys.executable, *options, str(program), *arguments],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.integration
@pytest.mark.parametrize("number", daemon.SIGNALS)
def test_each_signal_is_a_graceful_stop(tmp_path: Path, number: signal.Signals) -> None:
    with start(tmp_path, "normal", str(tmp_path / "log")) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out, err) == (0, "stopping\nstopped\n", "")
    assert f"[signal={number.name}]" in (tmp_path / "log").read_text()


@pytest.mark.integration
def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    with start(tmp_path, "hang", str(tmp_path / "log")) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "stopping\n"
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130


@pytest.mark.integration
def test_an_error_is_one_line_and_its_code(tmp_path: Path) -> None:
    with start(tmp_path, "raise") as process:
        out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out, err) == (5, "", "prog: error: the id is taken (choose another)\n")


@pytest.mark.integration
def test_optimized_python_is_refused(tmp_path: Path) -> None:
    with start(tmp_path, "normal", options=("-O",)) as process:
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert err == "prog: error: assertions are off (run python without -O)\n"


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


@pytest.mark.integration
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
    told = await until(lambda: [lines for lines in manager.pending() if lines[0] == "RELOADING=1"])
    assert int(told[0][1].removeprefix("MONOTONIC_USEC=")) >= began_us
    gate.set()
    await reloaded.wait()
    await until(lambda: ["READY=1", "STATUS=online as p"] in manager.pending())
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
    await settle()
    assert ["READY=1", "STATUS=online"] not in manager.pending()
    await until(lambda: ["READY=1", "STATUS=online"] in manager.pending())
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
def test_units_have_the_sections_of_a_service(name: str) -> None:
    assert unit(name).sections() == ["Unit", "Service", "Install"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="not on this machine: systemd-analyze")
@pytest.mark.parametrize("name", UNITS)
def test_systemd_understands_the_units_and_finds_little_that_they_leave_open(
    name: str, tmp_path: Path
) -> None:
    """By its own checks, of a unit whose program is there."""
    text = (ROOT / "deploy" / "systemd" / f"{name}.service").read_text()
    copy = tmp_path / f"{name}.service"
    copy.write_text(text.replace(f"/usr/bin/{name}", sys.executable))
    for check in (["verify"], ["security", "--no-pager", "--offline=true", "--threshold=20"]):
        done = subprocess.run(
            ["systemd-analyze", *check, str(copy)],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert f"{name}.service" not in done.stderr, done.stderr
        assert done.returncode == 0 or check == ["verify"], done.stdout[-300:]


# Threads that hold memory all at once; then the heaps that the C library says it has.
_PROGRAM = """
import ctypes, sys, threading
from tidb_binlog.process import daemon

async def run(arguments):
    together = threading.Barrier(6)
    def hold():
        ours = [bytes(4096) for _ in range(100)]
        together.wait()
    threads = [threading.Thread(target=hold) for _ in range(6)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    library = ctypes.CDLL(None)
    library.fopen.restype = ctypes.c_void_p
    out = ctypes.c_void_p(library.fopen(sys.argv[1].encode(), b"w"))
    library.malloc_info(0, out)
    library.fclose(out)
    return 0

if sys.argv[2] == "as without":
    daemon.share_arenas = lambda: False
daemon.main("test", run)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="arenas are of glibc")
@pytest.mark.parametrize("how", ["as a daemon", "as without"])
def test_all_threads_of_a_daemon_share_one_arena(tmp_path_factory: pytest.TempPathFactory, how: str) -> None:
    found = tmp_path_factory.mktemp("arenas") / "info.xml"
    subprocess.run([sys.executable, "-c", _PROGRAM, str(found), how], check=True, timeout=PATIENCE_S)
    heaps = found.read_text().count("<heap nr=")
    assert heaps == 1 if how == "as a daemon" else heaps > 1

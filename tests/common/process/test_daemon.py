from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tidb_binlog.errors import Conflict, Rejected, Unavailable
from tidb_binlog.observe import log
from tidb_binlog.process import daemon
from tidb_binlog.process.daemon import Daemon

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
        await asyncio.sleep(0.01)
        assert not process.stopping
        process.on_reload(reload)

    async with asyncio.timeout(10):
        assert await process.run(setup) == 0
    assert reloads == [0, 1]


async def test_a_hang_up_stops_who_does_not_reload() -> None:
    async def setup(process: Daemon) -> None:
        os.kill(os.getpid(), signal.SIGHUP)

    async with asyncio.timeout(10):
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

    assert await asyncio.wait_for(make().run(setup), 5) == 0


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

    assert await asyncio.wait_for(make(cancel_deadline_s=0.01).run(setup), 5) == 0
    release.set()
    await asyncio.sleep(0)


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
        out, err = process.communicate(timeout=20)
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
        process.communicate(timeout=20)
    assert process.returncode == 130


@pytest.mark.integration
def test_an_error_is_one_line_and_its_code(tmp_path: Path) -> None:
    with start(tmp_path, "raise") as process:
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (5, "", "prog: error: the id is taken (choose another)\n")


@pytest.mark.integration
def test_optimized_python_is_refused(tmp_path: Path) -> None:
    with start(tmp_path, "normal", options=("-O",)) as process:
        _, err = process.communicate(timeout=20)
    assert process.returncode == 1
    assert err == "prog: error: assertions are off (run python without -O)\n"

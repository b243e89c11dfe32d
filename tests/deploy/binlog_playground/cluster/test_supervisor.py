"""Child processes are kept on a leash: nothing survives, and a death is noticed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from binlog_playground.cluster.mariadb import find_program
from binlog_playground.cluster.supervisor import Process, ProcessDied, Supervisor
from tests.waiting import until_here
from tidb_binlog.errors import ConfigError
from tidb_binlog.net.port import free_ports

SLEEPER = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return not Path(f"/proc/{pid}/stat").read_text().split(") ")[1].startswith("Z")


def test_start_kill_and_start_again(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path)
    process = supervisor.add("sleeper", SLEEPER)
    assert process.state == "idle"
    process.start()
    until_here(lambda: process.tail() == "up")
    pid = process.pid
    process.kill()
    assert (process.state, process.died, process.pid) == ("killed", False, 0)
    assert not alive(pid)
    process.start()
    assert process.starts == 2
    assert process.stop(5.0) == -signal.SIGTERM
    assert process.state == "stopped"
    assert supervisor.dead() == []


def test_a_death_is_noticed_and_told_with_the_end_of_the_log(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path)
    process = supervisor.add("bad", [sys.executable, "-c", "import sys; sys.exit('it went wrong')"])
    process.start()
    until_here(lambda: supervisor.dead())
    assert process.state == "exit 1"
    error = process.death()
    assert isinstance(error, ProcessDied)
    assert "bad ended by itself (exit 1): it went wrong" in str(error)
    assert str(tmp_path / "logs" / "bad.log") in str(error)


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    process = Process("none", ["/nonexistent/program"], tmp_path / "log")
    process.start()
    until_here(lambda: process.died)
    assert "No such file or directory" in process.tail()


def test_stop_kills_what_ignores_sigterm(tmp_path: Path) -> None:
    ignore = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    code = ignore + SLEEPER[-1]
    process = Process("stubborn", [sys.executable, "-c", code], tmp_path / "log")
    process.start()
    until_here(lambda: process.tail() == "up")
    assert process.stop(0.2) == -signal.SIGKILL


def test_a_killed_parent_takes_its_children_along(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path\n"
        "from binlog_playground.cluster.supervisor import Process\n"
        f"p = Process('child', {SLEEPER!r}, Path({str(tmp_path)!r}) / 'log'); p.start()\n"
        "print(p.pid, flush=True); time.sleep(600)\n"
    )
    root = Path(__file__).resolve().parents[4]
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=root)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    until_here(lambda: (tmp_path / "log").read_text().strip() == "up")
    parent.kill()
    parent.wait()
    parent.stdout.close()
    until_here(lambda: not alive(child))


def test_ports_of_one_call_differ() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20


def test_a_missing_program_says_what_to_install() -> None:
    with pytest.raises(ConfigError) as error:
        find_program("no-such-server")
    assert str(error.value) == "no-such-server is not installed (apt-get install mariadb-server)"

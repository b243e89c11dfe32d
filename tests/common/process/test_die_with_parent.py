"""A child dies with the process that started it, also where that is gone already."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.waiting import PATIENCE_S

CHILD = "import sys, time; from tidb_binlog.process.die_with_parent import die_with; die_with({parent});"
PARENT = """
import os, subprocess, sys
child = CHILD.format(parent=os.getpid()) + "print('lives', flush=True); time.sleep(60)"
process = subprocess.Popen([sys.executable, "-c", child], stdout=subprocess.PIPE)
process.stdout.readline()
print(process.pid, flush=True)
sys.stdin.read()
"""


def is_alive(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


def test_it_dies_with_its_parent() -> None:
    program = f"CHILD = {CHILD!r}\n{PARENT}"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_alive(pid)
        parent.kill()
    while is_alive(pid):  # the kernel tells it at once; the test's time limit is the only clock
        pass


def test_it_does_not_outlive_a_parent_that_is_gone() -> None:
    child = subprocess.run(
        [sys.executable, "-c", CHILD.format(parent=1 << 22)], check=False, timeout=PATIENCE_S
    )
    assert child.returncode != 0

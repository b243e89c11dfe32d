"""Memory that one thread has freed is there for the others."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
    subprocess.run([sys.executable, "-c", _PROGRAM, str(found), how], check=True, timeout=60)
    heaps = found.read_text().count("<heap nr=")
    assert heaps == 1 if how == "as a daemon" else heaps > 1

"""On a real NFS mount: a Pump refuses it, an archive there is whole and belongs to one Drainer.

`BINLOG_NFS` names a directory on one, mounted as docs/nfs.md says. Nothing mounts it here: that needs a
server and a kernel with a client.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.drainer.support.archive_life import Life, Ready, payloads, whole
from tests.drainer.support.relay_world import items
from tests.waiting import PATIENCE_S
from tidb_binlog.errors import DirectoryLocked

pytestmark = pytest.mark.integration


@pytest.fixture
def nfs() -> Iterator[Path]:
    """An empty directory there."""
    named = os.environ.get("BINLOG_NFS")
    if not named:
        kernel = "" if "nfs" in Path("/proc/filesystems").read_text() else ", and this kernel has no client"
        pytest.skip(f"no NFS: BINLOG_NFS names no directory on one{kernel}")
    directory = Path(named) / f"binlog-{os.getpid()}"
    directory.mkdir()
    yield directory
    shutil.rmtree(directory)


def test_a_pump_refuses_it(nfs: Path, etcd_clean: str, free_port: Callable[[], int]) -> None:
    own = [f"--pd-urls={etcd_clean}", f"--data-dir={nfs / 'pump'}", f"--addr=127.0.0.1:{free_port()}"]
    command = [sys.executable, "-m", "pump", *own]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (ended.returncode, "NFS" in ended.stderr) == (1, True), ended.stderr
    assert not list(nfs.rglob("*.log"))


async def test_an_archive_there_is_whole_and_of_one_drainer_at_a_time(nfs: Path, tmp_path: Path) -> None:
    source = Ready(items("basic"))
    await whole(tmp_path, source, max_file_size=1500)
    first = Life(nfs, source, max_file_size=1500)
    with pytest.raises(DirectoryLocked):
        Life(nfs, source, max_file_size=1500)
    await first.runner.run(first.batches(3))
    await first.sink.settled()
    first.archive.let_go()  # no checkpoint, no graceful stop
    await whole(nfs, source, max_file_size=1500)
    assert payloads(nfs) == payloads(tmp_path)

"""A Go Pump goes on with the directory of one of ours that was killed, and delivers all that was stored.

`BINLOG_PEERS` names a directory with Go's pump. LevelDB merges tables while entries come, and goleveldb steps
over such entries of its log.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import drainer
from binlog_playground.cluster.supervisor import Supervisor
from tests.benchmarks.door.pumps import until_ready
from tests.benchmarks.peer.programs import PUMP, programs
from tests.benchmarks.settings import Settings
from tests.integration.support.subscribed_shop import rows, shop, write
from tests.pump.support.process import PumpProcess

COUNT = 1300


@pytest.fixture
def peers() -> Path:
    """The directory of the programs."""
    named = os.environ.get("BINLOG_PEERS")
    if not named:
        pytest.skip("no Go Pump to start: BINLOG_PEERS names no directory with its program")
    return Path(named)


@pytest.mark.integration
async def test_it_delivers_all_that_ours_had_when_it_was_killed(
    peers: Path, etcd_clean: str, free_port: Callable[[], int], tmp_path: Path
) -> None:
    small = tmp_path / "pump.toml"
    small.write_text("[storage.kv]\nwrite-buffer = 65536\n")
    ours = PumpProcess(tmp_path / "p1", etcd_clean, free_port, "-node-id=p1", f"-config={small}")
    await ours.start_and_wait()
    publisher = await shop(etcd_clean)
    some = asyncio.Semaphore(16)

    async def publish(number: int) -> int:
        async with some:
            return await write(publisher, number)

    timestamps = await asyncio.gather(*map(publish, range(COUNT)))
    await publisher.close()  # it has told of all commits
    ours.kill()
    supervisor = Supervisor(tmp_path)
    with contextlib.ExitStack() as ends:
        ends.callback(supervisor.kill_all)
        go = ends.enter_context(programs(Settings(peer=peers), PUMP, supervisor, etcd_clean))
        assert go is not None, f"{peers} has no {PUMP}"
        node = go.pump("p1")
        node.process.start()
        await until_ready(node.process, node.address)
        async with drainer.subscribe(etcd_clean, start=min(timestamps) - 1) as stream:
            delivered = await rows(stream, COUNT)
    assert "batch corrupted" in "".join(log.read_text() for log in (tmp_path / "p1" / "kv").glob("LOG*"))
    assert sorted(number for _, number in delivered) == list(range(COUNT))

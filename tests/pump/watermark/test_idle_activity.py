"""Only what is stored counts as activity: writes that fail and probes never put off a time mark."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

from pump.watermark.idle import write_fake_binlogs
from pump.write.admission import Disk
from tests.pump.support.payloads import wait_watermark
from tests.pump.support.scripted import ScriptedOracle
from tests.pump.support.writing import CLUSTER, Writing, pump
from tidb_binlog import binlog, rpc
from tidb_binlog.cluster import node
from tidb_binlog.wire import pump_pb2


async def test_refused_writes_and_probes_do_not_keep_time_marks_away(tmp_path: Path) -> None:
    async with pump(tmp_path) as one:
        oracle = ScriptedOracle()
        marks = asyncio.create_task(write_fake_binlogs(one.storage, oracle, lambda: True, 0.01))
        one.guard.disk = Disk(0, 10)
        marked = asyncio.create_task(wait_watermark(one.storage, oracle.last + 3000))
        writing, answered, rounds = Writing(one.batches), 0, 0
        prewrite, commit = binlog.prewrite(10, b"key", b"value"), binlog.commit(10, 11)
        while not marked.done():
            one.state = node.PAUSED if rounds % 2 else node.ONLINE
            assert await one.write(prewrite) != ""
            assert await one.write(b"\xff") != ""
            with suppress(rpc.RpcStatus):
                await one.server.write_binlog(
                    pump_pb2.WriteBinlogReq(clusterID=CLUSTER + 1).SerializeToString()
                )
            writing.send(prewrite, commit, b"\xff", b"")
            answered, failures = await writing.next()
            assert len(failures) == 4
            one.guard.disk = Disk(100, 10)
            one.state = node.ONLINE
            assert await one.write(b"") == ""
            one.guard.disk = Disk(0, 10)
            rounds += 1
            await asyncio.sleep(0)
        await marked
        assert answered == 4 * rounds
        marks.cancel()
        await asyncio.wait({marks})
        # The marks, nothing else; the last one may have been drawn and not stored yet.
        assert oracle.draws - 1 <= one.storage.stored_total <= oracle.draws

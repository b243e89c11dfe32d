"""A directory whose watermark lies in the future: a writer with a wrong clock was believed once."""

from __future__ import annotations

from pathlib import Path

from tests.pump.support.payloads import opened, pull, put, put_pair, wait_watermark
from tidb_binlog import binlog

FAR = 1 << 62
LIMIT = 1 << 40


async def test_a_watermark_from_the_future_is_no_longer_believed(tmp_path: Path) -> None:
    async with opened(tmp_path) as storage:
        first = await put_pair(storage, 10, 11)
        await put(storage, binlog.fake(FAR))
        await wait_watermark(storage, FAR)
        second = await put_pair(storage, 20, 21)  # at or below the watermark: no drainer got it
    for _ in range(2):
        async with opened(tmp_path, limit_ts=LIMIT) as storage:
            assert storage.watermark == 21
            assert [b"".join(one[2:]) for one in await pull(storage, from_disk=True)] == [first, second]
    assert len(list(tmp_path.glob("kv*future*"))) == 1, "set aside once"


async def test_a_commit_from_the_future_leaves_its_prewrite_open(tmp_path: Path) -> None:
    """Its true end is asked for."""
    async with opened(tmp_path) as storage:
        await put_pair(storage, 10, FAR)
        await wait_watermark(storage, FAR)
    async with opened(tmp_path, limit_ts=LIMIT) as storage:
        assert (storage.watermark, storage.is_open(10)) == (0, True)
        await put(storage, binlog.commit(10, 12, b"key"))
        await wait_watermark(storage, 12)

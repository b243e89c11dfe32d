"""Prewrites that nobody ends, and keys that no store has: refused at the door, in every way of writing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pump.index.sorter import Prewrites
from tests.pump.support.payloads import put
from tests.pump.support.writing import CLUSTER, Calls, Pump, Reason, Writing, pump
from tests.waiting import until
from tidb_binlog import binlog
from tidb_binlog.binlog import KEY_BYTES_MAX
from tidb_binlog.wire import pump_pb2

BOUND = 100
TS = 1 << 58


def opening(number: int, key: bytes = b"key") -> bytes:
    return binlog.prewrite(TS + number, key, b"value")


async def together(one: Pump, *payloads: bytes) -> bool:
    """Whether calls that came together are taken as one."""
    requests = [pump_pb2.WriteBinlogReq(clusterID=CLUSTER, payload=payload) for payload in payloads]
    (take,) = [service.taken["WriteBinlog"] for service in one.server.services() if service.taken]
    return take([request.SerializeToString() for request in requests], Calls(len(requests)))


async def test_three_times_as_many_as_may_be_open_are_refused_with_a_reason_and_ends_make_room(
    tmp_path: Path,
) -> None:
    async with pump(tmp_path, open_prewrites_max=BOUND) as one:
        writing = Writing(one.batches)
        writing.send(*map(opening, range(BOUND - 3)))
        assert await writing.to(BOUND - 3) == []
        writing.send(*map(opening, range(BOUND - 3, 2 * BOUND)))
        failures = await writing.to(2 * BOUND)
        assert [number for number, _, _ in failures] == [*range(BOUND + 1, 2 * BOUND + 1)]
        assert {reason for _, reason, _ in failures} == {Reason.DISK}
        text = failures[0][2]
        assert text.startswith("too many open prewrites: 100 wait for their end here, 100 may; end ")
        assert "exhausted" not in text.lower(), "clients take that word for too large, and give up"
        assert not await together(one, opening(BOUND + 5))
        for number in range(2 * BOUND, 3 * BOUND):
            assert await one.write(opening(number)) == text
        # An end is taken whatever is open, and what it settles makes room.
        writing.send(*(binlog.commit(TS + number, TS + 1000 + number, b"key") for number in range(10)))
        assert await writing.to(2 * BOUND + 10) == []
        await until(lambda: one.storage.prewrites().open <= BOUND - 10)
        assert await together(one, *map(opening, range(500, 507)))
        assert not await together(one, *map(opening, range(510, 514)))
        assert [await one.write(opening(number)) == "" for number in range(520, 525)] == [True] * 3 + [
            False
        ] * 2


async def test_what_is_not_sorted_yet_counts_too(tmp_path: Path) -> None:
    """A burst is no way around the bound: the sorter sees it a moment later."""
    async with pump(tmp_path, open_prewrites_max=BOUND) as one:
        held = one.held()
        calls = [asyncio.ensure_future(one.write(opening(number))) for number in range(3 * BOUND)]
        await until(lambda: sum(call.done() for call in calls) >= 2 * BOUND)
        assert one.storage.open_count == 0
        assert one.storage.prewrites() == Prewrites(BOUND, BOUND)
        held.let(10 * BOUND)
        answers = await asyncio.gather(*calls)
        assert sum(answer == "" for answer in answers) == BOUND
        await put(one.storage, *(binlog.rollback(TS + number) for number in range(BOUND)))
        await until(lambda: not one.storage.prewrites().open)
        assert one.storage.prewrites() == Prewrites(0, BOUND)
    async with pump(tmp_path, open_prewrites_max=BOUND) as one:
        assert one.storage.prewrites() == Prewrites(0, BOUND)


@pytest.mark.parametrize("size", [KEY_BYTES_MAX + 1, 3 * KEY_BYTES_MAX, 32 << 20])
async def test_a_key_that_no_store_has_is_refused(size: int, tmp_path: Path) -> None:
    async with pump(tmp_path) as one:
        text = await one.write(opening(1, bytes(size)))
        assert text.startswith("prewrite_key has ")
        assert f"{KEY_BYTES_MAX} at most are taken" in text
        writing = Writing(one.batches)
        writing.send(opening(2), opening(3, bytes(size)), opening(4))
        ((number, reason, said),) = await writing.to(3)
        assert (number, reason, said) == (2, Reason.PAYLOAD, text)
        assert not await together(one, opening(5), opening(6, bytes(size)))
        # A long value is none of the key's business, nor is an end, which is not asked for.
        assert await one.write(binlog.prewrite(TS + 7, bytes(8000), bytes(size))) == ""
        assert await together(one, binlog.prewrite(TS + 8, b"key", bytes(3 * KEY_BYTES_MAX)))
        assert await one.write(binlog.commit(TS + 9, TS + 10, bytes(3 * KEY_BYTES_MAX))) == ""


@pytest.mark.parametrize("start_ts", [5, TS])
@pytest.mark.parametrize("lacks", [True, False], ids=["without", "empty"])
async def test_a_prewrite_without_a_key_is_refused_where_the_key_is_what_is_asked_for(
    start_ts: int, lacks: bool, tmp_path: Path
) -> None:
    message = binlog.parse(binlog.prewrite(start_ts, b"", b"value"))
    if lacks:
        message.ClearField("prewrite_key")
    payload = binlog.canonical(message)
    probe = binlog.prewrite(0, b"", b"")
    async with pump(tmp_path / "tidb", clients_know=False) as one:
        assert not await together(one, opening(2), payload)
        assert "prewrite_key is missing" in await one.write(payload)
        writing = Writing(one.batches)
        writing.send(opening(3), payload)
        assert [failure[:2] for failure in await writing.to(2)] == [(2, Reason.PAYLOAD)]
        # Neither a probe nor an end has a key to be asked at, and a prewrite with one goes the short way.
        assert await one.write(probe) == ""
        assert await one.write(binlog.rollback(9)) == ""
        assert await together(one, opening(4), binlog.commit(TS + 2, TS + 20))
    async with pump(tmp_path / "standalone") as one:
        assert await one.write(payload) == ""


@pytest.mark.parametrize("head", [(0, 5), (-3, 5), (-3, 0), (3, -5), (-(1 << 63), -(1 << 63))])
async def test_timestamps_that_no_oracle_gives_are_refused(head: tuple[int, int], tmp_path: Path) -> None:
    """A commit of one would have a prewrite that nobody can find, and end every pull."""
    payload = binlog.commit(*head, b"key")
    async with pump(tmp_path) as one:
        assert "no oracle gives them" in await one.write(payload)
        writing = Writing(one.batches)
        writing.send(opening(1), payload)
        assert [failure[:2] for failure in await writing.to(2)] == [(2, Reason.PAYLOAD)]
        assert not await together(one, opening(2), payload)

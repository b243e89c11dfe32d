"""Pump source: protocols, credit, waits, reconnection, refusals."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from drainer.stream.pull.pull_message import Arrival, arrival
from drainer.stream.pull.pump_source import PULL_BATCHES, PULL_BINLOGS, PumpSource
from drainer.stream.pull.spill import ABOVE_BYTES, SpillDirectory
from tests.drainer.support.scripted_pump import ScriptedPump, ddl_payload, row_payload
from tests.waiting import settle, until
from tidb_binlog import binlog, compression, rpc
from tidb_binlog.errors import Corruption, Unavailable
from tidb_binlog.wire import pump_pb2

CREDIT = 1000


class Reading:
    """A source on a scripted pump, and what it delivered."""

    def __init__(self, pump: ScriptedPump, after_ts: int = 5, compressor: str = "") -> None:
        self.pump = pump
        self.arrivals: list[Arrival] = []
        self.source = PumpSource(
            "p1",
            pump.address,
            cluster_id=77,
            after_ts=after_ts,
            credit_bytes=CREDIT,
            connect=pump.client,
            deliver=self.arrivals.append,
            spill=SpillDirectory("never made"),
            compressor=compressor,
        )
        pump.on_connect = self.source.retry_now  # pauses end at once: no test waits

    @property
    def stamps(self) -> list[int]:
        return [entry.commit_ts for one in self.arrivals for entry in one.entries]


@contextlib.asynccontextmanager
async def reading(pump: ScriptedPump, after_ts: int = 5, compressor: str = "") -> AsyncIterator[Reading]:
    found = Reading(pump, after_ts, compressor)
    task = asyncio.create_task(found.source.run())
    try:
        yield found
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


# -- decoding -----------------------------------------------------------------------------------------


def test_time_marks_raise_the_watermark_and_are_no_entries() -> None:
    mark = binlog.fake(30)
    found = arrival([row_payload(9, 10), mark], 20, "p1")
    assert [entry.commit_ts for entry in found.entries] == [10]
    assert (found.watermark, found.mark_bytes) == (30, len(mark))


def test_ddl_is_marked_with_job_state_and_kind() -> None:
    found = arrival([ddl_payload(8, 3, "SELECT SETVAL(`s`, 5)", 1), row_payload(8, 9)], 9, "p1")
    (mark,) = found.ddl
    assert (mark.commit_ts, mark.job_id, mark.schema_state) == (8, 3, 1)
    assert mark.query.startswith(b"select setval")


def test_undecodable_payload_names_pump_and_place() -> None:
    with pytest.raises(Corruption, match=r"pump p1 sent 2 bytes after commit_ts 10 that are not a binlog"):
        arrival([row_payload(9, 10), b"\xff\xff"], 20, "p1")


# -- batches -------------------------------------------------------------------------------------------


async def test_opening_names_cluster_position_credit_and_asks_for_a_sign_of_life() -> None:
    pump = ScriptedPump()
    async with reading(pump):
        connection = await pump.connected()
        assert connection.path == PULL_BATCHES
        assert connection.batch_requests() == [
            pump_pb2.PullBatchesReq(
                cluster_id=77,
                after_ts=5,
                credit_bytes=CREDIT,
                wait_watermark=6,
                parts_above=ABOVE_BYTES,
                silence_ms=1000,
            )
        ]


async def test_payloads_and_watermark_are_delivered() -> None:
    pump = ScriptedPump()
    async with reading(pump) as found:
        connection = await pump.connected()
        assert not found.source.connected
        connection.send([row_payload(6, 7), row_payload(7, 9)], 12)
        await until(lambda: bool(found.arrivals))
        assert found.stamps == [7, 9]
        assert found.arrivals[0].watermark == 12
        assert (found.source.position, found.source.connected) == (12, True)


async def test_a_wait_is_sent_once_and_only_for_what_is_not_known() -> None:
    pump = ScriptedPump()
    async with reading(pump) as found:
        connection = await pump.connected()
        connection.send([], 20)
        await until(lambda: found.source.position == 20)
        for watermark in (15, 30, 30, 25):
            found.source.ask(watermark)
            await settle()
        waits = [request.wait_watermark for request in connection.batch_requests()[1:]]
        assert waits == [30]


async def test_what_was_given_is_told_once_and_again_on_a_new_connection() -> None:
    pump = ScriptedPump()
    async with reading(pump) as found:
        connection = await pump.connected()
        connection.send([], 20)
        await until(lambda: found.source.position == 20)
        for given_ts in (15, 30, 30, 25):
            found.source.tell(given_ts)
            await settle()
        assert [request.given_ts for request in connection.batch_requests()] == [0, 30]
        connection.fail(Unavailable("connection reset"))
        again = await pump.connected(2)
        assert [request.given_ts for request in again.batch_requests()] == [30]


async def test_released_bytes_become_credit() -> None:
    pump = ScriptedPump()
    async with reading(pump) as found:
        connection = await pump.connected()
        payload = row_payload(6, 7, size=300)
        connection.send([payload, row_payload(6, 8, size=300)], 8)
        await until(lambda: bool(found.arrivals))
        held = found.source.held_bytes
        found.source.release(len(payload))
        await until(lambda: len(connection.requests) == 2)
        assert connection.batch_requests()[1].credit_bytes == len(payload)
        assert found.source.held_bytes == held - len(payload)


async def test_reconnects_behind_the_last_position_with_the_credit_that_is_left() -> None:
    pump = ScriptedPump()
    async with reading(pump) as found:
        first = await pump.connected()
        payload = row_payload(6, 7, size=100)
        first.send([payload], 11)
        await until(lambda: bool(found.arrivals))
        found.source.ask(99)
        first.fail(Unavailable("connection reset"))
        second = await pump.connected(2)
        assert first.closed
        (opening,) = second.batch_requests()
        assert (opening.after_ts, opening.credit_bytes, opening.wait_watermark) == (
            11,
            CREDIT - len(payload),
            99,
        )
        assert found.source.error == "connection reset"
        second.send([], 99)
        await until(lambda: found.source.connected)
        assert found.source.error == ""


async def test_a_dead_pump_is_tried_for_ever_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    pump = ScriptedPump()
    pump.up = False
    async with reading(pump) as found:
        await until(lambda: pump.attempts > 30)
        assert found.source.error == "nobody listens"
        assert sum("no stream from pump" in record.message for record in caplog.records) == 1
        pump.up = True
        await pump.connected()


async def test_other_answers_are_tried_again_too() -> None:
    """What is wrong there (another cluster id, an internal error) may be put right there."""
    pump = ScriptedPump()
    async with reading(pump) as found:
        (await pump.connected()).fail(rpc.RpcStatus(rpc.UNKNOWN, "cluster ID are mismatch, 1 vs 2"))
        await pump.connected(2)
        assert found.source.error == "cluster ID are mismatch, 1 vs 2"


async def test_an_ended_stream_is_opened_again() -> None:
    pump = ScriptedPump()
    async with reading(pump):
        (await pump.connected()).finish()
        await pump.connected(2)


@pytest.mark.parametrize(("code", "hint"), [(11, "initial-commit-ts"), (rpc.DATA_LOSS, "data directory")])
async def test_a_refusal_for_good_stops_with_its_text(code: int, hint: str) -> None:
    pump = ScriptedPump()
    found = Reading(pump)
    task = asyncio.create_task(found.source.run())
    (await pump.connected()).fail(rpc.RpcStatus(code, "binlogs up to 400 are purged"))
    with pytest.raises(
        Corruption, match=r"pump p1 \(pump:1\).*commit_ts 5: binlogs up to 400 are purged"
    ) as caught:
        await task
    assert hint in caught.value.hint


async def test_a_message_that_is_none_stops() -> None:
    pump = ScriptedPump()
    found = Reading(pump)
    task = asyncio.create_task(found.source.run())
    (await pump.connected()).replies.put_nowait(b"\xff\xff\xff")
    with pytest.raises(Corruption, match="message of 3 bytes after commit_ts 5"):
        await task


async def test_what_deliver_raises_stops() -> None:
    pump = ScriptedPump()

    def refuse(arrival: Arrival) -> None:
        raise Corruption("out of order")

    source = PumpSource(
        "p1",
        "pump:1",
        cluster_id=1,
        after_ts=0,
        credit_bytes=9,
        connect=pump.client,
        deliver=refuse,
        spill=SpillDirectory("never made"),
    )
    task = asyncio.create_task(source.run())
    (await pump.connected()).send([row_payload(6, 7)], 7)
    with pytest.raises(Corruption, match="out of order"):
        await task


# -- the old protocol ------------------------------------------------------------------------------------


async def test_falls_back_to_the_old_protocol_until_another_program_is_the_pump() -> None:
    pump = ScriptedPump(serves_batches=False)
    async with reading(pump) as found:
        connection = await pump.connected()
        assert connection.path == PULL_BINLOGS
        request = pump_pb2.PullBinlogReq.FromString(connection.requests[0])
        assert (request.clusterID, request.startFrom.offset) == (77, 5)
        connection.send_entity(row_payload(6, 7))
        connection.send_entity(binlog.fake(9))
        await until(lambda: found.source.position == 9)
        assert found.stamps == [7]
        connection.fail(Unavailable("gone"))
        again = await pump.connected(2)
        assert pump_pb2.PullBinlogReq.FromString(again.requests[0]).startFrom.offset == 9
        pump.serves_batches = True
        again.fail(Unavailable("gone"))
        assert (await pump.connected(3)).path == PULL_BATCHES


async def test_old_protocol_is_not_read_beyond_the_credit() -> None:
    pump = ScriptedPump(serves_batches=False)
    async with reading(pump) as found:
        connection = await pump.connected()
        for ts in range(10, 20):
            connection.send_entity(row_payload(ts - 1, ts, size=400))
        await settle()
        taken = len(found.stamps)
        assert 2 <= taken <= 3
        assert found.source.held_bytes < CREDIT + 500
        found.source.release(found.source.held_bytes)
        await until(lambda: len(found.stamps) == 2 * taken)
        await settle()
        assert len(found.stamps) == 2 * taken


# -- membership -------------------------------------------------------------------------------------------


async def test_follows_the_pump_to_another_address_at_once() -> None:
    pump = ScriptedPump("old:1")
    async with reading(pump) as found:
        first = await pump.connected()
        pump.address = "new:1"
        found.source.move_to("new:1")
        second = await pump.connected(2)
        assert first.closed
        assert not second.closed
        assert found.source.address == "new:1"


async def test_at_another_address_another_program_may_answer() -> None:
    pump = ScriptedPump("old:1", serves_batches=False)
    async with reading(pump) as found:
        assert (await pump.connected()).path == PULL_BINLOGS
        pump.address, pump.serves_batches = "new:1", True
        found.source.move_to("new:1")
        assert (await pump.connected(2)).path == PULL_BATCHES


async def test_a_cancelled_source_closes_its_connection() -> None:
    pump = ScriptedPump()
    async with reading(pump):
        connection = await pump.connected()
    assert connection.closed


# -- compression ---------------------------------------------------------------------------------------


def compressed(name: str, *payloads: bytes, watermark: int, size: int | None = None) -> bytes:
    message = pump_pb2.PullBatchesResp(payloads=payloads, watermark=watermark).SerializeToString()
    frame = pump_pb2.Compressed(
        compression=name,
        size=len(message) if size is None else size,
        data=compression.compressor(name)(message),
    )
    return pump_pb2.PullBatchesResp(compressed=frame).SerializeToString()


@pytest.mark.parametrize(("compressor", "takes"), [("", []), ("gzip", ["gzip"]), ("zstd", ["zstd", "gzip"])])
async def test_compression_is_asked_for_and_a_pump_may_use_it_or_not(
    compressor: str, takes: list[str]
) -> None:
    pump = ScriptedPump()
    async with reading(pump, compressor=compressor) as found:
        connection = await pump.connected()
        assert connection.batch_requests()[0].takes_compression == takes
        for at, name in enumerate([*takes, ""], 6):
            payload = row_payload(at, at + 1, size=50_000)
            if name:
                connection.replies.put_nowait(compressed(name, payload, watermark=at + 1))
            else:
                connection.send([payload], at + 1)
            await until(lambda at=at: found.source.position == at + 1)  # type: ignore[misc]
            found.source.release(found.arrivals[-1].size)
        assert found.stamps == list(range(7, 8 + len(takes)))
        assert found.source.compression == (takes[-1] if takes else "")


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (compressed("zstd", b"x", watermark=9), "compressed as 'zstd' were not asked for"),
        (
            compressed("gzip", b"x", watermark=9, size=1 << 40),
            "bytes compressed as 'gzip' were not asked for",
        ),
        (compressed("gzip", b"x", watermark=9, size=-1), "-1 bytes compressed as 'gzip' were not asked for"),
        (compressed("gzip", b"x" * 9, watermark=9, size=4), "a gzip frame that does not hold 4 bytes"),
        (
            pump_pb2.PullBatchesResp(
                compressed=pump_pb2.Compressed(compression="gzip", size=4, data=b"none")
            ).SerializeToString(),
            "no gzip frame",
        ),
    ],
)
async def test_what_was_not_asked_for_is_not_made(sent: bytes, why: str) -> None:
    pump = ScriptedPump()
    found = Reading(pump, compressor="gzip")
    task = asyncio.create_task(found.source.run())
    connection = await pump.connected()
    connection.replies.put_nowait(sent)
    with pytest.raises(Corruption, match="pump p1") as caught:
        await task
    assert why in caught.value.message
    assert found.arrivals == []


@pytest.mark.parametrize("compressor", ["", "gzip", "zstd"])
async def test_an_old_pump_is_asked_for_grpcs_gzip(compressor: str) -> None:
    pump = ScriptedPump(serves_batches=False)
    async with reading(pump, compressor=compressor) as found:
        connection = await pump.connected()
        assert (connection.path, connection.gzip) == (PULL_BINLOGS, bool(compressor))
        connection.send_entity(row_payload(6, 7))
        await until(lambda: bool(found.arrivals))
        assert found.source.compression == ("gzip" if compressor else "")

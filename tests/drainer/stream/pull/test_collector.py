"""Collector: discovery before emission, membership, DDL jobs, limits, errors, status."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from drainer.stream.pull.spill import SpillDirectory
from tests.drainer.stream.pull.collected import NEVER_S, World
from tests.drainer.support.scripted_pump import MemoryRegistry, ddl_payload, row_payload
from tests.waiting import PATIENCE_S, settle, until
from tidb_binlog.cluster.registry import ClusterView
from tidb_binlog.errors import Corruption, Unavailable
from tidb_binlog.wire import pump_pb2


@contextlib.asynccontextmanager
async def world(
    registry: MemoryRegistry,
    *,
    after_ts: int = 0,
    queue_bytes: int = 1 << 20,
    read: bool = True,
    idle_ask_s: float = NEVER_S,
    spill: SpillDirectory | None = None,
) -> AsyncIterator[World]:
    found = World(registry, after_ts=after_ts, queue_bytes=queue_bytes, idle_ask_s=idle_ask_s, spill=spill)
    tasks = [asyncio.create_task(found.collector.run())]
    if read:
        tasks.append(asyncio.create_task(found.read()))
    try:
        yield found
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


# -- merging --------------------------------------------------------------------------------------------


async def test_two_pumps_become_one_ordered_stream() -> None:
    async with world(MemoryRegistry(a="online", b="online")) as w:
        await w.sends("a", [3, 7], 8)
        await w.sends("b", [5], 6)
        await until(lambda: w.watermark == 6)
        assert w.stamps == [3, 5]
        await w.sends("b", [], 10)
        await until(lambda: w.watermark == 8)
        assert w.stamps == [3, 5, 7]


async def test_a_pump_that_holds_a_head_back_is_asked_at_once() -> None:
    async with world(MemoryRegistry(a="online", b="online")) as w:
        connection = await w.pump("b").connected()
        await w.sends("a", [30], 30)
        await until(lambda: [request.wait_watermark for request in connection.batch_requests()] == [1, 30])
        assert connection.batch_requests()[-1].given_ts == 30


async def test_pumps_are_told_the_newest_commit_that_waits_and_asked_for_the_oldest() -> None:
    async with world(MemoryRegistry(a="online", b="online", c="online")) as w:
        b, c = await w.pump("b").connected(), await w.pump("c").connected()
        await w.sends("c", [], 40)
        await w.sends("a", [30], 30)
        await w.sends("a", [50], 50)
        await until(lambda: b.batch_requests()[-1].given_ts == 50)
        await until(lambda: c.batch_requests()[-1].given_ts == 50)
        assert max(request.wait_watermark for request in b.batch_requests()) == 30
        assert max(request.wait_watermark for request in c.batch_requests()) <= 30
        await w.sends("b", [], 35)
        await until(lambda: w.stamps == [30])
        await w.sends("b", [], 50)
        await w.sends("c", [], 50)
        await until(lambda: w.stamps == [30, 50])
        a = await w.pump("a").connected()
        assert not any(request.given_ts for request in a.batch_requests()), "nothing waits for it"


async def test_an_entry_passes_within_a_few_turns_of_the_event_loop() -> None:
    async with world(MemoryRegistry(a="online")) as w:
        await w.pump("a").connected()
        await settle()
        await w.sends("a", [3], 3)
        await settle(15)
        assert w.stamps == [3]


async def test_an_idle_stream_lets_the_watermark_rise() -> None:
    async with world(MemoryRegistry(a="online", b="online"), idle_ask_s=0.01) as w:
        for name in "ab":
            await w.sends(name, [], 20)
        await until(lambda: w.watermark == 20)
        connection = await w.pump("a").connected()
        await until(lambda: connection.batch_requests()[-1].wait_watermark == 21)


async def test_a_source_that_breaks_its_order_stops_everything() -> None:
    registry = MemoryRegistry(a="online", b="online")
    w = World(registry, after_ts=0, queue_bytes=1000, idle_ask_s=NEVER_S)
    task = asyncio.create_task(w.collector.run())
    await w.sends("a", [5, 6], 9)
    await w.sends("a", [8], 9)
    with pytest.raises(Corruption, match="pump a sent commit_ts 8 after it had promised everything up to 9"):
        await task
    assert [batch async for batch in w.collector.batches()] == []


async def test_a_full_queue_slows_the_pumps_down() -> None:
    async with world(MemoryRegistry(a="online"), queue_bytes=4 << 20, read=False) as w:
        connection = await w.pump("a").connected()
        ts = 0
        granted = 0
        for _ in range(40):  # a pump that sends whatever it has credit for
            granted = sum(request.credit_bytes for request in connection.batch_requests())
            if granted < (ts + 1) * 300_000:
                break
            ts += 1
            await w.sends("a", [ts * 10], ts * 10, size=300_000)
            await settle()
        assert ts * 300_000 <= (4 << 20) + 3 * (1 << 20), "queue, one batch in hand, credit"
        reader = asyncio.create_task(w.read())
        await until(lambda: len(w.stamps) == ts)
        await until(lambda: sum(request.credit_bytes for request in connection.batch_requests()) > granted)
        reader.cancel()


async def test_others_flow_up_to_their_credit_while_one_pump_reconnects() -> None:
    async with world(MemoryRegistry(a="online", b="online"), queue_bytes=4 << 20) as w:
        await w.sends("b", [], 5)
        b = await w.pump("b").connected()
        a = await w.pump("a").connected()
        w.pump("b").up = False
        b.fail(Unavailable("connection reset"))
        sent: list[int] = []
        while sum(request.credit_bytes for request in a.batch_requests()) > len(sent) * 100_000:
            sent.append(10 * len(sent) + 10)
            await w.sends("a", sent[-1:], sent[-1], size=100_000)
            await settle()
        assert 1 << 20 <= w.collector.states()["a"].held_bytes < (1 << 20) + 200_000
        assert w.stamps == []
        assert w.collector.positions() == {"a": sent[-1], "b": 5}
        w.pump("b").up = True
        w.collector._sources["b"].retry_now()
        again = await w.pump("b").connected(2)
        assert again.batch_requests()[0].after_ts == 5
        again.send([], sent[-1])
        await until(lambda: w.stamps == sent)
        await until(lambda: w.collector.states()["a"].held_bytes == 0)


# -- membership -------------------------------------------------------------------------------------------


async def test_nothing_is_emitted_before_the_first_listing_and_all_its_pumps_count() -> None:
    """A first listing that fails must not release the pumps that are seen one by one afterwards."""
    registry = MemoryRegistry(a="online", b="paused")
    registry.down = True
    async with world(registry) as w:
        await settle()
        assert w.collector.positions() == {}
        assert "first listing" in w.collector.waits_for
        with pytest.raises(Unavailable):
            await w.collector.notify()
        registry.down = False
        registry.change("a", "online")
        await w.sends("a", [5], 9)
        await settle()
        assert (w.stamps, w.watermark) == ([], 0)
        assert set(w.collector.positions()) == {"a", "b"}


async def test_no_pump_at_all_is_waited_for_and_said() -> None:
    registry = MemoryRegistry()
    async with world(registry) as w:
        await settle()
        assert w.collector.waits_for == "a pump: none is registered"
        registry.change("a", "online")
        await w.sends("a", [5], 9)
        await until(lambda: w.stamps == [5])
        assert w.collector.waits_for == ""


@pytest.mark.parametrize("state", ["online", "pausing", "paused", "closing"])
async def test_every_pump_that_is_not_offline_is_waited_for(state: str) -> None:
    async with world(MemoryRegistry(a="online", b=state)) as w:
        await w.sends("a", [5], 9)
        await settle()
        assert w.stamps == []
        await w.sends("b", [4], 5)
        await until(lambda: w.stamps == [4, 5])


async def test_an_offline_pump_is_not_waited_for() -> None:
    async with world(MemoryRegistry(a="online", b="offline")) as w:
        await w.sends("a", [5], 9)
        await until(lambda: w.stamps == [5])
        assert set(w.collector.positions()) == {"a"}


async def test_a_pump_going_offline_leaves_and_what_it_sent_goes_out_in_order() -> None:
    registry = MemoryRegistry(a="online", b="closing")
    async with world(registry) as w:
        await w.sends("b", [4, 6], 6)
        await w.sends("a", [5], 5)
        await until(lambda: w.stamps == [4, 5])
        registry.change("b", "offline")
        await w.sends("a", [7], 9)
        await until(lambda: w.stamps == [4, 5, 6, 7])
        await until(lambda: w.pump("b").connection.closed)
        assert set(w.collector.positions()) == {"a"}


async def test_a_pump_coming_back_joins_at_the_position() -> None:
    registry = MemoryRegistry(a="online", b="online")
    async with world(registry) as w:
        await w.sends("b", [4, 60], 60)
        await w.sends("a", [], 5)
        await until(lambda: w.stamps == [4])
        registry.change("b", "offline")
        registry.change("b", "online")  # while its last binlog still waits for pump a
        again = await w.pump("b").connected(2)
        assert again.batch_requests()[0].after_ts == 5
        again.send([], 70)
        await w.sends("a", [], 70)
        await until(lambda: w.watermark == 70)
        assert w.stamps == [4, 60]


async def test_a_lost_registry_entry_is_no_leave() -> None:
    registry = MemoryRegistry(a="online", b="online")
    async with world(registry) as w:
        await w.sends("a", [5], 9)
        registry.change("b", None)
        await settle()
        assert w.stamps == []
        assert w.collector.states()["b"].state == "gone from the registry"


async def test_notify_returns_with_the_new_pump_in_the_merge() -> None:
    """The watch may be late; what is emitted after notify has waited for the new pump."""
    registry = MemoryRegistry(a="online")
    async with world(registry) as w:
        await w.sends("a", [5], 9)
        await until(lambda: w.watermark == 9)
        registry.change("new", "online", watched=False)
        await w.collector.notify()
        assert set(w.collector.positions()) == {"a", "new"}
        await w.sends("a", [12], 20)
        await settle()
        assert w.stamps == [5]
        assert (await w.pump("new").connected()).batch_requests()[0].after_ts == 9
        await w.sends("new", [11], 12)
        await until(lambda: w.stamps == [5, 11, 12])


async def test_an_answer_that_others_have_overtaken_ends_no_pump() -> None:
    """The registry is asked twice. The answer that comes last is from when the new pump had not come back."""

    class Slow(MemoryRegistry):
        """The first answer is on its way until `arrives`."""

        def __init__(self, **pumps: str) -> None:
            super().__init__(**pumps)
            self.arrives: asyncio.Event | None = asyncio.Event()

        async def view(self) -> ClusterView:
            view, arrives, self.arrives = self.current_view(), self.arrives, None
            if arrives is not None:
                await arrives.wait()
            return view

    registry = Slow(a="online", new="offline")
    async with world(registry) as w:
        arrives = registry.arrives
        assert arrives is not None
        await w.sends("a", [5], 9)
        await until(lambda: w.watermark == 9)
        first = asyncio.create_task(w.collector.notify())
        await settle()
        registry.change("new", "paused", watched=False)
        await w.collector.notify()
        registry.change("new", "online", watched=False)
        arrives.set()
        await first
        await w.sends("a", [12], 20)
        await settle()
        assert w.stamps == [5], "the new pump may have committed below 12"
        await w.sends("new", [11], 12)
        await until(lambda: w.stamps == [5, 11, 12])


async def test_a_registry_that_was_put_back_is_believed() -> None:
    """Its revisions are lower than what was known when it was asked."""
    registry = MemoryRegistry(a="online")
    for _ in range(9):
        registry.change("a", "online")
    async with world(registry) as w:
        await w.sends("a", [5], 9)
        await until(lambda: w.watermark == 9)
        w.registry = w.collector._registry = MemoryRegistry(a="online", new="paused")  # type: ignore[assignment]
        await w.collector.notify()
        assert set(w.collector.positions()) == {"a", "new"}


async def test_notify_is_answered_while_the_stream_stands_still() -> None:
    """Whether a DDL job is missing or what is merged is not taken."""
    registry = MemoryRegistry(a="online")
    async with world(registry) as w:
        connection = await w.pump("a").connected()
        connection.send([ddl_payload(5, 40, "DROP TABLE t")], 9)
        await until(lambda: w.history.asked == [40])
        registry.change("new", "online", watched=False)
        await asyncio.wait_for(w.collector.notify(), PATIENCE_S)
        assert set(w.collector.positions()) == {"a", "new"}
    registry = MemoryRegistry(a="online")
    async with world(registry, queue_bytes=1, read=False) as w:
        for ts in range(10, 50, 10):
            await w.sends("a", [ts], ts, size=2 << 20)
            await settle()
        registry.change("new", "online", watched=False)
        await asyncio.wait_for(w.collector.notify(), PATIENCE_S)
        assert set(w.collector.positions()) == {"a", "new"}


async def test_a_late_view_of_the_watch_undoes_nothing() -> None:
    registry = MemoryRegistry(a="offline")
    async with world(registry) as w:
        await settle()
        late = registry.current_view()
        registry.change("a", "online", watched=False)
        await w.collector.notify()
        registry.watchers[0].put_nowait(late)
        await settle()
        assert set(w.collector.positions()) == {"a"}


async def test_a_pump_is_followed_to_its_new_address() -> None:
    registry = MemoryRegistry(a="online")
    async with world(registry) as w:
        await w.pump("a").connected()
        registry.change("a", "online", address="elsewhere:1")
        await w.pump("elsewhere").connected()
        assert w.collector.states()["a"].address == "elsewhere:1"


async def test_large_transactions_of_a_batch_that_was_taken_do_not_hold_the_pump_back(
    tmp_path: Path,
) -> None:
    """The consumer keeps its last batch while it waits for the next one."""
    payloads = {ts: row_payload(ts - 1, ts, size=5000) for ts in (10, 20, 30, 40)}
    spill = SpillDirectory(str(tmp_path / "spill"), above_bytes=1000, ahead_bytes=8000)
    async with world(MemoryRegistry(a="online"), spill=spill) as w:
        connection = await w.pump("a").connected()
        for ts, payload in payloads.items():
            part = pump_pb2.Part(commit_ts=ts, size=len(payload), data=payload)
            reply = pump_pb2.PullBatchesResp(part=part, watermark=ts)
            connection.replies.put_nowait(reply.SerializeToString())
        await until(lambda: w.stamps == [10, 20, 30, 40])
        kept = [entry.spilled for batch in w.batches for entry in batch.entries]
        assert [one.read(0, 1 << 20) for one in kept if one is not None] == list(payloads.values())
        await until(lambda: w.collector.states()["a"].spilled_bytes == 0)


# -- DDL ----------------------------------------------------------------------------------------------------


async def test_ddl_gets_its_job_and_what_lies_before_does_not_wait_for_it() -> None:
    async with world(MemoryRegistry(a="online")) as w:
        connection = await w.pump("a").connected()
        connection.send(
            [row_payload(2, 3), ddl_payload(5, 40, "CREATE TABLE t (a INT)"), row_payload(6, 7)], 9
        )
        await until(lambda: w.stamps == [3])
        assert w.watermark == 4
        await until(lambda: w.history.asked == [40])
        w.history.finish(40)
        await until(lambda: w.stamps == [3, 5, 7])
        jobs = [entry.job for batch in w.batches for entry in batch.entries]
        assert jobs == [None, {"id": 40, "type": 5}, None]
        assert w.watermark == 9


async def test_waiting_for_a_job_can_be_cancelled_and_is_told() -> None:
    async with world(MemoryRegistry(a="online")) as w:
        w.history.down = True
        connection = await w.pump("a").connected()
        connection.send([ddl_payload(5, 40, "DROP TABLE t")], 9)
        await until(lambda: w.collector.waits_for)
        assert w.collector.waits_for == "DDL job 40 of commit_ts 5: history is down"
        assert w.stamps == []


async def test_a_delete_only_record_does_not_wait_for_its_job() -> None:
    async with world(MemoryRegistry(a="online")) as w:
        connection = await w.pump("a").connected()
        connection.send([ddl_payload(5, 40, "ALTER TABLE t DROP COLUMN c", schema_state=1)], 9)
        await until(lambda: w.stamps == [5])
        assert [entry.job for batch in w.batches for entry in batch.entries] == [None]
        assert w.history.asked == []


async def test_a_sequence_value_is_dropped_and_the_watermark_passes_it() -> None:
    async with world(MemoryRegistry(a="online")) as w:
        connection = await w.pump("a").connected()
        connection.send([row_payload(2, 3), ddl_payload(5, 40, "SELECT SETVAL(`s`, 5)")], 5)
        await until(lambda: w.watermark == 5)
        assert w.stamps == [3]
        assert w.history.asked == []


async def test_ddl_from_two_pumps_is_one() -> None:
    async with world(MemoryRegistry(a="online", b="online")) as w:
        w.history.finish(40)
        for name in "ab":
            connection = await w.pump(name).connected()
            connection.send([ddl_payload(5, 40, "DROP TABLE t")], 9)
        await until(lambda: w.watermark == 9)
        assert w.stamps == [5]


# -- status ------------------------------------------------------------------------------------------


async def test_status_says_which_transaction_holds_the_stream() -> None:
    async with world(MemoryRegistry(a="online", b="online")) as w:
        await w.sends("a", [5], 9)
        connection = await w.pump("b").connected()
        reply = pump_pb2.PullBatchesResp(watermark=3, waits_for_start_ts=4)
        connection.replies.put_nowait(reply.SerializeToString())
        await until(lambda: w.collector.states()["b"].waits_for_start_ts == 4)
        assert w.collector.waits_for == "the watermark of pump b (open transaction with start_ts 4)"
        connection.send([], 9)
        await until(lambda: w.stamps == [5])
        assert w.collector.states()["b"].waits_for_start_ts == 0
        assert w.collector.waits_for == ""


async def test_status_says_who_holds_the_stream() -> None:
    async with world(MemoryRegistry(a="online", b="paused")) as w:
        w.pump("b").up = False
        await w.sends("a", [5], 9)
        await until(lambda: w.collector.states()["b"].error != "")
        states = w.collector.states()
        assert (states["a"].holds, states["b"].holds) == (False, True)
        assert (states["a"].connected, states["b"].connected) == (True, False)
        assert states["a"].held_bytes > 0
        assert states["b"].state == "paused"
        assert w.collector.positions() == {"a": 9, "b": 0}
        assert w.collector.waits_for.startswith("pump b, not reachable")

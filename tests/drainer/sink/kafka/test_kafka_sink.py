"""Kafka sink on a mock cluster: what is sent, and what becomes of it when brokers fail and drainers die."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from common.errors import DownstreamError
from common.wire import secondary_binlog_pb2 as pb
from drainer.formats.obinlog.writer import ObinlogWriter
from drainer.sink.kafka import client as kafka_client
from drainer.txn import Ddl, Item, TableEvents, Transaction
from tests.drainer.support import recorded
from tests.drainer.support.archive_life import Ready
from tests.drainer.support.kafka_life import TOPIC, Life
from tests.drainer.support.relay_world import items
from tests.fakes.kafka import MSG_SIZE_TOO_LARGE, PRODUCE, Message, MockKafka

Make = Callable[..., Life]


@pytest.fixture
def kafka() -> Iterator[MockKafka]:
    cluster = MockKafka()
    cluster.create(TOPIC)
    yield cluster
    cluster.close()


def few(scenario: str = "basic", count: int = 60) -> list[Item]:
    return list(items(scenario))[:count]


def payloads(stream: Sequence[Item]) -> list[bytes]:
    """What the Go drainer sends."""
    writer = ObinlogWriter(bare=True)
    found = []
    for item in stream:
        if isinstance(item, Ddl):
            if not item.skip:
                found.append(writer.ddl(item, item.query))
        elif item.tables:
            found.append(writer.transaction(item))
    return found


def values(messages: Sequence[Message]) -> list[bytes]:
    return [message.value for message in messages]


def tables_of(messages: Sequence[Message]) -> list[Any]:
    """(commit_ts, schema, table, mutations) in order, tables that a cut went through joined again."""
    found: list[Any] = []
    for message in messages:
        binlog = pb.Binlog.FromString(message.value)
        for table in binlog.dml_data.tables:
            name = (binlog.commit_ts, table.schema_name, table.table_name)
            mutations = [one.SerializeToString() for one in table.mutations]
            if found and found[-1][0] == name:
                found[-1][1].extend(mutations)
            else:
                found.append((name, mutations))
    return found


def as_messages(found: Sequence[bytes]) -> list[Message]:
    return [Message(0, None, value, {}) for value in found]


def cut(transaction: Transaction, size: int) -> list[Transaction]:
    """A transaction in pieces of so many rows."""
    pieces = []
    for events in transaction.tables:
        for at in range(0, len(events.rows), size):
            part = TableEvents(
                events.table,
                events.kinds[at : at + size],
                events.rows[at : at + size],
                events.first_ordinal + at,
            )
            pieces.append(Transaction(transaction.start_ts, transaction.commit_ts, (part,), 0, last=False))
    pieces[-1].last = True
    return pieces


@pytest.mark.parametrize("scenario", recorded.SCENARIOS)
async def test_messages_are_those_of_the_go_drainer(scenario: str, kafka: MockKafka, tmp_path: Path) -> None:
    """Bytes, order, partition 0, no key, no headers; `test_writer` says where the Go drainer is wrong."""
    stream = few(scenario, 120)
    life = Life(kafka.servers, tmp_path, Ready(stream))
    await life.whole()
    found = kafka.messages(TOPIC)
    assert values(found) == payloads(stream)
    assert all(one.key is None and not one.headers and one.partition == 0 for one in found)
    assert life.sink.stored_ts == stream[-1].commit_ts


async def test_brokers_that_go_are_waited_for(kafka: MockKafka, tmp_path: Path) -> None:
    stream = few()
    life = Life(kafka.servers, tmp_path, Ready(stream), in_flight_bytes=2000)
    await life.sink.open(TOPIC)
    kafka.go_down()
    running = asyncio.ensure_future(life.run())
    while not life.sink.doing:
        await asyncio.sleep(0.01)
    assert life.sink.doing.startswith("waits for Kafka: ")
    assert life.sink.facts()["Kafka"]["waiting_for"]
    assert life.sink.facts()["Kafka"]["unacknowledged"] > 0
    assert life.sink.resolved_ts < stream[-1].commit_ts
    assert not running.done()
    kafka.come_up()
    await running
    assert await life.runner.stop(30.0)
    assert life.sink.doing == ""
    assert values(kafka.messages(TOPIC)) == payloads(stream)


async def test_brokers_that_are_away_when_a_topic_is_first_used_are_waited_for(
    kafka: MockKafka, tmp_path: Path
) -> None:
    stream = few()
    kafka.go_down()
    life = Life(kafka.servers, tmp_path, Ready(stream))
    running = asyncio.ensure_future(life.run())
    while not life.sink.doing:
        await asyncio.sleep(0.01)
    assert "does not answer" in life.sink.doing
    kafka.come_up()
    await running
    assert await life.runner.stop(30.0)
    assert values(kafka.messages(TOPIC)) == payloads(stream)


async def test_leaders_that_move_cost_nothing(tmp_path: Path) -> None:
    kafka = MockKafka(3)
    try:
        kafka.create(TOPIC)
        stream = few(count=200)
        life = Life(kafka.servers, tmp_path, Ready(stream))

        async def move() -> None:
            for number in range(30):
                kafka.move_leader(TOPIC, 0, 1 + number % 3)
                await asyncio.sleep(0.01)

        await asyncio.gather(life.run(size=2), move())
        assert await life.runner.stop(30.0)
        assert values(kafka.messages(TOPIC)) == payloads(stream)
    finally:
        kafka.close()


async def test_requests_that_fail_are_sent_again_in_their_order(kafka: MockKafka, tmp_path: Path) -> None:
    stream = few(count=100)
    life = Life(kafka.servers, tmp_path, Ready(stream))
    await life.sink.open(TOPIC)
    kafka.refuse(PRODUCE, 6, 7, 19, 6)
    await life.whole(size=3)
    assert values(kafka.messages(TOPIC)) == payloads(stream)


async def test_a_client_whose_queue_is_full_is_waited_for(
    kafka: MockKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_client, "QUEUE_MESSAGES", 3)
    stream = [one for one in few("txn", 300) if isinstance(one, Transaction) and one.tables]
    life = Life(kafka.servers, tmp_path, Ready(stream))
    full = 0
    send = life.client.send

    def counted(*arguments: Any) -> None:
        nonlocal full
        try:
            send(*arguments)
        except BufferError:
            full += 1
            raise

    monkeypatch.setattr(life.client, "send", counted)
    await life.whole()
    assert full
    assert values(kafka.messages(TOPIC)) == payloads(stream)


async def test_what_is_under_way_is_bounded(kafka: MockKafka, tmp_path: Path) -> None:
    stream = [one for one in few("txn", 300) if isinstance(one, Transaction) and one.tables]
    life = Life(kafka.servers, tmp_path, Ready(stream), in_flight_bytes=3000)
    most = 0
    send = life.client.send
    largest = max(map(len, payloads(stream))) + 200

    def watched(*arguments: Any) -> None:
        nonlocal most
        most = max(most, life.sink._window.bytes)
        send(*arguments)

    life.client.send = watched  # type: ignore[method-assign]
    await life.whole()
    assert 0 < most <= 3000 + largest


# -- messages that are too large ---------------------------------------------------------------------------


def with_large_one() -> tuple[list[Item], Transaction]:
    stream: list[Item] = [one for one in items("txn") if isinstance(one, Transaction) and one.tables]
    large = max((one for one in stream if isinstance(one, Transaction)), key=lambda one: one.size_bytes)
    small = [one for one in stream if isinstance(one, Transaction) and one.size_bytes < 5000]
    before = [one for one in small if one.commit_ts < large.commit_ts]
    after = [one for one in small if one.commit_ts > large.commit_ts]
    return [*before[-5:], large, *after[:5]], large


async def test_a_message_that_is_too_large_stops_it_before(kafka: MockKafka, tmp_path: Path) -> None:
    stream, large = with_large_one()
    life = Life(kafka.servers, tmp_path, Ready(stream), message_bytes=20_000)
    with pytest.raises(DownstreamError, match=f"commit_ts {large.commit_ts} is a message of") as refused:
        await life.run()
    schema, table = large.tables[0].table.downstream
    assert (
        f"the limit is 20000: {len(large.tables[0].rows)} rows, most of them of `{schema}`.`{table}`"
        in str(refused.value)
    )
    assert "max.message.bytes" in refused.value.hint
    await life.sink.abandon()
    assert life.sink.stored_ts < large.commit_ts
    before = [one for one in stream if one.commit_ts < large.commit_ts]
    assert set(values(kafka.messages(TOPIC))) <= set(payloads(before))


@pytest.mark.parametrize("size", [None, 700])
async def test_a_transaction_is_split_and_says_where_it_goes_on(
    kafka: MockKafka, tmp_path: Path, size: int | None
) -> None:
    """Whole, or as it comes in pieces itself."""
    stream, large = with_large_one()
    ready = Ready(stream, {large.commit_ts: cut(large, size)} if size else {})
    await Life(kafka.servers, tmp_path, ready, message_bytes=20_000, oversize="split").whole()
    found = kafka.messages(TOPIC)
    assert tables_of(found) == tables_of(as_messages(payloads(stream)))
    parts = [one for one in found if one.headers]
    assert len(parts) > 10
    assert [one.headers["last"] for one in parts] == [b"0"] * (len(parts) - 1) + [b"1"]
    seqs = [int(one.headers["seq"]) for one in parts]
    assert seqs == sorted(set(seqs))
    assert seqs[-1] == sum(len(events.rows) for events in large.tables) - 1
    assert {one.headers["commit_ts"] for one in parts} == {b"%d" % large.commit_ts}
    assert all(len(one.value) <= 20_000 for one in found)


async def test_a_large_transaction_that_fits_is_one_message(kafka: MockKafka, tmp_path: Path) -> None:
    stream, large = with_large_one()
    ready = Ready(stream, {large.commit_ts: cut(large, 700)})
    await Life(kafka.servers, tmp_path, ready).whole()
    assert values(kafka.messages(TOPIC)) == payloads(stream)


async def test_a_large_transaction_that_does_not_fit_stops_it_before(
    kafka: MockKafka, tmp_path: Path
) -> None:
    stream, large = with_large_one()
    ready = Ready(stream, {large.commit_ts: cut(large, 700)})
    life = Life(kafka.servers, tmp_path, ready, message_bytes=20_000)
    with pytest.raises(DownstreamError, match=f"commit_ts {large.commit_ts} is a message of"):
        await life.run()
    await life.sink.abandon()


@pytest.mark.parametrize("size", [None, 700])
async def test_a_claim_check_leads_to_the_whole_value(
    kafka: MockKafka, tmp_path: Path, size: int | None
) -> None:
    stream, large = with_large_one()
    ready = Ready(stream, {large.commit_ts: cut(large, size)} if size else {})
    kept = tmp_path / "kept"
    life = Life(
        kafka.servers, tmp_path, ready, message_bytes=20_000, oversize="claim-check", claim_check=str(kept)
    )
    await life.whole()
    found = kafka.messages(TOPIC)
    (place,) = [number for number, one in enumerate(found) if "claim-check" in one.headers]
    binlog = pb.Binlog.FromString(found[place].value)
    assert (binlog.type, binlog.commit_ts, len(binlog.dml_data.tables)) == (pb.DML, large.commit_ts, 0)
    path = Path(found[place].headers["claim-check"].decode().removeprefix("file://"))
    whole = [*found[:place], Message(0, None, path.read_bytes(), {}), *found[place + 1 :]]
    assert tables_of(whole) == tables_of(as_messages(payloads(stream)))


async def test_a_message_that_the_broker_refuses_stops_it(kafka: MockKafka, tmp_path: Path) -> None:
    stream = few()
    life = Life(kafka.servers, tmp_path, Ready(stream))
    await life.sink.open(TOPIC)
    kafka.refuse(PRODUCE, MSG_SIZE_TOO_LARGE)
    with pytest.raises(DownstreamError, match="topic changes, partition 0: the broker takes no message of"):
        await life.run(size=1)
    await life.sink.abandon()
    assert life.sink.stored_ts == 0


# -- killed ------------------------------------------------------------------------------------------------


async def until_dead(life: Life, count: int) -> None:
    """Let it send so many messages, then nothing; what is under way is given up."""
    sent, send = 0, life.client.send
    over = asyncio.Event()

    def some(*arguments: Any) -> None:
        nonlocal sent
        sent += 1
        if sent <= count:
            send(*arguments)
        else:
            over.set()

    life.client.send = some  # type: ignore[method-assign]
    running = asyncio.ensure_future(life.run(size=3))
    waiting = asyncio.ensure_future(over.wait())
    await asyncio.wait([running, waiting], return_when=asyncio.FIRST_COMPLETED)
    running.cancel()
    waiting.cancel()
    await asyncio.gather(running, waiting, return_exceptions=True)
    await life.die()


@pytest.mark.parametrize("oversize", ["fail", "split"])
async def test_after_a_kill_anywhere_nothing_is_lost_and_nothing_is_there_twice(
    kafka: MockKafka, tmp_path: Path, oversize: str
) -> None:
    stream, large = with_large_one()
    stream = stream[:8]
    ready = Ready(stream, {large.commit_ts: cut(large, 900)})
    settings = {"oversize": oversize, "message_bytes": 30_000 if oversize == "split" else 10_000_000}
    for count in range(0, 30, 5):
        topic = f"killed{count}"
        kafka.create(topic)
        directory = tmp_path / topic
        directory.mkdir()
        await until_dead(Life(kafka.servers, directory, ready, topic=topic, **settings), count)
        again = Life(kafka.servers, directory, ready, topic=topic, **settings)
        await until_dead(again, 3)
        await Life(kafka.servers, directory, ready, topic=topic, **settings).whole()
        assert tables_of(kafka.messages(topic)) == tables_of(as_messages(payloads(stream)))


async def test_what_was_cut_otherwise_before_a_kill_is_not_there_twice(
    kafka: MockKafka, tmp_path: Path
) -> None:
    """Another limit, another size of pieces: a message that overlaps what is there loses those rows."""
    stream, large = with_large_one()
    first = Ready(stream, {large.commit_ts: cut(large, 900)})
    await until_dead(
        Life(kafka.servers, tmp_path, first, message_bytes=30_000, oversize="split"), len(stream) // 2 + 3
    )
    again = Ready(stream, {large.commit_ts: cut(large, 333)})
    await Life(kafka.servers, tmp_path, again, message_bytes=11_000, oversize="split").whole()
    assert tables_of(kafka.messages(TOPIC)) == tables_of(as_messages(payloads(stream)))

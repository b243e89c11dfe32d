"""Kafka sink on a mock cluster: what is sent, and what becomes of it when brokers fail and drainers die."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from drainer.sink.kafka import client as kafka_client
from drainer.sink.kafka.client import DeliveryBroken, TopicFacts
from drainer.txn import TableEvents, Transaction
from tests.drainer.support import recorded
from tests.drainer.support.archive_life import Ready
from tests.drainer.support.kafka_life import (
    TOPIC,
    Life,
    few,
    payloads,
    tables_of,
    until_dead,
    values,
    with_large_one,
)
from tests.fakes.kafka import (
    END_TXN,
    FETCH,
    MSG_SIZE_TOO_LARGE,
    PRODUCE,
    PRODUCER_FENCED,
    TOPIC_AUTHORIZATION_FAILED,
    Message,
    MockKafka,
)
from tests.waiting import PATIENCE_S, until
from tidb_binlog.clock import ManualClock
from tidb_binlog.errors import DownstreamError
from tidb_binlog.wire import secondary_binlog_pb2 as pb

Make = Callable[..., Life]


@pytest.fixture
def kafka() -> Iterator[MockKafka]:
    cluster = MockKafka()
    cluster.create(TOPIC)
    yield cluster
    cluster.close()


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
    await until(lambda: life.sink.held_up)
    assert life.sink.held_up.startswith("waits for Kafka: ")
    assert life.sink.facts()["Kafka"]["waiting_for"]
    assert life.sink.facts()["Kafka"]["unacknowledged"] > 0
    assert life.sink.resolved_ts < stream[-1].commit_ts
    assert not running.done()
    kafka.come_up()
    await running
    assert await life.runner.stop(PATIENCE_S)
    assert life.sink.held_up == ""
    assert values(kafka.messages(TOPIC)) == payloads(stream)


async def test_brokers_that_are_away_when_a_topic_is_first_used_are_waited_for(
    kafka: MockKafka, tmp_path: Path
) -> None:
    stream = few()
    kafka.go_down()
    life = Life(kafka.servers, tmp_path, Ready(stream))
    running = asyncio.ensure_future(life.run())
    await until(lambda: life.sink.held_up)
    assert "does not answer" in life.sink.held_up
    kafka.come_up()
    await running
    assert await life.runner.stop(PATIENCE_S)
    assert values(kafka.messages(TOPIC)) == payloads(stream)


async def test_leaders_that_move_cost_nothing(tmp_path: Path) -> None:
    kafka = MockKafka(3)
    try:
        kafka.create(TOPIC)
        stream = few(count=200)
        life = Life(kafka.servers, tmp_path, Ready(stream), in_flight_bytes=2000)
        send, moves = life.client.send, 0

        def moving(*arguments: Any) -> None:
            """Where nothing is under way: one that came back would take, here, what follows a request that it
            refused, and librdkafka believe that it took that one, too."""
            nonlocal moves
            if life.sink._window.unacknowledged == 1:
                moves += 1
                kafka.move_leader(TOPIC, 0, 1 + moves % 3)
            send(*arguments)

        life.client.send = moving  # type: ignore[method-assign]
        await life.whole(size=2)
        assert moves > 2
        assert values(kafka.messages(TOPIC)) == payloads(stream)
    finally:
        kafka.close()


@pytest.mark.parametrize("away", [False, True])
async def test_a_client_that_gets_nothing_acknowledged_is_replaced_if_brokers_answer(
    kafka: MockKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, away: bool
) -> None:
    """As librdkafka's, which has stayed with a partition's former leader."""
    clock = ManualClock()
    stream = few()
    life = Life(kafka.servers, tmp_path, Ready(stream), clock=clock)
    await life.sink.open(TOPIC)
    monkeypatch.setattr(life.client, "send", lambda *_arguments: None)
    if away:
        kafka.go_down()
    running = asyncio.ensure_future(life.run())
    await until(lambda: life.sink.facts()["Kafka"]["unacknowledged"])
    clock.advance(59.0)
    await life.sink._look_for_progress()
    assert "acknowledged" not in life.sink.held_up
    clock.advance(1.0)
    await life.sink._look_for_progress()
    assert away or life.sink.held_up == "waits for Kafka: no message was acknowledged for 60 s"
    clock.advance(60.0)
    await life.sink._look_for_progress()
    if away:
        assert not life.sink.background.failure.done()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    else:
        with pytest.raises(DeliveryBroken, match="acknowledged for 120 s, though brokers answer"):
            await running
    await life.sink.abandon()


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


@pytest.mark.parametrize("oversize", ["fail", "split"])
async def test_after_a_kill_anywhere_nothing_is_lost_and_nothing_is_there_twice(
    kafka: MockKafka, tmp_path: Path, oversize: str
) -> None:
    stream, large = with_large_one()
    stream = stream[:8]
    ready = Ready(stream, {large.commit_ts: cut(large, 900)})
    settings = {"oversize": oversize, "message_bytes": 30_000 if oversize == "split" else 10_000_000}
    for count in range(0, 30, 5) if oversize == "split" else (10, 25):
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


async def test_the_limit_is_that_of_each_topic(kafka: MockKafka, tmp_path: Path) -> None:
    """Also where each table has a topic of its own: brokers refuse what is larger, and the Drainer ends."""
    stream, _ = with_large_one()
    names = {events.table.downstream for item in stream for events in getattr(item, "tables", ())}
    for schema, table in names:
        kafka.create(f"{schema}.{table}")
    settings: dict[str, Any] = {"topic": "{schema}.{table}", "facts": TopicFacts(20_000)}
    life = Life(kafka.servers, tmp_path, Ready(stream), **settings)
    with pytest.raises(DownstreamError, match="the limit is 20000"):
        await life.run()
    await life.sink.abandon()
    await Life(kafka.servers, tmp_path, Ready(stream), oversize="split", **settings).whole()
    for schema, table in names:
        found = kafka.messages(f"{schema}.{table}")
        assert all(len(one.value) < 20_000 for one in found)
        assert tables_of(found) == [
            one for one in tables_of(as_messages(payloads(stream))) if one[0][1:] == (schema, table)
        ]


# -- several topics and partitions ---------------------------------------------------------------------------


async def test_tables_go_to_topics_of_their_own(kafka: MockKafka, tmp_path: Path) -> None:
    stream = few("keys", 150)
    names = dict.fromkeys(
        events.table.downstream for item in stream if isinstance(item, Transaction) for events in item.tables
    )
    for schema, table in names:
        kafka.create(f"{schema}.{table}")
    kafka.create("keys.")
    settings: dict[str, Any] = {"topic": "{schema}.{table}"}
    await until_dead(Life(kafka.servers, tmp_path, Ready(stream), **settings), 60)
    await Life(kafka.servers, tmp_path, Ready(stream), **settings).whole()
    wanted = tables_of(as_messages(payloads(stream)))
    assert len(names) > 5
    for schema, table in names:
        found = kafka.messages(f"{schema}.{table}")
        assert tables_of(found) == [one for one in wanted if one[0][1:] == (schema, table)]
        assert all("seq" in one.headers for one in found if pb.Binlog.FromString(one.value).type == pb.DML)


@pytest.mark.parametrize("by", ["table", "ts"])
async def test_partitions_have_what_belongs_there_in_order(kafka: MockKafka, tmp_path: Path, by: str) -> None:
    stream = few("keys", 250)
    kafka.create("four", 4)
    settings: dict[str, Any] = {"topic": "four", "partition": by}
    for count in (40, 25, 60):
        await until_dead(Life(kafka.servers, tmp_path, Ready(stream), **settings), count)
    await Life(kafka.servers, tmp_path, Ready(stream), **settings).whole()
    places: dict[Any, set[int]] = {}
    rows: list[Any] = []
    for partition in range(4):
        found = [one for one in kafka.messages("four") if one.partition == partition]
        stamps = [pb.Binlog.FromString(one.value).commit_ts for one in found]
        assert stamps == sorted(stamps)
        for name, mutations in tables_of(found):
            places.setdefault(name[1:] if by == "table" else name[0], set()).add(partition)
            rows.append((name, mutations))
    assert all(len(found) == 1 for found in places.values())
    assert set.union(*places.values()) == {0, 1, 2, 3}
    assert sorted(rows) == sorted(tables_of(as_messages(payloads(stream))))


async def test_watermarks_go_to_every_partition_and_hold(kafka: MockKafka, tmp_path: Path) -> None:
    kafka.create("three", 3)
    stream = few(count=120)
    clock = ManualClock()
    life = Life(
        kafka.servers, tmp_path, Ready(stream), topic="three", partition="ts", watermark_s=10.0, clock=clock
    )
    flush = life.sink.flush

    async def later() -> None:
        clock.advance(3.0)
        await flush()

    life.sink.flush = later  # type: ignore[method-assign]
    await life.whole()
    told = []
    for partition in range(3):
        watermark = 0
        for one in kafka.messages("three"):
            if one.partition == partition:
                binlog = pb.Binlog.FromString(one.value)
                if one.headers.get("kind") == b"watermark":
                    assert int(one.headers["commit_ts"]) == binlog.commit_ts
                    assert not binlog.dml_data.tables
                    watermark = binlog.commit_ts
                    told.append((partition, watermark))
                assert binlog.commit_ts >= watermark
    stamps = [[ts for number, ts in told if number == partition] for partition in range(3)]
    assert stamps[0] == stamps[1] == stamps[2]
    assert 2 <= len(stamps[0]) < 40


async def test_a_topic_that_grows_is_spread_at_a_place_without_messages(
    kafka: MockKafka, tmp_path: Path
) -> None:
    """Until then keys stay where they were, also after a kill; then the checkpoint is behind all of it."""
    kafka.create("grows", 6)
    stream = few("keys", 200)
    has = {"grows": 2}

    def life(past_ts: int) -> Life:
        made = Life(kafka.servers, tmp_path, Ready(stream), topic="grows", partition="table", past_ts=past_ts)
        made.client.partitions = has.__getitem__  # type: ignore[method-assign]
        return made

    await until_dead(life(0), 40)
    assert {one.partition for one in kafka.messages("grows")} == {0, 1}
    has["grows"] = 6
    middle_ts = stream[120].commit_ts
    again = life(middle_ts)
    spread, saved = again.sink._destinations.spread, []

    async def watched() -> None:
        saved.append(again.sink.stored_ts)
        assert again.sink._window.is_empty
        await spread()

    again.sink._destinations.spread = watched  # type: ignore[method-assign]
    await again.whole(size=5)
    assert len(saved) == 1
    assert saved[0] > middle_ts
    rows = []
    for partition in range(6):
        found = tables_of([one for one in kafka.messages("grows") if one.partition == partition])
        assert partition < 2 or all(name[0] > saved[0] for name, _ in found)
        rows += found
    assert sorted(rows) == sorted(tables_of(as_messages(payloads(stream))))
    assert len({one.partition for one in kafka.messages("grows")}) > 2


async def test_transactions_are_committed_before_they_count(kafka: MockKafka, tmp_path: Path) -> None:
    stream = few(count=100)
    life = Life(kafka.servers, tmp_path, Ready(stream), client={"transactional_id": "one"}, transactions=True)
    steps: list[str] = []
    begin, commit = life.client.begin, life.client.commit

    def begun() -> None:
        steps.append("begin")
        begin()

    def committed() -> None:
        steps.append("commit")
        before = life.sink.resolved_ts
        commit()
        assert life.sink.resolved_ts == before

    life.client.begin, life.client.commit = begun, committed  # type: ignore[method-assign]
    await life.whole()
    assert steps == ["begin", "commit"] * (len(steps) // 2)
    assert len(steps) > 10
    assert values(kafka.messages(TOPIC)) == payloads(stream)
    assert life.sink.stored_ts == stream[-1].commit_ts


async def test_a_drainer_whose_successor_has_begun_is_fenced_off(kafka: MockKafka, tmp_path: Path) -> None:
    stream = few(count=100)
    client = {"transactional_id": "one"}
    life = Life(kafka.servers, tmp_path, Ready(stream), client=client, transactions=True)
    await life.sink.open(TOPIC)
    kafka.refuse(END_TXN, PRODUCER_FENCED)
    with pytest.raises(DownstreamError, match="another drainer has taken over"):
        await life.run()
    await life.sink.abandon()
    assert life.sink.stored_ts == 0


async def test_a_message_of_another_program_ends_a_topic(
    kafka: MockKafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What is there cannot be known: refused where exactly once is asked for, else the checkpoint counts."""
    producer = Producer({"bootstrap.servers": kafka.servers, "log_level": 0})
    producer.produce(TOPIC, b"{}", partition=0)
    producer.flush()
    stream = few()
    life = Life(kafka.servers, tmp_path, Ready(stream), exactly_once=True)
    with pytest.raises(DownstreamError, match="partition 0, ends with a message that no drainer wrote"):
        await life.run()
    await life.sink.abandon()
    assert not [line for line in caplog.messages if "foreign message" in line]
    await Life(kafka.servers, tmp_path, Ready(stream)).whole()
    assert len([line for line in caplog.messages if "a partition ends with a foreign message" in line]) == 1
    assert values(kafka.messages(TOPIC))[-len(payloads(stream)) :] == payloads(stream)


async def test_a_ddl_waits_for_what_is_before_it_and_is_waited_for(kafka: MockKafka, tmp_path: Path) -> None:
    stream = few("ddl", 120)
    life = Life(kafka.servers, tmp_path, Ready(stream))
    send, unacknowledged = life.client.send, []

    def watched(*arguments: Any) -> None:
        if pb.Binlog.FromString(arguments[3]).type == pb.DDL or (unacknowledged and unacknowledged[-1] < 0):
            unacknowledged.append(life.sink._window.unacknowledged - 1)
        send(*arguments)

    life.client.send = watched  # type: ignore[method-assign]
    await life.whole()
    assert len(unacknowledged) > 10
    assert set(unacknowledged) == {0}
    assert values(kafka.messages(TOPIC)) == payloads(stream)


async def test_an_end_that_may_not_be_read_is_said(kafka: MockKafka, tmp_path: Path) -> None:
    """Where exactly once is asked for nothing is sent; else the checkpoint counts."""
    stream = few()
    await Life(kafka.servers, tmp_path, Ready(stream[:20])).whole()
    denied = [TOPIC_AUTHORIZATION_FAILED] * 3
    life = Life(kafka.servers, tmp_path, Ready(stream), exactly_once=True)
    kafka.refuse(FETCH, *denied)
    with pytest.raises(DownstreamError, match="reading the end of topic changes: "):
        await life.run()
    await life.sink.abandon()
    kafka.refuse(FETCH, *denied)
    await Life(kafka.servers, tmp_path, Ready(stream)).whole()
    kafka.forgive(FETCH)
    assert values(kafka.messages(TOPIC)) == payloads(stream)

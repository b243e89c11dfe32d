"""Row feed on a mock cluster: messages of rows, by their keys, through kills; and what is too large."""

from __future__ import annotations

import itertools
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drainer.formats.messages.message import Message, open_format
from drainer.sink.kafka.client import TopicFacts
from drainer.sink.kafka.row_feed import placed
from drainer.txn import INSERT, Ddl, Item, Transaction
from tests.common.rowcodec.tables import kind, table
from tests.drainer.formats.messages.changes import transaction, version
from tests.drainer.support.archive_life import Ready
from tests.drainer.support.kafka_life import TOPIC, Life, until_dead
from tests.drainer.support.relay_world import items
from tests.fakes.kafka import Message as Stored
from tests.fakes.kafka import MockKafka
from tidb_binlog.clock import ManualClock
from tidb_binlog.errors import DownstreamError


@pytest.fixture
def kafka() -> Iterator[MockKafka]:
    cluster = MockKafka()
    cluster.create(TOPIC, 4)
    yield cluster
    cluster.close()


def canal(**settings: Any) -> dict[str, Any]:
    return {"form": open_format("canal-json"), "partition": "key", **settings}


def wanted(stream: list[Item]) -> list[Message]:
    form = open_format("canal-json")
    return [one for item in stream if isinstance(item, Transaction) for one in form.rows(item)]


def rows(found: list[Stored]) -> list[Stored]:
    return [one for one in found if "kind" not in one.headers]


def partition_of(message: Message) -> int:
    key = message.spread if message.spread is not None else f"{message.schema}\0{message.table}".encode()
    return zlib.crc32(key) % 4


def message(seq: int, kind: Any = "insert", ts: int = 1) -> Message:
    return Message("d", "t", b"k", b"v", ts, seq, kind)


def test_of_two_messages_of_one_row_the_first_says_that_there_is_more() -> None:
    given = [message(0), message(3, "delete"), message(3), message(4)]
    found = list(placed(iter(given)))
    assert [one for one, _ in found] == given
    assert [(place.seq, place.half) for _, place in found] == [(0, 1), (3, 0), (3, 1), (4, 1)]
    positions = [place for _, place in found]
    assert positions == sorted(set(positions))
    assert list(placed(iter([]))) == []


@pytest.mark.parametrize("scenario", ["basic", "keys"])
async def test_changes_of_a_key_are_in_one_partition_in_order_through_kills(
    kafka: MockKafka, tmp_path: Path, scenario: str
) -> None:
    """The `keys` recording changes keys: a delete under the old one, an insert under the new one."""
    stream = list(items(scenario))
    for count in (50, 1, 120, 37):
        await until_dead(Life(kafka.servers, tmp_path, Ready(stream), **canal()), count)
    await Life(kafka.servers, tmp_path, Ready(stream), **canal()).whole()
    found, expected = kafka.messages(TOPIC), wanted(stream)
    for partition in range(4):
        there = [(one.key, one.value) for one in rows(found) if one.partition == partition]
        assert there == [(one.key, one.value) for one in expected if partition_of(one) == partition]
    assert all(one.headers["commit_ts"] for one in found)


def test_the_recording_changes_keys() -> None:
    expected = wanted(list(items("keys")))
    pairs = [
        (first, second)
        for first, second in itertools.pairwise(expected)
        if (first.commit_ts, first.seq) == (second.commit_ts, second.seq)
    ]
    assert pairs
    assert {(first.kind, second.kind) for first, second in pairs} == {("delete", "insert")}
    assert any(partition_of(first) != partition_of(second) for first, second in pairs)


async def test_every_step_of_a_key_change_can_be_the_last_one(tmp_path: Path) -> None:
    """Both halves in one partition: the second one is not taken for the first."""
    kafka = MockKafka()
    try:
        stream = [one for one in items("keys") if isinstance(one, Transaction) and one.tables]
        changing = [one for one in stream if any(place.half == 0 for _, place in placed(iter(wanted([one]))))]
        for number, transaction in enumerate(changing[:4]):
            expected = [(one.key, one.value) for one in wanted([transaction])]
            for count in range(min(len(expected), 6) + 1):
                topic, directory = f"t{number}-{count}", tmp_path / f"{number}-{count}"
                kafka.create(topic)
                directory.mkdir()
                settings = canal(topic=topic)
                await until_dead(Life(kafka.servers, directory, Ready([transaction]), **settings), count)
                await Life(kafka.servers, directory, Ready([transaction]), **settings).whole()
                assert [(one.key, one.value) for one in kafka.messages(topic)] == expected
        assert changing
    finally:
        kafka.close()


async def test_ddl_and_watermarks_are_marked(kafka: MockKafka, tmp_path: Path) -> None:
    stream = list(items("basic"))
    clock = ManualClock()
    life = Life(kafka.servers, tmp_path, Ready(stream), clock=clock, **canal(watermark_s=1.0))
    flush = life.sink.flush

    async def later() -> None:
        clock.advance(0.2)
        await flush()

    life.sink.flush = later  # type: ignore[method-assign]
    await life.whole()
    found = kafka.messages(TOPIC)
    told = [one for one in found if one.headers.get("kind") == b"watermark"]
    assert {one.partition for one in told} == {0, 1, 2, 3}
    for one in told:
        assert json.loads(one.value)["_tidb"]["watermarkTs"] == int(one.headers["commit_ts"])
    ddl = [json.loads(one.value)["sql"] for one in found if one.headers.get("kind") == b"ddl"]
    assert len(ddl) >= 3


@pytest.mark.parametrize("form", ["canal-json", None])
async def test_a_dropped_database_is_told_where_its_tables_are(
    kafka: MockKafka, tmp_path: Path, form: str | None
) -> None:
    (drop,) = (
        one for one in items("ddl") if isinstance(one, Ddl) and one.query.startswith("DROP DATABASE `d3`")
    )
    places = {zlib.crc32(f"d3\0{name}".encode()) % 4 for name in ("", "x")}
    assert len(places) == 2
    opened = form and open_format(form)
    await Life(kafka.servers, tmp_path, Ready([drop]), form=opened, partition="table").whole()
    assert {one.partition for one in kafka.messages(TOPIC)} == places


async def test_a_ddl_that_a_format_does_not_tell_needs_no_topic(kafka: MockKafka, tmp_path: Path) -> None:
    (ddl, *_) = (one for one in items("ddl") if isinstance(one, Ddl) and not one.skip)
    form = open_format("canal-json")
    form.ddl = lambda ddl, text: None  # type: ignore[method-assign]
    assert isinstance(ddl, Ddl)
    for name in ddl.tables:
        kafka.create(".".join(name), 1)
    life = Life(kafka.servers, tmp_path, Ready([ddl]), topic="{schema}.{table}", form=form, partition="key")
    await life.whole()
    assert life.sink.facts()["Kafka"]["topics"] == {}


def one_large() -> tuple[list[Item], Message, int]:
    stream = [one for one in items("types") if isinstance(one, Transaction) and one.tables]
    at = max(
        range(len(stream)),
        key=lambda number: max(
            (len(one.value or b"") for one in wanted([stream[number]]) if one.key is not None), default=0
        ),
    )
    transaction = stream[at]
    largest = max(
        (one for one in wanted([transaction]) if one.key is not None), key=lambda one: len(one.value or b"")
    )
    size = len(largest.value or b"")
    small = [
        one
        for one in stream
        if one is not transaction and all(len(m.value or b"") < size - 400 for m in wanted([one]))
    ]
    chosen: list[Item] = sorted([*small[:5], transaction], key=lambda one: one.commit_ts)
    return chosen, largest, size - 100


async def test_a_row_that_is_too_large_is_named(kafka: MockKafka, tmp_path: Path) -> None:
    stream, largest, limit = one_large()
    life = Life(kafka.servers, tmp_path, Ready(stream), **canal(message_bytes=limit))
    with pytest.raises(DownstreamError) as refused:
        await life.run()
    await life.sink.abandon()
    text = refused.value.message
    assert f"commit_ts {largest.commit_ts} in `{largest.schema}`.`{largest.table}`, key " in text
    assert (largest.key or b"").decode()[:150] in text
    assert f"the limit is {limit}" in text
    assert "handle-key-only" in refused.value.hint


@pytest.mark.parametrize("oversize", ["handle-key-only", "claim-check"])
async def test_a_row_that_is_too_large_is_sent_smaller(
    kafka: MockKafka, tmp_path: Path, oversize: str
) -> None:
    stream, _, limit = one_large()
    kept = str(tmp_path / "kept") if oversize == "claim-check" else ""
    life = Life(
        kafka.servers,
        tmp_path,
        Ready(stream),
        claim_check=kept,
        **canal(message_bytes=limit, oversize=oversize, partition=""),
    )
    await life.whole()
    found, expected = rows(kafka.messages(TOPIC)), wanted(stream)
    assert [one.key for one in found] == [one.key for one in expected]
    smaller = 0
    for one, whole in zip(found, expected, strict=True):
        if one.value == whole.value:
            continue
        smaller += 1
        assert len(one.value) <= limit
        marks = json.loads(one.value)["_tidb"]
        if oversize == "handle-key-only":
            assert marks["onlyHandleKey"] is True
        else:
            path = Path(marks["claimCheckLocation"].removeprefix("file://"))
            assert path.read_bytes() == whole.value
    assert smaller


@pytest.mark.parametrize("oversize", ["handle-key-only", "claim-check"])
async def test_a_large_row_without_a_key_is_kept_elsewhere_or_refused_with_what_helps(
    kafka: MockKafka, tmp_path: Path, oversize: str
) -> None:
    keyless = version(table(("a", kind("varchar")), handle="rowid"))
    chosen = transaction(keyless, (INSERT, ["x" * 3000]), (INSERT, ["y"]))
    kept = str(tmp_path / "kept") if oversize == "claim-check" else ""
    settings = canal(message_bytes=1000, oversize=oversize, claim_check=kept)
    life = Life(kafka.servers, tmp_path, Ready([chosen]), **settings)
    if kept:
        await life.whole()
        found = rows(kafka.messages(TOPIC))
        large, small = wanted([chosen])
        location = json.loads(found[0].value)["_tidb"]["claimCheckLocation"]
        assert Path(location.removeprefix("file://")).read_bytes() == large.value
        assert [one.value for one in found[1:]] == [small.value]
        return
    with pytest.raises(DownstreamError, match="which has no key") as refused:
        await life.run()
    await life.sink.abandon()
    assert 'syncer.to.oversize = "claim-check"' in refused.value.hint
    assert "handle-key-only" not in refused.value.hint


async def test_in_a_compacted_topic_everything_has_a_key_and_deletes_end_it(
    kafka: MockKafka, tmp_path: Path
) -> None:
    stream = [one for one in items("keys") if not isinstance(one, Transaction) or all_keyed(one)]
    settings = canal(facts=TopicFacts(compacted=True), watermark_s=1.0)
    for count in (60, 1, 33, 90):
        await until_dead(Life(kafka.servers, tmp_path, Ready(stream), **settings), count)
    clock = ManualClock()
    life = Life(kafka.servers, tmp_path, Ready(stream), clock=clock, **settings)
    flush = life.sink.flush

    async def later() -> None:
        clock.advance(0.2)
        await flush()

    life.sink.flush = later  # type: ignore[method-assign]
    await life.whole()
    found = kafka.messages(TOPIC)
    assert all(one.key for one in found)
    assert {one.headers.get("kind") for one in found} == {None, b"ddl", b"watermark"}
    expected: list[tuple[bytes | None, bytes | None]] = []
    for partition in range(4):
        expected = []
        for one in wanted(stream):
            if partition_of(one) == partition:
                expected += (
                    [(one.key, one.value), (one.key, None)]
                    if one.kind == "delete"
                    else [(one.key, one.value)]
                )
        assert [(one.key, one.value) for one in rows(found) if one.partition == partition] == expected
    assert any(value is None for _, value in expected)


def all_keyed(transaction: Transaction) -> bool:
    return all(message.key is not None for message in wanted([transaction]))


async def test_a_compacted_topic_takes_no_row_without_a_key(kafka: MockKafka, tmp_path: Path) -> None:
    stream = [one for one in items("keys") if isinstance(one, Transaction) and not all_keyed(one)]
    life = Life(kafka.servers, tmp_path, Ready(stream[:1]), **canal(facts=TopicFacts(compacted=True)))
    with pytest.raises(
        DownstreamError, match="topic changes is compacted and takes nothing without a key: row"
    ):
        await life.run()
    await life.sink.abandon()
    assert rows(kafka.messages(TOPIC)) == []

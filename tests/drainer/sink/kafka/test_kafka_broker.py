"""Kafka sink on a real broker: what only that does. It keeps count of sequence numbers, is killed and comes
again, hides what was aborted, has limits of its own, and asks who is there."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import ResourceType  # type: ignore[attr-defined]

from drainer.formats.messages.message import FormatOptions, MessageFormat, open_format
from drainer.formats.messages.message import Message as Row
from drainer.sink.kafka.settings import Sasl, Tls
from drainer.txn import Item, Transaction
from tests.drainer.formats.messages.changes import Subjects
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
from tests.drainer.support.relay_world import items
from tests.fakes.kafka import Message
from tests.kafka_broker import MECHANISMS, SECRET, USER, KafkaBroker
from tests.waiting import PATIENCE_S, until
from tidb_binlog.errors import DownstreamError

pytestmark = pytest.mark.integration
TOPIC_KIND, TRANSACTION_KIND = ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID
ASKED: dict[str, Any] = {"facts": None}
"""The broker itself is asked how a topic is configured."""
FORMS = {
    "canal-json": ("zstd", FormatOptions()),
    "canal-json of transactions": ("lz4", FormatOptions(whole_transactions=True)),
    "debezium-json": ("snappy", FormatOptions(with_schema=True)),
    "avro": ("gzip", FormatOptions()),
}


@pytest.fixture
def kafka(kafka_broker: KafkaBroker) -> KafkaBroker:
    kafka_broker.create(TOPIC)
    return kafka_broker


def keyed() -> list[Item]:
    form = open_format("canal-json")
    return [
        item
        for item in items("keys")
        if not isinstance(item, Transaction) or all(one.key is not None for one in form.rows(item))
    ]


def wanted(form: MessageFormat, stream: list[Item]) -> list[Row]:
    return [one for item in stream if isinstance(item, Transaction) for one in form.rows(item)]


@pytest.mark.parametrize("name", FORMS)
async def test_what_is_sent_is_read_back_in_each_form(
    kafka_broker: KafkaBroker, tmp_path: Path, name: str
) -> None:
    """The broker packs batches anew, so it has unpacked them: no compression is ours alone."""
    topic = name.replace(" ", "-")
    kafka_broker.create(topic, 3, compression_type="uncompressed")
    compression, options = FORMS[name]
    options = dataclasses.replace(options, registry=Subjects())
    form, again = (open_format(name.partition(" ")[0], options) for _ in range(2))
    stream = keyed()
    client = {"compression": compression}
    settings: dict[str, Any] = {"topic": topic, "form": form, "partition": "key", "client": client} | ASKED
    for count in (30, 40):
        await until_dead(Life(kafka_broker.servers, tmp_path, Ready(stream), **settings), count)
    await Life(kafka_broker.servers, tmp_path, Ready(stream), **settings).whole()
    found = [one for one in kafka_broker.messages(topic) if "kind" not in one.headers]
    expected = [(one.key, one.value) for one in wanted(again, stream)]
    assert Counter((one.key, one.value) for one in found) == Counter(expected)
    for partition in range(3):
        there = [one for one in found if one.partition == partition]
        assert there
        places = [(int(one.headers["commit_ts"]), int(one.headers["seq"])) for one in there]
        assert places == sorted(places)


@pytest.mark.parametrize("transactions", [False, True])
async def test_a_broker_that_is_killed_loses_nothing_and_has_nothing_twice(
    kafka: KafkaBroker, tmp_path: Path, transactions: bool
) -> None:
    """Requests were under way: whether they were stored is known to it alone."""
    stream = few(count=250)
    client = {"transactional_id": "killed"} if transactions else {}
    life = Life(kafka.servers, tmp_path, Ready(stream), client=client, transactions=transactions, **ASKED)
    running = asyncio.ensure_future(life.run(size=5))
    for _ in range(1 if transactions else 2):
        at = life.sink.resolved_ts
        await until(lambda: life.sink.resolved_ts > at or running.done())  # noqa: B023
        kafka.go_down()
        assert not running.done()
        kafka.come_up()
    await running
    assert await life.runner.stop(PATIENCE_S)
    assert values(kafka.messages(TOPIC)) == payloads(stream)
    assert life.sink.stored_ts == stream[-1].commit_ts


async def test_readers_of_what_is_committed_see_no_half_and_a_successor_fences_off(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    stream, large = with_large_one()
    settings: dict[str, Any] = {"client": {"transactional_id": "one"}, "transactions": True}
    settings |= {"message_bytes": 20_000, "oversize": "split"}
    before = [one for one in stream if one.commit_ts < large.commit_ts]
    first = Life(kafka.servers, tmp_path, Ready(stream), **settings)
    commit, asked, may = first.client.commit, [0], threading.Event()

    def late() -> None:
        asked[0] += 1
        assert asked[0] == 1 or may.wait(PATIENCE_S)
        commit()

    first.client.commit = late  # type: ignore[method-assign]
    running = asyncio.ensure_future(first.run(size=len(before)))
    await until(lambda: asked[0] == 2 and not first.sink.facts()["Kafka"]["unacknowledged"])
    assert len(kafka.messages(TOPIC, **{"isolation.level": "read_uncommitted"})) > len(before) + 10
    assert values(kafka.messages(TOPIC)) == payloads(before)
    second = Life(kafka.servers, tmp_path, Ready(stream), **settings)
    may.set()
    with pytest.raises(DownstreamError, match="another drainer has taken over"):
        await running
    await first.sink.abandon()
    await second.whole()
    found = kafka.messages(TOPIC)
    assert values(found[: len(before)]) == payloads(before)
    parts = [one for one in found if one.headers]
    assert [one.headers["last"] for one in parts] == [b"0"] * (len(parts) - 1) + [b"1"]
    assert len(found) == len(stream) - 1 + len(parts)


async def test_the_limit_of_a_topic_is_the_brokers_own(kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    """Told, nothing too large is sent, and parts of the largest size are taken; not told, it is refused, and
    nothing is stored behind it."""
    stream, large = with_large_one()
    for topic in ("told", "not-told"):
        kafka_broker.create(topic, max_message_bytes="20000")
    life = Life(kafka_broker.servers, tmp_path, Ready(stream), topic="told", **ASKED)
    with pytest.raises(DownstreamError, match=f"commit_ts {large.commit_ts} .*the limit is 20000"):
        await life.run()
    await life.sink.abandon()
    await Life(kafka_broker.servers, tmp_path, Ready(stream), topic="told", oversize="split", **ASKED).whole()
    assert 17_000 < max(len(one.value) for one in kafka_broker.messages("told")) < 20_000

    other = tmp_path / "not-told"
    other.mkdir()
    life = Life(kafka_broker.servers, other, Ready(stream), topic="not-told")
    with pytest.raises(DownstreamError, match="the broker takes no message of this size"):
        await life.whole()
    assert life.sink.stored_ts < large.commit_ts
    before = [one for one in stream if one.commit_ts < large.commit_ts]
    found = values(kafka_broker.messages("not-told"))
    assert found == payloads(before)[: len(found)]


async def test_a_topic_that_nobody_made_is_waited_for(kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    """Brokers do not make it themselves."""
    stream = few()
    life = Life(kafka_broker.servers, tmp_path, Ready(stream), topic="made-later", **ASKED)
    running = asyncio.ensure_future(life.run())
    await until(lambda: "has no topic made-later" in life.sink.held_up)
    await asyncio.to_thread(kafka_broker.create, "made-later")
    await running
    assert await life.runner.stop(PATIENCE_S)
    assert values(kafka_broker.messages("made-later")) == payloads(stream)


async def test_a_compacted_topic_is_known_and_takes_what_is_sent(
    kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    kafka_broker.create("compacted", 2, cleanup_policy="compact")
    form, stream = open_format("canal-json"), keyed()
    settings: dict[str, Any] = {"form": form, "partition": "key", "topic": "compacted"} | ASKED
    await Life(kafka_broker.servers, tmp_path, Ready(stream), **settings).whole()
    found = kafka_broker.messages("compacted")
    assert all(one.key for one in found)
    deletes = [one for one in wanted(form, stream) if one.kind == "delete"]
    assert deletes
    assert [one.value for one in found].count(None) == len(deletes)  # type: ignore[comparison-overlap]


async def test_a_topic_that_operators_grow_is_spread(kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    kafka_broker.create("grows", 2)
    stream = few("keys", 200)
    settings: dict[str, Any] = {
        "topic": "grows",
        "partition": "table",
        "past_ts": stream[120].commit_ts,
        **ASKED,
    }
    await until_dead(Life(kafka_broker.servers, tmp_path, Ready(stream), **settings), 40)
    kafka_broker.grow("grows", 6)
    life = Life(kafka_broker.servers, tmp_path, Ready(stream), **settings)
    await until(lambda: life.client.partitions("grows") == 6)
    await life.whole(size=5)
    found = kafka_broker.messages("grows")
    assert len({one.partition for one in found}) > 2
    sent = tables_of([Message(0, None, value, {}) for value in payloads(stream)])
    assert sorted(tables_of(found)) == sorted(sent)


# -- logins and rights ---------------------------------------------------------------------------------------


def login(kafka: KafkaBroker, mechanism: str = MECHANISMS[-1], **more: Any) -> dict[str, Any]:
    sasl = Sasl(mechanism, USER, more.pop("password", SECRET))
    return {"client": {"tls": Tls(kafka.tls.ca), "sasl": sasl, **more}, **ASKED}


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_each_login_over_tls_is_let_in_with_the_rights_of_the_page(
    kafka_broker: KafkaBroker, tmp_path: Path, mechanism: str
) -> None:
    """docs/kafka.md says which; the last one has transactions, too."""
    topic = f"of-{mechanism}"
    kafka_broker.create(topic, max_message_bytes="30000")
    kafka_broker.allow(TOPIC_KIND, topic, "WRITE", "DESCRIBE", "READ", "DESCRIBE_CONFIGS")
    settings = login(kafka_broker, mechanism) | {"topic": topic, "exactly_once": True}
    if mechanism == MECHANISMS[-1]:
        kafka_broker.allow(TRANSACTION_KIND, "of-the-page", "WRITE")
        settings["client"] |= {"transactional_id": "of-the-page"}
        settings["transactions"] = True
    stream = few()
    await until_dead(Life(kafka_broker.secure, tmp_path, Ready(stream), **settings), 20)
    life = Life(kafka_broker.secure, tmp_path, Ready(stream), **settings)
    await life.whole()
    assert values(kafka_broker.messages(topic)) == payloads(stream)
    assert life.client.topic_facts(topic).limit == 30_000


@pytest.mark.parametrize("trouble", ["password", "authority"])
async def test_who_is_not_let_in_is_told_why(kafka: KafkaBroker, tmp_path: Path, trouble: str) -> None:
    """A login that is refused is an error; a server that is not trusted may be another one tomorrow."""
    settings = login(kafka, password="another one" if trouble == "password" else SECRET)
    if trouble == "authority":
        settings["client"]["tls"] = Tls("/etc/ssl/certs/ca-certificates.crt")
    life = Life(kafka.secure, tmp_path, Ready(few()), **settings)
    if trouble == "password":
        with pytest.raises(DownstreamError, match="the login was refused") as refused:
            await life.run()
        assert SECRET not in str(refused.value)
    else:
        running = asyncio.ensure_future(life.run())
        await until(lambda: "certificate verify failed" in life.sink.held_up)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    await life.sink.abandon()
    assert kafka.messages(TOPIC) == []


RIGHTS = ("WRITE", "READ", "DESCRIBE_CONFIGS")


@pytest.mark.parametrize("lacking", RIGHTS)
async def test_a_right_that_is_lacking_is_named_or_done_without(
    kafka_broker: KafkaBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture, lacking: str
) -> None:
    topic = f"lacks-{lacking.lower()}"
    kafka_broker.create(topic)
    kafka_broker.allow(TOPIC_KIND, topic, "DESCRIBE", *(one for one in RIGHTS if one != lacking))
    stream = few()
    if lacking == "READ":
        (tmp_path / "before").mkdir()
        await Life(kafka_broker.servers, tmp_path / "before", Ready(stream[:20]), topic=topic).whole()
    life = Life(kafka_broker.secure, tmp_path, Ready(stream), topic=topic, **login(kafka_broker))
    if lacking == "WRITE":
        with pytest.raises(DownstreamError, match=f"topic {topic}, partition 0: .*uthoriz"):
            await life.run()
        await life.sink.abandon()
        assert life.sink.stored_ts == 0
        return
    await life.whole()
    said = [line for line in caplog.messages if "the end of a topic may not be read" in line]
    again = payloads(stream[:20]) if lacking == "READ" else []
    assert len(said) == bool(again)
    assert values(kafka_broker.messages(topic)) == again + payloads(stream)

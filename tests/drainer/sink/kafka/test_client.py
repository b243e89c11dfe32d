"""Client on a mock cluster: what it does behind a message that brokers refuse; what librdkafka is told."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from drainer.sink.kafka import client as kafka_client
from drainer.sink.kafka.client import Answered, Client, TopicFacts, producer_config
from drainer.sink.kafka.settings import ClientSettings
from tests.fakes.kafka import MSG_SIZE_TOO_LARGE, PRODUCE, MockKafka
from tests.waiting import PATIENCE_S, until_here
from tidb_binlog.errors import BinlogError, Unavailable

TOPIC = "changes"
IN_FLIGHT = 5
COUNT = 60


def answer_of(answers: Sequence[Answered], number: int) -> Answered:
    return until_here(
        lambda: next((answer for answer in answers if answer.number == number), None) or (),
        f"the answer to message {number}",
    )


def test_what_follows_a_refused_message_is_not_sent() -> None:
    """The end of the partition would say that the message is there. Requests that were on their way already
    are refused by brokers, for the gap in their sequence, which the mock cluster does not look at."""
    kafka = MockKafka()
    kafka.create(TOPIC)
    answers: list[Answered] = []
    ends: list[BinlogError] = []

    def trouble(_text: str, error: BinlogError | None) -> None:
        if error is not None:
            ends.append(error)

    client = Client(ClientSettings(kafka.servers, batch_messages=1), answers.extend, trouble)
    try:
        client.send(TOPIC, 0, None, b"0", [], 0)
        assert answer_of(answers, 0).error is None
        kafka.answer_after(50)
        kafka.refuse(PRODUCE, MSG_SIZE_TOO_LARGE)
        for number in range(1, COUNT):
            client.send(TOPIC, 0, None, b"%d" % number, [], number)
        error = answer_of(answers, 1).error
        assert "the broker takes no message of this size" in str(error)
        client.send(TOPIC, 0, None, b"later", [], COUNT)
        assert ends == [], "the refused message says why, nothing else does"
    finally:
        client.close(wait_s=0.0)
    stored = [message.value for message in kafka.messages(TOPIC)]
    kafka.close()
    assert stored[0] == b"0"
    assert b"1" not in stored
    assert len(stored) <= 1 + IN_FLIGHT


def test_a_refusal_is_told_by_the_answer_though_the_producer_has_ended_before() -> None:
    """librdkafka takes nothing from the moment of a refusal on; another thread reads the answers."""
    kafka = MockKafka()
    kafka.create(TOPIC)
    answers: list[Answered] = []
    goes_on = threading.Event()

    def slow(batch: Sequence[Answered]) -> None:
        answers.extend(batch)
        assert goes_on.wait(PATIENCE_S)

    client = Client(ClientSettings(kafka.servers, batch_messages=1), slow, lambda text, error: None)

    def has_ended() -> bool:
        try:
            client._producer.produce(TOPIC, b"probe", partition=0)
        except KafkaException as error:
            return error.args[0].code() == KafkaError._FATAL
        return False

    try:
        client.send(TOPIC, 0, None, b"0", [], 0)
        assert answer_of(answers, 0).error is None
        kafka.refuse(PRODUCE, MSG_SIZE_TOO_LARGE)
        client.send(TOPIC, 0, None, b"1", [], 1)
        until_here(has_ended, "the producer's end")
        client.send(TOPIC, 0, None, b"2", [], 2)
        goes_on.set()
        assert "the broker takes no message of this size" in str(answer_of(answers, 1).error)
    finally:
        goes_on.set()
        client.close(wait_s=0.0)
        kafka.close()


def test_the_end_of_a_partition_that_is_being_made_is_waited_for() -> None:
    """A broker tells how many partitions a new topic has before it knows them itself."""
    kafka = MockKafka()
    kafka.create(TOPIC)
    client = Client(ClientSettings(kafka.servers), lambda answers: None, lambda text, error: None)
    try:
        assert client.ends(TOPIC, 1) == []
        with pytest.raises(Unavailable, match="Unknown partition"):
            client.ends(TOPIC, 2)
    finally:
        client.close(wait_s=0.0)
        kafka.close()


def test_a_large_transaction_has_as_long_as_brokers_allow() -> None:
    """librdkafka's default is a minute: what takes longer would be aborted each time it is tried."""
    config = producer_config(ClientSettings("127.0.0.1:1", transactional_id="tidb-binlog-1-a"))
    assert config["transaction.timeout.ms"] == 15 * 60 * 1000
    assert "message.timeout.ms" not in config


def test_without_transactions_brokers_are_waited_for_without_an_end() -> None:
    assert producer_config(ClientSettings("127.0.0.1:1"))["message.timeout.ms"] == 0


def test_brokers_that_never_said_how_a_topic_is_configured_are_asked_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[Any] = []
    asked: list[str] = []
    made: list[Any] = []

    class Reply:
        def result(self) -> Any:
            if told:
                return {name: SimpleNamespace(value=value) for name, value in told[0].items()}
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    class Admin:
        def __init__(self, config: Any) -> None:
            made.append(config)

        def describe_configs(self, resources: Any, **more: Any) -> Any:
            asked.append(resources[0].name)
            return {resources[0]: Reply()}

    monkeypatch.setattr(kafka_client, "AdminClient", Admin)
    client = Client(ClientSettings("127.0.0.1:1"), lambda answers: None, lambda text, error: None)
    try:
        assert [client.topic_facts(name) for name in "ab"] == [TopicFacts()] * 2
        assert asked == ["a"]
        client._tells_facts = None
        told.append({"max.message.bytes": "1000012", "cleanup.policy": "compact,delete"})
        assert client.topic_facts("c") == TopicFacts(1_000_012, compacted=True)
        told[0]["cleanup.policy"] = "delete"
        assert client.topic_facts("d") == TopicFacts(1_000_012)
        told.clear()
        assert client.topic_facts("e") == TopicFacts()
        assert client.topic_facts("f") == TopicFacts()
        assert asked == ["a", "c", "d", "e", "f"], "these brokers do answer it"
        assert len(made) == 1, "a topic takes no connection of its own"
    finally:
        client.close(wait_s=0.0)


def test_a_transaction_that_cannot_be_ended_does_not_fail_the_end() -> None:
    client = Client(ClientSettings("127.0.0.1:1"), lambda answers: None, lambda text, error: None)
    real = client._producer

    class Broken:
        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        def __len__(self) -> int:
            return len(real)

        def close(self) -> None:
            raise KafkaException(KafkaError(KafkaError.INVALID_TXN_STATE, fatal=True))

    client._producer = Broken()
    client.close(wait_s=0.0)
    real.close()

"""Kafka: librdkafka's own mock cluster, with its faults, and what a reader finds in it.

It lives inside a librdkafka handle of this process; any client may connect to its brokers. It stores what it
is sent, but keeps messages of aborted transactions visible, and looks at the sequence numbers of a producer
with a transactional id alone. To any other a request that is stored says that those before it are: one that
was refused is lost, where another is under way behind it (`tests/kafka_broker.py` has a broker that looks).
"""

from __future__ import annotations

import ctypes
import glob
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.waiting import PATIENCE_S

PRODUCE = 0
END_TXN = 26
FETCH = 1
MSG_SIZE_TOO_LARGE = 10
TOPIC_AUTHORIZATION_FAILED = 29
PRODUCER_FENCED = 90


class Message(NamedTuple):
    partition: int
    key: bytes | None
    value: bytes
    headers: dict[str, bytes]


def _library() -> ctypes.CDLL:
    folder = os.path.join(os.path.dirname(confluent_kafka.__file__), "..", "confluent_kafka.libs")
    (path,) = glob.glob(os.path.join(folder, "librdkafka-*.so*"))
    library = ctypes.CDLL(path)
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    for name, result, arguments in (
        ("rd_kafka_conf_new", pointer, []),
        ("rd_kafka_conf_set", number, [pointer, text, text, text, ctypes.c_size_t]),
        ("rd_kafka_new", pointer, [number, pointer, text, ctypes.c_size_t]),
        ("rd_kafka_destroy", None, [pointer]),
        ("rd_kafka_mock_cluster_new", pointer, [pointer, number]),
        ("rd_kafka_mock_cluster_destroy", None, [pointer]),
        ("rd_kafka_mock_cluster_bootstraps", text, [pointer]),
        ("rd_kafka_mock_topic_create", number, [pointer, text, number, number]),
        ("rd_kafka_mock_broker_set_down", number, [pointer, number]),
        ("rd_kafka_mock_broker_set_up", number, [pointer, number]),
        ("rd_kafka_mock_broker_set_rtt", number, [pointer, number, number]),
        ("rd_kafka_mock_partition_set_leader", number, [pointer, text, number, number]),
        ("rd_kafka_mock_topic_set_error", None, [pointer, text, number]),
        ("rd_kafka_mock_clear_request_errors", None, [pointer, ctypes.c_int16]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class MockKafka:
    """A cluster of `brokers`; call `close`."""

    def __init__(self, brokers: int = 1) -> None:
        self._library = library = _library()
        self._brokers = brokers
        reason = ctypes.create_string_buffer(512)
        settings = library.rd_kafka_conf_new()
        library.rd_kafka_conf_set(settings, b"log_level", b"0", reason, 512)
        self._handle = library.rd_kafka_new(0, settings, reason, 512)
        assert self._handle, reason.value
        self._cluster = library.rd_kafka_mock_cluster_new(self._handle, brokers)
        self.servers: str = library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    def close(self) -> None:
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._handle)

    def create(self, topic: str, partitions: int = 1) -> None:
        failed = self._library.rd_kafka_mock_topic_create(
            self._cluster, topic.encode(), partitions, min(3, self._brokers)
        )
        assert not failed

    def go_down(self) -> None:
        for broker in range(1, self._brokers + 1):
            self._library.rd_kafka_mock_broker_set_down(self._cluster, broker)

    def come_up(self) -> None:
        for broker in range(1, self._brokers + 1):
            self._library.rd_kafka_mock_broker_set_up(self._cluster, broker)

    def answer_after(self, milliseconds: int) -> None:
        for broker in range(1, self._brokers + 1):
            self._library.rd_kafka_mock_broker_set_rtt(self._cluster, broker, milliseconds)

    def move_leader(self, topic: str, partition: int, broker: int) -> None:
        self._library.rd_kafka_mock_partition_set_leader(self._cluster, topic.encode(), partition, broker)

    def refuse(self, request: int, *errors: int) -> None:
        """The next requests of a kind get these answers."""
        push = self._library.rd_kafka_mock_push_request_errors
        push.restype = None
        push(ctypes.c_void_p(self._cluster), ctypes.c_int16(request), ctypes.c_size_t(len(errors)),
             *map(ctypes.c_int, errors))  # fmt: skip

    def forgive(self, request: int) -> None:
        """What `refuse` left over does not count any more."""
        self._library.rd_kafka_mock_clear_request_errors(self._cluster, request)

    def messages(self, topic: str) -> list[Message]:
        """All that is there, partition by partition."""
        return messages(self.servers, topic)


def messages(servers: str, topic: str, **settings: Any) -> list[Message]:
    """All that is there, partition by partition. `settings`: more of them for the consumer."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "tests",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 5,
            "log_level": 0,
        }
        | settings
    )
    try:
        return list(_read(consumer, topic))
    finally:
        consumer.close()


def _read(consumer: Any, topic: str) -> Iterator[Message]:
    for partition in sorted(consumer.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions):
        consumer.assign([TopicPartition(topic, partition, 0)])
        while True:
            message = consumer.poll(10)
            assert message is not None, "brokers answer"
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                break
            yield Message(partition, message.key(), message.value(), dict(message.headers() or ()))

"""Client of Kafka brokers: the one place where librdkafka is used.

Drives  a producer, a thread that waits for what it has to tell, a consumer for the ends of partitions
Out     acknowledgements and trouble, on the event loop; errors of the project
Holds   messages of a partition are stored in the order in which they were sent, each once, however often
        they have to be sent (idempotent producer); nothing times out: brokers that are away are waited for.
        Behind a message that brokers refuse nothing is stored, since the end of the partition would say that
        it is there, too (without an idempotent producer that is not sure)
Never   shows a password: librdkafka gets it as a value and writes no log

Tests  tests/drainer/sink/kafka/test_kafka_sink.py
"""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from drainer.sink.kafka.position import Headers, Position, position_of
from drainer.sink.kafka.settings import BATCH_BYTES, ClientSettings
from tidb_binlog.clock import SystemClock
from tidb_binlog.errors import BinlogError, ConfigError, DownstreamError, Unavailable

try:
    from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]
except ImportError:
    raise ConfigError(
        'db-type = "kafka" needs a client of Kafka that is not installed',
        hint="pip install tidb-binlog[kafka]",
    ) from None

ANSWER_S: Final = 5.0
CONFIG_ANSWER_S: Final = 3.0
SERVE_S: Final = 0.1
QUEUE_MESSAGES: Final = 2_000_000
QUEUE_KIB: Final = 2_097_151
TRANSACTION_MS: Final = 900_000
"""What brokers allow at most by default: a large upstream transaction is one of Kafka's. One that a killed
drainer left open is ended by its successor, not by this."""
_BATCH_BYTES_MIN: Final = 1024
_GIVEN_UP: Final = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT, KafkaError._GAPLESS_GUARANTEE)
# librdkafka would write to standard error: what is wrong is told by errors.
_SILENT: Final = logging.Logger("kafka", logging.CRITICAL + 1)


class DeliveryBroken(Unavailable):
    """The producer gave up a message: what is acknowledged stays, the rest is sent by another producer."""


class Denied(DownstreamError):
    """What the user may not do."""


class Answered(NamedTuple):
    """Message `number` is stored, or `error`."""

    number: int
    error: BinlogError | None


class TopicFacts(NamedTuple):
    """`limit` of a message in bytes, None: not told. `compacted`: of each key the last message is kept."""

    limit: int | None = None
    compacted: bool = False


class End(NamedTuple):
    """The last message of a partition. `position` is None where no drainer wrote it."""

    partition: int
    position: Position | None
    offset: int


_UNKNOWN: Final = (KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)


def error_of(error: KafkaError, what: str) -> BinlogError:
    """As the project sees it."""
    code, text = error.code(), error.str()
    if code == KafkaError.MSG_SIZE_TOO_LARGE:
        return DownstreamError(
            f"{what}: the broker takes no message of this size",
            hint="raise the topic's max.message.bytes, or set syncer.to.kafka-max-message-size to it and"
            " choose syncer.to.oversize",
        )
    if code in (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ):
        return Denied(f"{what}: {text}", hint="give the drainer's user the right to it (Kafka ACL)")
    if code in (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED):
        return Denied(
            f"{what}: the login was refused: {text}", hint="check [syncer.to] user and password-file"
        )
    if code in (*_UNKNOWN, KafkaError.TOPIC_EXCEPTION):
        return DownstreamError(
            f"{what}: {text}",
            hint="create the topic, or let brokers do it (auto.create.topics.enable)",
        )
    if code in (KafkaError.INVALID_RECORD, KafkaError.POLICY_VIOLATION):
        return DownstreamError(f"{what}: {text}", hint="check the topic's configuration (cleanup.policy)")
    if code in (KafkaError.PRODUCER_FENCED, KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH):
        return DownstreamError(
            f"{what}: another drainer has taken over", hint="stop one of the two; each needs its own topic"
        )
    return DeliveryBroken(f"{what}: {text}")


def _common(settings: ClientSettings) -> dict[str, Any]:
    config: dict[str, Any] = {
        "bootstrap.servers": settings.servers,
        "client.id": settings.client_id,
        "broker.version.fallback": settings.version,
        "reconnect.backoff.max.ms": 2000,
        "log_level": 0,
        "logger": _SILENT,
    }
    if settings.tls is not None:
        config["ssl.ca.location"] = settings.tls.ca
        if settings.tls.cert:
            config["ssl.certificate.location"] = settings.tls.cert
            config["ssl.key.location"] = settings.tls.key
    if settings.sasl is not None:
        config["sasl.mechanism"] = settings.sasl.mechanism
        config["sasl.username"] = settings.sasl.user
        config["sasl.password"] = settings.sasl.password
    config["security.protocol"] = ("SASL_" if settings.sasl else "") + (
        "SSL" if settings.tls else "PLAINTEXT"
    )
    return config


def producer_config(settings: ClientSettings) -> dict[str, Any]:
    """What librdkafka is told for a producer."""
    config = _common(settings) | {
        "acks": "all",
        "enable.idempotence": settings.idempotent or bool(settings.transactional_id),
        "linger.ms": 2,
        "compression.type": settings.compression,
        "batch.num.messages": settings.batch_messages,
        "batch.size": max(_BATCH_BYTES_MIN, min(BATCH_BYTES, settings.message_bytes)),
        "message.max.bytes": max(1000, settings.message_bytes),
        "queue.buffering.max.messages": QUEUE_MESSAGES,
        "queue.buffering.max.kbytes": QUEUE_KIB,
    }
    if settings.transactional_id:
        config["transactional.id"] = settings.transactional_id
        config["transaction.timeout.ms"] = TRANSACTION_MS
    else:
        config["message.timeout.ms"] = 0
        config["enable.gapless.guarantee"] = config["enable.idempotence"]
    if not config["enable.idempotence"]:
        config["max.in.flight.requests.per.connection"] = 1
        config["message.send.max.retries"] = 10_000
    return config


def _configured(make: Callable[[], Any]) -> Any:
    """Raises `ConfigError` for settings that librdkafka refuses."""
    try:
        return make()
    except KafkaException as error:
        raise ConfigError(
            f"the Kafka client refuses its configuration: {error.args[0].str()}", hint="see [syncer.to]"
        ) from None


class Client:
    """`on_answers` and `on_trouble` are called on the client's own thread, with a batch of answers, with what
    is wrong between client and brokers."""

    def __init__(
        self,
        settings: ClientSettings,
        on_answers: Callable[[Sequence[Answered]], None],
        on_trouble: Callable[[str, BinlogError | None], None],
    ) -> None:
        self._settings = settings
        self._on_answers = on_answers
        self._on_trouble = on_trouble
        self._answers: list[Answered] = []
        self._last_trouble: KafkaError | None = None
        self._ends = False
        self._tells_facts: bool | None = None  # None until brokers were asked how a topic is configured
        self._producer = _configured(
            lambda: Producer(producer_config(settings) | {"error_cb": self._on_error})
        )
        self._thread = threading.Thread(target=self._serve, name="kafka", daemon=True)
        self._thread.start()

    # -- sending -----------------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        number: int,
    ) -> None:
        """Put it behind what was sent before. Raises `BufferError` when the client's queue is full.

        Nobody answers for a message that a producer after a fatal error does not take: what the error was, or
        which message was refused, is told on the client's own thread, and may be still to come.
        """
        try:
            self._producer.produce(
                topic,
                value,
                key,
                partition,
                on_delivery=functools.partial(self._delivered, number),
                headers=headers or None,
            )
        except KafkaException as error:
            if error.args[0].code() != KafkaError._FATAL:
                raise error_of(error.args[0], f"topic {topic}") from None

    def _delivered(self, number: int, error: KafkaError | None, message: Any) -> None:
        failure = None
        if error is not None:
            if error.code() in _GIVEN_UP:
                return
            failure = error_of(error, f"topic {message.topic()}, partition {message.partition()}")
        self._answers.append(Answered(number, failure))

    def _on_error(self, error: KafkaError) -> None:
        self._last_trouble = error
        final = error_of(error, "Kafka") if error.fatal() else None
        self._on_trouble(error.str(), final)

    def _serve(self) -> None:
        while not self._ends:
            try:
                self._producer.poll(SERVE_S)
            except KafkaException as error:
                if error.args[0].code() == KafkaError._GAPLESS_GUARANTEE:
                    continue  # the answer to the message that was refused says why
                # Nothing more comes from this producer.
                self._on_trouble(error.args[0].str(), error_of(error.args[0], "Kafka"))
                return
            if self._answers:
                answers, self._answers = self._answers, []
                self._on_answers(answers)

    # -- transactions ------------------------------------------------------------------------------

    def begin_producing(self) -> None:
        """Fence off an older producer of the same id; what it had not committed is given up. May wait."""
        self._told(lambda: self._producer.init_transactions(30.0))

    def begin(self) -> None:
        self._told(self._producer.begin_transaction)

    def commit(self) -> None:
        """All that was sent since `begin` is to be read, or nothing of it. May wait."""
        while True:
            try:
                self._producer.commit_transaction(30.0)
            except KafkaException as error:
                if error.args[0].retriable() and not self._ends:
                    continue
                raise error_of(error.args[0], "Kafka transaction") from None
            return

    def _told(self, call: Callable[[], Any]) -> None:
        try:
            call()
        except KafkaException as error:
            kafka = error.args[0]
            if kafka.retriable() or kafka.code() == KafkaError._TIMED_OUT:
                raise Unavailable(
                    f"Kafka at {self._settings.servers}: {kafka.str()}", hint="check the brokers"
                ) from None
            raise error_of(kafka, "Kafka transaction") from None

    # -- what brokers know (each of these may wait) ---------------------------------------------------

    def meet(self, topic: str | None = None) -> None:
        """Brokers answer, and have the topic. Raises `Unavailable`, `Denied`, `DownstreamError`."""
        if topic:
            self.partitions(topic)
            return
        try:
            self._producer.list_topics(timeout=ANSWER_S)
        except KafkaException as error:
            raise self._unavailable(error.args[0]) from None

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has; brokers may make it. Raises `Unavailable`, `Denied`,
        `DownstreamError`."""
        try:
            metadata = self._producer.list_topics(topic, timeout=ANSWER_S).topics[topic]
        except KafkaException as error:
            raise self._unavailable(error.args[0]) from None
        if metadata.error is not None:
            code = metadata.error.code()
            if code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE):
                raise Unavailable(
                    f"Kafka at {self._settings.servers} has no topic {topic}",
                    hint="create it, or let brokers do it (auto.create.topics.enable)",
                )
            raise error_of(metadata.error, f"topic {topic}")
        if not metadata.partitions:
            raise Unavailable(f"topic {topic} has no partitions yet", hint="check the brokers")
        return len(metadata.partitions)

    @functools.cached_property
    def _admin(self) -> Any:
        return _configured(lambda: AdminClient(_common(self._settings)))

    def topic_facts(self, topic: str) -> TopicFacts:
        """How the topic is configured. Brokers that do not answer the first request get no second one."""
        if self._tells_facts is False:
            return TopicFacts()
        resource = ConfigResource("topic", topic)
        try:
            (reply,) = self._admin.describe_configs([resource], request_timeout=CONFIG_ANSWER_S).values()
            entries = reply.result()
            policy = entries["cleanup.policy"].value or ""
            self._tells_facts = True
            return TopicFacts(int(entries["max.message.bytes"].value), "compact" in policy.split(","))
        except (KafkaException, KeyError, ValueError) as error:
            if self._tells_facts is None:
                self._tells_facts = not isinstance(error, KafkaException)
            return TopicFacts()

    def ends(self, topic: str, count: int) -> list[End]:
        """The last message of each partition that has one. Raises `Unavailable`, `Denied`."""
        config = _common(self._settings) | {
            "group.id": f"{self._settings.client_id}-ends",  # never joined, never committed to
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 10,
            "receive.message.max.bytes": (1 << 31) - 1,
        }
        consumer = _configured(lambda: Consumer(config))
        try:
            ends = (self._end(consumer, topic, number) for number in range(count))
            return [end for end in ends if end is not None]
        except KafkaException as error:
            failure = error_of(error.args[0], f"reading the end of topic {topic}")
            if isinstance(failure, DeliveryBroken) or error.args[0].code() in _UNKNOWN:  # it is being made
                raise self._unavailable(error.args[0]) from None
            raise failure from None
        finally:
            consumer.close()

    def _end(self, consumer: Any, topic: str, partition: int) -> End | None:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=ANSWER_S)
        back, end = 1, None
        while end is None and low < high:
            begin = max(low, high - back)
            consumer.assign([TopicPartition(topic, partition, begin)])
            while (message := consumer.poll(ANSWER_S)) is not None:
                error = message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    break
                if error is not None and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                    continue  # librdkafka looks for the group's coordinator, whom nobody asks anything
                if error is not None:
                    raise KafkaException(error)
                position = position_of(message.headers(), message.value())
                end = End(partition, position, message.offset())
            else:
                raise Unavailable(
                    f"the end of topic {topic}, partition {partition}, cannot be read",
                    hint="check the brokers",
                )
            if begin == low:
                break
            back *= 16
        return end

    def _unavailable(self, error: KafkaError) -> BinlogError:
        trouble = self._last_trouble or error
        failure = error_of(trouble, f"Kafka at {self._settings.servers}")
        if isinstance(failure, Denied):
            return failure
        return Unavailable(
            f"Kafka at {self._settings.servers} does not answer: {trouble.str()}",
            hint="check kafka-addrs and the brokers",
        )

    def _serve_the_rest(self, wait_s: float) -> None:
        """Until each message is stored, or given up.

        Not by `flush`, which calls on after a fatal error and fails: to give up what is under way is one.
        """
        end = SystemClock.monotonic_s() + wait_s
        while len(self._producer) and (left_s := end - SystemClock.monotonic_s()) > 0:
            with contextlib.suppress(KafkaException):  # what is left is given up
                self._producer.poll(min(left_s, SERVE_S))

    def close(self, *, wait_s: float) -> None:
        """What is not stored after `wait_s` is given up."""
        if self._ends:
            return
        self._ends = True
        self._thread.join()
        if wait_s:
            self._serve_the_rest(wait_s)
        self._producer.purge()
        self._serve_the_rest(ANSWER_S)
        # A transaction that cannot be ended any more: what it has is given up.
        with warnings.catch_warnings(), contextlib.suppress(KafkaException):
            warnings.simplefilter("ignore")
            self._producer.close()

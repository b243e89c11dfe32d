"""Kafka options: the keys of `db-type = "kafka"`: those of the Go drainer, and what it does not have.

Tests  tests/drainer/config/test_kafka_options.py
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from drainer.config.archive_options import ArchiveOptions
from tidb_binlog.config.declaring import option
from tidb_binlog.errors import ConfigError
from tidb_binlog.net.port import split_address

DEFAULT_ADDRESS: Final = "127.0.0.1:9092"
DEFAULT_VERSION: Final = "0.8.2.0"
DEFAULT_MESSAGE_BYTES: Final = 1 << 30
MESSAGE_BYTES_MAX: Final = 1_000_000_000
"""librdkafka takes no larger ones."""
BATCH_MESSAGES_MAX: Final = 1_000_000
OBINLOG: Final = "obinlog"
FORMATS: Final = (OBINLOG, "canal-json", "debezium-json", "avro")
MESSAGES: Final = ("row", "transaction")
COMPRESSIONS: Final = ("", "none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS: Final = ("", "key", "table", "ts")
OVERSIZE: Final = ("fail", "split", "handle-key-only", "claim-check")
MECHANISMS: Final = ("", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_VERSION: Final = re.compile(r"\d+\.\d+\.\d+(\.\d+)?")
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{0,249}")
_PLACE: Final = re.compile(r"\{(schema|table)\}")


@dataclass(frozen=True, slots=True)
class KafkaOptions(ArchiveOptions):
    """Beside the keys of databases and archives; `user` and the passwords of [syncer.to] are SASL's here."""

    zookeeper_addrs: str = option(
        "",
        key="syncer.to.zookeeper-addrs",
        help="Kafka: ZooKeepers that know the brokers; they win over kafka-addrs",
    )
    kafka_addrs: str = option(
        "",
        key="syncer.to.kafka-addrs",
        help=f"Kafka: brokers, comma separated (default: KAFKA_ADDRS or {DEFAULT_ADDRESS})",
        more="The checkpoint is the file savepoint in data-dir.",
    )
    kafka_version: str = option(
        DEFAULT_VERSION,
        key="syncer.to.kafka-version",
        help="Kafka: version of brokers that cannot say it, those before 0.10",
    )
    kafka_max_messages: int = option(
        1024, key="syncer.to.kafka-max-messages", kind="int", help="Kafka: messages of one batch at most"
    )
    kafka_client_id: str = option(
        "tidb_binlog", key="syncer.to.kafka-client-id", help="Kafka: name of this client in the brokers' logs"
    )
    kafka_max_message_size: int = option(
        "1 GiB",
        key="syncer.to.kafka-max-message-size",
        kind="size",
        help="Kafka: bytes that a message may have",
        more="Less where the topic's max.message.bytes is less.",
    )
    topic_name: str = option(
        "", key="syncer.to.topic-name", help="Kafka: the topic; empty: <cluster id>_obinlog"
    )
    topic: str = option(
        "",
        key="syncer.to.topic",
        help="Kafka: topics of tables, as in {schema}_{table}",
        more="What the name of a topic cannot have becomes _, and two tables that would share a topic "
        "stop the drainer.",
    )
    format: str = option(
        "obinlog",
        key="syncer.to.format",
        help="Kafka: form of messages: obinlog, canal-json, debezium-json or avro",
        more="obinlog has a message for each transaction or DDL, as the Go drainer has it; the others "
        "one for each row. See [messages](messages.md).",
    )
    messages: str = option(
        "row",
        key="syncer.to.messages",
        help="Kafka: row, or with canal-json transaction: rows of one kind and table share a message",
        more="transaction: rows of one kind that follow each other in a table of a transaction are one "
        "message.",
    )
    message_schema: bool = option(
        False,
        key="syncer.to.message-schema",
        kind="bool",
        help="Kafka: debezium-json with the schema in each message",
    )
    schema_registry: str = option(
        "",
        key="syncer.to.schema-registry",
        secret=True,
        help="Kafka: URL of the Confluent schema registry that avro needs",
    )
    partition: str = option(
        "",
        key="syncer.to.partition",
        help="Kafka: what decides the partition: key, table or ts; empty: always 0",
        more="By CRC-32; ts is the commit timestamp.",
    )
    headers: bool = option(
        False,
        key="syncer.to.headers",
        kind="bool",
        help="Kafka: commit_ts and seq as headers of obinlog messages, too",
        more="Other forms always have them.",
    )
    watermark_interval_s: float = option(
        0.0,
        key="syncer.to.watermark-interval",
        kind="duration",
        help="Kafka: pause between messages to all partitions that say how far the stream is; 0: none",
    )
    idempotent: bool = option(
        True,
        key="syncer.to.idempotent",
        kind="bool",
        help="Kafka: what is sent again is stored once",
        more="false for brokers before 0.11.",
    )
    transactions: bool = option(
        False,
        key="syncer.to.transactions",
        kind="bool",
        help="Kafka: readers of committed messages see whole transactions; an older drainer is fenced off",
    )
    exactly_once: bool = option(
        False,
        key="syncer.to.exactly-once",
        kind="bool",
        help="Kafka: nothing is sent where it is not known what is there already",
        more="At a start the end of each topic is read, and what is there is not sent again. With true "
        "a drainer that may not read it, or finds another program's message there, does not "
        "start.",
    )
    oversize: str = option(
        "fail",
        key="syncer.to.oversize",
        help="Kafka: messages that are too large: fail, split, handle-key-only or claim-check",
        more="split is for obinlog, handle-key-only for messages of rows.",
    )
    claim_check: str = option(
        "",
        key="syncer.to.claim-check",
        help="Kafka: directory or URI (pyarrow.fs) where too large values are kept",
    )
    sasl_mechanism: str = option(
        "",
        key="syncer.to.sasl-mechanism",
        help="Kafka: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512, with user and password-file; empty: no login",
    )
    in_flight_bytes: int = option(
        "64 MiB",
        key="syncer.to.in-flight",
        kind="size",
        help="Kafka: bytes that are sent and not acknowledged; what comes waits",
    )

    def check_kafka(self) -> None:
        """Raises `ConfigError`."""
        for key, value, known in (
            ("format", self.format, FORMATS),
            ("messages", self.messages, MESSAGES),
            ("partition", self.partition, PARTITIONS),
            ("oversize", self.oversize, OVERSIZE),
            ("compression", self.compression, COMPRESSIONS),
            ("sasl-mechanism", self.sasl_mechanism, MECHANISMS),
        ):
            if value not in known:
                raise ConfigError(
                    f"syncer.to.{key} is {value!r}",
                    hint=f"one of {', '.join(repr(one) for one in known if one)}, or nothing"
                    if "" in known
                    else f"one of {', '.join(map(repr, known))}",
                )
        self._check_topics()
        self._check_form()
        _ = self.brokers({})
        if not _VERSION.fullmatch(self.kafka_version):
            raise ConfigError(
                f"syncer.to.kafka-version is {self.kafka_version!r}", hint="numbers as in 2.4.0"
            )
        for key, number in (
            ("kafka-max-messages", self.kafka_max_messages),
            ("kafka-max-message-size", self.kafka_max_message_size),
            ("in-flight", self.in_flight_bytes),
        ):
            if number < 1:
                raise ConfigError(f"syncer.to.{key} is {number}", hint="it must be at least 1")
        if self.kafka_max_messages > BATCH_MESSAGES_MAX:
            raise ConfigError(
                f"syncer.to.kafka-max-messages is {self.kafka_max_messages}",
                hint=f"it is {BATCH_MESSAGES_MAX} at most; 1024 is enough for any broker",
            )
        if self.sasl_mechanism and not self.to_user:
            raise ConfigError(
                "syncer.to.sasl-mechanism without a user", hint="set [syncer.to] user and password-file"
            )
        if self.to_cert_allowed_cn:
            raise ConfigError(
                "[syncer.to.security] cert-allowed-cn is not checked of Kafka brokers",
                hint="remove it: a broker's certificate must have the host's name",
            )

    def remarks_on_kafka(self) -> list[str]:
        """What is set and has no effect, or less than it says."""
        said = []
        if self.zookeeper_addrs:
            said.append(
                "syncer.to.zookeeper-addrs is for Kafka before 4.0, which has no ZooKeeper any more: "
                "kafka-addrs is for all"
            )
            if self.kafka_addrs:
                said.append("syncer.to.kafka-addrs is not used: zookeeper-addrs says who the brokers are")
        if self.kafka_version != DEFAULT_VERSION and _numbers(self.kafka_version) >= (0, 10):
            said.append("syncer.to.kafka-version is not needed: brokers from 0.10 on say what they are")
        if self.kafka_max_message_size > max(MESSAGE_BYTES_MAX, DEFAULT_MESSAGE_BYTES):
            said.append(
                f"syncer.to.kafka-max-message-size is {MESSAGE_BYTES_MAX:,} bytes: no message may be larger"
            )
        return said

    def _check_topics(self) -> None:
        if self.topic and self.topic_name:
            raise ConfigError("syncer.to has both topic and topic-name", hint="remove one of them")
        for key, name in (("topic-name", self.topic_name), ("topic", _PLACE.sub("", self.topic))):
            if not _TOPIC.fullmatch(name) or (key == "topic-name" and name in (".", "..")):
                raise ConfigError(
                    f"syncer.to.{key} {self.topic or name!r} cannot be a topic's name",
                    hint="letters, digits, '.', '_' and '-' may be in it, 249 at most"
                    + ("; {schema} and {table} have places" if key == "topic" else ""),
                )

    def _check_form(self) -> None:
        if self.format == OBINLOG and self.partition == "key":
            raise ConfigError(
                'syncer.to.partition = "key" with obinlog, whose messages are whole transactions',
                hint='partition = "table" or "ts", or another format',
            )
        if self.format == OBINLOG and self.oversize == "handle-key-only":
            raise ConfigError(
                'syncer.to.oversize = "handle-key-only" with obinlog, whose rows have all columns',
                hint='oversize = "split" or "claim-check", or another format',
            )
        if self.format != OBINLOG and self.oversize == "split":
            raise ConfigError(
                f'syncer.to.oversize = "split" with {self.format}, which has a message for each row',
                hint='oversize = "handle-key-only" or "claim-check"',
            )
        if self.format in ("debezium-json", "avro") and self.oversize != "fail":
            raise ConfigError(
                f'syncer.to.oversize = "{self.oversize}" with {self.format}, which has no smaller message',
                hint='remove it and raise the topic\'s max.message.bytes, or choose format = "canal-json"',
            )
        if self.messages == "transaction":
            self._check_transactions()
        if (self.format == "avro") != bool(self.schema_registry):
            raise ConfigError(
                'syncer.to.format = "avro" and syncer.to.schema-registry belong together',
                hint="set both or none",
            )
        if (self.oversize == "claim-check") != bool(self.claim_check):
            raise ConfigError(
                'syncer.to.oversize = "claim-check" and syncer.to.claim-check belong together',
                hint="set both or none",
            )
        if not self.idempotent and (self.transactions or self.exactly_once):
            raise ConfigError(
                "syncer.to.idempotent = false with transactions or exactly-once",
                hint="remove it: without it a message that is sent again may be stored twice",
            )

    def _check_transactions(self) -> None:
        if self.format not in (OBINLOG, "canal-json"):
            raise ConfigError(
                f'syncer.to.messages = "transaction" with {self.format}, whose messages are of one row',
                hint="remove it, or choose obinlog or canal-json",
            )
        if self.format != OBINLOG and (self.partition == "key" or self.oversize != "fail"):
            key = "partition" if self.partition == "key" else "oversize"
            raise ConfigError(
                f'syncer.to.messages = "transaction" with {key} = "{getattr(self, key)}", which is of rows',
                hint=f"remove {key}, or messages",
            )

    def brokers(self, environ: Mapping[str, str] | None = None) -> str:
        """Of `kafka-addrs`. Raises `ConfigError`."""
        found = self.kafka_addrs or (os.environ if environ is None else environ).get("KAFKA_ADDRS", "")
        for address in (found or DEFAULT_ADDRESS).split(","):
            split_address("syncer.to.kafka-addrs", address.strip())
        return found or DEFAULT_ADDRESS


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))

"""Sink options: which kinds of downstream there are (`syncer.db-type`), and the keys of each.

The keys of a kind are declared in a class of their own with a `check_...`: DatabaseOptions, LakeOptions,
ArchiveOptions, KafkaOptions, HttpOptions, each derived from the one before (slots allow one line of descent
only). What is checked for which `db-type` says `check_sink`.

A module of `SINKS` has `build` and `rehearse`, as `drainer.app.build.Builder` says. It is loaded when a
configuration names it: a drainer that writes files needs no client of a database.

Tests  tests/drainer/config/test_kafka_options.py, tests/drainer/config/test_http_options.py
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from drainer.config import password, sink_class
from drainer.config.lake_options import ICEBERG, LAKES, LakeOptions
from drainer.config.relay_format import FORMATS, PAYLOAD
from drainer.places.place import APPEND, CREATE, READ, WRITE, Place
from tidb_binlog.config import secret_file
from tidb_binlog.config.declaring import check_limits, option
from tidb_binlog.errors import ConfigError
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.net import webhook
from tidb_binlog.net.port import split_address

SINKS: Final[Mapping[str, str]] = {
    "mysql": "drainer.app.build_mysql",
    "tidb": "drainer.app.build_mysql",
    "file": "drainer.app.build_file",
    "pb": "drainer.app.build_file",
    "kafka": "drainer.app.build_kafka",
    "stdout": "drainer.app.build_json",
    "http": "drainer.app.build_json",
    "delta": "drainer.app.build_lake",
    "iceberg": "drainer.app.build_lake",
}
OWN: Final = "drainer.app.build_own"
"""Builds what is not in the table: sinks of one's own."""
DATABASES: Final = ("mysql", "tidb")


FILE_SIZE: Final = 512 << 20
REMOTE_FILE_SIZE: Final = 64 << 20
ARCHIVE_COMPRESSIONS: Final = ("", "zstd")


@dataclass(frozen=True, slots=True)
class ArchiveOptions(LakeOptions):
    """The keys of `db-type = "file"`, beside those of databases: the downstream is a directory."""

    to_dir: str = option(
        "",
        key="syncer.to.dir",
        help="archive: its directory or URI (s3://, gs://), for this drainer alone; empty: data-dir",
        more="With db-type file. Needs the extra object-store for a URI, see "
        "[object stores](object-stores.md). The checkpoint is the file savepoint in data-dir.",
        starter=True,
    )
    retention_days: int = option(
        0,
        key="syncer.to.retention-time",
        help="archive: age at which files are removed; lake: at which old versions expire; 0: never",
        unit="days",
        more="By this host's clock and the upstream's, the oldest first and never the newest. Of a lake's "
        "tables no row is removed.",
        least=0,
    )
    compression: str = option(
        "",
        key="syncer.to.compression",
        help="archive: zstd compresses closed files; Kafka: none, gzip, snappy, lz4 or zstd",
        more="Go drainers and reparo cannot read compressed files.",
    )
    to_file_size: int = option(
        "512 MiB",
        key="syncer.to.file-size",
        kind="size",
        help="archive: a file ends with the record that reaches this size; lake: size of joined files",
        more="In an object store 512 MiB stands for 64 MiB.",
        above=0,
    )
    upload_interval_s: float = option(
        "10s",
        key="syncer.to.upload-interval",
        kind="duration",
        help="archive in an object store: pause between uploads of the file that is written",
        more="The checkpoint moves after an upload.",
        above=0,
    )

    def check_archive(self) -> None:
        """Raises `ConfigError`."""
        if self.compression not in ARCHIVE_COMPRESSIONS:
            raise ConfigError(
                f"unknown compression: {self.compression}",
                hint="syncer.to.compression is zstd, or empty: none",
            )
        check_limits(self, ArchiveOptions)
        if self.to_dir:
            self._check_place()

    @property
    def archive_place(self) -> Place:
        """Of `syncer.to.dir`, if it is set."""
        return Place(self.to_dir)

    @property
    def segment_bytes(self) -> int:
        """At which a file of the archive ends: an object is uploaded again whole while it grows."""
        is_default = self.to_file_size == FILE_SIZE
        return REMOTE_FILE_SIZE if is_default and self.archive_place.local is None else self.to_file_size

    def _check_place(self) -> None:
        place = self.archive_place
        if place.local is None:
            place.require("syncer.to.dir", READ | WRITE | CREATE)
            if self.compression:
                raise ConfigError(
                    f"syncer.to.compression = {self.compression!r} in an object store",
                    hint="remove it, or compress by a rule of the store: files there stay as they are",
                )
        else:
            place.require("syncer.to.dir", READ | WRITE | APPEND)


DEFAULT_ADDRESS: Final = "127.0.0.1:9092"
DEFAULT_VERSION: Final = "0.8.2.0"
DEFAULT_MESSAGE_BYTES: Final = 1 << 30
MESSAGE_BYTES_MAX: Final = 1_000_000_000
"""librdkafka takes no larger ones."""
BATCH_MESSAGES_MAX: Final = 1_000_000
OBINLOG: Final = "obinlog"
KAFKA_FORMATS: Final = (OBINLOG, "canal-json", "debezium-json", "avro")
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
    """The keys of `db-type = "kafka"`, beside those of databases and archives: those of the Go drainer, and
    what it does not have. `user` and the passwords of [syncer.to] are SASL's here."""

    zookeeper_addrs: str = option(
        "",
        key="syncer.to.zookeeper-addrs",
        help="Kafka: accepted for Go's sake; ZooKeepers are not asked for brokers, kafka-addrs has them",
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
        1024,
        key="syncer.to.kafka-max-messages",
        help="Kafka: messages of one batch at most",
        above=0,
        most=BATCH_MESSAGES_MAX,
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
        above=0,
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
        choices=KAFKA_FORMATS,
    )
    messages: str = option(
        "row",
        key="syncer.to.messages",
        help="Kafka: row, or with canal-json transaction: rows of one kind and table share a message",
        more="transaction: rows of one kind that follow each other in a table of a transaction are one "
        "message.",
        choices=MESSAGES,
    )
    message_schema: bool = option(
        False, key="syncer.to.message-schema", help="Kafka: debezium-json with the schema in each message"
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
        choices=PARTITIONS,
    )
    headers: bool = option(
        False,
        key="syncer.to.headers",
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
        help="Kafka: what is sent again is stored once",
        more="false for brokers before 0.11.",
    )
    transactions: bool = option(
        False,
        key="syncer.to.transactions",
        help="Kafka: readers of committed messages see whole transactions; an older drainer is fenced off",
    )
    exactly_once: bool = option(
        False,
        key="syncer.to.exactly-once",
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
        choices=OVERSIZE,
    )
    claim_check: str = option(
        "",
        key="syncer.to.claim-check",
        help="Kafka: directory, or s3://, gs:// or hdfs:// URI, where too large values are kept",
    )
    sasl_mechanism: str = option(
        "",
        key="syncer.to.sasl-mechanism",
        help="Kafka: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512, with user and password-file; empty: no login",
        choices=MECHANISMS,
    )
    in_flight_bytes: int = option(
        "64 MiB",
        key="syncer.to.in-flight",
        kind="size",
        help="Kafka: bytes that are sent and not acknowledged; what comes waits",
        above=0,
    )

    def check_kafka(self) -> None:
        """Raises `ConfigError`."""
        check_limits(self, KafkaOptions)
        if self.compression not in COMPRESSIONS:
            raise ConfigError(
                f"syncer.to.compression is {self.compression!r}",
                hint=f"one of {', '.join(map(repr, filter(None, COMPRESSIONS)))}, or nothing",
            )
        self._check_topics()
        self._check_form()
        if self.zookeeper_addrs and not self.kafka_addrs:
            raise ConfigError(
                "syncer.to.zookeeper-addrs: ZooKeepers are not asked for brokers",
                hint="give the brokers in kafka-addrs; Kafka from 4.0 on has no ZooKeeper",
            )
        _ = self.brokers({})
        if not _VERSION.fullmatch(self.kafka_version):
            raise ConfigError(
                f"syncer.to.kafka-version is {self.kafka_version!r}", hint="numbers as in 2.4.0"
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
            said.append("syncer.to.zookeeper-addrs is not used: the brokers are those of kafka-addrs")
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
        if self.claim_check:
            Place(self.claim_check).require("syncer.to.claim-check", WRITE)
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
        addresses = self.kafka_addrs or (os.environ if environ is None else environ).get("KAFKA_ADDRS", "")
        for address in (addresses or DEFAULT_ADDRESS).split(","):
            split_address("syncer.to.kafka-addrs", address.strip())
        return addresses or DEFAULT_ADDRESS


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


HEADERS_BYTES_MAX: Final = 64 << 10
_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", re.ASCII)
_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_OWN: Final = ("host", "content-", "connection", "transfer-encoding", "webhook-", "idempotency-key")


@dataclass(frozen=True, slots=True)
class HttpOptions(KafkaOptions):
    """The keys of `db-type = "http"`, beside those of Kafka. The URL may hold a token, and is shown
    nowhere."""

    to_url: str = option(
        "",
        key="syncer.to.url",
        secret=True,
        help="HTTP: URL that rows are posted to, as lines of JSON",
        more="It may hold a token, and is shown nowhere.",
    )
    batch_rows: int = option(
        1000, key="syncer.to.batch-rows", help="HTTP: rows of a request at most", above=0
    )
    batch_bytes: int = option(
        "1 MiB",
        key="syncer.to.batch-size",
        kind="size",
        help="HTTP: a body ends with the row that reaches this size",
        above=0,
    )
    http_timeout_s: float = option(
        "30s",
        key="syncer.to.timeout",
        kind="duration",
        help="HTTP: silence of the server that is a failure",
        more="The request is sent again then.",
        above=0,
    )
    headers_file: str = option(
        "",
        key="syncer.to.headers-file",
        kind="path",
        help="HTTP: file with headers of every request, a line each",
        more="As Authorization: Bearer ...",
    )
    secret_file: str = option(
        "",
        key="syncer.to.secret-file",
        kind="path",
        help="HTTP: file with the secret that requests are signed with",
        more="As Standard Webhooks has it.",
    )

    def check_http(self) -> None:
        """Raises `ConfigError`."""
        check_limits(self, HttpOptions)
        _ = self.http_server, self.http_headers, self.http_secret
        if self.to_ssl_ca and self.http_server[0] == "http":
            raise ConfigError(
                "syncer.to.url is http://, but [syncer.to.security] has ssl-ca: it would go in clear",
                hint="write https://, or remove ssl-ca",
            )

    @property
    def http_server(self) -> tuple[str, str, int, str]:
        """scheme, host, port and what to ask for. Raises `ConfigError`."""
        hint = 'url = "https://search.example:8443/changes"'
        if not self.to_url:
            raise ConfigError("syncer.to.url is missing", hint=hint)
        try:
            url = urlsplit(self.to_url)
            host, port = url.hostname or "", url.port
        except ValueError:
            host, port = "", None
        if not host or url.scheme not in ("http", "https") or re.search(r"[^\x21-\x7e]", self.to_url):
            raise ConfigError("syncer.to.url is no URL of http or https", hint=hint)
        if "@" in url.netloc:
            raise ConfigError(
                "syncer.to.url holds a user", hint="put an Authorization header into syncer.to.headers-file"
            )
        target = f"{url.path or '/'}{'?' if url.query else ''}{url.query}"
        return url.scheme, host, port or (443 if url.scheme == "https" else 80), target

    @property
    def http_headers(self) -> dict[str, str]:
        """Of the file. Raises `ConfigError`, which names a header and never shows its value."""
        if not self.headers_file:
            return {}
        where = f"syncer.to.headers-file {self.headers_file}"
        try:
            with open(self.headers_file, encoding="latin-1") as file:
                text = file.read(HEADERS_BYTES_MAX + 1)
        except OSError as error:
            raise ConfigError(
                f"cannot read {where}: {error.strerror}", hint="check the path and who may read it"
            ) from None
        if len(text) > HEADERS_BYTES_MAX:
            raise ConfigError(f"{where} is larger than 64 KiB", hint="it holds headers and nothing else")
        headers: dict[str, str] = {}
        for number, line in enumerate(text.splitlines(), 1):
            name, colon, value = line.partition(":")
            if not line.strip() or line.startswith("#"):
                continue
            if not colon or not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value):
                raise ConfigError(f"{where} line {number} is no header", hint="write Name: value")
            if name.lower().startswith(_OWN):
                raise ConfigError(f"{where} line {number}: {name} is set by the drainer", hint="remove it")
            headers[name] = value.strip()
        return headers

    @property
    def http_secret(self) -> bytes:
        """b"" for none. Raises `ConfigError`."""
        if not self.secret_file:
            return b""
        text = secret_file.read("syncer.to.secret-file", self.secret_file, "secret")
        return webhook.secret_of(text, f"syncer.to.secret-file {self.secret_file}")


@dataclass(frozen=True, slots=True)
class SinkOptions(HttpOptions):
    """`pb` is another name for `file`, as the Go drainer has it."""

    db_type: str = option(
        "mysql",
        key="syncer.db-type",
        flag="dest-db-type",
        help="mysql, tidb, file, kafka, stdout, http, delta, iceberg, or a sink of one's own",
        more="mysql is MariaDB too. file: an archive in the Go drainer's form (pb is the same), see "
        "dir. kafka: messages, see [Kafka](kafka.md). stdout and http: rows as lines of JSON, see "
        "[sinks](sinks.md). delta and iceberg: a changelog for each table, see [lake](lake.md). "
        "python:package.module:Class, or a name that an installed package "
        "brings: a sink of one's own.",
        starter=True,
        suggested=tuple(SINKS),
    )
    checkpoint_type: str = option(
        "",
        key="syncer.to.checkpoint.type",
        help="mysql or tidb: the checkpoint row has a server of its own; empty: it is downstream, or a file",
        more="Without a type the row is in the table `checkpoint` downstream. An archive, Kafka, "
        "stdout, http and lakes keep theirs in the file savepoint in data-dir, without a type or with file.",
        choices=("", *DATABASES, "file"),
    )
    relay_log_dir: str = option(
        "",
        key="syncer.relay.log-dir",
        kind="path",
        flag="relay-log-dir",
        help="directory of the relay log, on a disk of its own; empty: none",
        more="What goes downstream is written there before: a downstream can be brought to a "
        "consistent state with it when the upstream is lost. See [relay log](relay-log.md).",
        starter=True,
    )

    relay_format: str = option(
        PAYLOAD,
        key="syncer.relay.format",
        help="form of the relay log: payload (binlogs as pumps sent them) or obinlog (Go's)",
        more="payload has the rules and table definitions that binlogs are read by; obinlog encodes "
        "each row. Both are read, also side by side after a change.",
        choices=FORMATS,
    )

    to_options: Mapping[str, Any] = option(
        None,
        key="syncer.to.options",
        kind="table",
        secret=True,
        help="options of a sink of one's own, which says what it knows",
        example='[syncer.to.options]\npath = "/var/lib/prices.db"',
    )

    @property
    def to_database(self) -> bool:
        """Whether the downstream is a database, with lanes and a relay log before them."""
        return self.db_type in DATABASES

    @property
    def has_savepoint_row(self) -> bool:
        """Whether the checkpoint of a sink without tables is a row in a database."""
        return not self.to_database and self.checkpoint_type in DATABASES

    @property
    def to_stdout(self) -> bool:
        """Whether standard output is the downstream's: nothing else may be written there."""
        return self.db_type == "stdout"

    @property
    def to_kafka(self) -> bool:
        """Says that changes go to Kafka."""
        return self.db_type == "kafka"

    @property
    def takes_rows_first(self) -> bool:
        """Whether the rows of the tables can come before the stream. An archive has no mark for them."""
        if self.db_type in SINKS:
            return SINKS[self.db_type] != SINKS["file"]
        own = sink_class.find(self.db_type)
        return own is not None and not own.is_port

    def check_sink(self) -> None:
        """Raises `ConfigError`."""
        if self.db_type not in SINKS:
            self._check_own()
        elif self.to_options:
            raise ConfigError(
                f"syncer.to.options is not for db-type {self.db_type}", hint="it is for sinks of one's own"
            )
        kinds = ("", *DATABASES) if self.to_database else ("", *DATABASES, "file")
        if self.checkpoint_type not in kinds:
            where = "is stored downstream" if self.to_database else "is the file savepoint in data-dir"
            raise ConfigError(
                f"unknown checkpoint type: {self.checkpoint_type}",
                hint=f"mysql or tidb; without a type the checkpoint {where}",
            )
        check_limits(self, SinkOptions)
        self.check_upstream()
        self.check_verify(to_database=self.to_database)
        self.check_database()
        if self.to_kafka:
            self.check_kafka()
        elif self.db_type == "http":
            self.check_http()
        else:
            self.check_archive()
            if self.db_type in LAKES:
                self.check_lake(is_iceberg=self.db_type == ICEBERG)

    def _check_own(self) -> None:
        sink = sink_class.find(self.db_type)
        if sink is None:
            choices = ", ".join((*SINKS, *sink_class.names()))
            raise ConfigError(
                f"unknown DestDBType: {self.db_type}",
                hint=f"syncer.db-type is one of {choices}, or {sink_class.PREFIX}package.module:Class",
            )
        sink_class.check_options(sink, self.to_options)

    def remarks_on_sink(self) -> list[str]:
        """One line each, for the log."""
        said = []
        encrypted = (
            self.to_encrypted_password,
            self.from_encrypted_password,
            self.checkpoint_encrypted_password,
        )
        if any(encrypted) and not os.environ.get(password.KEY_VARIABLE):
            said.append(
                f"encrypted_password is protected by a key that everybody knows: set {password.KEY_VARIABLE}"
            )
        if self.relay_log_dir and not self.to_database:
            said.append(f"syncer.relay.log-dir is not used: it is for {' and '.join(DATABASES)}")
        return said + (self.remarks_on_kafka() if self.to_kafka else [])

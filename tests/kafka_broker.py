"""A Kafka broker that tests write to: Apache Kafka itself in KRaft mode, as a process of the session.

Its packages come from Maven once, 38 MB, into build/spark; where they cannot be had, or there is no Java, a
test that asks for it is skipped and says so. What only a real one does: it looks at sequence numbers, hides
what was aborted, refuses what is too large or has no right, asks for a login over TLS, and dies.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from binlog_playground.cluster.supervisor import Process
from tests import certificates
from tests.fakes.kafka import Message, messages
from tests.spark.support import spark_versions
from tests.waiting import PATIENCE_S, until_here
from tidb_binlog.net.port import LOOPBACK, free_ports
from tidb_binlog.net.tls import TlsConfig

USER: Final = "drainer"
SECRET: Final = "words-that-nobody-reads"
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_PACKAGES: Final = ("org.apache.kafka:kafka_2.13:4.1.2", "org.slf4j:slf4j-simple:1.7.36")
_JVM: Final = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_LOG: Final = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
_PROPERTIES: Final = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://{host}:{plain},SASL_SSL://{host}:{secure},CONTROLLER://{host}:{controller}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT
log.dirs={data}
auto.create.topics.enable=false
broker.session.timeout.ms=1000
broker.heartbeat.interval.ms=200
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
ssl.keystore.type=PEM
ssl.keystore.location={keys}
sasl.enabled.mechanisms={mechanisms}
listener.name.sasl_ssl.plain.sasl.jaas.config=\
org.apache.kafka.common.security.plain.PlainLoginModule required user_{user}="{secret}";
listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config={scram}
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config={scram}
"""
RIGHTS: Final = {
    one.name: one
    for one in (AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
}


class KafkaBroker:
    """One broker, and what operators do to it. `servers` let in everyone, who may do everything; `secure` is
    for `USER` alone, over TLS, who may do what `allow` said."""

    def __init__(self, directory: Path, class_path: str) -> None:
        plain, secure, controller = free_ports(3)
        self.servers, self.secure = f"{LOOPBACK}:{plain}", f"{LOOPBACK}:{secure}"
        authority = certificates.authority()
        node = certificates.leaf("broker", ca=authority)
        self.tls: TlsConfig = certificates.write(directory / "tls", ca=[authority], node=None)
        keys = directory / "broker.pem"
        keys.write_bytes(node.key_pem + node.pem)
        settings = directory / "server.properties"
        settings.write_text(
            _PROPERTIES.format(
                host=LOOPBACK,
                plain=plain,
                secure=secure,
                controller=controller,
                data=directory / "data",
                keys=keys,
                mechanisms=",".join(MECHANISMS),
                user=USER,
                secret=SECRET,
                scram="org.apache.kafka.common.security.scram.ScramLoginModule required;",
            )
        )
        java = [shutil.which("java") or "java", *_JVM, _LOG, "-cp", class_path]
        logins = [
            f"--add-scram={one}=[name={USER},password={SECRET}]" for one in MECHANISMS if one != "PLAIN"
        ]
        storage = ["kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", str(settings)]
        formatting = Process("kafka format", [*java, *storage, *logins], directory / "format.log")
        formatting.start()
        assert formatting.wait(120.0) == 0, formatting.tail()
        self._process = Process("kafka", [*java, "kafka.Kafka", str(settings)], directory / "kafka.log")
        self._process.start()
        self._admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        self.come_up()

    def close(self) -> None:
        self._process.kill()

    def go_down(self) -> None:
        """SIGKILL, whatever it does."""
        self._process.kill()

    def come_up(self) -> None:
        """From the main thread only, as `Process.start`."""
        if not self._process.is_running:
            self._process.start()
        until_here(self._answers, "Kafka answers")

    def _answers(self) -> bool:
        assert self._process.is_running, self._process.tail()
        with contextlib.suppress(KafkaException):
            return bool(self._admin.list_topics(timeout=1.0).brokers)
        return False

    def create(self, topic: str, partitions: int = 1, **settings: str) -> None:
        """An empty one, whatever was there. `settings` of it, with `_` for `.`."""
        config = {name.replace("_", "."): value for name, value in settings.items()}
        new = NewTopic(topic, partitions, 1, config=config)

        def made() -> bool:
            try:
                self._done(self._admin.create_topics([new]))
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
                self._done(self._admin.delete_topics([topic]))
                return False
            return True

        until_here(made)

    def grow(self, topic: str, partitions: int) -> None:
        self._done(self._admin.create_partitions([NewPartitions(topic, partitions)]))

    def allow(self, kind: ResourceType, name: str, *rights: str) -> None:
        """`USER` may do that, from anywhere: the broker knows it."""
        anybody = (kind, name, ResourcePatternType.LITERAL, f"User:{USER}", "*")
        self._done(
            self._admin.create_acls(
                [AclBinding(*anybody, RIGHTS[one], AclPermissionType.ALLOW) for one in rights]
            )
        )
        asked = AclBindingFilter(*anybody, AclOperation.ANY, AclPermissionType.ANY)
        until_here(lambda: len(self._admin.describe_acls(asked).result(PATIENCE_S)) >= len(rights), "rights")

    @staticmethod
    def _done(answers: dict[Any, Any]) -> None:
        for answer in answers.values():
            answer.result(PATIENCE_S)

    def messages(self, topic: str, **settings: Any) -> list[Message]:
        """All that is there, partition by partition, of transactions those that were committed."""
        return messages(self.servers, topic, **settings)


@pytest.fixture(scope="session")
def _kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    if shutil.which("java") is None:
        pytest.skip("not on this machine: java")
    class_path = spark_versions.or_skip(lambda: spark_versions.class_path(*_PACKAGES))
    broker = KafkaBroker(tmp_path_factory.mktemp("kafka"), class_path)
    try:
        yield broker
    finally:
        broker.close()


@pytest.fixture
def kafka_broker(_kafka_broker: KafkaBroker) -> Iterator[KafkaBroker]:
    """A real broker, up again after the test."""
    yield _kafka_broker
    _kafka_broker.come_up()

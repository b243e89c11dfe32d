"""A Go drainer's file for Kafka: of each key it is known that it works, is named as without effect, or is
refused with what to do. None is passed over in silence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from drainer.app import build_kafka
from drainer.config.options import ENV_PREFIX, DrainerConfig
from drainer.config.sink_options import MESSAGE_BYTES_MAX
from drainer.sink.kafka.client import producer_config
from tests.drainer.config.go_kafka_file import GO_FILE
from tidb_binlog.config import loading
from tidb_binlog.errors import ConfigError


def load(path: Path, to: str = "", syncer: str = "", sections: str = "") -> DrainerConfig:
    """With the keys of [syncer.to], [syncer] and other sections."""
    file = path / "drainer.toml"
    file.write_text(f'[syncer]\ndb-type = "kafka"\n{syncer}\n[syncer.to]\n{to}\n{sections}')
    return loading.load(DrainerConfig, [f"-config={file}"], {}, program="drainer", env_prefix=ENV_PREFIX)


def client(settings: DrainerConfig) -> dict[str, Any]:
    """What librdkafka is told."""
    return producer_config(build_kafka.client_settings(settings, 7))


# -- keys that work -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "told", "value"),
    [
        ('kafka-addrs = "10.0.0.1:9092,10.0.0.2:9092"', "bootstrap.servers", "10.0.0.1:9092,10.0.0.2:9092"),
        ('kafka-version = "0.9.0.1"', "broker.version.fallback", "0.9.0.1"),
        ("kafka-max-messages = 512", "batch.num.messages", 512),
        ("kafka-max-message-size = 4194304", "message.max.bytes", 4194304),
        ("kafka-max-message-size = 1073741824", "message.max.bytes", MESSAGE_BYTES_MAX),
        ('kafka-client-id = "orders"', "client.id", "orders"),
    ],
)
def test_keys_that_reach_the_client(tmp_path: Path, line: str, told: str, value: object) -> None:
    settings = load(tmp_path, line)
    assert client(settings)[told] == value
    assert settings.remarks() == []


def test_the_topic_is_the_one_that_is_named_or_go_s_default(tmp_path: Path) -> None:
    assert build_kafka.topic_of(load(tmp_path, 'topic-name = "orders"'), 7) == "orders"
    assert build_kafka.topic_of(load(tmp_path, 'topic-name = ""'), 7) == "7_obinlog"


def test_brokers_are_used_beside_zookeepers(tmp_path: Path) -> None:
    settings = load(tmp_path, 'zookeeper-addrs = "zk:2181"\nkafka-addrs = "10.0.0.1:9092"')
    assert client(settings)["bootstrap.servers"] == "10.0.0.1:9092"
    (unused,) = settings.remarks()
    assert unused.startswith("syncer.to.zookeeper-addrs is not used")


# -- keys that have no effect -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "remark"),
    [
        ({"to": 'kafka-version = "2.4.0"'}, "syncer.to.kafka-version is not needed"),
        (
            {"to": "kafka-max-message-size = 2147483647"},
            "syncer.to.kafka-max-message-size is 1,000,000,000 bytes: no message may be larger",
        ),
        ({"syncer": "txn-batch = 20"}, "syncer.txn-batch is not used with db-type kafka"),
        (
            {"syncer": "txn-batch = 100\nworker-count = 16"},
            "syncer.worker-count, syncer.txn-batch are not used with db-type kafka",
        ),
        ({"syncer": "safe-mode = true"}, "syncer.safe-mode is not used with db-type kafka"),
        ({"syncer": "disable-dispatch = false"}, "syncer.disable-dispatch is not used with db-type kafka"),
        ({"syncer": 'sql-mode = "ANSI"'}, "syncer.sql-mode is not used with db-type kafka"),
        ({"syncer": "disable-detect = true"}, "syncer.disable-detect is accepted for Go's sake"),
        ({"to": 'host = "10.0.0.1"\nport = 3307'}, "syncer.to.host, syncer.to.port are not used"),
        ({"to": 'user = "root"\npassword = "x"'}, "syncer.to.user, syncer.to.password are not used"),
        ({"to": "sync-mode = 1"}, "syncer.to.sync-mode is not used"),
        ({"to": 'read-timeout = "2m"'}, "syncer.to.read-timeout is not used"),
        (
            {"to": 'oracle-service-name = "o"'},
            "syncer.to.oracle-service-name is accepted for Go's sake: there",
        ),
        ({"to": "merge = true"}, "syncer.to.merge is accepted for Go's sake"),
        *(
            (
                {"sections": f'[syncer.to.checkpoint]\noracle-{key} = "o"'},
                f"syncer.to.checkpoint.oracle-{key} is accepted for Go's sake",
            )
            for key in ("service-name", "connect-string")
        ),
        ({"to": 'dir = "/data"\nretention-time = 7'}, "syncer.to.dir, syncer.to.retention-time are not used"),
        ({"sections": "[syncer.to.params]\na = 1"}, "syncer.to.params is not used"),
        ({"sections": '[syncer.to.checkpoint]\nschema = "s"'}, "syncer.to.checkpoint.schema is not used"),
        ({"sections": '[syncer.relay]\nlog-dir = "/relay"'}, "syncer.relay.log-dir is not used"),
    ],
)
def test_keys_without_effect_are_named(tmp_path: Path, keys: dict[str, str], remark: str) -> None:
    (told,) = load(tmp_path, **keys).remarks()
    assert told.startswith(remark)


def test_the_server_of_a_checkpoint_row_is_used(tmp_path: Path) -> None:
    row = 'type = "tidb"\nhost = "db"\nport = 4000\nuser = "u"\npassword = "p"\nschema = "s"\ntable = "t"\n'
    assert load(tmp_path, sections=f"[syncer.to.checkpoint]\n{row}").remarks() == []


def test_a_login_is_used_with_a_mechanism(tmp_path: Path) -> None:
    settings = load(tmp_path, 'user = "u"\npassword = "p"\nsasl-mechanism = "PLAIN"')
    assert client(settings)["sasl.username"] == "u"
    assert settings.remarks() == []


# -- keys that are refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "wrong", "hint"),
    [
        ({"to": 'kafka-addrs = "broker"'}, "kafka-addrs", ""),
        ({"to": 'zookeeper-addrs = "zk:2181"'}, "ZooKeepers are not asked", "brokers in kafka-addrs"),
        ({"to": 'kafka-version = "latest"'}, "kafka-version", "numbers as in"),
        ({"to": "kafka-max-messages = 2000000"}, "kafka-max-messages is 2000000", "at most 1000000"),
        ({"to": "kafka-max-message-size = 0"}, "kafka-max-message-size is 0", "at least 1"),
        ({"to": 'topic-name = "a/b"'}, "topic-name", "letters, digits"),
        (
            {"sections": '[syncer.to.checkpoint]\ntype = "oracle"'},
            "unknown checkpoint type: oracle",
            "the file savepoint in data-dir",
        ),
    ],
)
def test_keys_that_cannot_work_are_refused(
    tmp_path: Path, keys: dict[str, str], wrong: str, hint: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, **keys)
    assert wrong in refused.value.message
    assert refused.value.hint
    assert hint in refused.value.hint


def test_the_shipped_file_says_what_of_it_has_no_effect(tmp_path: Path) -> None:
    (tmp_path / "go.toml").write_text(GO_FILE)
    config = loading.load(
        DrainerConfig, [f"-config={tmp_path}/go.toml"], {}, program="drainer", env_prefix=ENV_PREFIX
    )
    assert [line.partition(" ")[0].removesuffix(",") for line in config.remarks()] == [
        "syncer.worker-count",
        "syncer.to.zookeeper-addrs",
    ]

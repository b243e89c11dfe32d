"""Kafka options: a Go drainer's file as it is; each wrong value in one line that names its key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from drainer.config.options import ENV_PREFIX, DrainerConfig
from drainer.config.sink_options import KAFKA_FORMATS
from drainer.formats.messages import message
from tests.drainer.config.go_kafka_file import GO_FILE
from tidb_binlog.config import loading
from tidb_binlog.errors import ConfigError


def load(path: Path, text: str) -> DrainerConfig:
    path.write_text(text)
    argv = [f"--config={path}"]
    return loading.load(DrainerConfig, argv, {}, program="drainer", env_prefix=ENV_PREFIX)


def test_a_go_drainers_file_is_read_as_it_is(tmp_path: Path) -> None:
    settings = load(tmp_path / "drainer.toml", GO_FILE)
    assert settings.to_kafka
    assert not settings.to_database
    assert settings.zookeeper_addrs == "127.0.0.1:2181"
    assert settings.brokers({}) == "127.0.0.1:9092,10.0.0.2:9092"
    assert (settings.kafka_version, settings.kafka_max_messages) == ("0.8.2.0", 1024)
    assert (settings.kafka_max_message_size, settings.kafka_client_id) == (1 << 30, "tidb_binlog")
    assert settings.topic_name == "orders_obinlog"
    assert settings.format == "obinlog"


def test_brokers_have_the_defaults_of_the_go_drainer() -> None:
    settings = DrainerConfig(db_type="kafka")
    assert settings.brokers({}) == "127.0.0.1:9092"
    assert settings.brokers({"KAFKA_ADDRS": "a:1"}) == "a:1"
    assert DrainerConfig(db_type="kafka", kafka_addrs="b:2").brokers({"KAFKA_ADDRS": "a:1"}) == "b:2"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"format": "json"}, "syncer.to.format is 'json'"),
        ({"partition": "row"}, "syncer.to.partition is 'row'"),
        ({"partition": "key"}, "whole transactions"),
        ({"compression": "brotli"}, "syncer.to.compression is 'brotli'"),
        ({"oversize": "drop"}, "syncer.to.oversize is 'drop'"),
        ({"oversize": "handle-key-only"}, "rows have all columns"),
        ({"oversize": "claim-check"}, "belong together"),
        ({"claim_check": "/tmp"}, "belong together"),
        ({"topic": "{db}_{table}"}, "cannot be a topic's name"),
        ({"topic": "{schema}/{table}"}, "cannot be a topic's name"),
        ({"topic": "{table}", "topic_name": "a"}, "both topic and topic-name"),
        ({"topic_name": "a b"}, "topic-name 'a b' cannot be"),
        ({"topic_name": ".."}, "cannot be a topic's name"),
        ({"kafka_addrs": "127.0.0.1"}, "kafka-addrs"),
        ({"kafka_version": "new"}, "kafka-version is 'new'"),
        ({"kafka_max_messages": 0}, "kafka-max-messages is 0"),
        ({"kafka_max_message_size": 0}, "kafka-max-message-size is 0"),
        ({"in_flight_bytes": 0}, "in-flight is 0"),
        ({"sasl_mechanism": "GSSAPI"}, "sasl-mechanism is 'GSSAPI'"),
        ({"sasl_mechanism": "PLAIN"}, "without a user"),
        ({"format": "avro"}, "belong together"),
        ({"schema_registry": "http://a:1"}, "belong together"),
        ({"format": "debezium-json", "messages": "transaction"}, "of one row"),
        ({"format": "canal-json", "messages": "transaction", "partition": "key"}, "of rows"),
        ({"format": "canal-json", "oversize": "split"}, "a message for each row"),
        (
            {"format": "debezium-json", "oversize": "claim-check", "claim_check": "/tmp"},
            "no smaller message",
        ),
        (
            {"format": "avro", "schema_registry": "http://a:1", "oversize": "handle-key-only"},
            "no smaller message",
        ),
        ({"idempotent": False, "exactly_once": True}, "idempotent = false"),
        ({"idempotent": False, "transactions": True}, "idempotent = false"),
        ({"to_ssl_ca": "ca.pem", "to_cert_allowed_cn": ("a",)}, "cert-allowed-cn"),
        ({"checkpoint_type": "oracle"}, "checkpoint type: oracle"),
    ],
)
def test_what_is_wrong_is_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as wrong:
        DrainerConfig(db_type="kafka", **settings).validate()
    assert wrong.value.hint


@pytest.mark.parametrize(
    "settings",
    [
        {"topic": "{schema}_{table}", "partition": "table", "compression": "zstd"},
        {"oversize": "split", "partition": "ts", "exactly_once": True, "transactions": True},
        {"oversize": "claim-check", "claim_check": "s3://bucket/large"},
        {"sasl_mechanism": "SCRAM-SHA-256", "to_user": "drainer", "to_password": "x"},
    ],
)
def test_what_fits_together_passes(settings: dict[str, Any]) -> None:
    DrainerConfig(db_type="kafka", **settings).validate()


def test_forms_are_those_that_there_are() -> None:
    assert set(KAFKA_FORMATS) == {"obinlog", *message.FORMATS}


def test_keys_of_kafka_are_not_checked_for_another_downstream() -> None:
    DrainerConfig(db_type="file", kafka_addrs="?", sasl_mechanism="none").validate()

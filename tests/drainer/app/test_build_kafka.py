"""Build of a Kafka sink: what the configuration becomes; without the client one line says what to install."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from drainer.app.build_kafka import client_settings, form_of, rehearse, sink_settings, topic_of
from drainer.config.options import DrainerConfig
from drainer.formats.messages.avro import Avro
from drainer.formats.messages.canal_json import CanalJson
from drainer.formats.messages.debezium_json import DebeziumJson
from drainer.sink.kafka.settings import MESSAGE_BYTES_MAX, Sasl, Tls
from tidb_binlog.errors import ConfigError


@pytest.mark.parametrize(
    ("settings", "topic"),
    [
        (DrainerConfig(db_type="kafka"), "77_obinlog"),
        (DrainerConfig(db_type="kafka", topic_name="orders"), "orders"),
        (DrainerConfig(db_type="kafka", topic="{schema}.{table}"), "{schema}.{table}"),
    ],
)
def test_the_topic(settings: DrainerConfig, topic: str) -> None:
    assert topic_of(settings, 77) == topic


def test_the_keys_of_a_go_drainer_reach_the_client() -> None:
    settings = DrainerConfig(
        db_type="kafka",
        kafka_addrs="a:1,b:2",
        kafka_version="2.4.0",
        kafka_max_messages=7,
        kafka_client_id="me",
        kafka_max_message_size=5000,
    )
    found = client_settings(settings, 77)
    assert (found.servers, found.version, found.batch_messages) == ("a:1,b:2", "2.4.0", 7)
    assert (found.client_id, found.message_bytes) == ("me", 5000)
    assert (found.compression, found.idempotent, found.transactional_id) == ("none", True, "")
    assert (found.tls, found.sasl) == (None, None)


def test_a_message_is_no_larger_than_the_client_takes() -> None:
    settings = DrainerConfig(db_type="kafka")
    assert settings.kafka_max_message_size > MESSAGE_BYTES_MAX
    assert client_settings(settings, 1).message_bytes == MESSAGE_BYTES_MAX
    assert sink_settings(settings, "t").message_bytes == MESSAGE_BYTES_MAX


def test_login_and_tls(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("hidden-word\n")
    file.chmod(0o600)
    settings = DrainerConfig(
        db_type="kafka",
        sasl_mechanism="SCRAM-SHA-512",
        to_user="me",
        to_password_file=str(file),
        to_ssl_ca="ca.pem",
        to_ssl_cert="cert.pem",
        to_ssl_key="key.pem",
    )
    found = client_settings(settings, 1)
    assert found.tls == Tls("ca.pem", "cert.pem", "key.pem")
    assert found.sasl == Sasl("SCRAM-SHA-512", "me", "hidden-word")
    assert "hidden-word" not in repr(found)


def test_a_transactional_id_is_the_drainer_s_own() -> None:
    settings = DrainerConfig(db_type="kafka", transactions=True, node_id="east")
    assert client_settings(settings, 77).transactional_id == "tidb-binlog-77-east"


def test_forms_of_messages() -> None:
    def form(**settings: Any) -> object:
        return form_of(DrainerConfig(db_type="kafka", **settings), "{schema}_{table}")

    assert form() is None
    assert isinstance(form(format="canal-json", messages="transaction"), CanalJson)
    assert isinstance(form(format="debezium-json", message_schema=True), DebeziumJson)
    assert isinstance(form(format="avro", schema_registry="http://127.0.0.1:8081"), Avro)
    with pytest.raises(ConfigError, match="schema-registry is no URL"):
        form(format="avro", schema_registry="registry")


def test_without_the_client_it_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['confluent_kafka'] = None\n"
        "from tidb_binlog.errors import ConfigError\n"
        "from drainer.app.build import builder_of\n"
        "from drainer.config.options import DrainerConfig\n"
        "try: builder_of(DrainerConfig(db_type='kafka'))\n"
        "except ConfigError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install tidb-binlog[kafka]" in done.stdout
    assert done.stdout.count("\n") == 1


def test_other_sinks_do_not_load_the_client() -> None:
    code = (
        "import sys, drainer.program, drainer.app.build; from drainer.config.options import DrainerConfig;"
        " drainer.app.build.builder_of(DrainerConfig(db_type='file'));"
        " sys.exit('confluent_kafka' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_password_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    settings = DrainerConfig(
        db_type="kafka", sasl_mechanism="PLAIN", to_user="me", to_password_file=str(tmp_path / "none")
    )
    with pytest.raises(ConfigError, match="password-file"):
        client_settings(settings, 1)


async def test_a_standby_without_the_savepoint_could_not_take_over(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no savepoint") as raised:
        await rehearse(DrainerConfig(db_type="kafka", data_dir=str(tmp_path)), 77)
    assert "data-dir" in raised.value.hint

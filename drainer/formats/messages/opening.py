"""Opening: formats of messages by their names in a configuration.

Tests  tests/drainer/formats/messages/test_canal_json.py
"""

from __future__ import annotations

from drainer.formats.messages.message import (
    AVRO,
    CANAL_JSON,
    DEBEZIUM_JSON,
    FORMATS,
    FormatOptions,
    MessageFormat,
)
from tidb_binlog.errors import ConfigError

DEFAULTS = FormatOptions()


def open_format(name: str, options: FormatOptions = DEFAULTS) -> MessageFormat:
    """A format of its own state. Modules are loaded when they are used: some need an extra."""
    if name == CANAL_JSON:
        from drainer.formats.messages.canal_json import CanalJson

        return CanalJson(options)
    if name == DEBEZIUM_JSON:
        from drainer.formats.messages.debezium_json import DebeziumJson

        return DebeziumJson(options)
    if name == AVRO:
        from drainer.formats.messages.avro import Avro

        return Avro(options)
    raise ConfigError(f"unknown message format {name!r}", hint=f"use one of {', '.join(FORMATS)}")

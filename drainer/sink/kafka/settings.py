"""Settings of a Kafka sink, as values; made from the configuration by `drainer.app.build_kafka`.

Tests  tests/drainer/app/test_build_kafka.py
"""

from __future__ import annotations

from typing import Final

from drainer.config.sink_options import MESSAGE_BYTES_MAX
from tidb_binlog.late_dataclass import dataclass, field

BATCH_BYTES: Final = 1_000_000
"""Of messages that go to a partition together, at most."""
IN_FLIGHT_BYTES: Final = 64 << 20
IN_FLIGHT_MESSAGES: Final = 200_000


@dataclass(frozen=True, slots=True)
class Tls:
    ca: str
    cert: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True)
class Sasl:
    """`mechanism`: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512."""

    mechanism: str
    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """How brokers are spoken to. `transactional_id`: "" without transactions."""

    servers: str
    client_id: str = "tidb_binlog"
    version: str = "0.8.2.0"
    batch_messages: int = 1024
    message_bytes: int = MESSAGE_BYTES_MAX
    compression: str = "none"
    idempotent: bool = True
    transactional_id: str = ""
    tls: Tls | None = None
    sasl: Sasl | None = None


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """What goes where, in which form. `topic` is a template, `partition` as `routing` has it;
    `message_bytes` is the limit of one message."""

    topic: str
    partition: str = ""
    headers: bool = False
    watermark_s: float = 0.0
    exactly_once: bool = False
    transactions: bool = False
    oversize: str = "fail"
    message_bytes: int = MESSAGE_BYTES_MAX
    in_flight_bytes: int = IN_FLIGHT_BYTES
    in_flight_messages: int = IN_FLIGHT_MESSAGES

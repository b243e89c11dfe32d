"""Message: one row change, DDL or watermark, as a message queue or a line of text carries it.

Out    messages: bytes that are the same whenever the same change is written again
Tests  tests/drainer/formats/messages/test_canal_json.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal, NamedTuple, Protocol

from drainer.txn import DELETE, INSERT, UPDATE, Ddl, Transaction
from tidb_binlog.errors import ConfigError
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.table_info import FieldType
from tidb_binlog.tso import Ts

Kind = Literal["insert", "update", "delete", "ddl", "watermark"]
KINDS: Final[dict[int, Kind]] = {INSERT: "insert", UPDATE: "update", DELETE: "delete"}
CANAL_JSON: Final = "canal-json"
DEBEZIUM_JSON: Final = "debezium-json"
AVRO: Final = "avro"
FORMATS: Final = (CANAL_JSON, DEBEZIUM_JSON, AVRO)
ROWS_MAX: Final = 1000
"""Rows of one message, where a message has several."""


class Message(NamedTuple):
    """`schema` and `table` are the names downstream. `key` is that of the row, None where it has none.

    `value` is None for a delete in avro. `seq` is the row's number in its transaction, counted over all rows
    that the upstream wrote; with `commit_ts` it tells a message that comes again. An update that changes the
    key of a row becomes two messages of one `seq`: the delete, then the insert. `spread` is the same bytes
    for keys that the upstream takes for one (`A` and `A ` under a binary collation), None where that is known
    of the table alone.
    """

    schema: str
    table: str
    key: bytes | None
    value: bytes | None
    commit_ts: Ts
    seq: int
    kind: Kind
    spread: bytes | None = None


class Registry(Protocol):
    """A schema registry."""

    def register(self, subject: str, schema: str) -> int:
        """The id of a schema (its JSON text) under a subject; the same one every time. May wait for a server:
        it is asked once for a version of a table. Raises `Unavailable`, `Rejected`."""
        ...


def topic_of_table(schema: str, table: str) -> str:
    """Name the topic of a table."""
    return f"{schema}_{table}"


@dataclass(frozen=True, slots=True)
class FormatOptions:
    """What of a format can be chosen. Each format uses those that it has.

    Of canal-json: `whole_transactions`, a message has all rows of one kind that follow each other in a table
    of a transaction; `only_changed`, `old` has the changed columns alone; `full_types`, `mysqlType` with
    lengths and elements; `names`, ENUM and SET by their texts instead of their numbers. Of debezium-json:
    `with_schema`, payload and schema. `cluster` is the logical name in Debezium's messages, the namespace in
    avro. `decimal`: "precise" or "string", in Debezium also "double".
    `bigint_unsigned`: "" loses nothing (Debezium's "precise", avro's "string"), "long" what is above 2**63.
    `registry` and `topic` (the topic of a table) are avro's.
    """

    whole_transactions: bool = False
    only_changed: bool = False
    full_types: bool = False
    names: bool = False
    with_schema: bool = False
    cluster: str = "default"
    decimal: str = "precise"
    bigint_unsigned: str = ""
    registry: Registry | None = None
    topic: Callable[[str, str], str] = topic_of_table

    def check(self, form: str, decimal_modes: Sequence[str], unsigned_modes: Sequence[str]) -> None:
        """Raises `ConfigError` for a mode that a format does not have."""
        for name, value, modes in (
            ("decimal", self.decimal, decimal_modes),
            ("bigint-unsigned", self.bigint_unsigned, unsigned_modes),
        ):
            if value not in modes:
                words = ", ".join(repr(mode) for mode in modes if mode)
                raise ConfigError(f"{name} = {value!r} is no mode of {form}", hint=f"use one of {words}")


def allowed(field_type: FieldType) -> str:
    """The elements of an ENUM or SET as one text."""
    return ",".join(element.replace(",", "\\,") for element in field_type.elems)


class MessageFormat(Protocol):
    """A form of messages. Not for several threads at once."""

    def rows(self, transaction: Transaction) -> Iterator[Message]:
        """Messages of the rows of a transaction, or of one piece of it, in execution order."""
        ...

    def ddl(self, ddl: Ddl, text: str) -> Message | None:
        """The message of a DDL that is written as `text`; None if the format has none."""
        ...

    def watermark(self, ts: Ts) -> Message | None:
        """Everything at or below `ts` has been given; None if the format has no such message."""
        ...

    def handle_key(self, transaction: Transaction, message: Message, location: str = "") -> Message | None:
        """A small form of a message of this transaction: the key, marked as no more than that, or with the
        `location` of the whole message. None if the row has no key, or the format no such form."""
        ...


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

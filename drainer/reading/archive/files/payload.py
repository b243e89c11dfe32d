"""Payload: what a record of a binlog file says before its rows are decoded.

Out    of which kind its archive is; commit_ts, whether it is a DDL, how many rows of which table and kind
Why    counting must not cost what decoding costs: fields are stepped over, names are compared as bytes
Never  takes a payload that is no message of its kind: `Corruption` says so
Tests  tests/drainer/reading/archive/decode/test_reading.py
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from drainer.formats import relay_payload
from drainer.formats.relay_payload import fixed_head, is_payload_record
from tidb_binlog.errors import Corruption
from tidb_binlog.protobuf_fields import LENGTH, MalformedMessage, field_head, varint
from tidb_binlog.tso import Ts
from tidb_binlog.wire import secondary_binlog_pb2

PB: Final = "pb"
RELAY: Final = "relay"
DML: Final = 0x1A
DDL: Final = 0x22
_TAGS: Final = (DML, DDL)
_UPPER_MAX: Final = 4096
_FIRST: Final = 0x0A  # an event of an archive, a table of a relay log; in both their field 1 is a name
_SECOND: Final = 0x12
_EVENT_KIND: Final = 0x18
_MUTATION: Final = 0x22
_KINDS: Final = 3


class Counts(dict[bytes, list[int]]):
    """Inserts, updates and deletes by the bytes that name a table (`table_name`)."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last: tuple[bytes, list[int]] = (b"", [])
        """Of an archive: how the event before this one begins, and the counts of its table."""


class PayloadHead(NamedTuple):
    """A record without its rows. `size`: of the payload."""

    commit_ts: Ts
    pos: int
    size: int
    is_ddl: bool
    rows: int


class Body(NamedTuple):
    """Where the rows (`DML`) or the statement (`DDL`) of a payload lie."""

    commit_ts: Ts
    tag: int
    start: int
    stop: int


class _Upper(dict[bytes, int]):
    """Bits 28 to 62 of a commit_ts by the five octets that carry them: alike for a second of records."""

    def __missing__(self, octets: bytes) -> int:
        value, end = varint(octets, 0)
        if end != len(octets):
            raise MalformedMessage
        if len(self) >= _UPPER_MAX:
            self.clear()
        bits = self[octets] = value << 28
        return bits


_UPPER: Final = _Upper()


def body(payload: bytes) -> Body:
    """Raises `Corruption`, `ConfigError` for a relay log's record of another version."""
    try:
        if payload[0] == 0x08 and payload[2] == 0x10 and payload[12] in _TAGS:  # as it is since 1978
            _, _, _, a, b, c, d = payload[:7]
            if a & b & c & d & 0x80:
                low = (a & 0x7F) | (b & 0x7F) << 7 | (c & 0x7F) << 14 | (d & 0x7F) << 21
                size, at = payload[13], 14
                if size > 127:
                    size, at = varint(payload, 13)
                if at + size <= len(payload):
                    return Body(low | _UPPER[payload[7:12]], payload[12], at, at + size)
    except (IndexError, MalformedMessage):
        pass
    return _unusual_body(payload)


def _unusual_body(payload: bytes) -> Body:
    if is_payload_record(payload):
        head = fixed_head(payload)
        tag = DDL if head.kind == relay_payload.DDL else DML
        return Body(head.commit_ts, tag, head.body, len(payload))
    commit_ts = at = 0
    try:
        while at < len(payload):
            tag, value, at = field_head(payload, at)
            if tag == 0x10:
                commit_ts = value
            elif tag in _TAGS and commit_ts:
                if at + value > len(payload):
                    break
                return Body(commit_ts, tag, at, at + value)
            elif tag & 7 == LENGTH:
                at += value
    except MalformedMessage:
        pass
    raise _foreign(payload)


def _foreign(payload: bytes) -> Corruption:
    return Corruption(
        f"a record of {len(payload)} bytes is neither of an archive nor of a relay log",
        hint="its checksum is right, so it was written like this: is the directory one of a drainer?",
    )


def kind_of(payload: bytes) -> str:
    """`pb` or `relay`. Both may have rows in field 3 and a DDL in field 4; what is in them differs."""
    if is_payload_record(payload):
        return RELAY
    rows = body(payload)
    if rows.tag == DDL:
        return _kind_of_ddl(payload[rows.start : rows.stop])
    at = rows.start
    try:
        while at < rows.stop:
            _, size, at = field_head(payload, at)
            stop = at + size
            while at < stop:
                tag, value, at = field_head(payload, at)
                if tag >> 3 >= 3:
                    return PB if tag == _EVENT_KIND else RELAY
                at += value
    except MalformedMessage:
        raise _foreign(payload) from None
    return PB


def _kind_of_ddl(data: bytes) -> str:
    """A relay log has a message with the names of database and table first, an archive just a text."""
    try:
        message = secondary_binlog_pb2.DDLData.FromString(data)
    except DecodeError:
        return PB
    return RELAY if message.HasField("schema_name") and message.HasField("ddl_query") else PB


# -- counting --------------------------------------------------------------------------------------------


def pb_head(payload: bytes, pos: int, counts: Counts | None = None) -> PayloadHead:
    """Of a record of an archive; with `counts` its rows are added there. Raises `Corruption`."""
    commit_ts, tag, at, stop = body(payload)
    if tag == DDL:
        return PayloadHead(commit_ts, pos, len(payload), True, 0)
    rows = 0
    name, counted = (b"", list[int]()) if counts is None else counts.last
    try:
        while at < stop:
            size = payload[at + 1]
            if size < 128:
                inner = at + 2
            elif (more := payload[at + 2]) < 128:
                size += (more << 7) - 128
                inner = at + 3
            else:
                size, inner = varint(payload, at + 1)
            if payload[at] != _FIRST:
                raise MalformedMessage
            at = inner + size
            rows += 1
            if counts is None:
                continue
            if not name or not payload.startswith(name, inner):
                name, counted = counts.last = _counted(payload, inner, counts)
            counted[payload[inner + len(name)]] += 1
    except (IndexError, MalformedMessage):
        raise _foreign(payload) from None
    if at != stop:
        raise _foreign(payload)
    return PayloadHead(commit_ts, pos, len(payload), False, rows)


def _counted(payload: bytes, at: int, counts: Counts) -> tuple[bytes, list[int]]:
    """How an event begins, up to its kind, and the counts of its table by kind."""
    kind = _after_names(payload, at)
    if payload[kind] != _EVENT_KIND:
        raise MalformedMessage
    return payload[at : kind + 1], counts.setdefault(payload[at:kind], [0, 0, 0])


def _after_names(payload: bytes, at: int) -> int:
    """Offset of what follows fields 1 and 2."""
    for tag in (_FIRST, _SECOND):
        if payload[at] != tag:
            raise MalformedMessage
        size, at = varint(payload, at + 1)
        at += size
    return at


def relay_head(payload: bytes, pos: int, counts: Counts | None = None) -> PayloadHead:
    """Of a record of a relay log. Rows as a pump sent them are not counted by table."""
    if is_payload_record(payload):
        head = fixed_head(payload)
        is_ddl = head.kind == relay_payload.DDL
        return PayloadHead(head.commit_ts, pos, len(payload), is_ddl, head.rows)
    commit_ts, tag, at, stop = body(payload)
    if tag == DDL:
        return PayloadHead(commit_ts, pos, len(payload), True, 0)
    rows = 0
    try:
        while at < stop:
            _, size, at = field_head(payload, at)
            rows += _count_table(payload, at, at + size, Counts() if counts is None else counts)
            at += size
    except (IndexError, MalformedMessage):
        raise _foreign(payload) from None
    return PayloadHead(commit_ts, pos, len(payload), False, rows)


def _count_table(payload: bytes, at: int, stop: int, counts: Counts) -> int:
    end = _after_names(payload, at)
    counted = counts.setdefault(payload[at:end], [0, 0, 0])
    at, rows = end, 0
    while at < stop:
        tag, value, at = field_head(payload, at)
        if tag == _MUTATION:
            kind, number, _ = field_head(payload, at)
            if kind != 0x08 or number >= _KINDS:
                raise MalformedMessage
            counted[number] += 1
            rows += 1
        if tag & 7 == LENGTH:
            at += value
    return rows


def table_name(name: bytes) -> tuple[str, str]:
    """(database, table) of a key of `Counts`."""
    size, at = varint(name, 1)
    schema = name[at : at + size]
    size, end = varint(name, at + size + 1)
    return schema.decode("utf-8", "replace"), name[end : end + size].decode("utf-8", "replace")


HEADS: Final[dict[str, Callable[[bytes, int, Counts | None], PayloadHead]]] = {PB: pb_head, RELAY: relay_head}

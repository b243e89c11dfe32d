"""Binlog payloads: the bytes that a database hands to a Pump and a Pump hands to a Drainer.

A payload is a serialized `binlog.Binlog` (proto2, `proto/tidb_binlog/wire/binlog.proto`). Writers in the
field set `tp`, `start_ts`, `commit_ts`, `ddl_job_id` and `ddl_schema_state` always, zeros included, in field
order; `canonical` brings any decodable payload into that form, so that stored bytes are the same whoever
wrote them. Delivery joins a prewrite with its commit: `tp`, timestamps and key of the commit, everything
from field 5 on of the prewrite. Both halves are slices of stored bytes; nothing is encoded again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from tidb_binlog.errors import Corruption, Rejected
from tidb_binlog.protobuf_fields import MalformedMessage, Read, fields, varint
from tidb_binlog.table_info import SchemaState
from tidb_binlog.tso import Ts
from tidb_binlog.wire import binlog_pb2

PREWRITE = 0
COMMIT = 1
ROLLBACK = 2
SETTLED_ROLLBACK = -1
"""In memory: a rollback that a pump has asked for and stored as such (`settled`)."""

# Fields 1 to 3 of a payload, skipped in one step: each is a tag and a varint.
_LEADING_VARINTS = re.compile(rb"(?:[\x08\x10\x18][\x80-\xff]*[\x00-\x7f]){0,3}", re.DOTALL)

# Varints as short as they can be, up to 63 bits.
_VARINT = rb"(?:[\x00-\x7f]|[\x80-\xff]{1,8}[\x01-\x7f])"
_CANONICAL_START = re.compile(rb"\x08[\x00-\x04]\x10" + _VARINT + rb"\x18" + _VARINT, re.DOTALL)
_MORE_OF_LENGTH = re.compile(rb"[\x80-\xff]{0,3}[\x01-\x7f]", re.DOTALL)
# Field 8 is an int32: what is larger would be cut.
_CANONICAL_END = re.compile(
    rb"\x38" + _VARINT + rb"\x40(?:[\x00-\x7f]|[\x80-\xff]{1,3}[\x01-\x7f])", re.DOTALL
)
_USUAL_END = b"\x38\x00\x40\x00"

SEQUENCE_VALUE = b"select setval"
"""How the query of a DDL binlog without a job begins, in lower case: a sequence has a new value."""


KEY_BYTES_MAX = 1 << 14
"""Of a prewrite's key: TiKV takes none above 8 KiB unless it is told to, and TiDB makes none above this."""


class Header(NamedTuple):
    """What storage and sorting need to know of a payload."""

    tp: int
    start_ts: Ts
    commit_ts: Ts

    @property
    def is_fake(self) -> bool:
        """A time mark written by an idle Pump: it only says that nothing at or below it will come."""
        return self.start_ts == self.commit_ts and self.start_ts > 0

    @property
    def index_ts(self) -> Ts:
        """Timestamp under which the Pump's index files the record: start_ts of a prewrite, else commit_ts."""
        return self.start_ts if self.tp == PREWRITE else self.commit_ts


Head = tuple[int, int, int]
"""A `Header`, or its three numbers alone where thousands are made at once."""


def canonical_header(payload: bytes) -> Header | None:
    """Header of a payload that is in canonical form already, without a copy of it; None if it is not.

    The form is: fields 1 to 3, then 4, 5 and 6 where present, then 7 and 8 to the end, nothing else, every
    varint as short as it can be. All writers in the field produce it.
    """
    leading = _CANONICAL_START.match(payload)
    if leading is None:
        return None
    at, end = leading.end(), len(payload)
    for tag in (0x22, 0x2A, 0x32):
        if at + 1 < end and payload[at] == tag:
            size = payload[at + 1]
            at += 2
            if size >= 0x80:
                varint = _MORE_OF_LENGTH.match(payload, at)
                if varint is None:
                    return None
                shift = 7
                size &= 0x7F
                for octet in varint[0]:
                    size |= (octet & 0x7F) << shift
                    shift += 7
                at = varint.end()
            at += size
    if payload[at:] != _USUAL_END and not _CANONICAL_END.fullmatch(payload, min(at, end)):
        return None
    return header(binlog_pb2.Binlog.FromString(leading[0]))


def parse(payload: bytes) -> binlog_pb2.Binlog:
    """Decode a payload; `Rejected` if it is not a Binlog."""
    try:
        return binlog_pb2.Binlog.FromString(payload)
    except DecodeError as error:
        raise Rejected(f"payload of {len(payload)} bytes is not a Binlog: {error}") from None


def header(message: binlog_pb2.Binlog) -> Header:
    return Header(message.tp, message.start_ts, message.commit_ts)


def leading_header(begin: bytes) -> Header:
    """Header of a stored payload of which only the beginning is at hand."""
    leading = _LEADING_VARINTS.match(begin)
    return header(parse(leading[0] if leading else b""))


def canonical(message: binlog_pb2.Binlog) -> bytes:
    """Serialize what a client sent with every always-present field present, and `settled` never: what a pump
    has asked for is not a client's to say."""
    has = message.HasField
    message.ClearField("settled")
    if not (
        has("tp") and has("start_ts") and has("commit_ts") and has("ddl_job_id") and has("ddl_schema_state")
    ):
        for name in ("tp", "start_ts", "commit_ts", "ddl_job_id", "ddl_schema_state"):
            setattr(message, name, getattr(message, name))
    return message.SerializeToString()


def prewrite(start_ts: Ts, prewrite_key: bytes, prewrite_value: bytes) -> bytes:
    """Payload of a row transaction's prewrite; `prewrite_value` is a serialized PrewriteValue."""
    message = binlog_pb2.Binlog(
        tp=binlog_pb2.Prewrite,
        start_ts=start_ts,
        commit_ts=0,
        prewrite_key=prewrite_key,
        prewrite_value=prewrite_value,
        ddl_job_id=0,
        ddl_schema_state=0,
    )
    return message.SerializeToString()


def prewrite_ddl(
    start_ts: Ts, prewrite_key: bytes, query: str, job_id: int, schema_state: int = SchemaState.PUBLIC
) -> bytes:
    """Payload of a DDL's prewrite."""
    message = binlog_pb2.Binlog(
        tp=binlog_pb2.Prewrite,
        start_ts=start_ts,
        commit_ts=0,
        prewrite_key=prewrite_key,
        ddl_query=query.encode(),
        ddl_job_id=job_id,
        ddl_schema_state=schema_state,
    )
    return message.SerializeToString()


def commit(start_ts: Ts, commit_ts: Ts, prewrite_key: bytes = b"") -> bytes:
    """Payload that ends a transaction as committed. A Pump that asked the store writes it without a key."""
    return _end(COMMIT, start_ts, commit_ts, prewrite_key)


def rollback(start_ts: Ts, prewrite_key: bytes = b"") -> bytes:
    """Payload with which a client ends a transaction as rolled back."""
    return _end(ROLLBACK, start_ts, 0, prewrite_key)


SETTLED = b"\x78\x01"
"""How the payload of a rollback ends that a pump has asked for."""


def settled_rollback(start_ts: Ts) -> bytes:
    """Payload with which a pump ends a transaction that the store says is rolled back."""
    return rollback(start_ts) + SETTLED


def fake(ts: Ts) -> bytes:
    """Time mark of an idle Pump: a rollback whose two timestamps are equal."""
    return _end(ROLLBACK, ts, ts, b"")


def _end(tp: int, start_ts: Ts, commit_ts: Ts, prewrite_key: bytes) -> bytes:
    message = binlog_pb2.Binlog(
        tp=tp,  # type: ignore[arg-type]
        start_ts=start_ts,
        commit_ts=commit_ts,
        prewrite_key=prewrite_key or None,
        ddl_job_id=0,
        ddl_schema_state=0,
    )
    return message.SerializeToString()


def _field_boundary(payload: bytes, first: int) -> int:
    """Offset of the first field whose number is at least `first` (above 3); fields are in ascending order."""
    leading = _LEADING_VARINTS.match(payload)
    at, end = leading.end() if leading else 0, len(payload)
    if at + 2 < end and payload[at] == 0x22 and payload[at + 1] < 0x80 and first == 5:
        at += 2 + payload[at + 1]  # field 4 as it usually is
    while at < end:
        start = at
        tag = payload[at]
        at += 1
        if tag >= 0x80:  # unknown field with a number above 15: after all of ours
            return start
        if tag >> 3 >= first:
            return start
        wire = tag & 7
        length = shift = 0
        while True:
            if at >= end:
                raise Corruption("Binlog payload ends inside a field")
            byte = payload[at]
            at += 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        if wire == 2:
            at += length
        elif wire != 0:
            raise Corruption(f"Binlog payload has a field of wire type {wire}")
    if at > end:
        raise Corruption("Binlog payload ends inside a field")
    return at


def key_bytes(payload: bytes) -> int:
    """About how long the key of a canonical payload is, never less; 0 without one, or with an empty one."""
    leading = _LEADING_VARINTS.match(payload)
    size = _field_boundary(payload, 5) - (leading.end() if leading else 0)
    return size if size > len(b"\x22\x00") else 0


def keys_fit(payloads: Sequence[bytes], heads: Sequence[Head], *, needed: bool) -> bool:
    """Whether each prewrite among canonical payloads has a key of `KEY_BYTES_MAX` at most, and one where it
    is `needed`."""
    if not needed and max(map(len, payloads), default=0) <= KEY_BYTES_MAX:
        return True  # whatever is in them
    for payload, (tp, start_ts, commit_ts) in zip(payloads, heads, strict=True):
        short = len(payload) <= KEY_BYTES_MAX
        if tp != PREWRITE or (short and not needed):
            continue
        if short and start_ts >= NINE_OCTETS and not commit_ts:
            if payload[14] != 0x22 or not payload[15]:
                return False
        elif (size := key_bytes(payload)) > KEY_BYTES_MAX or (needed and not size):
            return False
    return True


def contents_offset(begin: bytes) -> int:
    """Where what two copies of one transaction have in common begins: field 5 and everything after it.

    `begin`: a payload, or as much of it as holds fields 1 to 4. Raises `Corruption` if that is not a Binlog.
    """
    return _field_boundary(begin, 5)


def join(prewrite_payload: bytes, commit_payload: bytes) -> bytes:
    """The Binlog that a Drainer gets: the commit's fields 1 to 4, the prewrite's from 5 on."""
    return b"".join(halves(prewrite_payload, commit_payload))


_LARGE_BYTES = 1 << 16
NINE_OCTETS = 1 << 56
"""From here on a timestamp takes nine octets as a varint, as all of the years since 1978 do."""


def halves(
    prewrite_payload: bytes, commit_payload: bytes, *, nine_octets: bool = False
) -> tuple[bytes, bytes | memoryview]:
    """What `join` puts together. The second half of a large transaction is a view: nothing is copied.

    `nine_octets`: both are canonical, and both timestamps are known to be at least `NINE_OCTETS`; then field
    4, which is next to always a short key, begins at a known place.
    """
    tail: bytes | memoryview
    if (
        nine_octets
        and 16 < len(prewrite_payload) < _LARGE_BYTES
        and len(commit_payload) > 24
        and prewrite_payload[14] == commit_payload[22] == 0x22
    ):
        boundary, end = 16 + prewrite_payload[15], 24 + commit_payload[23]
        one_octet_lengths = boundary < 0x90 and end < 0x98
        if one_octet_lengths and boundary < len(prewrite_payload) and end < len(commit_payload):
            return commit_payload[:end], prewrite_payload[boundary:]
    boundary = _field_boundary(prewrite_payload, 5)
    if len(prewrite_payload) < _LARGE_BYTES:
        tail = prewrite_payload[boundary:]
    else:
        tail = memoryview(prewrite_payload)[boundary:]
    return commit_payload[: _field_boundary(commit_payload, 5)], tail


NO_TABLE: Final = 0
"""The id of none: who chooses it alone gets DDL."""

_PREWRITE_VALUE, _QUERY, _JOB_ID = 0x2A, 0x32, 0x38
_MUTATION, _TABLE_ID = 0x12, 0x08
_SMALL_BYTES: Final = 16 << 10


def touches(tables: Set[int], payload: bytes | memoryview) -> bool:
    """Whether a joined binlog, or its fields from 5 on, has rows of one of these tables. True for a DDL, too,
    and for what cannot be read: who decodes it says why."""
    if len(payload) > _SMALL_BYTES:
        return touches_stored(tables, lambda at, size: bytes(payload[at : at + size]), 0, len(payload))
    try:
        message = binlog_pb2.Binlog.FromString(bytes(payload))
        if message.ddl_job_id or message.ddl_query:
            return True
        mutations = binlog_pb2.PrewriteValue.FromString(message.prewrite_value).mutations
    except DecodeError:
        return True
    return any(mutation.table_id in tables for mutation in mutations)


def touches_stored(tables: Set[int], read: Read, start: int, stop: int) -> bool:
    """As `touches`, of one of any size: rows are stepped over, not read."""
    try:
        for tag, value, at in fields(read, start, stop):
            if tag == _PREWRITE_VALUE:
                for inner, size, begin in fields(read, at, at + value):
                    if inner == _MUTATION and _table_id(read, begin, size) in tables:
                        return True
            elif tag == _QUERY or (tag == _JOB_ID and value):
                return True
    except MalformedMessage:
        return True
    return False


def _table_id(read: Read, begin: int, size: int) -> int:
    """The first one of a mutation. An encoder writes one; another one may stand behind any rows."""
    head = read(begin, min(size, 11))
    if head[:1] == b"\x08":  # where all writers put it
        number = varint(head, 1)[0]
    else:
        numbers = (value for tag, value, _ in fields(read, begin, begin + size) if tag == _TABLE_ID)
        number = next(numbers, NO_TABLE)
    return number - (1 << 64) if number >> 63 else number

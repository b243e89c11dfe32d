"""Write request: what is inside a `WriteBinlogReq` or a `WriteBinlogsReq`, and which form of it is stored.

    WriteBinlogReq    08 clusterID | 12 length payload         nothing else, as every known writer encodes it
    WriteBinlogsReq   08 clusterID | (12 length payload)*

Out    cluster id, payloads in the form in which they are stored, a `Head` of each
Why    a payload that comes in the stored form is kept as it came. Whether it does is asked of the parser for
       a whole message at once: what it reads and writes again is the same octets, or is parsed one by one
Holds  both ways give the same payloads and heads for the same octets
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Final

from google.protobuf.message import DecodeError, EncodeError

from tidb_binlog import binlog
from tidb_binlog.binlog import Head
from tidb_binlog.errors import Rejected
from tidb_binlog.protobuf_fields import MalformedMessage, varint
from tidb_binlog.wire import pump_pb2, stored_binlog_pb2

PAYLOADS_MAX: Final = 1 << 14
"""Of one message: what they cost to parse while all other calls wait."""
WALK_BYTES_MIN: Final = 1 << 20  # from here on a message's payloads are cut out of it one by one
_LARGE_BYTES: Final = 1 << 15  # a payload from here on: copies cost more than parsing
_MEAN_BYTES_MAX: Final = 1 << 13  # payloads larger than this on average: likewise

_StoredBinlog: Final = stored_binlog_pb2.StoredBinlog
_StoredBinlogs: Final = stored_binlog_pb2.StoredBinlogs
_FRONTS_BYTES_MAX: Final = 1 << 12  # of requests whose front is kept
_head_of = attrgetter("tp", "start_ts", "commit_ts")
_is_settled = attrgetter("settled")
# Where this does not occur, no payload has two timestamps of zero.
_PROBE_OCTETS: Final = b"\x10\x00\x18\x00"


class WriteRequests:
    """Reads the requests of one cluster's writers."""

    def __init__(self, cluster_id: int) -> None:
        self._usual = pump_pb2.WriteBinlogReq(clusterID=cluster_id).SerializeToString() + b"\x12"
        self._cluster_id = cluster_id
        self._fronts: dict[int, bytes] = {}  # by size of a small request: all octets before its payload

    def read(self, data: bytes | memoryview) -> tuple[int, bytes]:
        """(cluster id, payload) of a `WriteBinlogReq`. Raises `Rejected`."""
        front = self._fronts.get(len(data))
        if front is None:
            front = self._front(len(data))
        if data[: len(front)] == front:
            payload = data[len(front) :]
            return self._cluster_id, payload if isinstance(payload, bytes) else bytes(payload)
        try:
            request = pump_pb2.WriteBinlogReq.FromString(bytes(data))
        except DecodeError as error:
            raise Rejected(f"request cannot be decoded: {error}") from None
        return request.clusterID, request.payload

    def read_stored(self, requests: Sequence[bytes]) -> tuple[list[bytes], list[Head]] | None:
        """Payloads and heads of usual requests that all hold payloads in the stored form; None if one is
        unusual or does not."""
        before = len(self._usual) - 1
        # Without its cluster id, a request is a field of a `StoredBinlogs`: one is made of all of them.
        joined = b"".join([request[before:] for request in requests])
        read = _read_stored(joined)
        if read is None or len(read.payloads) != len(requests):
            return None
        payloads: list[bytes] = []
        for data in requests:
            front = self._fronts.get(len(data)) or self._front(len(data))
            if not data.startswith(front):
                return None
            payloads.append(data[len(front) :])
        return payloads, list(map(_head_of, read.payloads))

    def _front(self, size: int) -> bytes:
        """What stands before the payload in a usual request of `size` octets."""
        rest = size - len(self._usual)
        octets = next(octets for octets in range(1, 10) if rest - octets < 1 << 7 * octets)
        length = max(rest - octets, 0)
        front = self._usual + bytes(
            length >> 7 * at & 0x7F | (0x80 if at < octets - 1 else 0) for at in range(octets)
        )
        if size < _FRONTS_BYTES_MAX:
            self._fronts[size] = front
        return front


def stored_form(payload: bytes) -> tuple[bytes, Head]:
    """A payload as it is stored, and its head. `Rejected` if it is not a Binlog."""
    if len(payload) >= _LARGE_BYTES:
        header = binlog.canonical_header(payload)
        if header is not None:
            return payload, header
    try:
        read = _StoredBinlog.FromString(payload)
        if read.SerializeToString() == payload and not read.settled:
            return payload, _head_of(read)
    except (DecodeError, EncodeError):  # a field that is always stored is missing, or it is no Binlog
        pass
    message = binlog.parse(payload)
    return binlog.canonical(message), binlog.header(message)


def read_many(data: bytes | memoryview) -> tuple[int, list[bytes]]:
    """(cluster id, payloads as they came) of a `WriteBinlogsReq`. Raises `Rejected`."""
    if len(data) >= WALK_BYTES_MIN:
        return _walk(memoryview(data))
    try:
        request = pump_pb2.WriteBinlogsReq.FromString(bytes(data))
    except DecodeError as error:
        raise Rejected(f"request cannot be decoded: {error}") from None
    if len(request.payloads) > PAYLOADS_MAX:
        raise _too_many()
    return request.cluster_id, list(request.payloads)


def heads_if_all_stored(data: bytes | memoryview, count: int) -> list[Head] | None:
    """Heads of the `count` payloads of a `WriteBinlogsReq` if all came in the stored form; None if one did
    not, if one may be a probe, or if parsing each costs less."""
    if len(data) > _MEAN_BYTES_MAX * count or len(data) >= WALK_BYTES_MIN:
        return None
    data = bytes(data)
    if _PROBE_OCTETS in data:
        return None
    read = _read_stored(data)
    return None if read is None else list(map(_head_of, read.payloads))


def _read_stored(data: bytes) -> stored_binlog_pb2.StoredBinlogs | None:
    """What `data` holds if all of it is in the stored form."""
    try:
        read = _StoredBinlogs.FromString(data)
        if read.SerializeToString() != data or any(map(_is_settled, read.payloads)):
            return None
    except (DecodeError, EncodeError):
        return None
    return read


def _too_many() -> Rejected:
    return Rejected(f"request holds more than {PAYLOADS_MAX} payloads", hint="send smaller messages")


def _walk(data: memoryview) -> tuple[int, list[bytes]]:
    """`read_many` without the parser, which would copy a large message once more and believe any count."""
    try:
        return _fields_of(data)
    except MalformedMessage:
        raise Rejected("request cannot be decoded: a number does not end") from None


def _fields_of(data: memoryview) -> tuple[int, list[bytes]]:
    cluster_id, at, end = 0, 0, len(data)
    payloads: list[bytes] = []
    while at < end:
        tag, at = varint(data, at)
        wire, number = tag & 7, tag >> 3
        if not 0 < number < 1 << 29:
            raise Rejected(f"request cannot be decoded: field number {number}")
        value = 0
        if wire == 0:
            value, at = varint(data, at)
        elif wire == 2:
            value, at = varint(data, at)
            at += value
        elif wire in (1, 5):
            at += 8 if wire == 1 else 4
        else:
            raise Rejected(f"request cannot be decoded: wire type {wire}")
        if at > end:
            raise Rejected("request cannot be decoded: it ends inside a field")
        if tag == 0x08:
            cluster_id = value & 0xFFFF_FFFF_FFFF_FFFF
        elif tag == 0x12:
            if len(payloads) == PAYLOADS_MAX:
                raise _too_many()
            payloads.append(bytes(data[at - value : at]))
    return cluster_id, payloads

"""Write request: what is inside a `WriteBinlogReq`, found without a parser where it has the usual form.

    08 clusterID | 12 length payload          nothing else, as every known writer encodes it

Why    the parser makes a message, and each question to it a new object; here a write costs one slice
"""

from __future__ import annotations

from google.protobuf.message import DecodeError

from common.errors import Rejected
from common.wire import pump_pb2

_LENGTH_OCTETS_MAX = 5


class WriteRequests:
    """Reads the requests of one cluster's writers."""

    def __init__(self, cluster_id: int) -> None:
        self._usual = pump_pb2.WriteBinlogReq(clusterID=cluster_id).SerializeToString() + b"\x12"
        self._cluster_id = cluster_id

    def read(self, data: bytes | memoryview) -> tuple[int, bytes]:
        """(cluster id, payload). Raises `Rejected`."""
        at = len(self._usual)
        if data[:at] == self._usual:
            size = shift = 0
            for octet in data[at : at + _LENGTH_OCTETS_MAX]:
                at += 1
                size |= (octet & 0x7F) << shift
                if octet < 0x80:
                    if at + size == len(data):
                        payload = data[at:]
                        return self._cluster_id, payload if isinstance(payload, bytes) else bytes(payload)
                    break
                shift += 7
        try:
            request = pump_pb2.WriteBinlogReq.FromString(bytes(data))
        except DecodeError as error:
            raise Rejected(f"request cannot be decoded: {error}") from None
        return request.clusterID, request.payload

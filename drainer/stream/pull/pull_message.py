"""Pull message: what one message of a pump becomes.

In     payloads of a message, their timestamps where the pump tells them, its watermark
Out    entries of the merged stream, which of them are DDL, the watermark that time marks and message give
Why    a binlog of which the pump gave the commit_ts is read only as far as needed to know a DDL:
       it is decoded once, by the translator

Tests  tests/drainer/stream/pull/test_pump_source.py
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from google.protobuf.message import DecodeError

from drainer.stream.pull.merged import Merged
from tidb_binlog.errors import Corruption
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.tso import Ts
from tidb_binlog.wire import binlog_pb2

_NO_DDL: Final = b"\x38\x00\x40\x00"  # how a stored payload ends unless it is a DDL: no job, no state
_new_tuple = tuple.__new__  # a NamedTuple's own constructor is a Python function


class Undecodable(Corruption):
    """What a pump sent, or the rows in it, is no message of the protocol."""


@dataclass(frozen=True, slots=True)
class DdlMark:
    """Among the payloads just decoded, one of a DDL. `query` is its beginning, in lower case."""

    commit_ts: Ts
    job_id: int
    schema_state: int
    query: bytes


@dataclass(frozen=True, slots=True)
class Arrival:
    """What one message of a pump holds. `watermark` 0: none; `size`: payload bytes of the entries in memory;
    `mark_bytes`: size of time marks left out."""

    entries: list[Merged]
    watermark: int
    ddl: list[DdlMark]
    size: int = 0
    mark_bytes: int = 0


def arrival(
    payloads: Sequence[bytes], watermark: int, node_id: str, stamps: Sequence[int] | None = None
) -> Arrival:
    """Payloads of a message; a time mark raises the watermark. `stamps`: the commit_ts of each, where the
    pump tells it; there are no time marks among them then. Raises `Undecodable`."""
    if stamps is None or len(stamps) != len(payloads):
        return _decoded(payloads, watermark, node_id)
    none = (None, None)
    entries = [_new_tuple(Merged, pair + none) for pair in zip(stamps, payloads, strict=True)]
    ddl = []
    for number, payload in enumerate(payloads):
        if not payload.endswith(_NO_DDL):
            message = _decode(payload, node_id, entries[:number])
            if message.ddl_job_id:
                ddl.append(_mark(message))
    return Arrival(entries, watermark, ddl, sum(map(len, payloads)))


def _decoded(payloads: Sequence[bytes], watermark: int, node_id: str) -> Arrival:
    entries: list[Merged] = []
    ddl: list[DdlMark] = []
    size = mark_bytes = 0
    for payload in payloads:
        message = _decode(payload, node_id, entries)
        commit_ts = message.commit_ts
        if commit_ts == message.start_ts and commit_ts > 0:
            watermark = max(watermark, commit_ts)
            mark_bytes += len(payload)
            continue
        entries.append(Merged(commit_ts, payload))
        size += len(payload)
        if message.ddl_job_id:
            ddl.append(_mark(message))
    return Arrival(entries, watermark, ddl, size, mark_bytes)


def _decode(payload: bytes, node_id: str, before: Sequence[Merged]) -> binlog_pb2.Binlog:
    try:
        return binlog_pb2.Binlog.FromString(payload)
    except DecodeError as error:
        last = before[-1].commit_ts if before else None
        where = f"after commit_ts {last}" if last else "as the first of a message"
        raise Undecodable(
            f"pump {node_id} sent {len(payload)} bytes {where} that are not a binlog: {error}",
            hint=f"`binlogctl -cmd pumps` shows where {node_id} is; check its data directory",
        ) from None


def _mark(message: binlog_pb2.Binlog) -> DdlMark:
    begin = message.ddl_query[:64].lstrip().lower()
    return DdlMark(message.commit_ts, message.ddl_job_id, message.ddl_schema_state, begin)

"""Key errors: what TiKV says when a request fails on a key, for other reasons than a lock.

Out    an error of ours, whose class says whether to ask again
Never  shows a key: it may hold column values
Tests  tests/common/upstream/tidb/tikv/test_snapshot.py
"""

from __future__ import annotations

from tidb_binlog.errors import BinlogError, Rejected, Unavailable
from tidb_binlog.wire import kvrpcpb_pb2

_API_VERSION = ("apiversion", "api version", "api_version", "invalidkeymode", "keyspace")
_COLLECTED = ("gc life time", "gc safe point", "gc_safe_point", "gcsafepoint", "safe point", "safepoint")


class Collected(Rejected):
    """What stood at that time has been collected as garbage."""


def problem_of(error: kvrpcpb_pb2.KeyError) -> BinlogError:
    """`Unavailable`: ask again. `Collected`, `Rejected`: no repetition helps."""
    if error.retryable:
        return Unavailable(f"TiKV asks for a repetition: {error.retryable}")
    kind = next((field.name for field, _ in error.ListFields() if field.name != "abort"), "")
    return refusal(error.abort or kind or "an error that is not known here")


def refusal(text: str) -> Rejected:
    """What a plain text of TiKV says."""
    lower = text.lower()
    if any(word in lower for word in _API_VERSION):
        return Rejected(
            f"TiKV serves keyspaces (API version 2), which are not supported: {text}",
            hint="TiDB with binlog needs TiKV with storage.api-version = 1",
        )
    if any(word in lower for word in _COLLECTED):
        return Collected(
            f"what is asked for has been collected: {text}",
            hint="raise tidb_gc_life_time, or begin at a later time",
        )
    return Rejected(f"TiKV refuses: {text}")

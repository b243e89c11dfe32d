"""Methods: what services offer, by path, with what was counted of their calls.

Tests  tests/common/rpc/test_rpc.py
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any, Final

from tidb_binlog.net.permission import Permission
from tidb_binlog.rpc.service import Service, Take

BUCKETS_S: Final = tuple(2.5e-5 * 4**power for power in range(12))
"""Upper bounds of call durations, 25 microseconds to 105 seconds."""


class MethodKind(IntEnum):
    INLINE = 0
    UNARY = 1
    SERVER_STREAM = 2
    CLIENT_STREAM = 3
    BIDI = 4


class Method:
    """One method. Plain integers are counted, and read when metrics are scraped."""

    __slots__ = (
        "buckets",
        "failed",
        "handler",
        "kind",
        "path",
        "permission",
        "seconds",
        "started",
        "succeeded",
        "take",
    )

    def __init__(
        self,
        path: str,
        kind: MethodKind,
        handler: Callable[[Any], Any],
        take: Take | None = None,
        permission: Permission = Permission.ADMIN,
    ) -> None:
        self.permission = permission
        self.path = path
        self.kind = kind
        self.handler = handler
        self.take = take
        self.started = 0
        self.succeeded = 0
        self.failed: dict[int, int] = {}
        self.buckets = [0] * (len(BUCKETS_S) + 1)
        self.seconds = 0.0

    def become(self, other: Method) -> None:
        """Serve what `other` serves, in calls of connections that know this one already."""
        self.kind, self.handler, self.take = other.kind, other.handler, other.take
        self.permission = other.permission

    def add(self, other: Method) -> None:
        """Count what `other` has counted, too."""
        self.started += other.started
        self.succeeded += other.succeeded
        for code, count in other.failed.items():
            self.failed[code] = self.failed.get(code, 0) + count
        self.buckets = [mine + more for mine, more in zip(self.buckets, other.buckets, strict=True)]
        self.seconds += other.seconds

    def succeed(self, seconds: float, calls: int = 1) -> None:
        """Count calls that took so long each and ended well."""
        self.succeeded += calls
        self.seconds += seconds * calls
        self.buckets[bisect_left(BUCKETS_S, seconds)] += calls

    def ended(self, code: int, seconds: float) -> None:
        """Count a call that took so long and ended with this status."""
        if not code:
            self.succeed(seconds)
            return
        self.failed[code] = self.failed.get(code, 0) + 1
        self.seconds += seconds
        self.buckets[bisect_left(BUCKETS_S, seconds)] += 1


def methods_of(services: Iterable[Service]) -> dict[bytes, Method]:
    """By the path that a call names."""
    table: dict[bytes, Method] = {}
    for service in services:
        for kind, handlers in (
            (MethodKind.INLINE, service.inline),
            (MethodKind.UNARY, service.unary),
            (MethodKind.SERVER_STREAM, service.server_streams),
            (MethodKind.CLIENT_STREAM, service.client_streams),
            (MethodKind.BIDI, service.bidi_streams),
        ):
            for name, handler in handlers.items():
                path = f"/{service.name}/{name}"
                assert path.encode() not in table, f"{path} is registered twice"
                take = service.taken.get(name) if kind is MethodKind.INLINE else None
                permission = service.permissions.get(name, Permission.ADMIN)
                table[path.encode()] = Method(path, kind, handler, take, permission)
    return table

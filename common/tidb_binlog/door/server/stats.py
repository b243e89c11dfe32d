"""Stats: what the doors of this process did, as plain integers that metrics read when scraped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from tidb_binlog.door.calls.methods import BUCKETS_S, Method
from tidb_binlog.observe import metrics


class Stats:
    """Counters of all doors of a process, as its metrics are."""

    def __init__(self) -> None:
        self.methods: dict[str, list[Method]] = {}
        self.connections: dict[str, int] = {"http2": 0, "http1": 0, "new": 0}
        self.accepted = 0
        self.received_bytes = 0
        self.sent_bytes = 0
        self.refused: dict[str, int] = {}
        self.handshakes_failed = 0
        self.plain_requests = 0

    def refuse(self, limit: str) -> None:
        self.refused[limit] = self.refused.get(limit, 0) + 1

    def count(self, methods: Iterable[Method]) -> None:
        """Show these methods; their counts stay when their door is closed."""
        for method in methods:
            self.methods.setdefault(method.path, []).append(method)

    def retire(self, methods: Iterable[Method]) -> None:
        """Their door is closed: what they counted stays, and nothing of what they served."""
        for method in methods:
            doors = self.methods[method.path]
            past = next((door for door in doors if door.handler is _gone), None)
            if past is None:
                doors.append(past := Method(method.path, method.kind, _gone))
            past.add(method)
            doors.remove(method)

    def each(self) -> Iterator[tuple[str, Method]]:
        """Each path once, with the counts of all doors that serve it: a series is scraped once."""
        for path, (first, *others) in self.methods.items():
            if not others:
                yield path, first
                continue
            total = Method(path, first.kind, first.handler)
            for method in (first, *others):
                total.add(method)
            yield path, total


def _gone(_: Any) -> None:
    """The handler of a method whose doors are closed: nobody can call it."""


STATS: Final = Stats()


def _calls() -> Iterator[tuple[tuple[str, ...], float]]:
    for path, method in STATS.each():
        yield (path, "0"), method.succeeded
        for code, count in method.failed.items():
            yield (path, str(code)), count


def _running() -> Iterator[tuple[tuple[str, ...], float]]:
    for path, method in STATS.each():
        yield (path,), method.started - method.succeeded - sum(method.failed.values())


def _seconds() -> Iterator[tuple[tuple[str, ...], list[int], float]]:
    for path, method in STATS.each():
        yield (path,), method.buckets, method.seconds


metrics.computed_counter(
    "binlog_common_door_calls_total",
    "gRPC calls that ended, by method and status code",
    ("method", "code"),
    _calls,
)
metrics.computed_gauge("binlog_common_door_running_calls_count", "gRPC calls that run", ("method",), _running)
metrics.computed_histogram(
    "binlog_common_door_call_seconds",
    "Time of a gRPC call, streams included",
    ("method",),
    BUCKETS_S,
    _seconds,
)
metrics.computed_gauge(
    "binlog_common_door_connections_count",
    "Open connections by protocol",
    ("protocol",),
    lambda: (((protocol,), count) for protocol, count in STATS.connections.items()),
)
metrics.computed_counter(
    "binlog_common_door_accepted_total", "Connections accepted", (), lambda: (((), STATS.accepted),)
)
metrics.computed_counter(
    "binlog_common_door_received_bytes_total", "Octets received", (), lambda: (((), STATS.received_bytes),)
)
metrics.computed_counter(
    "binlog_common_door_sent_bytes_total", "Octets sent", (), lambda: (((), STATS.sent_bytes),)
)
metrics.computed_counter(
    "binlog_common_door_refused_total",
    "Connections, streams and requests that a limit ended, by limit",
    ("limit",),
    lambda: (((limit,), count) for limit, count in STATS.refused.items()),
)
metrics.computed_counter(
    "binlog_common_door_failed_handshakes_total",
    "TLS handshakes that failed, and certificates that were refused",
    (),
    lambda: (((), STATS.handshakes_failed),),
)
metrics.computed_counter(
    "binlog_common_door_http_requests_total", "Plain HTTP requests", (), lambda: (((), STATS.plain_requests),)
)

"""Build of the sinks that write JSON: to standard output, and to a URL.

Tests  tests/integration/sinks/test_json_sinks.py
"""

from __future__ import annotations

from typing import Any

from drainer.app.build import BuildContext
from drainer.app.build_batch import build_batch
from drainer.app.savepoint_start import rehearse_without_position
from drainer.config.options import DrainerConfig
from drainer.sink.batch.batched_sink import BatchedSink
from drainer.sink.messages.http_sink import Endpoint, HttpSink
from drainer.sink.messages.json_items import JsonItems
from drainer.sink.messages.stdout_sink import StdoutSink
from drainer.sink.runner import Runner
from drainer.stream.translate.translator import Translator
from tidb_binlog.clock import SystemClock
from tidb_binlog.net.tls import ClientTls


async def build(context: BuildContext) -> Runner[BatchedSink]:
    settings = context.settings
    items = JsonItems()

    def follow(translator: Translator) -> None:
        items.route = translator.route

    sink = _sink_of(settings, context.upstream.cluster_id)
    return await build_batch(context, sink, settings.db_type, items, follow)


def _sink_of(settings: DrainerConfig, cluster_id: int) -> Any:
    if settings.db_type == "stdout":
        return StdoutSink()
    return HttpSink(
        endpoint_of(settings),
        SystemClock(),
        cluster_id=cluster_id,
        batch_rows=settings.batch_rows,
        batch_bytes=settings.batch_bytes,
    )


def endpoint_of(settings: DrainerConfig) -> Endpoint:
    """Raises `ConfigError`."""
    scheme, host, port, target = settings.http_server
    paths = settings.downstream_tls
    return Endpoint(
        scheme,
        host,
        port,
        target,
        settings.http_timeout_s,
        settings.http_headers,
        settings.http_secret,
        ClientTls(paths, use="downstream") if paths else None,
    )


async def rehearse(settings: DrainerConfig, cluster_id: int) -> None:
    """See `Builder`."""
    rehearse_without_position(settings)
    if settings.db_type == "http":
        endpoint_of(settings)

"""What the doors of a process counted: each series once, however many doors serve a method."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tidb_binlog import rpc
from tidb_binlog.door.calls.methods import Method, MethodKind
from tidb_binlog.door.server.listener import serve
from tidb_binlog.door.server.stats import STATS
from tidb_binlog.observe import metrics
from tidb_binlog.rpc import Service

PATH = "/test.Stats/Twice"


@pytest.fixture
def doors() -> Iterator[tuple[Method, Method]]:
    one, other = (Method(PATH, MethodKind.UNARY, lambda request: request) for _ in range(2))
    STATS.count([one])
    STATS.count([other])
    yield one, other
    del STATS.methods[PATH]


def test_doors_with_the_same_method_are_one_series(doors: tuple[Method, Method]) -> None:
    for method, code in zip((*doors, *doors), (0, 0, 5, 5), strict=True):
        method.started += 1
        method.ended(code, 0.5)
    doors[0].started += 1
    body, _ = metrics.answer("application/openmetrics-text")
    seen = {
        (sample.name, sample.labels.get("code")): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
        if sample.labels.get("method") == PATH and "le" not in sample.labels
    }
    assert seen == {
        ("binlog_common_door_calls_total", "0"): 2,
        ("binlog_common_door_calls_total", "5"): 2,
        ("binlog_common_door_running_calls_count", None): 1,
        ("binlog_common_door_call_seconds_count", None): 4,
        ("binlog_common_door_call_seconds_sum", None): 2,
    }


async def test_doors_that_came_and_went_are_counted_and_nothing_of_them_is_kept() -> None:
    """As named readers of a program are: each has a door for as long as it is open."""

    class Reader:
        async def notify(self, request: bytes) -> bytes:
            return request

    path, gone = "/test.Stats/Notify", []
    try:
        for at in range(1, 21):
            reader = Reader()
            gone.append(weakref.ref(reader))
            services = [Service("test.Stats", unary={"Notify": reader.notify})]
            server = await serve(services, None, "127.0.0.1", 0)
            client = rpc.Client(f"127.0.0.1:{server.port}")
            assert await client.unary(path, b"x", 5.0) == b"x"
            await client.close()
            await server.stop(0.0)
            del reader, services, server
            gc.collect()
            assert not [one for one in gone if one() is not None]
            assert len(STATS.methods[path]) == 1
            assert {name: method.succeeded for name, method in STATS.each()}[path] == at
    finally:
        del STATS.methods[path]

"""Pushes of metrics to a real HTTP server that plays the Pushgateway."""

from __future__ import annotations

import asyncio
import gc
import itertools
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

import pytest

from tests.waiting import PATIENCE_S, until
from tidb_binlog.observe import log, metrics, metrics_push

_number = itertools.count()


class Gateway(ThreadingHTTPServer):
    """Keeps what it got; answers with `status`, or not before `answer` is set."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = 200
        self.answer = threading.Event()
        self.answer.set()
        self.got: list[tuple[str, str, str, bytes]] = []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Gateway

    def _take(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((self.command, self.path, self.headers["Content-Type"], body))
        self.server.answer.wait(PATIENCE_S)
        with suppress(OSError):
            self.send_response(self.server.status)
            self.end_headers()

    do_POST = do_PUT = _take

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def gateway() -> Iterator[Gateway]:
    server = Gateway()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.answer.set()
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


@contextmanager
def pushing(
    address: str, instance: str = "p1:8250", interval_s: float = 0.02
) -> Iterator[asyncio.Task[None]]:
    task = asyncio.get_running_loop().create_task(metrics_push.run(address, instance, interval_s))
    try:
        yield task
    finally:
        task.cancel()


def failures() -> float:
    (family,) = metrics_push.FAILURES.collect()
    return float(next(sample.value for sample in family.samples if sample.name.endswith("_total")))


async def test_what_a_scrape_shows_is_added_under_job_and_instance() -> None:
    old = f"binlog_test_push{next(_number)}_lost_count"
    metrics.counter(old, "An old name without _total.").inc(3)
    with gateway() as server, pushing(server.address):
        await until(lambda: len(server.got) >= 2)
    method, path, content_type, body = server.got[0]
    assert method == "POST"  # adds: metrics of others under the same key stay
    assert unquote(path) == "/metrics/job/binlog/instance/p1:8250"
    assert content_type.startswith("text/plain")
    assert f"# TYPE {old} counter\n{old} 3.0\n".encode() in body
    assert b"process_resident_memory_bytes" in body


async def test_a_node_id_with_a_slash_stays_one_name() -> None:
    with gateway() as server, pushing("http://" + server.address, "rack1/pump"):
        await until(lambda: len(server.got) >= 1)
    assert server.got[0][1] == "/metrics/job/binlog/instance@base64/cmFjazEvcHVtcA=="


async def test_failures_are_told_once_and_counted_and_the_end_of_them_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = failures()
    with gateway() as server, pushing(server.address), caplog.at_level("INFO"):
        server.status = 500
        await until(lambda: len(server.got) >= 4)
        server.status = 200
        count = len(server.got)
        await until(lambda: len(server.got) >= count + 3)
        assert failures() - before >= 3
        assert caplog.text.count("metrics cannot be pushed") == 1
        assert caplog.text.count("metrics are pushed again") == 1


async def test_nobody_there_is_a_failure_and_no_more() -> None:
    before = failures()
    for address in ("127.0.0.1:1", "http://[bad"):
        with pushing(address) as task:
            await until(lambda: failures() != before)  # noqa: B023
            assert not task.done()
        before = failures()


async def test_a_gateway_that_hangs_does_not_hold_the_loop_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_push, "DEADLINE_S", 2.0)  # in which a busy machine, too, turns the loop
    before = failures()
    with gateway() as server, pushing(server.address):
        server.answer.clear()
        await until(lambda: len(server.got) >= 1)
        turns = 0
        async with asyncio.timeout(PATIENCE_S):
            while failures() == before:
                await asyncio.sleep(0)
                turns += 1
        assert turns > 30  # the loop went on all the time
        assert len(server.got) <= 2  # and nothing piled up


@pytest.mark.parametrize(("address", "interval_s"), [("", 1.0), ("127.0.0.1:1", 0.0)])
async def test_without_a_gateway_or_an_interval_nothing_is_pushed(address: str, interval_s: float) -> None:
    async with asyncio.timeout(PATIENCE_S):
        await metrics_push.run(address, "p1", interval_s)


@pytest.mark.parametrize("address", ["u:c4n4ry@gw", "u:c4n4ry@127.0.0.1:1", "http://u:c4n4ry@gw"])
async def test_a_password_in_the_address_is_in_no_line(
    address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(gateway: str, *_: object) -> None:
        raise ValueError(f"nonnumeric port: '{gateway.partition(':')[2]}'")  # as http.client quotes it

    monkeypatch.setattr(metrics, "push", fail)
    before = failures()
    log.setup()
    with pushing(address):
        await until(lambda: failures() != before)
    text = capsys.readouterr().out
    assert "metrics cannot be pushed" in text
    assert "c4n4ry" not in text


def test_a_gateway_that_refuses_leaves_no_connection_open() -> None:
    gc.collect()
    with gateway() as server, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        server.status = 500
        with pytest.raises(OSError, match="500") as refused:
            metrics.push(server.address, "p1", b"", 5.0)
        circle: list[object] = [refused.value]  # as a thread's error and its future are one
        circle.append(circle)
        del circle, refused
        gc.collect()
    assert not [one.message for one in told if issubclass(one.category, ResourceWarning)]

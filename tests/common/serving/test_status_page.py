"""Status page at the door: to whom it answers, what it asks of the registry, and what it says with it."""

from __future__ import annotations

import asyncio
import http.client
import logging
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests import certificates
from tests.common.serving.status_scene import UP, Scene, ScriptedRegistry
from tests.fakes import virtual_time
from tests.waiting import PATIENCE_S
from tidb_binlog.clock import SystemClock
from tidb_binlog.door.server.listener import serve
from tidb_binlog.errors import Unavailable
from tidb_binlog.net.tls import TlsConfig
from tidb_binlog.observe import log
from tidb_binlog.page.status_page import HEADERS
from tidb_binlog.serving import status_page
from tidb_binlog.serving.status_page import FRESH_S, REGISTRY_S, free_bytes
from tidb_binlog.status.history import EVERY_S
from tidb_binlog.status.pump import PumpDocument, PumpStatus, StagesStatus, StageStatus


def test_anyone_may_look_and_nobody_can_do_anything_else() -> None:
    async def main() -> None:
        scene = Scene()
        found = await scene.ask()
        assert (found.status, found.content_type) == (200, "text/html; charset=utf-8")
        assert found.headers == HEADERS
        assert (await scene.ask("HEAD")).status == 200
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
            refused = await scene.ask(method)
            assert (refused.status, refused.body, refused.headers) == (405, b"", ())
        assert (await scene.ask("POST", origin="http://evil.example")).status == 403
        assert (await scene.ask(target="/?x=<script>")).body == found.body

    virtual_time.run(main())


def test_before_the_node_is_up_it_says_what_is_waited_for() -> None:
    async def main() -> None:
        scene = Scene(registry=None, document=None)
        found = await scene.ask()
        assert (found.status, found.headers) == (503, HEADERS)
        text = await scene.text()
        assert "Starting" in text
        assert "The registry cannot be read: it is not reached yet" in text
        scene.starting.waits("waits: etcd does not answer")
        assert "Starting: waits: etcd does not answer" in await scene.text()
        scene.document = UP
        assert (await scene.ask()).status == 200

    virtual_time.run(main())


def test_a_node_whose_registry_is_away_still_shows_its_own_facts() -> None:
    async def main() -> None:
        away = Scene(registry=ScriptedRegistry(error=Unavailable("etcd does not answer")))
        assert "The registry cannot be read: etcd does not answer" in await away.text()
        assert "Takes binlogs" in await away.text()
        silent = Scene(registry=ScriptedRegistry(answer_s=1e6))
        began_s = silent.clock.monotonic_s()
        assert f"it does not answer within {REGISTRY_S:g} s" in await silent.text()
        assert "Takes binlogs" in await silent.text()
        assert silent.clock.monotonic_s() - began_s == REGISTRY_S

    virtual_time.run(main())


def test_the_registry_is_asked_once_a_second_however_many_look() -> None:
    async def main() -> None:
        registry = ScriptedRegistry(answer_s=0.5)
        scene = Scene(registry=registry)
        texts = await asyncio.gather(*(scene.text() for _ in range(100)))
        assert registry.asked == 1
        assert all("p2" in text for text in texts)
        await virtual_time.passes(FRESH_S)
        await scene.ask()
        assert registry.asked == 2

    virtual_time.run(main())


def test_the_last_hour_is_on_it_once_there_is_something_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def left(directory: str) -> int | None:
        assert directory == "/data"
        return 3 << 30

    monkeypatch.setattr(status_page, "free_bytes", left)

    async def main() -> None:
        scene = Scene()
        assert "Last hour" not in await scene.text()
        watching = asyncio.create_task(scene.page.watch("/data"))
        await virtual_time.passes(1)
        assert "Binlogs stored a secondunknown" in await scene.text()
        assert "at least 3.0 GiB" in await scene.text()
        stored = StagesStatus(written=StageStatus(records=100))
        scene.document = PumpDocument(pump=PumpStatus(stages=stored))
        await virtual_time.passes(EVERY_S)
        stored.written.records = 300
        await virtual_time.passes(EVERY_S)
        assert "Binlogs stored a second20" in await scene.text()
        watching.cancel()

    virtual_time.run(main())


async def test_a_file_system_that_is_not_there_has_nothing_to_say(tmp_path: Path) -> None:
    assert (await free_bytes(str(tmp_path)) or 0) > 0
    assert await free_bytes(str(tmp_path / "none")) is None


@pytest.fixture
def logged() -> Iterator[None]:
    level = log.root().level
    log.root().setLevel(logging.INFO)
    yield
    log.root().setLevel(level)


@pytest.mark.usefixtures("logged")
def test_events_are_on_it() -> None:
    async def main() -> None:
        scene = Scene()
        with scene.recorder:
            log.get("scene").info("pump joins", pump="<b>p9</b>", config="unseen")
        text = await scene.text()
        assert "pump joinspump: <b>p9</b>" in text
        assert "unseen" not in text

    virtual_time.run(main())


# -- over TLS ------------------------------------------------------------------------------------------------


@asynccontextmanager
async def behind_tls(tls: TlsConfig) -> AsyncIterator[int]:
    scene = Scene(clock=SystemClock())
    server = await serve([], scene.routes, "127.0.0.1", 0, tls=tls.server_tls())
    try:
        yield server.port
    finally:
        await server.stop(0.1)


def fetched(port: int, path: str, ca: str, leaf: TlsConfig | None) -> tuple[int, dict[str, str]] | str:
    """Status and headers, or that there was no answer."""
    context = ssl.create_default_context(cafile=ca)
    if leaf is not None:
        context.load_cert_chain(leaf.cert, leaf.key)
    connection = http.client.HTTPSConnection("localhost", port, timeout=PATIENCE_S, context=context)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        response.read()
        return response.status, {name.lower(): value for name, value in response.getheaders()}
    except (ssl.SSLError, OSError, http.client.HTTPException):
        return "refused"
    finally:
        connection.close()


async def test_over_mutual_tls_it_answers_whom_status_answers(tmp_path: Path) -> None:
    ca, stranger_ca = certificates.authority(), certificates.authority("other")
    made = {
        "node": certificates.leaf("node", ca=ca),
        "other name": certificates.leaf("other name", ca=ca),
        "stranger": certificates.leaf("node", ca=stranger_ca),
    }
    leaves: dict[str, TlsConfig | None] = {
        name: certificates.write(tmp_path / name, ca=[ca], node=leaf) for name, leaf in made.items()
    }
    node = leaves["node"]
    assert node is not None
    async with behind_tls(TlsConfig(node.ca, node.cert, node.key, ("node",))) as port:
        for name, leaf in {**leaves, "nobody": None}.items():
            page = await asyncio.to_thread(fetched, port, "/", node.ca, leaf)
            status = await asyncio.to_thread(fetched, port, "/status", node.ca, leaf)
            if name == "node":
                assert isinstance(page, tuple)
                assert page[0] == 200
                assert {name: page[1].get(name) for name, _ in HEADERS} == dict(HEADERS)
                assert status[0] == 503  # of this scene
            else:
                assert page == status == "refused", name

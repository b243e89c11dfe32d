"""Pause and rate: what they hold, what they let go, and how they are asked for."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from drainer.config.options import DrainerConfig
from drainer.operate.control.http import add_control_routes
from drainer.operate.control.pause_and_reload import Control, add_rate, rate_of
from drainer.operate.control.rate_limit import Limits
from tests.waiting import PATIENCE_S
from tidb_binlog.clock import SystemClock
from tidb_binlog.door.http.routes import Guard, Peer, Request, Response, Routes
from tidb_binlog.serving.reload import Reload
from tidb_binlog.status.codec import plain


async def is_held(waiting: asyncio.Task[None]) -> bool:
    for _ in range(20):
        await asyncio.sleep(0)
    return not waiting.done()


async def test_nothing_is_held_by_default() -> None:
    control = Control(SystemClock())
    assert not control.holds
    await control.admit(10**9, 10**9)
    assert plain(control.facts()) == {"paused": False, "rate_rows": 0, "rate_bytes": 0, "waited_s": 0.0}


async def test_pause_holds_until_resume() -> None:
    control = Control(SystemClock())
    control.pause()
    assert control.holds
    assert control.paused
    waiting = asyncio.create_task(control.admit(1, 1))
    assert await is_held(waiting)
    control.change_rate(Limits(10, 0))
    assert await is_held(waiting), "another rate does not end a pause"
    control.change_rate(Limits())
    control.resume()
    await asyncio.wait_for(waiting, PATIENCE_S)
    assert not control.holds


async def test_a_stop_lets_go_of_everything_for_good() -> None:
    control = Control(SystemClock(), Limits(rows=1))
    control.pause()
    waiting = asyncio.create_task(control.admit(1000, 1000))
    assert await is_held(waiting)
    control.let_go()
    await asyncio.wait_for(waiting, PATIENCE_S)
    control.pause()
    control.change_rate(Limits(rows=1))
    await asyncio.wait_for(control.admit(10**6, 1), PATIENCE_S)


async def test_the_rate_holds_and_the_wait_is_counted() -> None:
    control = Control(SystemClock(), Limits(rows=1000))
    await control.admit(300, 0)  # the burst, and 50 rows on credit
    assert control.limited
    await asyncio.wait_for(control.admit(1, 0), PATIENCE_S)
    assert control.waiting_s >= 0.04
    control.change_rate(Limits(rows=1))
    await control.admit(5, 0)
    waiting = asyncio.create_task(control.admit(1, 0))
    assert await is_held(waiting)
    control.change_rate(Limits())
    await asyncio.wait_for(waiting, PATIENCE_S)


# -- reload ---------------------------------------------------------------------------------------------


class Living:
    """A drainer's file, and its reload."""

    def __init__(self) -> None:
        self.file = DrainerConfig()
        self.reload = Reload(self.file, lambda: self.file, SystemClock())


async def test_the_rate_is_live() -> None:
    control, living = Control(SystemClock()), Living()
    add_rate(living.reload, control)
    living.file = replace(living.file, rate_rows=5)
    assert (await living.reload.run()).keys == ["syncer.rate-rows"]
    assert control.limits == Limits(5, 0) == rate_of(living.file)


# -- over HTTP --------------------------------------------------------------------------------------------


class AskedFrom(Guard):
    """Lets everybody in, or nobody."""

    def __init__(self, allowed: bool) -> None:
        self._allowed = allowed

    def refusal(self, request: Request) -> Response | None:
        return None if self._allowed else Response(403, b"not from there\n")


async def ask(routes: Routes, method: str, target: str, *, allowed: bool = True) -> tuple[int, object]:
    response = await routes.answer(request_of(method, target), AskedFrom(allowed))
    try:
        return response.status, json.loads(response.body)
    except ValueError:
        return response.status, response.body


def request_of(method: str, target: str) -> Request:
    return Request(method, target, "127.0.0.1:1", None, Peer("127.0.0.1"))


@pytest.fixture
def served() -> tuple[Routes, Control, Living]:
    routes, control, living = Routes(), Control(SystemClock()), Living()
    add_control_routes(routes, control, living.reload.run, lambda: {"syncer.to.password": "******"})
    return routes, control, living


async def test_routes_change_what_they_say(served: tuple[Routes, Control, Living]) -> None:
    routes, control, living = served
    status, body = await ask(routes, "PUT", "/apply/pause")
    assert (status, body["data"]["paused"]) == (200, True)  # type: ignore[index]
    assert control.paused
    await ask(routes, "PUT", "/apply/resume")
    assert not control.paused
    status, _ = await ask(routes, "PUT", "/apply/rate?rows=100&bytes=1%20MiB")
    assert (status, control.limits) == (200, Limits(100, 1 << 20))
    await ask(routes, "PUT", "/apply/rate?rows=0")
    assert control.limits == Limits(0, 1 << 20), "what is not named stays"
    for query in ("", "?rows=-1", "?rows=many", "?bytes=lots"):
        status, _ = await ask(routes, "PUT", f"/apply/rate{query}")
        assert status == 400, query
    assert control.limits == Limits(0, 1 << 20)
    living.file = replace(living.file, ignore_schemas="x")
    status, body = await ask(routes, "PUT", "/reload")
    answer = {"changed": ["syncer.ignore-schemas"], "needs_restart": []}
    assert (status, body["data"]) == (200, answer)  # type: ignore[index]
    living.file = replace(living.file, pd_urls="http://b:1")
    status, body = await ask(routes, "PUT", "/reload")
    assert (status, body["data"]) == (200, {"changed": [], "needs_restart": ["pd-urls"]})  # type: ignore[index]
    assert (await ask(routes, "GET", "/config"))[1] == {"syncer.to.password": "******"}


async def test_none_of_them_is_for_everybody(served: tuple[Routes, Control, Living]) -> None:
    routes, control, _ = served
    for method, target in (
        ("PUT", "/apply/pause"),
        ("PUT", "/apply/resume"),
        ("PUT", "/apply/rate?rows=1"),
        ("PUT", "/reload"),
        ("GET", "/config"),
    ):
        assert (await ask(routes, method, target, allowed=False))[0] == 403, target
    assert not control.paused
    assert control.limits.unlimited

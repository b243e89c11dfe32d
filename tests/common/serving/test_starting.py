"""Starting: who is away is waited for and named, until `start-wait` is over."""

from __future__ import annotations

import json

import pytest

from tests.fakes import virtual_time
from tests.fakes.virtual_time import LoopClock
from tidb_binlog.door.http.admin_guard import AdminGuard
from tidb_binlog.door.http.routes import Peer, Request, Response, Routes, json_response
from tidb_binlog.errors import Corruption, Unavailable
from tidb_binlog.serving.starting import Starting


class Peers:
    """Away until a moment on the loop's clock."""

    def __init__(self, until_s: float) -> None:
        self.until_s, self.asked = until_s, 0

    async def __call__(self) -> str:
        self.asked += 1
        if LoopClock().monotonic_s() < self.until_s:
            raise Unavailable("TiKV does not answer")
        return "there"


async def _status(routes: Routes) -> tuple[int, dict[str, str]]:
    found = await routes.answer(Request("GET", "/status", "h", None, Peer("127.0.0.1")), AdminGuard())
    return found.status, json.loads(found.body)


def test_one_who_leaves_in_the_middle_is_waited_for_as_long_as_start_wait_says() -> None:
    async def main() -> None:
        told: list[str] = []
        starting, routes = Starting(600.0, LoopClock(), told.append), Routes()
        starting.add_status(routes)
        assert (await _status(routes))[1]["State"] == "starting"
        seen: list[dict[str, str]] = []

        async def looked() -> str:
            try:
                return await peers()
            finally:
                seen.append((await _status(routes))[1])

        for until_s in (300.0, 590.0):
            peers = Peers(until_s)
            assert await starting.wait_for(looked) == "there"
            assert until_s <= LoopClock().monotonic_s() < until_s + 3
            assert peers.asked < 300
        assert seen[5]["WaitsFor"] == "waits: TiKV does not answer"
        assert (await _status(routes))[1]["WaitsFor"] == ""
        assert told == ["starting: waits: TiKV does not answer"] * 2
        with pytest.raises(Unavailable):
            await starting.wait_for(Peers(1000.0))
        assert LoopClock().monotonic_s() == 600.0
        starting.begin_again()
        assert await starting.wait_for(Peers(1000.0)) == "there"

    virtual_time.run(main())


def test_what_will_not_come_by_itself_is_not_waited_for() -> None:
    async def main() -> None:
        async def broken() -> None:
            raise Corruption("the checkpoint cannot be read")

        with pytest.raises(Corruption):
            await Starting(600.0, LoopClock(), lambda _: None).wait_for(broken)
        assert LoopClock().monotonic_s() == 0.0

    virtual_time.run(main())


async def test_the_nodes_own_status_takes_the_place() -> None:
    routes = Routes()
    Starting(1.0, LoopClock(), lambda _: None).add_status(routes)
    assert (await _status(routes))[0] == 503
    routes.add("GET", "/status", lambda _: _answer())
    assert await _status(routes) == (200, {"State": "online"})


async def _answer() -> Response:
    return json_response({"State": "online"})

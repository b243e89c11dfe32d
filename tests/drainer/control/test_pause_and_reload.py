"""Pause, rate and reload: what they hold, what they let go, and that a reload is whole or nothing."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from dataclasses import replace

import pytest

from common.clock import SystemClock
from common.door.http.routes import Guard, Peer, Request, Response, Routes
from common.errors import ConfigError, Rejected
from common.observe import log
from common.status.codec import plain
from drainer.config.options import DrainerConfig
from drainer.control.http import add_control_routes
from drainer.control.pause_and_reload import Control, Reload, add_own, changed_fields, rate_of
from drainer.control.rate_limit import Limits


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
    await asyncio.wait_for(waiting, 5)
    assert not control.holds


async def test_a_stop_lets_go_of_everything_for_good() -> None:
    control = Control(SystemClock(), Limits(rows=1))
    control.pause()
    waiting = asyncio.create_task(control.admit(1000, 1000))
    assert await is_held(waiting)
    control.let_go()
    await asyncio.wait_for(waiting, 5)
    control.pause()
    control.change_rate(Limits(rows=1))
    await asyncio.wait_for(control.admit(10**6, 1), 5)


async def test_the_rate_holds_and_the_wait_is_counted() -> None:
    control = Control(SystemClock(), Limits(rows=1000))
    await control.admit(300, 0)  # the burst, and 50 rows on credit
    assert control.limited
    await asyncio.wait_for(control.admit(1, 0), 5)
    assert control.waiting_s >= 0.04
    control.change_rate(Limits(rows=1))
    await control.admit(5, 0)
    waiting = asyncio.create_task(control.admit(1, 0))
    assert await is_held(waiting)
    control.change_rate(Limits())
    await asyncio.wait_for(waiting, 5)


# -- reload ---------------------------------------------------------------------------------------------


class Living:
    """A drainer's live options, and what was put in place of them."""

    def __init__(self) -> None:
        self.file = DrainerConfig()
        self.placed: list[str] = []
        self.reload = Reload(self.file, lambda: self.file)
        self.reload.add(["ignore_schemas"], self.prepare("filter"))
        self.reload.add(["txn_batch", "checkpoint_interval_s"], self.prepare("pace"))

    def prepare(self, name: str) -> Callable[[DrainerConfig], Callable[[], None]]:
        def check(fresh: DrainerConfig) -> Callable[[], None]:
            if fresh.txn_batch == 13:
                raise ConfigError("syncer.txn-batch is 13", hint="another one")
            return lambda: self.placed.append(name)

        return check


async def test_what_did_not_change_is_left_alone() -> None:
    living = Living()
    assert (await living.reload.run()).keys == []
    assert living.placed == []


async def test_live_options_take_effect_and_are_named() -> None:
    living = Living()
    living.file = replace(living.file, txn_batch=7, ignore_schemas="x")
    assert (await living.reload.run()).keys == ["syncer.ignore-schemas", "syncer.txn-batch"]
    assert living.placed == ["filter", "pace"]
    assert living.reload.settings.txn_batch == 7
    assert (await living.reload.run()).keys == [], "they are the present ones now"


async def test_what_has_a_place_in_the_stream_goes_first_and_says_where() -> None:
    living = Living()

    async def placed() -> int:
        living.placed.append("rules")
        if living.file.sync_ddl:
            return 4711
        raise Rejected("no place", hint="again")

    living.reload.add(["ignore_table", "sync_ddl"], lambda _fresh: placed, placed=True)
    living.file = replace(living.file, txn_batch=7, ignore_table=({"db-name": "d", "tbl-name": "t"},))
    found = await living.reload.run()
    assert (found.keys, found.commit_ts) == (["syncer.ignore-table", "syncer.txn-batch"], 4711)
    assert living.placed == ["rules", "pace"]
    living.file = replace(living.file, txn_batch=8, sync_ddl=False)
    with pytest.raises(Rejected, match="no place"):
        await living.reload.run()
    assert living.placed == ["rules", "pace", "rules"], "nothing else was changed"
    assert living.reload.settings.txn_batch == 7


async def test_one_option_that_needs_a_restart_refuses_all() -> None:
    living = Living()
    living.file = replace(living.file, ignore_schemas="x", pd_urls="http://b:1", worker_count=9)
    with pytest.raises(Rejected, match=r"pd-urls, syncer\.worker-count: a change of this needs a restart"):
        await living.reload.run()
    assert living.placed == []
    assert living.reload.settings.ignore_schemas != "x"


async def test_a_wrong_value_changes_nothing_not_even_what_came_before_it() -> None:
    living = Living()
    living.file = replace(living.file, ignore_schemas="x", txn_batch=13)
    with pytest.raises(ConfigError, match="txn-batch"):
        await living.reload.run()
    assert living.placed == []


async def test_a_file_that_cannot_be_read_changes_nothing() -> None:
    living = Living()

    def broken() -> DrainerConfig:
        raise ConfigError("config file is not TOML", hint="correct it")

    living.reload._read = broken
    with pytest.raises(ConfigError):
        await living.reload.run()
    assert living.placed == []


def test_changed_fields_are_told_by_their_keys() -> None:
    before = DrainerConfig()
    after = replace(before, to_password="x", cache_binlog_count=1)
    assert changed_fields(before, after) == {
        "to_password": "syncer.to.password",
        "cache_binlog_count": "cache-binlog-count",
    }


async def test_rate_and_log_level_are_live() -> None:
    control = Control(SystemClock())
    settings = DrainerConfig()
    fresh = replace(settings, rate_rows=5, log_level="error")
    reload = Reload(settings, lambda: fresh)
    add_own(reload, control)
    room = logging.getLogger("tidb_binlog")
    level = room.level
    root = logging.getLogger().level
    try:
        assert (await reload.run()).keys == ["log-level", "syncer.rate-rows"]
        assert control.limits == Limits(5, 0) == rate_of(fresh)
        assert room.level == logging.ERROR
        fresh = replace(fresh, rate_rows=6, log_level="loud")
        with pytest.raises(ConfigError, match="loud"):
            await reload.run()
        assert control.limits.rows == 5
    finally:
        log.change_level(level)
        logging.getLogger().setLevel(root)


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
    assert (status, body["data"]) == (200, {"changed": ["syncer.ignore-schemas"]})  # type: ignore[index]
    living.file = replace(living.file, pd_urls="http://b:1")
    status, body = await ask(routes, "PUT", "/reload")
    assert status == 409
    assert "pd-urls" in body["message"]  # type: ignore[index]
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

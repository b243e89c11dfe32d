"""Operations: what a drainer answers before it runs."""

from __future__ import annotations

from typing import Any

import pytest

from common.clock import SystemClock
from common.door.http.routes import Peer, Request, Routes
from common.errors import Unavailable
from common.net.http_client import Page
from common.serving.starting import Starting
from drainer.app.operations import Operating
from drainer.sink.mysql.connection import Target
from drainer.snapshot.drainer_hold import DrainerHold
from tests.drainer.support.held_life import Everybody, settings_of


async def test_a_drainer_that_starts_is_asked_again_to_hold_its_stream() -> None:
    settings, routes = settings_of(Target("127.0.0.1", 1, "u", "")), Routes()
    starting = Starting(0.0, SystemClock(), lambda text: None)
    of_nothing: Any = None
    Operating(settings, lambda: settings, of_nothing, routes, SystemClock(), None, starting)

    async def ask(address: str, path: str, _timeout_s: float) -> Page:
        request = Request("PUT", path, address, None, Peer("127.0.0.1"))
        response = await routes.answer(request, Everybody())
        return Page(response.status, response.body, 0.0, 0.0, None)

    async def locate() -> str:
        return "drainer:8249"

    with pytest.raises(Unavailable, match="no rows are applied to a database just now"):
        await DrainerHold(locate, None, SystemClock(), ask).hold(limit_s=1.0, wait_s=1.0)

"""The door's one timer: it looks at connections now and then, and in time where one of them wants it."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.fakes import virtual_time
from tests.fakes.virtual_time import LoopClock
from tidb_binlog.door.http.admin_guard import AdminGuard
from tidb_binlog.door.http.routes import Routes
from tidb_binlog.door.limits import Limits
from tidb_binlog.door.server.listener import LOOK_S, TICK_S, Server

NEVER = float("inf")


@dataclass
class Connection:
    """Knows all moments that it was told, as one with calls does."""

    moments_s: list[float] = field(default_factory=list)
    next_tick_s: float = NEVER


@dataclass(eq=False)
class Wire:
    """Notes when it is looked at."""

    connection: Connection = field(default_factory=Connection)
    looked_s: list[float] = field(default_factory=list)

    def tick(self, now_s: float) -> None:
        self.looked_s.append(now_s)
        to_come = [moment_s for moment_s in self.connection.moments_s if moment_s > now_s]
        self.connection.next_tick_s = min(to_come, default=NEVER)


def looked_at(until_s: float, *wanted: tuple[float, float]) -> list[float]:
    """When a connection is looked at that wants it, each said at the first of two moments, at the second."""
    wire: Any = Wire()

    async def live() -> None:
        server = Server(
            [], Routes(), tls=None, limits=Limits(), guard=AdminGuard(), clock=LoopClock(), budget=None
        )
        server.opened(wire)

        def want(said_s: float, moment_s: float) -> None:
            wire.connection.moments_s.append(moment_s)
            wire.connection.next_tick_s = min(wire.connection.next_tick_s, moment_s)
            if moment_s < server.next_tick_s:
                server.tick_at(moment_s, said_s)

        loop = asyncio.get_running_loop()
        with tempfile.TemporaryDirectory() as directory:
            server.listen_unix(f"{directory}/door")
        for said_s, moment_s in wanted:
            loop.call_at(said_s, want, said_s, moment_s)
        await virtual_time.passes(until_s)
        server.closed(wire)
        await server.stop(0.0)

    virtual_time.run(live())
    found: list[float] = wire.looked_s
    return found


def test_a_door_that_has_nothing_to_do_looks_twice_a_second() -> None:
    assert looked_at(10.1) == pytest.approx([LOOK_S * number for number in range(21)])


@pytest.mark.parametrize("moment_s", [3.25, 3.3, 3.43])
def test_a_deadline_is_looked_at_in_time(moment_s: float) -> None:
    found = looked_at(5.0, (3.2, moment_s))
    late_s = next(looked_s - moment_s for looked_s in found if looked_s >= moment_s)
    assert 0.0 <= late_s <= TICK_S
    assert len(found) <= 5.0 / LOOK_S + 2


def test_many_deadlines_share_their_looks() -> None:
    moments = [1.0 + number / 200 for number in range(200)]
    found = looked_at(3.0, *((moment_s - 0.3, moment_s) for moment_s in moments))
    for moment_s in moments:
        assert any(0.0 <= looked_s - moment_s <= TICK_S + 1e-9 for looked_s in found)
    assert len(found) <= 3.0 / TICK_S + 1

"""A downstream that goes back in time, in every order: commits, lost answers, sessions that move over.

Two servers. The second one takes over from any moment of the first one's past, while sessions still work on
the first one. Lanes, store and DDL each have a session of their own, which is lost and made again at any
time. Every server must at every moment have what its own positions say, each change once, and a checkpoint
that no lane is behind; and a drainer must get to the end on the server that took over.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import pytest

from drainer.checkpoint.fencing import Fence, WentBack
from drainer.mysql.rows.change import Position

LANES: Final = 2
DDL: Final = 3
CHUNKS: Final = (1, 2, 4)  # positions of each lane's changes; the DDL lies between
END: Final = CHUNKS[-1]


@dataclass(frozen=True)
class Server:
    """What is stored, and for the test what the rows are: the changes that each lane has made, in order."""

    epoch: int = 1
    lanes: tuple[int, ...] = (0,) * LANES
    writes: int = 0
    checkpoint: int = 0
    ddl: int = 0  # whether it ran
    rows: tuple[tuple[int, ...], ...] = ((),) * LANES

    def check(self) -> None:
        for lane, position in enumerate(self.lanes):
            assert self.rows[lane] == tuple(one for one in CHUNKS if one <= position), (
                "not what the lane says"
            )
            assert position <= DDL - 1 or self.ddl, "rows behind a DDL that did not run here"
            assert self.checkpoint <= position, "the checkpoint is ahead of a lane"


@dataclass(frozen=True)
class World:
    """`known` and `counted`: what was confirmed to this life. Sessions are numbers of servers, -1: none."""

    servers: tuple[Server, Server | None]
    past: tuple[Server, ...]  # of the first server
    new_at: int = 0  # where new connections lead
    epoch: int = 1
    known: tuple[int, ...] = (0,) * LANES
    counted: int = 0
    doubtful: int = -1  # a lane whose COMMIT had no answer
    sessions: tuple[int, ...] = (-1,) * (LANES + 2)
    lost: int = 0  # sessions that were lost

    def server(self, number: int) -> Server:
        found = self.servers[number]
        assert found is not None
        return found

    def put(self, number: int, server: Server) -> World:
        server.check()
        servers = (server, self.servers[1]) if number == 0 else (self.servers[0], server)
        past = self.past if number or self.servers[1] is not None else (*self.past, server)
        return replace(self, servers=servers, past=past)


STORE, DDL_ROOM = LANES, LANES + 1
# A lane moves its row from where it was left; connections, the store and DDL look at what is there.
ALL: Final = frozenset({"move", "look"})
T = TypeVar("T")


def _put(values: tuple[T, ...], at: int, value: T) -> tuple[T, ...]:
    return (*values[:at], value, *values[at + 1 :])


class Model:
    """All schedules. `guards`: of the drainer, those in force; without them it believes what it remembers."""

    def __init__(self, guards: frozenset[str] = ALL, *, lost_max: int = 2) -> None:
        self.guards = guards
        self.lost_max = lost_max
        self.states = self.ends = self.noticed = 0
        start = Server()
        self._seen: set[World] = set()
        self._open = [World((start, None), (start,))]
        while self._open:
            world = self._open.pop()
            if world not in self._seen:
                self._seen.add(world)
                self._visit(world)

    def _visit(self, world: World) -> None:
        self.states += 1
        if world.servers[1] is None:
            for past in dict.fromkeys(world.past):  # it is promoted as it was then
                self._open.append(replace(world, servers=(world.servers[0], past), new_at=1, past=()))
        if world.lost < self.lost_max:
            for room, session in enumerate(world.sessions):
                if session != world.new_at and session >= 0:
                    self._open.append(self._without(world, room))
        moved = [world.known[lane] for lane in range(LANES)]
        for lane in range(LANES):
            following = next((one for one in CHUNKS if one > moved[lane]), None)
            if following is not None and (following < DDL or min(moved) >= DDL):
                self._work(world, lane, lambda w, n, lane=lane, to=following: self._lane(w, n, lane, to))
        self._work(world, STORE, self._save)
        if min(moved) == max(moved) == DDL - 1:
            self._work(world, DDL_ROOM, self._ddl)
        at = world.server(world.new_at)
        if min(moved) == END and all(session in (-1, world.new_at) for session in world.sessions):
            self.ends += 1
            if world.sessions[STORE] == world.new_at and at.checkpoint == END:
                assert at.lanes == (END,) * LANES

    @staticmethod
    def _without(world: World, room: int) -> World:
        return replace(world, sessions=_put(world.sessions, room, -1), lost=world.lost + 1)

    def _work(self, world: World, room: int, step: Callable[[World, int], list[World]]) -> None:
        """Connect if need be, and do it; where the server is not where it was, a new life begins."""
        try:
            if world.sessions[room] < 0:
                number = world.new_at
                self._look(world, number, None if room >= LANES else room)
                world = replace(world, sessions=_put(world.sessions, room, number))
            self._open += step(world, world.sessions[room])
        except WentBack:
            self.noticed += 1
            self._open.append(self._new_life(world))

    def _look(self, world: World, number: int, lane: int | None) -> None:
        """`LaneTable.check`, `StoreGuard.check`."""
        if "look" not in self.guards:
            return
        server, owner = world.server(number), Fence(1, world.epoch)
        owner.check_epoch(server.epoch)
        if lane is None:
            owner.check_writes(world.counted, server.writes)
        for one in range(LANES) if lane is None else (lane,):
            owner.check_position(f"lane {one}", Position(world.known[one]), Position(server.lanes[one]))

    def _lane(self, world: World, number: int, lane: int, to: int) -> list[World]:
        """`Lane._attempt`: a position that the batch was to reach says that it is in, after doubt."""
        server = world.server(number)
        known = _put(world.known, lane, to)
        if world.doubtful == lane and server.lanes[lane] == to:
            return [replace(world, known=known, doubtful=-1)]
        if "move" in self.guards and (server.epoch != world.epoch or server.lanes[lane] != world.known[lane]):
            raise Fence(1, world.epoch).went_back(f"lane {lane}")
        after = replace(
            server,
            lanes=_put(server.lanes, lane, to),
            rows=_put(server.rows, lane, (*server.rows[lane], to)),
        )
        done = world.put(number, after)
        found = [replace(done, known=known, doubtful=-1 if done.doubtful == lane else done.doubtful)]
        if world.lost < self.lost_max and world.doubtful < 0:  # carried out, or not, and nobody says
            found += [replace(self._without(one, lane), doubtful=lane) for one in (world, done)]
        return found

    def _save(self, world: World, number: int) -> list[World]:
        """A checkpoint at what is resolved in memory."""
        server, resolved = world.server(number), min(world.known)
        self._look(world, number, None)
        after = replace(server, checkpoint=max(server.checkpoint, resolved), writes=server.writes + 1)
        if resolved <= server.checkpoint:
            return []
        return [replace(world.put(number, after), counted=world.counted + 1)]

    def _ddl(self, world: World, number: int) -> list[World]:
        """The intent goes by the store's session, the statement by one of its own, then all lanes are moved.

        Where an earlier life left it undone, the shape of the tables says whether it had run.
        """
        at = world.sessions[STORE] if world.sessions[STORE] >= 0 else world.new_at
        self._look(world, at, None)
        server = world.server(at)
        noted = world.put(at, replace(server, writes=server.writes + 1))
        noted = replace(noted, counted=world.counted + 1, sessions=_put(noted.sessions, STORE, at))
        self._look(noted, number, None)  # the session that runs it
        ran = noted.put(number, replace(noted.server(number), ddl=1))
        server = ran.server(at)
        after = replace(server, lanes=(DDL,) * LANES, writes=server.writes + 1, checkpoint=DDL)
        return [replace(ran.put(at, after), known=(DDL,) * LANES, counted=ran.counted + 1)]

    @staticmethod
    def _new_life(world: World) -> World:
        """`Pipeline._begin_again`: from what the server has to which new connections lead."""
        server = world.server(world.new_at)
        epoch = world.epoch + 1
        begun = world.put(world.new_at, replace(server, epoch=epoch, writes=0))
        return replace(
            begun,
            epoch=epoch,
            known=server.lanes,
            counted=0,
            doubtful=-1,
            sessions=(-1,) * (LANES + 2),
        )


def test_nothing_is_written_on_the_strength_of_another_servers_positions() -> None:
    model = Model()
    assert model.ends > 10
    assert model.noticed > 100


@pytest.mark.parametrize("missing", sorted(ALL))
def test_each_guard_is_needed(missing: str) -> None:
    with pytest.raises(AssertionError):
        Model(ALL - {missing})

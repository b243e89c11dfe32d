"""One server at a time: whichever fails and whenever, no session at another one is left or given out."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from drainer.mysql.addresses import AFTER_S, Addresses, Place
from tests.waiting import PATIENCE_S
from tidb_binlog.clock import ManualClock
from tidb_binlog.errors import DownstreamError, Unavailable

A, B, C = ("a", 1), ("b", 2), ("c", 3)


class Session:
    def __init__(self, place: Place, read_only: bool) -> None:
        self.place = place
        self.is_cut = self.is_closed = False
        self._read_only = read_only

    def is_read_only(self) -> bool:
        return self._read_only

    def cut(self) -> None:
        self.is_cut = True

    def close(self) -> None:
        self.is_closed = True


class Servers:
    """What a drainer can reach, and whom it asked."""

    def __init__(self, *up: Place, places: tuple[Place, ...] = (A, B, C)) -> None:
        self.up = set(up)
        self.replicas: set[Place] = set()
        self.refusing: set[Place] = set()
        self.asked: list[Place] = []
        self.made: list[Session] = []
        self.on_ask: Callable[[Place], None] = lambda place: None
        self.clock = ManualClock()
        self.addresses = Addresses(places, clock=self.clock)

    def open(self, place: Place) -> Session:
        self.asked.append(place)
        self.on_ask(place)
        if place in self.refusing:
            raise DownstreamError("login refused", hint="")
        if place not in self.up:
            raise Unavailable(f"{place} is away", hint="")
        self.made.append(Session(place, place in self.replicas))
        return self.made[-1]

    def session(self) -> Session:
        return self.addresses.session(self.open)

    def in_use(self) -> set[Place]:
        return {one.place for one in self.made if not one.is_cut and not one.is_closed}


def test_the_first_that_answers_is_taken_in_order() -> None:
    servers = Servers(A, B)
    assert servers.session().place == A
    assert (servers.asked, servers.addresses.place) == ([A], A)


def test_at_the_start_a_dead_first_address_is_passed_over_at_once() -> None:
    servers = Servers(C)
    assert servers.session().place == C
    assert servers.asked == [A, B, C]
    servers.up = {A, B, C}
    assert servers.session().place == C, "it stays while it answers"


def test_where_none_answers_all_are_named_and_asked_again_later() -> None:
    servers = Servers()
    servers.refusing = {B}
    with pytest.raises(Unavailable, match=r"'a', 1.* is away; login refused; .*'c', 3.* is away"):
        servers.session()
    servers.up = {B, C}
    servers.refusing = set()
    assert servers.session().place == B


def test_a_server_that_is_away_for_a_moment_is_waited_for() -> None:
    servers = Servers(A, B)
    servers.session()
    servers.up = {B}
    for _ in range(3):
        with pytest.raises(Unavailable, match="away"):
            servers.session()
        servers.clock.advance(AFTER_S / 4)
    assert B not in servers.asked
    servers.up = {A, B}
    assert servers.session().place == A
    servers.up = {B}
    servers.clock.advance(AFTER_S * 2)
    with pytest.raises(Unavailable):
        servers.session()
    assert B not in servers.asked, "it is counted from the first failure since it answered"


def test_one_that_stays_away_is_left_and_whatever_was_open_there_is_cut_first() -> None:
    servers = Servers(A, B)
    old = [servers.session(), servers.session()]
    servers.up = {B, C}
    with pytest.raises(Unavailable):
        servers.session()
    servers.clock.advance(AFTER_S)
    new = servers.session()
    assert new.place == B
    assert all(one.is_cut for one in old)
    assert servers.in_use() == {B}
    servers.up = {A}
    with pytest.raises(Unavailable):
        servers.session()
    servers.clock.advance(AFTER_S)
    assert servers.session().place == A, "after the last one comes the first"
    assert servers.in_use() == {A}


def test_a_replica_is_never_taken() -> None:
    servers = Servers(A, B, C)
    servers.replicas = {A, B}
    assert servers.session().place == C
    assert servers.in_use() == {C}
    servers.up = {A, B}
    with pytest.raises(Unavailable):
        servers.session()
    servers.clock.advance(AFTER_S)
    with pytest.raises(Unavailable, match=r"a:1 is read-only.*b:2 is read-only"):
        servers.session()
    assert servers.in_use() == {C}, "nothing at the replicas stays open"


def test_a_session_that_was_on_its_way_while_others_moved_is_not_given_out() -> None:
    servers = Servers(A, B)
    servers.session()
    results: list[str] = []

    def late(place: Place) -> None:
        """While one session is opened at A, A goes away for the others, and they move."""
        servers.on_ask = lambda place: None
        servers.up = {B}
        with pytest.raises(Unavailable):
            servers.session()
        servers.clock.advance(AFTER_S)
        results.append(servers.session().place[0])
        servers.up = {A, B}

    servers.on_ask = late
    with pytest.raises(Unavailable, match="another server by now"):
        servers.session()
    assert results == ["b"]
    assert servers.in_use() == {B}


def test_threads_that_fail_together_move_once() -> None:
    servers = Servers(A, B, C)
    servers.session()
    servers.up = {B, C}
    with pytest.raises(Unavailable):
        servers.session()
    servers.clock.advance(AFTER_S)
    together = threading.Barrier(8)
    found: list[Place] = []

    def connect() -> None:
        together.wait(PATIENCE_S)
        while True:
            try:
                found.append(servers.session().place)
                return
            except Unavailable:
                continue

    threads = [threading.Thread(target=connect) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert found == [B] * 8
    assert servers.in_use() == {B}

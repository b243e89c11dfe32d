"""Budget: whatever peers take, give, wait for and leave in the middle of, nobody has more than his share,
nobody is forgotten, and in the end everything has been given back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tidb_binlog.budget import SURE, BudgetPart, Share, Ticket

WHOLE, ADDRESS, CONNECTION = 100, 60, 30
ADDRESSES = ("a", "b", "")


class Peer:
    """A connection: what it asked for, and what it has that no ticket is for."""

    def __init__(self, part: BudgetPart, address: str) -> None:
        self.part = part
        self.address = address
        self.share = part.join(address)
        self.tickets: list[Ticket] = []
        self.queued = 0

    def ask(self, size: int, told: list[Ticket]) -> Ticket:
        ticket: Ticket

        def tell() -> None:
            told.append(ticket)

        ticket = self.part.ask(self.share, size, tell)
        self.tickets.append(ticket)
        return ticket

    def end(self) -> None:
        """It dies, whatever it is at."""
        for ticket in self.tickets:
            ticket.close()
        self.part.give(self.share, self.queued)
        self.part.leave(self.share, self.address)


class Peers(RuleBasedStateMachine):
    """Random lives of connections."""

    def __init__(self) -> None:
        super().__init__()
        self.part = BudgetPart(WHOLE, ADDRESS, CONNECTION)
        self.peers: list[Peer] = []
        self.told: list[Ticket] = []
        self.asked: list[Ticket] = []  # in order

    def any_peer(self, pick: int) -> Peer:
        return self.peers[pick % len(self.peers)]

    @rule(address=st.sampled_from(ADDRESSES))
    def connect(self, address: str) -> None:
        if len(self.peers) < 7:
            self.peers.append(Peer(self.part, address))

    @precondition(lambda self: self.peers)
    @rule(pick=st.integers(0), size=st.one_of(st.integers(1, CONNECTION), st.integers(31, 500)))
    def ask(self, pick: int, size: int) -> None:
        ticket = self.any_peer(pick).ask(size, self.told)
        self.asked.append(ticket)
        assert ticket not in self.told, "who asks sees the answer himself"

    def pick_ticket(self, pick: int, *, granted: bool) -> tuple[Peer, Ticket] | None:
        found = [
            (peer, ticket) for peer in self.peers for ticket in peer.tickets if ticket.granted == granted
        ]
        return found[pick % len(found)] if found else None

    @rule(pick=st.integers(0), granted=st.booleans())
    def close(self, pick: int, granted: bool) -> None:
        """It was sent, or who waited for it is gone."""
        if (found := self.pick_ticket(pick, granted=granted)) is not None:
            peer, ticket = found
            peer.tickets.remove(ticket)
            if ticket.alone:  # it keeps its place until what was read for it has left
                self.part.give(peer.share, peer.queued)
                peer.queued = 0
            ticket.close()
            ticket.close()

    @rule(pick=st.integers(0), size=st.integers(1, 500))
    def send(self, pick: int, size: int) -> None:
        """A part of what was asked for goes into the queue of the connection."""
        if (found := self.pick_ticket(pick, granted=True)) is not None:
            peer, ticket = found
            size = min(size, ticket.size)
            ticket.hand_over(size)
            peer.share.add(size)
            peer.queued += size

    @precondition(lambda self: self.peers)
    @rule(pick=st.integers(0), size=st.integers(1, 500))
    def sent(self, pick: int, size: int) -> None:
        peer = self.any_peer(pick)
        size = min(size, peer.queued)
        peer.queued -= size
        self.part.give(peer.share, size)

    @precondition(lambda self: self.peers)
    @rule(pick=st.integers(0))
    def end(self, pick: int) -> None:
        self.peers.pop(pick % len(self.peers)).end()

    # -- what always holds -----------------------------------------------------------------------

    def waiting(self) -> list[tuple[Peer, Ticket]]:
        by_ticket = {ticket: peer for peer in self.peers for ticket in peer.tickets if not ticket.granted}
        return [(by_ticket[ticket], ticket) for ticket in self.asked if ticket in by_ticket]

    def held(self, peers: list[Peer]) -> int:
        return sum(
            peer.queued + sum(ticket.size for ticket in peer.tickets if ticket.granted) for peer in peers
        )

    def room(self, peers: list[Peer], limit: int) -> int:
        """What more they may have; who passes alone is on top of the limit."""
        passing = self.part.passing
        mine = passing is not None and any(passing in peer.tickets for peer in peers)
        return limit + (self.alone if mine else 0) - self.held(peers)

    @property
    def alone(self) -> int:
        return self.part.passing.alone if self.part.passing is not None else 0

    def room_for_ticket(self, peers: list[Peer], limit: int) -> int:
        """What has left of the one that passes alone is room for nobody: it goes when that is closed."""
        passing = self.part.passing
        mine = passing is not None and any(passing in peer.tickets for peer in peers)
        return self.room(peers, limit) - (self.alone - passing.size if mine and passing else 0)

    def levels(self, peer: Peer) -> list[tuple[list[Peer], int]]:
        same = [other for other in self.peers if other.address == peer.address]
        found = [([peer], CONNECTION)]
        return [*found, *([(same, ADDRESS)] if peer.address else []), (self.peers, WHOLE)]

    @invariant()
    def nobody_has_more_than_his_share(self) -> None:
        assert self.part.held == self.held(self.peers)
        for peer in self.peers:
            assert peer.share.held == self.held([peer])
            for peers, limit in self.levels(peer):
                assert self.room(peers, limit) >= 0
        assert sum(ticket.alone > 0 for peer in self.peers for ticket in peer.tickets) <= 1

    @invariant()
    def nobody_is_forgotten(self) -> None:
        """Whoever waits is held up: by a limit, or by somebody before him who waits for the same share."""
        closed: list[list[Peer]] = []
        for peer, ticket in self.waiting():
            if ticket.size > CONNECTION:
                assert self.part.passing is not None
                continue
            levels = self.levels(peer)
            full = [peers for peers, limit in levels if self.room_for_ticket(peers, limit) < ticket.size]
            before = [peers for peers in closed if peer in peers]
            assert full or before, "there is room, and nobody waits for it before him"
            if full or before:
                closed.append((full or before)[0])

    @invariant()
    def the_shares_that_are_waited_for_are_known(self) -> None:
        small = any(ticket.size <= CONNECTION for _, ticket in self.waiting())
        marked = [share for peer in self.peers for share in peer.share.path() if share.has_waiter]
        assert bool(marked) == small

    def teardown(self) -> None:
        """Everybody who waits comes to his turn, if those who have something give it back."""
        for _ in range(1000):
            for peer in self.peers:
                peer.tickets, granted = (
                    [ticket for ticket in peer.tickets if not ticket.granted],
                    [ticket for ticket in peer.tickets if ticket.granted],
                )
                for ticket in granted:
                    ticket.close()
                self.part.give(peer.share, peer.queued)
                peer.queued = 0
            if not any(peer.tickets for peer in self.peers):
                break
        else:
            raise AssertionError("somebody waits for ever")
        for peer in self.peers:
            peer.end()
        assert (self.part.held, self.part.waiting, self.part._addresses) == (0, 0, {})
        assert not self.part.whole.has_waiter
        assert len(self.told) == len(set(map(id, self.told))), "told twice"


TestPeers = Peers.TestCase
TestPeers.settings = settings(max_examples=200, stateful_step_count=60)


def part() -> BudgetPart:
    return BudgetPart(WHOLE, ADDRESS, CONNECTION)


@pytest.mark.parametrize("shrinks", [False, True])
def test_what_has_left_of_the_one_that_passes_alone_is_no_room_for_others(shrinks: bool) -> None:
    one = part()
    peer = Peer(one, "a")
    peer.ask(15, [])
    small, alone = peer.ask(16, []), peer.ask(31, [])
    assert (small.granted, alone.granted) == (False, True)
    if shrinks:
        alone.shrink(30)
    else:
        alone.hand_over(1)
        peer.share.add(1)
        one.give(peer.share, 1)
    assert not small.granted
    alone.close()
    assert not small.granted
    assert peer.share.held == 15 <= CONNECTION


def test_one_address_leaves_something_to_the_others() -> None:
    one = part()
    crowd = [Peer(one, "a") for _ in range(10)]
    for peer in crowd:
        peer.ask(10, [])
    assert one.held == ADDRESS
    other = Peer(one, "b")
    assert other.ask(CONNECTION, []).granted


def test_each_of_several_addresses_leaves_something_of_what_was_free() -> None:
    whole = 10_000
    calls = BudgetPart(whole, whole * 3 // 4, times_free=3)
    for number in range(6):
        share, free = calls.join(str(number)), whole - calls.held
        at_once = share.room
        while share.room:
            share.add(1)
        assert share.held == at_once
        assert share.held == pytest.approx(free * 3 / 4, abs=1)
    assert calls.join("one more").room
    assert calls.join("").room, "this host's own"


def test_a_newcomer_has_something_though_others_took_all() -> None:
    calls = BudgetPart(100, 75, times_free=3)
    for number in range(20):
        share = calls.join(str(number))
        while share.room:
            share.add(1)
    held = calls.held
    assert held >= 100
    for address in ("one more", ""):
        share = calls.join(address)
        while share.room:
            share.add(1)
        assert share.held == SURE
    again = calls.join("one more")
    assert not again.room, "an address, not a connection"
    assert calls.held == held + 2 * SURE


def test_a_large_one_is_not_passed_for_ever() -> None:
    """Small ones come again and again; the large one waits for the whole, so they wait for it too."""
    one = BudgetPart(100, 100, 100)
    small, large = Peer(one, "a"), Peer(one, "b")
    running = [small.ask(10, []) for _ in range(10)]
    told: list[Ticket] = []
    wanted = large.ask(90, told)
    for _ in range(9):
        running.pop(0).close()
        running.append(small.ask(10, told))
    assert wanted.granted
    assert told[0] is wanted


def test_who_waits_for_his_own_share_holds_up_no_other() -> None:
    one = part()
    greedy, modest = Peer(one, "a"), Peer(one, "a")
    greedy.ask(CONNECTION, [])
    assert not greedy.ask(1, []).granted
    assert modest.ask(CONNECTION, []).granted


def test_what_is_larger_than_any_share_passes_alone_beside_the_others() -> None:
    one = part()
    first, second, third = Peer(one, "a"), Peer(one, "a"), Peer(one, "b")
    told: list[Ticket] = []
    alone = first.ask(1000, told)
    next_of_a, of_b = second.ask(1000, told), third.ask(1000, told)
    assert (alone.granted, next_of_a.granted, of_b.granted) == (True, False, False)
    assert first.ask(CONNECTION, told).granted, "it takes nobody's room, not even its own connection's"
    assert second.ask(CONNECTION, told).granted
    alone.hand_over(1000)
    first.share.add(1000)
    assert not of_b.granted, "what was read waits to be sent"
    one.give(first.share, 1000)
    alone.close()
    assert told == [of_b], "another address comes before the same one again"
    of_b.close()
    assert told == [of_b, next_of_a]


@pytest.mark.parametrize("at", ["waiting", "granted", "half sent", "told"])
def test_a_stream_may_die_at_any_point(at: str) -> None:
    one = part()
    holder, dying, next_one = Peer(one, "a"), Peer(one, "a"), Peer(one, "a")
    held = [holder.ask(30, []), Peer(one, "a").ask(30 if at in ("waiting", "told") else 1, [])]
    ticket = dying.ask(20, [])
    assert ticket.granted == (at in ("granted", "half sent"))
    told: list[Ticket] = []
    behind = next_one.ask(25, told)
    assert not behind.granted
    if at == "half sent":
        ticket.hand_over(10)
        dying.share.add(10)
        dying.queued = 10
    elif at == "told":
        held.pop().close()
        assert ticket.granted
    dying.end()
    for other in held:
        other.close()
    assert behind.granted
    behind.close()
    assert one.held == 0


@given(st.lists(st.integers(1, 40), min_size=1, max_size=30), st.data())
def test_everything_that_is_asked_for_comes_in_turn(sizes: list[int], data: Any) -> None:
    """One connection alone: its tickets are granted in the order of asking, large and small each."""
    one = part()
    peer = Peer(one, "a")
    told: list[Ticket] = []
    tickets = [peer.ask(size, told) for size in sizes]
    granted = [ticket for ticket in tickets if ticket.granted]
    while len(granted) < len(tickets):
        open_ones = [ticket for ticket in granted if ticket.granted]
        open_ones[data.draw(st.integers(0, len(open_ones) - 1))].close()
        granted += told
        told.clear()
    for large in (False, True):
        order = [tickets.index(ticket) for ticket in granted if (sizes[tickets.index(ticket)] > 30) == large]
        assert order == sorted(order)


def test_a_share_tells_the_narrowest_that_is_full() -> None:
    whole = Share(10)
    own = Share(5, whole)
    own.add(5)
    assert (own.full(), own.full(1), whole.full(5), whole.full(6)) == (None, own, None, whole)
    assert (own.room, whole.room, own.most) == (0, 5, 5)


def test_other_limits_count_at_once_and_forget_nobody() -> None:
    """Of the whole and of its addresses; what waits may go, and what is too large now goes alone."""
    part = BudgetPart(WHOLE, ADDRESS, 50)
    told: list[Ticket] = []
    one, two = Peer(part, "a"), Peer(part, "b")
    held = [one.ask(50, told), two.ask(50, told)]
    waits = two.ask(40, told)
    assert [ticket.granted for ticket in (*held, waits)] == [True, True, False]
    part.change(200, 120, 50)
    assert (waits.granted, told) == (False, []), "its connection keeps what it had"
    third = Peer(part, "b")
    assert third.ask(50, told).granted
    assert third.share.above is two.share.above
    held[1].close()
    assert waits.granted
    large = one.ask(45, told)
    assert not large.granted
    part.change(30, 30, 30)
    assert large.granted, "alone, since it could never have so much any more"
    for peer in (one, two, third):
        peer.end()
    assert part.held == part.waiting == 0
    assert Peer(part, "b").share.limit == 30

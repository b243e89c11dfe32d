"""Budget: what peers make this process hold, one part of it: octets, or anything else that is counted.

A part is a tree of shares: the whole, each address in it, each connection of an address. What a connection
holds is held by its address and by the whole, too.

In     `ask` (before something is read or made), `add` and `give` (what could not be asked for beforehand)
Out    tickets, and a call when they are granted
Holds  a share has no more tickets than its limit allows. Tickets are granted in order: none passes another
       that waits for the same share, but one that is held up by its own share holds up no other. What is
       larger than a share could ever have passes alone, one at a time, on top of everything; of those that
       wait for that, another address comes first
       Where `times_free` bounds addresses, one that takes what it gets leaves a part of what was free, and
       each has SURE whatever others hold
Why    a limit alone lets the first peer that reaches it stop all others: a peer's own share ends before the
       whole does. And what was counted when it was there already had been read by all at once
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

UNLIMITED: Final = 1 << 62
SURE: Final = 2
"""Calls: of a program that writes or reads, and asks something besides."""


class Share:
    """What its holders have together. `has_waiter`: a ticket waits for just this one. `times_free`: it may
    have so many times what is free of the share above, within its limit; 0: its limit is all that counts.
    `sure`: so much it may have whatever the shares above say."""

    __slots__ = ("_left", "_raised", "above", "has_waiter", "held", "limit", "sure", "times_free")

    def __init__(self, limit: int, above: Share | None = None, times_free: int = 0, sure: int = 0) -> None:
        self.limit = limit
        self.times_free = times_free
        self.sure = sure
        self.above = above
        self.held = 0
        self.has_waiter = False
        self._raised = 0  # by what passes alone
        self._left = 0  # how much of that it has no more

    def path(self) -> Iterator[Share]:
        """This share and those that it is a part of."""
        share: Share | None = self
        while share is not None:
            yield share
            share = share.above

    def add(self, size: int) -> None:
        """Count `size` more (or less, if negative), whatever the limits are."""
        share: Share | None = self
        while share is not None:
            share.held += size
            share = share.above

    def full(self, size: int = 0) -> Share | None:
        """The narrowest share on the way that cannot take so much; None if all can."""
        share: Share | None = self
        while share is not None:
            if share.held + size > share.limit + share._raised:
                return share
            share = share.above
        return None

    def full_for_ticket(self, size: int) -> Share | None:
        """As `full`, for a ticket beside the one that passes alone: what that has left is no room for others,
        since the limit falls by it, too, when it is closed."""
        for share in self.path():
            if share.held + size > share.limit + share._raised - share._left:
                return share
        return None

    @property
    def room(self) -> int:
        """So much more it may have, also by what is free and what is sure."""
        room, above = self.limit + self._raised - self.held, self.above
        if above is not None:
            more = above.room
            if self.times_free:
                left = self.times_free * (above.limit - above.held + 1) - self.held
                more = min(more, left // (self.times_free + 1))
            room = min(room, max(more, self.sure - self.held))
        return max(room, 0)

    @property
    def most(self) -> int:
        """What could be had if no other ticket had anything."""
        return min(share.limit for share in self.path())

    def raise_by(self, size: int) -> None:
        for share in self.path():
            share._raised += size

    def leave_by(self, size: int) -> None:
        """Of what it was raised by, `size` has left."""
        for share in self.path():
            share._left += size


class Ticket:
    """`size` octets of a share: waited for, held, or (closed) neither."""

    __slots__ = ("_alone", "_granted", "_notify", "_part", "granted", "share", "size")

    def __init__(self, part: BudgetPart, share: Share, size: int, notify: Callable[[], None]) -> None:
        self.share = share
        self.size = size
        self.granted = False
        self._part = part
        self._notify = notify
        self._alone = 0  # by how much the limits are raised for it

    @property
    def alone(self) -> int:
        """What was granted on top of everything, because no share is so large; else, and when closed, 0."""
        return self._alone

    def hand_over(self, size: int) -> None:
        """So much is counted elsewhere from now on (`Share.add`), before another one can ask for it.
        The ticket stays: a large one keeps its place until it is closed."""
        assert self.granted
        size = min(size, self.size)
        self._lose(size)
        self.share.add(-size)

    def shrink(self, size: int) -> None:
        """It was not so much after all: `size` is enough."""
        assert self.granted
        if size < self.size:
            less = self.size - size
            self._lose(less)
            self._part.give(self.share, less)

    def _lose(self, size: int) -> None:
        self.size -= size
        if self._alone:
            self.share.leave_by(size)

    def close(self) -> None:
        """Give everything back, or wait no more. Idempotent."""
        self._part.close(self)

    def _grant(self, alone: bool) -> None:
        self.granted = True
        if alone:
            self._alone = self.size
            self.share.raise_by(self.size)
        self.share.add(self.size)


class BudgetPart:
    """The whole of one part, its addresses and connections. `times_free` (of an address, see `Share`) is for
    parts that give no tickets."""

    def __init__(
        self,
        limit: int,
        address_limit: int = UNLIMITED,
        connection_limit: int = UNLIMITED,
        times_free: int = 0,
    ) -> None:
        self.whole = Share(limit)
        self._times_free = times_free
        self._address_limit = address_limit
        self._connection_limit = connection_limit
        self._addresses: dict[str, tuple[Share, int]] = {}  # and how many connections it has
        self._waiting: dict[Ticket, None] = {}
        self._large: dict[Ticket, None] = {}  # wait to pass alone
        self._passing: Ticket | None = None
        self._passed: Share | None = None  # the address of the one that passed last
        self._wanted: set[Share] = set()

    @property
    def held(self) -> int:
        return self.whole.held

    @property
    def passing(self) -> Ticket | None:
        """The one that passes alone."""
        return self._passing

    @property
    def one_waits_to_pass(self) -> bool:
        """Somebody waits for the place of the one that passes alone."""
        return bool(self._large)

    @property
    def waiting(self) -> int:
        """How many tickets are waited for."""
        return len(self._waiting) + len(self._large)

    def change(self, limit: int, address_limit: int, connection_limit: int) -> None:
        """Other limits: of the whole and of each address at once, of connections that come from now on. What
        is held stays held, and what waits for more than it could have any more passes alone."""
        self.whole.limit = limit
        self._address_limit, self._connection_limit = address_limit, connection_limit
        for share, _ in self._addresses.values():
            share.limit = address_limit
        for ticket in [ticket for ticket in self._waiting if ticket.size > ticket.share.most]:
            del self._waiting[ticket]
            self._large[ticket] = None
        self._pass_one(notify=True)
        self._serve()

    # -- who there is ----------------------------------------------------------------------------

    def join(self, address: str) -> Share:
        """The share of a new connection; an address of "" is bounded by the whole alone."""
        above, sure = self.whole, SURE if self._times_free else 0
        if address:
            of_address = Share(self._address_limit, self.whole, self._times_free, sure)
            above, count = self._addresses.get(address) or (of_address, 0)
            self._addresses[address], sure = (above, count + 1), 0
        return Share(self._connection_limit, above, sure=sure)

    def leave(self, share: Share, address: str) -> None:
        """The connection is gone; whatever it holds still is given back by its holders."""
        if address:
            above, count = self._addresses.pop(address)
            if count > 1:
                self._addresses[address] = above, count - 1

    # -- tickets ---------------------------------------------------------------------------------

    def ask(self, share: Share, size: int, notify: Callable[[], None]) -> Ticket:
        """A ticket for `size`, granted now or later; `notify` is called only for the latter."""
        assert size > 0
        ticket = Ticket(self, share, size, notify)
        if size > share.most:
            self._large[ticket] = None
            self._pass_one()
        elif not self._waiting and share.full_for_ticket(size) is None:
            ticket._grant(alone=False)
        else:
            self._waiting[ticket] = None
            self._serve(asked=ticket)
        return ticket

    def give(self, share: Share, size: int) -> None:
        """`size` less is held."""
        share.add(-size)
        if self._waiting:
            self._serve()

    def close(self, ticket: Ticket) -> None:
        if ticket.granted:
            size, ticket.size, ticket.granted = ticket.size, 0, False
            ticket.share.add(-size)
            if ticket is self._passing:
                ticket.share.raise_by(-ticket._alone)
                ticket.share.leave_by(size - ticket._alone)
                ticket._alone, self._passing = 0, None
                self._passed = ticket.share.above
                self._pass_one(notify=True)
        else:
            self._waiting.pop(ticket, None)
            self._large.pop(ticket, None)
        self._serve()

    def _serve(self, asked: Ticket | None = None) -> None:
        """Grant whatever can be; `asked` is known to its caller without a call."""
        if not self._waiting and not self._wanted:
            return
        granted: list[Ticket] = []
        closed: set[Share] = set()  # a ticket waits for them: none after it may have of it
        for ticket in self._waiting:
            full = ticket.share.full_for_ticket(ticket.size)
            if full is None and closed:
                full = next((share for share in ticket.share.path() if share in closed), None)
            if full is not None:
                closed.add(full)
                if full is self.whole:
                    break
                continue
            ticket._grant(alone=False)
            granted.append(ticket)
        for ticket in granted:
            del self._waiting[ticket]
        self._mark(closed)
        for ticket in granted:
            if ticket is not asked:
                ticket._notify()

    def _mark(self, shares: set[Share]) -> None:
        """Remember which shares are waited for."""
        for share in self._wanted - shares:
            share.has_waiter = False
        for share in shares:
            share.has_waiter = True
        self._wanted = shares

    def _pass_one(self, *, notify: bool = False) -> None:
        """The next one that may pass alone: of another address than the last one's, if there is any."""
        if self._passing is not None or not self._large:
            return
        other = (ticket for ticket in self._large if ticket.share.above is not self._passed)
        ticket = next(other, next(iter(self._large)))
        del self._large[ticket]
        self._passing = ticket
        ticket._grant(alone=True)
        if notify:
            ticket._notify()

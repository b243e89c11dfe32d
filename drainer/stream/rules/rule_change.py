"""Rule change: other filters, routes and columns come into force at one commit_ts, like a DDL.

In     the rules that an earlier start stored, those of the configuration, what a reload asks for
Out    which rules are to be taken next, the document to be stored with the lanes that stand there
Holds  rows that may have been dispatched before a restart go out by the rules of that time; new rules are
       taken after them, between two transactions, at a commit_ts where all lanes and the checkpoint stand,
       stored first. The reload is answered with that commit_ts
Never  changes where a waiting table goes: what is kept of it and what comes later would be two tables'
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from drainer.checkpoint.lane_basis import StoredBasis
from drainer.stream.rules.rule_history import RuleHistory, asked_text
from drainer.stream.rules.rule_set import Rules
from tidb_binlog.errors import BinlogError, Rejected
from tidb_binlog.observe import log
from tidb_binlog.tso import Ts

logger = log.get("drainer.rule_change")

ASKED_WAIT_S: Final = 30.0
"""How long a reload waits for a drained point between two transactions."""


class Ruled(Protocol):
    """The translator."""

    @property
    def rules(self) -> Rules: ...
    def names(self) -> list[tuple[str, str]]: ...
    def replay(self, history: RuleHistory) -> None: ...
    def check_rules(self, rules: Rules) -> None: ...
    def take_rules(self, rules: Rules) -> None: ...


class RuleChange:
    """`basis` is of an earlier start, None if there is none. `ruled` is None where items come with the rules
    of their time: from a relay log. Raises `Corruption`, `ConfigError`."""

    def __init__(self, ruled: Ruled | None, wanted: Rules, basis: StoredBasis | None) -> None:
        self._ruled = ruled
        self._wanted = wanted
        self._is_stored = basis is not None
        self._history: RuleHistory | None = None
        self._asked: asyncio.Future[int] | None = None
        if ruled is not None and basis is not None:
            self._history = RuleHistory.from_json(basis.rules, [wanted])
            ruled.replay(self._history)

    @property
    def due(self) -> bool:
        """Whether other rules than those in force are to be stored and taken."""
        if self._history is None:
            return not self._is_stored
        return asked_text(self._history.last.text) != self._wanted.text

    @property
    def made_of(self) -> dict[str, str]:
        """Of the rules that were asked for last, in force or about to be."""
        return self._wanted.rows.made_of

    @property
    def asked(self) -> bool:
        """Whether a reload waits for it."""
        return self._asked is not None

    def check(self, rules: Rules, waits: Callable[[str, str], bool]) -> None:
        """`ConfigError` for rules that contradict each other, `Rejected` if a table that `waits` for a
        decision would go elsewhere."""
        assert self._ruled is not None
        self._ruled.check_rules(rules)
        before = self._wanted if self._history is None else self._history.last
        for name in self._ruled.names():
            if waits(*name) and before.router.route(*name) != rules.router.route(*name):
                raise Rejected(
                    f"{'.'.join(name)} waits for a decision about a DDL, with rows for"
                    f" {'.'.join(before.router.route(*name))}: it cannot go elsewhere meanwhile",
                    hint="take its route back, or decide first: `binlogctl ddl list` shows what waits",
                )

    def check_wanted(self, waits: Callable[[str, str], bool]) -> None:
        """As `check`, for the rules that are due at the start."""
        if self.due and self._history is not None:
            self.check(self._wanted, waits)

    async def asked_for(self, rules: Rules, wake: Callable[[], None], doing: Callable[[], str]) -> int:
        """Have rules taken that were checked; the commit_ts after which they are in force.

        `wake` lets the stream ask for them; `doing` says what it does. Raises `Rejected`: nothing changed.
        """
        assert self._asked is None
        before, self._wanted = self._wanted, rules
        self._asked = asked = asyncio.get_running_loop().create_future()
        asked.add_done_callback(lambda done: done.cancelled() or done.exception())  # the caller may be gone
        wake()
        try:
            async with asyncio.timeout(ASKED_WAIT_S):
                return int(await asyncio.shield(asked))
        except asyncio.CancelledError:
            if self._withdraw(asked, before):
                raise
            return int(await asyncio.shield(asked))  # what is in force is noted all the same
        except TimeoutError:
            if not self._withdraw(asked, before):
                return int(await asked)
            raise Rejected(
                f"the drainer came to no drained point between two transactions within {ASKED_WAIT_S:.0f} s"
                f" ({doing()}); the rules are as they were",
                hint="try again; `/status` shows what it waits for",
            ) from None

    def _withdraw(self, asked: asyncio.Future[int], before: Rules) -> bool:
        """False where it is too late, since they are being stored."""
        if self._asked is not asked:
            return False
        self._asked, self._wanted = None, before
        return True

    @contextlib.contextmanager
    def taking(self, at_ts: Ts, floor_ts: Ts) -> Iterator[RuleHistory]:
        """The wanted rules after `at_ts`, to be stored and taken inside; then the reload is answered."""
        asked, self._asked = self._asked, None
        try:
            yield self.following(at_ts, floor_ts)
        except BaseException as error:
            if asked is not None and not asked.done():
                reason = error.message if isinstance(error, BinlogError) else "the drainer stops"
                asked.set_exception(Rejected(f"the rules could not be stored: {reason}"))
            raise
        logger.info("rules are in force", commit_ts=at_ts)
        if asked is not None and not asked.done():
            asked.set_result(at_ts)

    def following(self, at_ts: Ts, floor_ts: Ts) -> RuleHistory:
        """With the wanted rules after `at_ts`; nothing at or below `floor_ts` comes again."""
        known = self._history or RuleHistory.since(0, self._wanted)
        return known.followed_by(at_ts, self._wanted).since_floor(floor_ts)

    def take(self, history: RuleHistory) -> None:
        """They are stored, and nothing is under way: in force from here."""
        self._history, self._is_stored = history, True
        if self._ruled is not None:
            self._ruled.take_rules(history.last)

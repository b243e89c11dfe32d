"""Rule taking: when rules that are due come into force, put through like a DDL.

Drives  the rule change (what is due), the table learning, the checkpoint keeper
Owns    whether what an earlier life may have dispatched has gone by
Order   all lanes are drained; lanes, checkpoint and rules are stored in one transaction; the rules are taken;
        whoever asked is answered
Stops   a reload that finds no place between two transactions in time is refused, and nothing has changed
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from common.errors import ConfigError, Rejected
from drainer.apply.table_learning import TableLearning
from drainer.checkpoint.keeper import CheckpointKeeper
from drainer.quarantine.controller import QuarantineController
from drainer.rules.rule_change import RuleChange
from drainer.rules.rule_set import Rules
from drainer.sink.mysql.change import Position

NEVER: Final = 1 << 63


class Stream(Protocol):
    """The applier."""

    quarantine: QuarantineController

    @property
    def doing(self) -> str: ...
    def wake(self) -> None: ...
    def place(self) -> Position: ...
    async def settle(self, work: Callable[[Any], None]) -> Position: ...


class RuleTaking:
    """`past_ts`: rows up to there may have been dispatched before."""

    def __init__(
        self,
        change: RuleChange,
        learning: TableLearning,
        keeper: CheckpointKeeper,
        past_ts: int,
        stream: Stream,
    ) -> None:
        self._change = change
        self._learning = learning
        self._keeper = keeper
        self._stream = stream
        self.boundary_ts = past_ts
        """Before the first row behind it, `leave_past`; `NEVER` afterwards."""

    # -- what a reload asks ---------------------------------------------------------------------------

    def check(self, rules: Rules) -> None:
        """Raises `ConfigError`, `Rejected` for rules that cannot be taken."""
        self._change.check(rules, self._stream.quarantine.waits_for)

    def check_start(self) -> None:
        """Raises `ConfigError` for rules of the configuration that cannot follow those of before."""
        try:
            self._change.check_wanted(self._stream.quarantine.waits_for)
        except Rejected as error:
            raise ConfigError(error.message, hint=error.hint) from None

    async def change(self, rules: Rules) -> int:
        """Have rules taken that `check` let pass; the commit_ts behind which they are in force. Raises
        `Rejected`: nothing has changed."""
        return await self._change.asked_for(rules, self._stream.wake, lambda: self._stream.doing)

    # -- the stream, between two transactions ---------------------------------------------------------

    @property
    def wanted(self) -> bool:
        """Whether somebody waits for `take`."""
        return self._change.asked and self.boundary_ts == NEVER

    async def leave_past(self) -> None:
        """All that an earlier life may have dispatched has gone by: what comes goes out as things are now."""
        self.boundary_ts = NEVER
        self._learning.leave_past()
        if self._change.due:
            await self.take()

    async def take(self) -> None:
        """Put the rules that are due in force here."""
        store, floor = self._keeper.store, self._keeper.floor()
        at_ts = self._stream.place().commit_ts
        with self._change.taking(at_ts, at_ts if floor is None else floor[0]) as history:

            def work(connection: Any) -> None:
                store.basis.clear(connection, tables_only=True)
                store.basis.put_header(connection, store.epoch, history.to_json())

            await self._stream.settle(work)
            self._change.take(history)
            self._learning.settled()

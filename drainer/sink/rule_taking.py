"""Rule taking: when rules that are due come into force, put through like a DDL.

Owns    whether what an earlier life may have dispatched has gone by
Order   everything given is done; position and rules are stored together; the rules are taken; the reload that
        waits for them is answered
Stops   a reload that finds no place between two transactions in time is refused, and nothing has changed

Tests  tests/drainer/checkpoint/test_lane_basis_mariadb.py, tests/drainer/sink/file/test_file_sink_rules.py
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from drainer.sink import Sink
from drainer.stream.rules.rule_history import RuleChange
from drainer.stream.rules.rule_set import Rules
from tidb_binlog.errors import ConfigError, Rejected

NEVER: Final = 1 << 63


class RuleTaking:
    """`wake` lets the stream ask `wanted`, `doing` says what it is at."""

    def __init__(
        self, change: RuleChange, sink: Sink, wake: Callable[[], None], doing: Callable[[], str]
    ) -> None:
        self._change = change
        self._sink = sink
        self._wake = wake
        self._doing = doing
        self.boundary_ts = NEVER if sink.past_ts is None else sink.past_ts
        """Before the first row above it, `leave_past`; `NEVER` afterwards."""

    # -- what a reload asks ---------------------------------------------------------------------------

    @property
    def made_of(self) -> dict[str, str]:
        """Digests of the files that rules name, as they were taken last."""
        return self._change.made_of

    def check(self, rules: Rules) -> None:
        """Raises `ConfigError`, `Rejected` for rules that cannot be taken."""
        self._change.check(rules, self._sink.waits_for)

    def check_start(self) -> None:
        """Raises `ConfigError` for rules of the configuration that cannot follow those of before."""
        try:
            self._change.check_wanted(self._sink.waits_for)
        except Rejected as error:
            raise ConfigError(error.message, hint=error.hint) from None

    async def change(self, rules: Rules) -> int:
        """Have rules taken that `check` let pass; the commit_ts after which they are in force. Raises
        `Rejected`: nothing has changed."""
        return await self._change.asked_for(rules, self._wake, self._doing)

    # -- the stream, between two transactions ---------------------------------------------------------

    @property
    def pending(self) -> bool:
        """Whether a reload waits for `take`."""
        return self._change.asked and self.boundary_ts == NEVER

    async def leave_past(self) -> None:
        """All that an earlier life may have dispatched has gone by: what comes goes out as things are now."""
        self.boundary_ts = NEVER
        self._sink.leave_past()
        if self._change.due:
            await self.take()

    async def take(self) -> None:
        """Put the rules that are due in force here."""
        with self._change.taking(self._sink.place_ts, self._sink.floor_ts) as history:
            await self._sink.store_rules(history.to_json())
            self._change.take(history)

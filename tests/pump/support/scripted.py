"""An upstream that answers as told."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field

from tidb_binlog.errors import BinlogError, Unavailable
from tidb_binlog.tso import Ts
from tidb_binlog.upstream_port import Outcome, Undecided


class ScriptedOracle:
    """Timestamps 1000 apart; may be held or silent."""

    def __init__(self) -> None:
        self.last = 1_000_000
        self.draws = 0
        self.pinned = 0
        self.silent = False

    async def timestamp(self) -> Ts:
        self.draws += 1
        if self.silent:
            raise Unavailable("no oracle")
        if self.pinned:
            return self.pinned
        self.last += 1000
        return self.last


@dataclass
class ScriptedTransactions:
    """Answers by start_ts; a list is used up, its last answer stays. One error is the answer to all."""

    answers: dict[int, list[Outcome | BinlogError]] = field(default_factory=dict)
    asked: list[list[tuple[int, bytes]]] = field(default_factory=list)
    hung: set[int] = field(default_factory=set)
    """A question with one of these is never answered."""
    gone: bool = False
    given_up: set[int] = field(default_factory=set)
    clients_know: bool = True

    async def outcomes(
        self, transactions: list[tuple[int, bytes]], given_up: Collection[int] = ()
    ) -> list[Outcome]:
        self.asked.append(list(transactions))
        self.given_up |= set(given_up)
        if self.gone:
            raise Unavailable("the store is gone")
        if any(start_ts in self.hung for start_ts, _ in transactions):
            await asyncio.get_running_loop().create_future()
        found: list[Outcome] = []
        for start_ts, _ in transactions:
            answers = self.answers.get(start_ts, [Undecided(0.01)])
            answer = answers.pop(0) if len(answers) > 1 else answers[0]
            if isinstance(answer, BinlogError):
                raise answer
            found.append(answer)
        return found

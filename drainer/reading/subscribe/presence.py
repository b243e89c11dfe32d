"""Presence: what a stream of changes needs of the registry's entry for its reader. A port.

A named reader has one (`named_reader`): its position holds the pumps' retention, pumps that join tell it.
A reader without a name has none, and looks for pumps itself (`drainer.stream.pull.collector`, `finds_pumps`).

Tests  tests/drainer/stream/pull/test_collector_finds_pumps.py
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from tidb_binlog.errors import BinlogError


class Presence(Protocol):
    """The name is taken when one of these exists; nothing has been given yet."""

    @property
    def stored_ts(self) -> int:
        """Where an earlier life stopped: everything at or below it is done. 0: there was none."""
        ...

    @property
    def unbroken(self) -> int | None:
        """As of `tidb_binlog.cluster.heartbeat.Heartbeat`: pumps that join wait for who holds a lease."""
        ...

    @property
    def ended(self) -> BinlogError | None:
        """Why the program is to end, once `run` has raised it, or `store`."""
        ...

    def begin(self, ts: int, notify: Callable[[], Awaitable[None]]) -> None:
        """The stream begins after `ts`. `notify` returns when it waits for every pump of the registry."""
        ...

    def given(self, ts: int) -> None:
        """The item of this commit_ts went to the program."""
        ...

    def passed(self, ts: int) -> None:
        """Everything at or below it has been given."""
        ...

    def done(self, ts: int) -> None:
        """The program has done what was given up to here. Raises `NotGiven` for what was not, and `ended`."""
        ...

    async def run(self) -> None:
        """Keep the entry true until cancelled. Raises when the name is another's, or an operator ends it."""
        ...

    async def store(self) -> bool:
        """Write the position now; False when the registry did not take it, `run` tries again."""
        ...

    async def close(self) -> None:
        """Store the position and leave the name to who comes next."""
        ...

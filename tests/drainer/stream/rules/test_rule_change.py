"""What becomes of rules whose asker goes away, before they are stored and while they are."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from drainer.config.options import DrainerConfig
from drainer.stream.rules.rule_history import RuleChange
from drainer.stream.rules.rule_set import RULE_FIELDS, Rules, read_rules
from tidb_binlog.clock import SystemClock
from tidb_binlog.errors import Rejected
from tidb_binlog.serving.reload import Commit, Reload

BEFORE = DrainerConfig()
AFTER = replace(BEFORE, sync_ddl=not BEFORE.sync_ddl)


class World:
    """A reload of the one into the other that waits for its place."""

    def __init__(self) -> None:
        self.change = RuleChange(None, read_rules(BEFORE), None)
        self.reload = Reload(BEFORE, lambda: AFTER, SystemClock())
        self.reload.add(RULE_FIELDS, self._prepare, placed=True)
        self.asker = asyncio.create_task(self.reload.run())

    def _prepare(self, fresh: DrainerConfig) -> Commit:
        rules: Rules = read_rules(fresh)
        return lambda: self.change.asked_for(rules, lambda: None, lambda: "nothing")

    async def begun(self) -> None:
        while not self.change.asked:
            await asyncio.sleep(0)


async def test_rules_that_are_stored_while_the_asker_goes_away_are_the_configuration() -> None:
    """Whatever is built anew later begins with what is in force."""
    world = World()
    await world.begun()
    with world.change.taking(1000, 1000) as history:
        world.asker.cancel()
        await asyncio.sleep(0)
        world.change.take(history)
    await asyncio.wait({world.asker})
    assert world.reload.settings == AFTER
    assert not world.change.due


async def test_rules_that_could_not_be_stored_are_not_the_configuration() -> None:
    world = World()
    await world.begun()

    async def store() -> None:
        with world.change.taking(1000, 1000):
            world.asker.cancel()
            await asyncio.sleep(0)
            raise OSError

    with pytest.raises(OSError):
        await store()
    with pytest.raises(Rejected):
        await world.asker
    assert world.reload.settings == BEFORE


async def test_rules_whose_asker_went_away_before_are_not_taken() -> None:
    world = World()
    await world.begun()
    world.asker.cancel()
    await asyncio.wait({world.asker})
    assert not world.change.asked
    assert world.reload.settings == BEFORE

"""The contract of sinks (`drainer.sink`), for every kind of downstream; each check of it can fail."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from drainer.testing.sink_contract import (
    CHECKS,
    Bed,
    SinkContract,
    a_ddl_is_a_barrier,
    a_large_transaction_is_there_as_a_whole,
    a_stop_stores_what_was_done,
    a_watermark_moves_what_is_resolved_and_stored,
    in_order_and_once,
    what_waits_is_bounded,
)
from drainer.testing.stream import Stream
from drainer.txn import Ddl, Transaction
from tests.contract.beds import BEDS, NEEDS_SERVERS, MemoryBed, MemorySink

KINDS = [pytest.param(name, marks=pytest.mark.integration if name in NEEDS_SERVERS else ()) for name in BEDS]


@pytest.fixture(params=KINDS)
def bed(request: pytest.FixtureRequest) -> Bed:
    return BEDS[request.param](request)


class TestEverySink(SinkContract):
    """It keeps the contract."""


def test_the_contract_has_a_test_for_each_check() -> None:
    tests = {name.removeprefix("test_") for name in vars(SinkContract) if name.startswith("test_")}
    assert tests == {check.__name__ for check in CHECKS}


# -- each check can fail ------------------------------------------------------------------------------------


class StoresAhead(MemorySink):
    """The position is stored before the data."""

    async def save(self) -> None:
        self._medium.position = self._last_ts


class Repeats(MemorySink):
    """A start from the checkpoint alone, which lags behind the data."""

    @property
    def start_ts(self) -> int:
        return self._medium.position


class Backwards(MemorySink):
    async def flush(self) -> None:
        self._given.reverse()
        await super().flush()


class IgnoresWatermarks(MemorySink):
    def watermark(self, ts: int) -> None:
        pass


class ForgetsAtTheEnd(MemorySink):
    async def save(self) -> None:
        """Not in time either, however slow the machine is."""

    async def finish(self, *, broken: bool) -> None:
        pass


class TakesAll(MemorySink):
    """It waits for nothing, and says that all is there."""

    async def flush(self) -> None:
        self._resolved_ts = self._last_ts
        if self._medium.free.is_set():
            await super().flush()


class PassesDdl(MemorySink):
    """DDL take effect before the rows that came before them."""

    async def take_ddl(self, ddl: Ddl) -> None:
        await super().take_ddl(ddl)
        self._medium.items.append(self._given.pop())

    async def flush(self) -> None:
        if len(self._given) > 20 or self._stopped:
            await super().flush()
        self._resolved_ts = self._last_ts

    _stopped = False

    def stop(self) -> None:
        self._stopped = True


class StoresHalf(MemorySink):
    """What came of a large transaction is written before it ends, and counts."""

    async def take_piece(self, piece: Transaction) -> Transaction | None:
        taken = await self.take(piece)
        await self.flush()
        if not piece.last:
            raise ConnectionError("dies in the middle")
        return taken


MUTANTS: list[tuple[Any, type[MemorySink]]] = [
    (in_order_and_once, Repeats),
    (in_order_and_once, Backwards),
    (a_watermark_moves_what_is_resolved_and_stored, IgnoresWatermarks),
    (a_stop_stores_what_was_done, ForgetsAtTheEnd),
    (what_waits_is_bounded, TakesAll),
    (what_waits_is_bounded, StoresAhead),
    (a_ddl_is_a_barrier, PassesDdl),
    (a_large_transaction_is_there_as_a_whole, StoresHalf),
]


@pytest.mark.parametrize(("check", "mutant"), MUTANTS, ids=lambda one: one.__name__)
async def test_a_sink_that_breaks_it_is_found(check: Any, mutant: type[MemorySink]) -> None:
    with pytest.raises((AssertionError, TimeoutError, ValueError)):
        await asyncio.wait_for(check(MemoryBed(mutant), Stream()), 20)


def test_every_check_has_a_sink_that_breaks_it() -> None:
    assert {check for check, _ in MUTANTS} == set(CHECKS)

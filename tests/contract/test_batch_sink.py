"""The contract of batch sinks: with a position and without, and each check of it can fail."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from drainer import Ddl, Transaction
from drainer.testing.batch_bed import BatchBed
from drainer.testing.sink_contract import (
    BATCH_CHECKS,
    CHECKS,
    BatchSinkContract,
    a_ddl_is_a_barrier,
    a_large_transaction_is_there_as_a_whole,
    a_stop_stores_what_was_done,
    a_watermark_moves_what_is_resolved_and_stored,
    an_exception_loses_nothing,
    an_unknown_exception_holds_until_somebody_resumes,
    in_order_and_once,
)
from drainer.testing.stream import Stream
from tests.contract.batch_beds import HttpBed, JournalBed, SqliteBed, SqliteSink, StdoutBed
from tidb_binlog.errors import BinlogError

BEDS: dict[str, Callable[[Path], BatchBed]] = {
    "position": SqliteBed,
    "savepoint": JournalBed,
    "stdout": StdoutBed,
    "http": HttpBed,
}


@pytest.fixture(params=BEDS)
def bed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BatchBed]:
    made = BEDS[request.param](tmp_path)
    yield made
    if isinstance(made, StdoutBed | HttpBed):
        made.close()


class TestBatchSinks(BatchSinkContract):
    """They keep the contract."""


def test_the_contract_has_a_test_for_each_check() -> None:
    tests = {name.removeprefix("test_") for name in dir(BatchSinkContract) if name.startswith("test_")}
    assert tests == {check.__name__ for check in (*CHECKS, *BATCH_CHECKS)}


def test_it_needs_no_pytest() -> None:
    code = "import sys, drainer.testing.sink_contract; sys.exit('pytest' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# -- each check can fail ------------------------------------------------------------------------------------


class CommitsApart(SqliteSink):
    """Changes are committed, and the position with the next ones."""

    _position_before = 0

    def write(self, items: Sequence[Transaction | Ddl], position: int) -> None:
        super().write(items, self._position_before)
        self._position_before = position

    def open(self) -> int:
        self._position_before = super().open()
        return self._position_before


class ForgetsWhereItIs(SqliteSink):
    """Every life begins anew."""

    def open(self) -> int:
        super().open()
        return 0


class Reverses(SqliteSink):
    def write(self, items: Sequence[Transaction | Ddl], position: int) -> None:
        super().write(items[::-1], position)


class MovesWithRowsOnly(SqliteSink):
    def write(self, items: Sequence[Transaction | Ddl], position: int) -> None:
        if items:
            super().write(items, position)


class WritesLater(SqliteSink):
    """What is given is kept in memory until the next write, and its position with it."""

    _kept: tuple[list[Transaction | Ddl], int] = ([], 0)

    def write(self, items: Sequence[Transaction | Ddl], position: int) -> None:
        kept, self._kept = self._kept, ([*items], position)
        if kept[0]:
            super().write(*kept)


class IgnoresDdl(SqliteSink):
    def apply(self, cursor: sqlite3.Cursor, item: Transaction | Ddl) -> None:
        if isinstance(item, Transaction):
            super().apply(cursor, item)


class WritesAPart(SqliteSink):
    """Of a large transaction what fits into memory."""

    def apply(self, cursor: sqlite3.Cursor, item: Transaction | Ddl) -> None:
        if isinstance(item, Transaction):
            item.rows = list(item.rows)[:5000]
        super().apply(cursor, item)


class LosesWhatFailed(SqliteSink):
    """After an exception it goes on with what comes next."""

    def open(self) -> int:
        position = super().open()
        if position > 1000:
            with self.transaction() as cursor:
                self._position.move(cursor, position + 10)
            return position + 10
        return position


class NothingIsUnknown(SqliteSink):
    """Whatever happens is tried again, and nobody hears of it."""

    retriable = (Exception,)


MUTANTS: list[tuple[Any, type[SqliteSink]]] = [
    (in_order_and_once, ForgetsWhereItIs),
    (in_order_and_once, Reverses),
    (a_watermark_moves_what_is_resolved_and_stored, MovesWithRowsOnly),
    (a_stop_stores_what_was_done, WritesLater),
    (a_ddl_is_a_barrier, IgnoresDdl),
    (a_large_transaction_is_there_as_a_whole, WritesAPart),
    (an_exception_loses_nothing, CommitsApart),
    (an_exception_loses_nothing, LosesWhatFailed),
    (an_unknown_exception_holds_until_somebody_resumes, NothingIsUnknown),
]


@pytest.mark.parametrize(("check", "mutant"), MUTANTS, ids=lambda one: one.__name__)
async def test_a_sink_that_breaks_it_is_found(check: Any, mutant: type[SqliteSink], tmp_path: Path) -> None:
    with pytest.raises((AssertionError, TimeoutError, BinlogError)):
        await asyncio.wait_for(check(SqliteBed(tmp_path, mutant), Stream()), 5)

"""Building a stream: every kind of downstream has a module that can; an upstream whose clock lags is waited
for."""

from __future__ import annotations

import inspect
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from drainer.app import build
from drainer.app.build import AHEAD_PAUSE_S, AHEAD_WAIT_S, Builder, builder_of, not_ahead
from drainer.checkpoint.resume import AheadOfUpstream, Start
from drainer.config.options import DrainerConfig
from drainer.config.sink_options import SINKS
from drainer.points.load import join_routes
from tidb_binlog.clock import ManualClock
from tidb_binlog.errors import Corruption

START = Start(1, None, (), None)


@pytest.mark.parametrize("db_type", SINKS)
def test_every_kind_of_downstream_has_a_module_that_builds_it(db_type: str) -> None:
    module = builder_of(DrainerConfig(db_type=db_type))
    for name in ("build", "rehearse"):
        function, wanted = getattr(module, name), getattr(Builder, name)
        parameters = [*inspect.signature(wanted).parameters][1:]
        assert inspect.iscoroutinefunction(function)
        assert [*inspect.signature(function).parameters] == parameters


def test_a_drainer_that_writes_files_loads_no_client_of_a_database() -> None:
    code = (
        "import sys, drainer.program, drainer.app.build; from drainer.config.options import DrainerConfig;"
        " drainer.app.build.builder_of(DrainerConfig(db_type='file'));"
        " sys.exit('pymysql' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("db_type", SINKS)
async def test_who_asks_for_tables_to_join_what_is_no_database_is_told_so(
    db_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, offered = DrainerConfig(db_type=db_type), list[Any]()

    async def begun(context: Any) -> Any:
        raise AHEAD

    monkeypatch.setattr(build, "builder_of", lambda _: SimpleNamespace(build=begun))
    context: Any = SimpleNamespace(
        settings=settings, operating=SimpleNamespace(offer=lambda *one: offered.append(one))
    )
    with pytest.raises(AheadOfUpstream):
        await build.build(context, None, lambda: None)
    wanted = [] if db_type in ("mysql", "tidb") else [(join_routes.add_refusals, db_type)]
    assert offered == wanted


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """Pauses of the start move it, and take no time."""
    clock = ManualClock()

    async def sleep(seconds: float) -> None:
        clock.advance(seconds)

    monkeypatch.setattr(build, "SystemClock", lambda: clock)
    monkeypatch.setattr(build, "asyncio", SimpleNamespace(sleep=sleep))
    return clock


class Begin:
    """A start that fails `failures` times."""

    def __init__(self, error: Exception, failures: int) -> None:
        self.error, self.failures, self.tries = error, failures, 0

    async def __call__(self) -> Start:
        self.tries += 1
        if self.tries <= self.failures:
            raise self.error
        return START


AHEAD = AheadOfUpstream("the checkpoint is ahead")


async def test_a_clock_that_is_a_little_behind_is_waited_for(clock: ManualClock) -> None:
    begin, began_s = Begin(AHEAD, int(AHEAD_WAIT_S / AHEAD_PAUSE_S) - 1), clock.now_s
    assert await not_ahead(begin) is START
    assert clock.now_s - began_s == pytest.approx(begin.failures * AHEAD_PAUSE_S)


async def test_a_clock_that_stays_behind_is_told(clock: ManualClock) -> None:
    began_s = clock.now_s
    with pytest.raises(AheadOfUpstream):
        await not_ahead(Begin(AHEAD, 1_000_000))
    assert AHEAD_WAIT_S < clock.now_s - began_s < AHEAD_WAIT_S + 3 * AHEAD_PAUSE_S


async def test_nothing_else_is_tried_again(clock: ManualClock) -> None:
    begin = Begin(Corruption("the checkpoint cannot be read"), 1)
    with pytest.raises(Corruption):
        await not_ahead(begin)
    assert begin.tries == 1

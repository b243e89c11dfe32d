"""Building sinks of one's own: where they begin, what keeps a start from them, both kinds of classes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, TypeVar

import pytest

from drainer import Retry, SinkContext
from drainer.app import build, build_batch, build_own
from drainer.app.build import BuildContext
from drainer.app.build_batch import lock_data_dir, where_to_begin
from drainer.app.savepoint_start import Place
from drainer.checkpoint.savepoint import Savepoint
from drainer.checkpoint.value import Checkpoint
from drainer.config.options import DrainerConfig
from drainer.operate.control.pause_and_reload import Control
from drainer.sink.findings import Findings
from drainer.testing.stream import CLUSTER_ID, Stream
from tests.contract.beds import Medium, MemorySink
from tidb_binlog.clock import SystemClock
from tidb_binlog.errors import ConfigError, Corruption, DirectoryLocked, DownstreamError, Unavailable

T = TypeVar("T")
AT = 1 << 40
"""A commit_ts: below 1 << 38 are positions in a snapshot."""
SAVED = Checkpoint(AT + 500, True, 3)


@pytest.mark.parametrize(
    ("position", "stored", "place"),
    [
        (None, None, Place(77)),
        (None, SAVED, Place(AT + 500, 3)),
        (None, Checkpoint(0, False, 0), Place(77)),
        (0, None, Place(77)),
        (AT + 400, None, Place(AT + 400)),
        (AT + 500, SAVED, Place(AT + 500, 3)),
        (AT + 600, SAVED, Place(AT + 600)),
        (AT + 400, SAVED, Place(AT + 400)),
    ],
)
def test_the_sink_s_position_counts_and_without_one_the_savepoint(
    position: int | None, stored: Checkpoint | None, place: Place
) -> None:
    assert where_to_begin("it", position, stored, 77) == place


def test_a_sink_that_lost_what_it_stored_does_not_begin_now() -> None:
    with pytest.raises(Corruption, match=f"has no position, but was at {AT + 500}") as raised:
        where_to_begin("it", 0, SAVED, 77)
    assert "data-dir" in raised.value.hint


def test_a_snapshot_that_the_data_directory_does_not_know_is_not_a_place_in_the_stream() -> None:
    """A sink has so many of its rows. A commit_ts as small would be before all binlogs."""
    for stored in (None, SAVED):
        with pytest.raises(Corruption, match="in the middle of a snapshot") as raised:
            where_to_begin("it", 4000, stored, 77)
        assert "data-dir" in raised.value.hint


class Own:
    """`answers` of `open`, one after the other."""

    answers: ClassVar[list[Any]] = []
    given: ClassVar[dict[str, Any]] = {}

    def __init__(self, options: dict[str, Any]) -> None:
        type(self).given = options

    def open(self) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def write(self, items: Any, position: int) -> None:
        raise NotImplementedError


class OwnPort(MemorySink):
    def __init__(self, context: SinkContext) -> None:
        super().__init__(Medium())
        self.context = context
        self._last_ts = self._resolved_ts = context.start_ts


class History:
    """Of a stream, as an upstream has it that knows nothing but its history."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    async def schema_at(self, ts: int) -> None:
        return None

    async def pages(self, after_id: int) -> AsyncIterator[list[bytes]]:
        yield self._stream.jobs


@pytest.fixture
async def context(tmp_path: Path) -> AsyncIterator[Callable[..., BuildContext]]:
    async def timestamp() -> int:
        return AT + 10_000

    async def at_once(ask: Callable[[], Awaitable[T]]) -> T:
        return await ask()

    async def view() -> Any:
        return SimpleNamespace(drainers={})

    nodes: Any = SimpleNamespace(view=view)
    async with contextlib.AsyncExitStack() as ends:

        def made(name: str, **settings: Any) -> BuildContext:
            upstream: Any = SimpleNamespace(
                cluster_id=CLUSTER_ID,
                oracle=SimpleNamespace(timestamp=timestamp),
                history=History(Stream()),
            )
            operating: Any = SimpleNamespace(
                wait_for=at_once,
                control=Control(SystemClock()),
                findings=Findings(SystemClock()),
                upstream_clock=SystemClock(),
                end=lambda: None,
            )
            config = replace(
                DrainerConfig(),
                db_type=f"python:{__name__}:{name}",
                data_dir=str(tmp_path),
                to_options={"x": 1},
                **settings,
            )
            return BuildContext(config, upstream, nodes, ends, operating)

        yield made


async def test_a_batch_sink_gets_its_options_and_begins_where_it_says(
    context: Callable[..., BuildContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Own, "answers", [AT + 905])
    monkeypatch.setattr(Own, "given", {})
    runner = await build_own.build(context("Own"))
    assert runner.sink.start_ts == runner.sink.stored_ts == AT + 905
    assert runner.sink.facts()["Sink"]["stores_position"] is True
    assert Own.given == {"x": 1}


async def test_a_sink_that_cannot_be_opened_now_is_waited_for(
    context: Callable[..., BuildContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Own, "answers", [Retry("the server starts")])
    with pytest.raises(Unavailable, match=r"Own cannot be opened: the server starts") as raised:
        await build_own.build(context("Own"))
    assert "start-wait" in raised.value.hint


async def test_a_sink_that_cannot_be_opened_is_told(
    context: Callable[..., BuildContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Own, "answers", [KeyError("index")])
    with pytest.raises(DownstreamError, match=r"Own cannot be opened: KeyError: 'index'"):
        await build_own.build(context("Own"))


async def test_a_class_that_implements_the_port_gets_a_context(
    context: Callable[..., BuildContext], tmp_path: Path
) -> None:
    Savepoint(str(tmp_path)).save(Checkpoint(905, True, 2))
    runner = await build_own.build(context("OwnPort"))
    given: SinkContext = runner.sink.context
    assert (given.options, given.start_ts, given.savepoint_ts) == ({"x": 1}, 905, 905)
    assert (given.cluster_id, given.data_dir) == (CLUSTER_ID, str(tmp_path))
    assert runner.sink.start_ts == 905


@pytest.mark.parametrize(
    ("position", "known_ts", "starts"), [(None, 700, False), (None, 0, True), (AT + 905, 700, True)]
)
async def test_a_standby_that_does_not_know_where_the_first_one_was_does_not_begin_now(
    context: Callable[..., BuildContext],
    monkeypatch: pytest.MonkeyPatch,
    position: int | None,
    known_ts: int,
    starts: bool,
) -> None:
    async def view() -> Any:
        status = SimpleNamespace(max_commit_ts=known_ts)
        return SimpleNamespace(drainers={"a": SimpleNamespace(status=status)})

    monkeypatch.setattr(Own, "answers", [position])
    made = context("Own", standby=True, node_id="a")
    made = replace(made, nodes=SimpleNamespace(view=view))
    if starts:
        await build_own.build(made)
        return
    with pytest.raises(ConfigError, match=r"has no savepoint, but drainer a was at 700") as raised:
        await build_own.build(made)
    assert "data-dir" in raised.value.hint


async def test_two_processes_do_not_write_with_one_data_directory(
    context: Callable[..., BuildContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_batch, "LOCK_WAIT_S", 0.0)
    monkeypatch.setattr(build_batch, "LOCK_PAUSE_S", 0.0)
    mine = context("Own")
    path = os.path.join(mine.settings.data_dir, build_batch.LOCK_NAME)
    other = os.open(path, os.O_RDWR | os.O_CREAT)
    assert build_batch.lock(other)
    with pytest.raises(DirectoryLocked, match="another drainer writes") as raised:
        await lock_data_dir(mine, SystemClock())
    assert raised.value.hint
    os.close(other)
    await lock_data_dir(mine, SystemClock())


async def test_a_takeover_is_rehearsed_without_opening_the_sink(
    context: Callable[..., BuildContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Own, "answers", [])
    made = context("Own")

    async def job(_number: int) -> None:
        return None

    made.upstream.history.job = job  # type: ignore[method-assign,assignment]
    await build.rehearse(made.settings, made.upstream)

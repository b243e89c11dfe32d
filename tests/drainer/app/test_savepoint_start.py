"""Where a sink without a checkpoint row begins: what it decides, never ahead of the upstream."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from drainer.app import build, build_json, first_rows, savepoint_start
from drainer.app.savepoint_start import Place, SavepointStart
from drainer.checkpoint.resume import AheadOfUpstream
from drainer.checkpoint.savepoint import SNAPSHOT_NAME, Savepoint
from drainer.checkpoint.value import Checkpoint
from drainer.config.options import DrainerConfig
from drainer.mysql.connection import Target, connect
from drainer.stream.schema.tracker import SchemaTracker
from tests.waiting import until
from tidb_binlog.errors import ConfigError, ForeignDirectory

NOW_TS = 500
LEFT_TS = 300
T = TypeVar("T")


async def at_once(ask: Callable[[], Awaitable[T]]) -> T:
    return await ask()


async def timestamp() -> int:
    return NOW_TS


async def view() -> Any:
    """A drainer was there before, and stored LEFT_TS."""
    return SimpleNamespace(drainers={"pair": SimpleNamespace(status=SimpleNamespace(max_commit_ts=LEFT_TS))})


def start(
    directory: Path, cluster_id: int = 7, *, ends: contextlib.AsyncExitStack | None = None, **settings: Any
) -> SavepointStart:
    context: Any = SimpleNamespace(
        settings=replace(DrainerConfig(), data_dir=str(directory), **settings),
        upstream=SimpleNamespace(cluster_id=cluster_id, oracle=SimpleNamespace(timestamp=timestamp)),
        operating=SimpleNamespace(wait_for=at_once),
        ends=ends,
        nodes=SimpleNamespace(view=view),
    )
    return SavepointStart(context)


@pytest.mark.parametrize(("initial_ts", "given"), [(-1, NOW_TS), (0, 0), (44, 44)])
async def test_the_initial_timestamp_is_given_to_what_decides(
    tmp_path: Path, initial_ts: int, given: int
) -> None:
    begin = start(tmp_path, initial_commit_ts=initial_ts)
    assert await begin.stored() is None
    assert await begin.place(lambda ts: Place(ts, 3), "it", "") == (given, 3)


async def test_a_start_that_stored_nothing_is_where_the_next_one_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sink failed at the first change: what was committed meanwhile is not passed over."""
    assert await start(tmp_path).place(Place, "it", "") == (NOW_TS, 0)
    monkeypatch.setitem(globals(), "NOW_TS", NOW_TS + 50)
    assert await start(tmp_path).place(Place, "it", "") == (NOW_TS - 50, 0)
    begin = start(tmp_path)
    begin.savepoint.save(Checkpoint(NOW_TS - 20, False, 0))
    assert await begin.place(Place, "it", "") == (NOW_TS, 0), "the savepoint counts"


@pytest.mark.parametrize(
    ("name", "standby", "initial_ts", "given"),
    [
        ("pair", True, -1, LEFT_TS),
        ("pair", True, 44, 44),
        ("pair", False, -1, LEFT_TS),
        ("new", True, -1, NOW_TS),
    ],
)
async def test_with_another_directory_it_begins_where_the_first_one_was(
    tmp_path: Path, name: str, standby: bool, initial_ts: int, given: int
) -> None:
    """What was committed after its last checkpoint is not passed over."""
    begin = start(tmp_path, node_id=name, standby=standby, initial_commit_ts=initial_ts)
    assert (await begin.place(Place, "it", "")).commit_ts == given


@pytest.mark.parametrize("standby", [True, False])
async def test_what_cannot_know_what_was_given_is_refused(tmp_path: Path, *, standby: bool) -> None:
    """The registry does not tell whether rows that come first are all there: the data directory does."""
    pair = {"node_id": "pair", "standby": standby}
    with pytest.raises(ConfigError, match="has no savepoint, but drainer pair was at 300") as raised:
        await start(tmp_path, **pair).first_rows(None)
    assert "data-dir" in raised.value.hint
    assert await start(tmp_path, **pair, initial_commit_ts=44).first_rows(None) is None, "asked for"
    assert await start(tmp_path, **pair).first_rows(None, 44) is None, "the sink knows"
    assert await start(tmp_path, node_id="new").first_rows(None) is None
    assert await start(tmp_path, node_id="new", standby=standby).place(Place, "it", "") == (NOW_TS, 0)
    assert await start(tmp_path, **pair).first_rows(None) is None, "one has begun here, and stored nothing"
    begin = start(tmp_path, **pair)
    begin.savepoint.save(Checkpoint(9, False, 2))
    assert await begin.first_rows(await begin.stored()) is None


async def test_who_gives_all_rows_first_misses_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def opened(*_: Any) -> str:
        return "rows"

    monkeypatch.setattr(first_rows, "open_first_rows", opened)
    pair = {"node_id": "pair", "load": True}
    assert await start(tmp_path, **pair).first_rows(None) == "rows"
    with pytest.raises(ConfigError, match="drainer pair was at 300"):
        await start(tmp_path, **pair, standby=True).first_rows(None)


@pytest.mark.parametrize("db_type", ["http", "stdout"])
async def test_a_standby_of_a_sink_without_position_says_beforehand_that_it_could_not(
    tmp_path: Path, db_type: str
) -> None:
    def settings(**more: Any) -> DrainerConfig:
        return DrainerConfig(db_type=db_type, data_dir=str(tmp_path), to_url="http://127.0.0.1:1/", **more)

    with pytest.raises(ConfigError, match="has no savepoint, but another drainer is active"):
        await build_json.rehearse(settings(), 7)
    await build_json.rehearse(settings(initial_commit_ts=44), 7)
    await build_json.rehearse(settings(checkpoint_type="mysql"), 7)
    (tmp_path / SNAPSHOT_NAME).touch()
    await build_json.rehearse(settings(), 7)
    (tmp_path / SNAPSHOT_NAME).unlink()
    Savepoint(str(tmp_path)).begin(NOW_TS)
    await build_json.rehearse(settings(), 7)


async def test_a_place_ahead_of_the_upstream_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "AHEAD_WAIT_S", -1.0)
    with pytest.raises(AheadOfUpstream, match="the store of cluster 7 is at 501") as raised:
        await start(tmp_path).place(lambda _: Place(NOW_TS + 1), "the store", "look there")
    assert raised.value.hint == "look there"
    assert await start(tmp_path).place(lambda _: Place(NOW_TS), "the store", "") == (NOW_TS, 0)


async def test_the_savepoint_is_that_of_the_data_directory(tmp_path: Path) -> None:
    checkpoint = Checkpoint(9, False, 2)
    start(tmp_path).savepoint.save(checkpoint)
    assert await start(tmp_path).stored() == checkpoint
    with pytest.raises(ForeignDirectory):
        start(tmp_path, cluster_id=8)


async def test_rows_up_to_its_place_an_earlier_life_has_translated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values that came before their column's DDL may be among them."""
    monkeypatch.setattr(
        savepoint_start, "Translator", lambda schema, rules, after_ts: SimpleNamespace(at=after_ts, looped=0)
    )
    begin: Any = start(tmp_path)
    begin.first = SimpleNamespace(tracker=SchemaTracker())
    assert (await begin.translator(Place(44))).at == 44


@pytest.mark.integration
async def test_the_savepoint_may_be_a_row_whose_session_ends_with_the_build(
    tmp_path: Path, target: Target
) -> None:
    where = {"checkpoint_host": target.host, "checkpoint_port": target.port, "checkpoint_schema": "kept"}
    login = {"checkpoint_user": target.user, "checkpoint_password": target.password}
    settings = {"db_type": "kafka", "checkpoint_type": "mysql", **where, **login}
    checkpoint, before = Checkpoint(9, False, 2), sessions(target)
    for name in "ab":
        (tmp_path / name).mkdir()
    async with contextlib.AsyncExitStack() as ends:
        begin = start(tmp_path / "a", ends=ends, **settings)
        assert await begin.stored() is None
        begin.savepoint.save(checkpoint)
        assert sessions(target) == before + 1
        assert await start(tmp_path / "b", ends=ends, **settings).stored() == checkpoint, "of another machine"
    await until(lambda: sessions(target) == before)


def sessions(target: Target) -> int:
    """Of others at the server."""
    connection = connect(target)
    try:
        listed = connection.rows(
            b"SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID != CONNECTION_ID()"
        )
    finally:
        connection.close()
    return int(listed[0][0])

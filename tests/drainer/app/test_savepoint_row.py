"""The savepoint as a row in a database, on a real server."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from drainer.checkpoint.savepoint import Savepoint
from drainer.checkpoint.savepoint_row import SavepointRow
from drainer.checkpoint.value import Checkpoint
from drainer.mysql.connection import Target, connect
from drainer.sink.savepoint_keeper import SavepointKeeper
from tests.drainer.support.apply_life import run
from tidb_binlog.clock import SystemClock
from tidb_binlog.errors import Conflict, Corruption, DownstreamError, Unavailable

pytestmark = pytest.mark.integration

CLUSTER = 7710435644538274662
GO_ROW = '{"consistent":true,"commitTS":17,"ts-map":{},"schema-version":5}'


def opened(target: Target, directory: Path) -> SavepointRow:
    return SavepointRow(str(directory), target, "kept", "at", CLUSTER)


def row(target: Target) -> Any:
    connection = connect(target)
    try:
        (stored,) = connection.rows(b"SELECT checkPoint FROM kept.at WHERE clusterID=%d" % CLUSTER)
    finally:
        connection.close()
    return json.loads(stored[0])


def write(target: Target, text: str) -> None:
    run(target, f"REPLACE INTO kept.at VALUES ({CLUSTER}, '{text}')")


def test_a_go_drainers_row_is_continued_and_the_file_follows(target: Target, tmp_path: Path) -> None:
    assert opened(target, tmp_path).load() is None
    write(target, GO_ROW)
    savepoint = opened(target, tmp_path)
    assert savepoint.load() == Checkpoint(17, True, 5)
    for commit_ts in (18, 19):
        savepoint.save(Checkpoint(commit_ts, False, 6))
    assert {**row(target), "ts-map": {}} == {
        "consistent": False, "commitTS": 19, "ts-map": {}, "schema-version": 6
    }  # fmt: skip
    assert Savepoint(str(tmp_path)).load() == Checkpoint(19, False, 6), "for a configuration without a server"


def test_the_row_counts_and_the_file_where_there_is_none(target: Target, tmp_path: Path) -> None:
    Savepoint(str(tmp_path)).save(Checkpoint(30, False, 6))
    assert opened(target, tmp_path).load() == Checkpoint(30, False, 6)
    write(target, GO_ROW)
    assert opened(target, tmp_path).load() == Checkpoint(17, True, 5)
    write(target, "{")
    with pytest.raises(Corruption):
        opened(target, tmp_path).load()


def test_another_programs_row_is_not_overwritten(target: Target, tmp_path: Path) -> None:
    mine, other = opened(target, tmp_path / "a"), opened(target, tmp_path / "b")
    for directory in ("a", "b"):
        (tmp_path / directory).mkdir()
    assert mine.load() is other.load() is None
    other.save(Checkpoint(20, False, 6))
    with pytest.raises(Conflict, match="another program wrote the checkpoint"):
        mine.save(Checkpoint(21, False, 6))
    assert row(target)["commitTS"] == 20
    assert Savepoint(str(tmp_path / "a")).load() is None


def test_what_cannot_be_had_says_where(target: Target, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="checkpoint server"):
        opened(replace(target, port=1, socket="", side="checkpoint server"), tmp_path).load()
    opened(target, tmp_path).load()
    run(target, "DROP TABLE kept.at", "CREATE TABLE kept.at (clusterID INT)")
    with pytest.raises(DownstreamError, match="reading the checkpoint row") as refused:
        opened(target, tmp_path).load()
    assert refused.value.hint == "check the server of [syncer.to.checkpoint]"


async def test_a_server_that_is_away_is_waited_for(
    target: Target, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    savepoint = opened(target, tmp_path)
    savepoint.load()
    there = savepoint._session.target
    savepoint._session.target = replace(there, port=1, socket="")
    savepoint._session.close()
    keeper = SavepointKeeper(savepoint, 0, SystemClock())
    saving = asyncio.create_task(keeper.save(40, 6))
    while "waits for its server" not in caplog.text:
        await asyncio.sleep(0.01)
    assert keeper.stored_ts == 0
    savepoint._session.target = there
    await saving
    assert row(target)["commitTS"] == keeper.stored_ts == 40

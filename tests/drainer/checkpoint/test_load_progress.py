"""Progress of a load on a real server: resumed from what is stored, fenced against an older load."""

from __future__ import annotations

import pytest

from drainer.checkpoint.inspection import inspect
from drainer.checkpoint.load_progress import (
    DONE,
    LOADING,
    ChunkState,
    LoadedChunk,
    LoadedTable,
    LoadProgress,
    LoadState,
    TableState,
    refuse_unfinished,
)
from drainer.mysql.connection import Target, connect
from tidb_binlog.errors import Conflict, Rejected

CLUSTER = 7710435644538274661
STATE = LoadState(run=500, phase=LOADING, ts=480, mode="new", program="d1")
TABLE = LoadedTable(3, ("shop", "o'rders"), ("copy", "o`rders"), "abc", True, TableState.READY)


@pytest.mark.integration
def test_what_is_stored_comes_back(target: Target) -> None:
    connection, progress = connect(target), LoadProgress("tidb_binlog", CLUSTER)
    assert progress.state(connection) is None, "nothing is made by a question"
    progress.create(connection)
    progress.put_state(connection, STATE)
    progress.put_tables(connection, [TABLE])
    progress.put_chunks(connection, 3, 500, [(0, "[0]"), (1, '[1, "\\u00e9\'\\\\"]')])
    progress.set_chunk(connection, 3, 1, 500, ChunkState.COPIED, ts=480, rows=7)
    connection.commit()
    assert progress.state(connection) == STATE
    assert progress.tables(connection) == [TABLE]
    first, second = progress.chunks(connection, 3)
    assert first == LoadedChunk(0, 0, ChunkState.PLANNED, 0, "[0]")
    assert second == LoadedChunk(1, 480, ChunkState.COPIED, 7, '[1, "\\u00e9\'\\\\"]')
    progress.clear(connection)
    assert (progress.state(connection), progress.tables(connection)) == (None, [])
    connection.commit()
    connection.close()


@pytest.mark.integration
def test_an_older_load_commits_nothing_any_more(target: Target) -> None:
    connection, progress = connect(target), LoadProgress("tidb_binlog", CLUSTER)
    progress.create(connection)
    progress.take_over(connection, STATE)
    progress.put_chunks(connection, 0, 500, [(0, "[0]")])
    progress.take_over(connection, LoadState(900, LOADING, 880, "new", "d1"))
    connection.commit()
    with pytest.raises(Conflict, match="another load"):
        progress.set_chunk(connection, 0, 0, 500, ChunkState.COPIED, ts=480, rows=1)
    with pytest.raises(Conflict, match="another load"):
        progress.hold(connection, 500)
    progress.set_chunk(connection, 0, 0, 900, ChunkState.COPIED, ts=880, rows=1)
    progress.hold(connection, 900)
    progress.clear(connection)
    connection.commit()
    connection.close()


@pytest.mark.integration
def test_a_drainer_starts_only_after_the_end_of_a_load(target: Target) -> None:
    connection, progress = connect(target), LoadProgress("tidb_binlog", CLUSTER)
    progress.create(connection)
    refuse_unfinished(inspect(target, "tidb_binlog", CLUSTER).load)
    progress.put_state(connection, STATE)
    connection.commit()
    with pytest.raises(Rejected, match="only partly loaded") as refused:
        refuse_unfinished(inspect(target, "tidb_binlog", CLUSTER).load)
    assert "binlogctl load" in refused.value.hint
    progress.put_state(connection, LoadState(500, DONE, 480, "new", "d1"))
    connection.commit()
    refuse_unfinished(inspect(target, "tidb_binlog", CLUSTER).load)
    progress.clear(connection)
    connection.commit()
    connection.close()

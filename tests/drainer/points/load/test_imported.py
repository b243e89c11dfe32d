"""What another tool has imported gets its checkpoint: in a database, and as a file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.checkpoint.backup_position import BackupPosition
from drainer.checkpoint.inspection import Inspection, inspect
from drainer.checkpoint.load_progress import LOADING, LoadProgress, LoadState
from drainer.checkpoint.safe_mode import SafeMode
from drainer.checkpoint.store import CheckpointStore
from drainer.mysql.session_lock import Claims
from drainer.points.load.imported import store_imported
from drainer.sink.savepoint_keeper import savepoint_of
from tests.drainer.points.load.load_bed import CLUSTER, Bed
from tidb_binlog.cluster.node import PAUSED
from tidb_binlog.errors import Conflict, Rejected

pytestmark = pytest.mark.integration


@pytest.fixture
def bed(mariadb: MariaDbServer) -> Iterator[Bed]:
    made = Bed(mariadb)
    yield made
    made.clean()


async def position(bed: Bed) -> BackupPosition:
    return BackupPosition("/backup/metadata", await bed.oracle.timestamp())


def stored(bed: Bed) -> Inspection:
    return inspect(bed.target, "tidb_binlog", CLUSTER)


async def test_a_drainer_goes_on_from_there_without_safe_mode(bed: Bed) -> None:
    bed.publish("t", [("id", "int")], ("id",))
    backup = await position(bed)
    bed.publish("later", [("id", "int")], ("id",))
    where = await store_imported(bed.settings(), bed.upstream, bed.nodes, backup)
    assert where.startswith("tidb_binlog.checkpoint of ")
    row = stored(bed).stored.row
    assert row is not None
    assert (row.commit_ts, row.consistent, row.schema_version) == (backup.ts, True, 2)
    entry = bed.nodes.drainers["load-test"]
    assert (entry.status.state, entry.status.max_commit_ts) == (PAUSED, backup.ts)
    store = CheckpointStore(bed.target, CLUSTER, schema="tidb_binlog", owner="load-test")
    try:
        start = store.start(2, 0, await bed.oracle.timestamp())
        assert {(place.commit_ts, place.rows) for place in start.positions} == {
            (backup.ts, start.positions[0].rows)
        }
        assert start.drained
        assert not start.foreign
        assert start.safe_mode == SafeMode()
        snapshot = store.load_schema(start)
    finally:
        store.close()
    assert snapshot is not None


async def test_a_checkpoint_that_is_there_stays_unless_told(bed: Bed) -> None:
    first = await position(bed)
    await store_imported(bed.settings(), bed.upstream, bed.nodes, first)
    second = await position(bed)
    with pytest.raises(Rejected, match="has a checkpoint of cluster") as raised:
        await store_imported(bed.settings(), bed.upstream, bed.nodes, second)
    assert "-yes" in raised.value.hint
    row = stored(bed).stored.row
    assert row is not None
    assert row.commit_ts == first.ts
    await store_imported(bed.settings(), bed.upstream, bed.nodes, second, replace=True)
    found = stored(bed).stored
    assert found.row is not None
    assert {found.row.commit_ts, *(lane.commit_ts for lane in found.lanes)} == {second.ts}


async def test_a_load_that_was_given_up_does_not_hold_the_drainer_back(bed: Bed) -> None:
    progress = LoadProgress("tidb_binlog", CLUSTER)
    connection = bed.connect()
    progress.create(connection)
    progress.put_state(connection, LoadState(7 << 18, LOADING, 7, "new", "load-test"))
    connection.commit()
    connection.close()
    backup = await position(bed)
    with pytest.raises(Rejected, match="only partly loaded"):
        await store_imported(bed.settings(), bed.upstream, bed.nodes, backup)
    await store_imported(bed.settings(), bed.upstream, bed.nodes, backup, replace=True)
    load = stored(bed).load
    assert load is not None
    assert not load.is_unfinished


async def test_what_runs_or_is_of_another_cluster_is_refused(bed: Bed) -> None:
    backup = await position(bed)
    for found, said in (
        (replace(backup, cluster_id=5), f"is of cluster 5, the upstream is {CLUSTER}"),
        (replace(backup, ts=backup.ts + (9**9 << 18)), "above the upstream's"),
    ):
        with pytest.raises(Rejected, match=said) as raised:
            await store_imported(bed.settings(), bed.upstream, bed.nodes, found)
        assert "pd-urls" in raised.value.hint
    connection = bed.connect()
    connection.rows(f"SELECT GET_LOCK('{Claims('tidb_binlog', CLUSTER).name('store')}', 0)".encode())
    with pytest.raises(Conflict, match="a Drainer works on this downstream"):
        await store_imported(bed.settings(), bed.upstream, bed.nodes, backup)
    connection.close()
    assert stored(bed).is_empty
    assert bed.nodes.drainers == {}


async def test_other_sinks_have_a_savepoint(bed: Bed, tmp_path: Path) -> None:
    bed.options.update(db_type="file", data_dir=str(tmp_path / "d"))
    (tmp_path / "d").mkdir()
    first, second = await position(bed), await position(bed)
    where = await store_imported(bed.settings(), bed.upstream, bed.nodes, first)
    assert f"commitTS = {first.ts}\n" in Path(where).read_text()
    with pytest.raises(Rejected, match=f"is there already, at {first.ts}"):
        await store_imported(bed.settings(), bed.upstream, bed.nodes, second)
    await store_imported(bed.settings(), bed.upstream, bed.nodes, second, replace=True)
    assert f"commitTS = {second.ts}\n" in Path(where).read_text()
    assert bed.nodes.drainers["load-test"].status.max_commit_ts == second.ts


@pytest.mark.parametrize("sink", ["mysql", "file"])
async def test_an_incremental_backup_goes_on_where_the_checkpoint_is(
    bed: Bed, tmp_path: Path, sink: str
) -> None:
    """Of what came between nothing is downstream, whatever was answered with -yes."""
    bed.options.update(db_type=sink, data_dir=str(tmp_path))
    first, second, third = [await position(bed) for _ in range(3)]
    later = replace(third, from_ts=second.ts)
    await store_imported(bed.settings(), bed.upstream, bed.nodes, first)
    with pytest.raises(
        Rejected, match=f"came after {second.ts}, and the checkpoint is at {first.ts}"
    ) as raised:
        await store_imported(bed.settings(), bed.upstream, bed.nodes, later, replace=True)
    assert "in their order" in raised.value.hint
    for backup in (second, later):
        await store_imported(bed.settings(), bed.upstream, bed.nodes, backup, replace=True)
    assert bed.nodes.drainers["load-test"].status.max_commit_ts == third.ts


async def test_a_savepoint_that_is_a_row_is_the_one_that_counts(bed: Bed, tmp_path: Path) -> None:
    target = bed.target
    bed.options.update(
        db_type="kafka",
        data_dir=str(tmp_path),
        checkpoint_type="mysql",
        checkpoint_schema="tidb_binlog",
        checkpoint_host=target.host,
        checkpoint_port=target.port,
        checkpoint_user=target.user,
        checkpoint_password=target.password,
    )
    first, second = await position(bed), await position(bed)
    where = await store_imported(bed.settings(), bed.upstream, bed.nodes, first)
    assert where.startswith("tidb_binlog.checkpoint of ")
    with pytest.raises(Rejected, match=f"checkpoint of .* is there already, at {first.ts}"):
        await store_imported(bed.settings(), bed.upstream, bed.nodes, second)
    await store_imported(bed.settings(), bed.upstream, bed.nodes, second, replace=True)
    savepoint = savepoint_of(bed.settings(), CLUSTER)
    row = savepoint.load()
    savepoint.close()
    assert row is not None
    assert row.commit_ts == second.ts

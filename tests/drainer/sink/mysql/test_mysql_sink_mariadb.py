"""The apply side on recorded TiDB binlogs and a real MariaDB: contents, crashes, DDL, take-over."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from drainer.mysql.connection import Target, connect
from drainer.stream.pull.merged import Merged
from drainer.txn import INSERT
from tests.drainer.support.apply_life import (
    CORPUS,
    Life,
    Recording,
    clean,
    column,
    create_job,
    created,
    differences,
    read,
    stored_ts,
)
from tests.waiting import PATIENCE_S
from tidb_binlog import binlog
from tidb_binlog.errors import Corruption
from tidb_binlog.rowcodec.encoder import RowEncoder, prewrite_value
from tidb_binlog.table_info import FLAG_NOT_NULL, FLAG_PRIMARY, LONG, VARCHAR, TableInfo
from tidb_binlog.wire import binlog_pb2

SCENARIOS = {path.name for path in CORPUS.iterdir() if (path / "expected.json.gz").exists()}
CRASHED = ("basic", "keys", "txn", "ddl")

pytestmark = pytest.mark.integration


@pytest.fixture
def target(server: Target) -> Iterator[Target]:
    """Each downstream that is given, holding nothing, and left so."""
    clean(server)
    yield server
    clean(server)


@pytest.mark.parametrize("name", sorted(SCENARIOS.difference(CRASHED)))
async def test_contents_equal_tidb(name: str, target: Target) -> None:
    assert await Life(read(name), target).run()
    assert differences(name, target) == []


@pytest.mark.parametrize("name", CRASHED)
async def test_contents_equal_after_crashes_at_random_moments(name: str, target: Target) -> None:
    recording = read(name)
    rng = random.Random(name)
    for _ in range(12):
        if await Life(recording, target, batch_rows=3).run(size=3, seconds=rng.uniform(0.0, 0.4)):
            break
    assert await Life(recording, target, lanes=3).run()
    assert differences(name, target) == []


async def test_checkpoint_row_is_what_a_go_drainer_leaves(target: Target) -> None:
    recording = read("basic")
    await Life(recording, target).run()
    connection = connect(target)
    ((cluster_id, text),) = connection.rows(b"SELECT * FROM tidb_binlog.checkpoint")
    connection.close()
    recorded = json.loads((CORPUS / "basic" / "checkpoint.json").read_text())
    (row,) = recorded["mysql_checkpoint_rows_after_stop"]
    ours: dict[str, Any] = json.loads(text)
    theirs: dict[str, Any] = json.loads(row["checkPoint"])
    assert str(cluster_id) == row["clusterID"]
    assert list(ours)[: len(theirs)] == list(theirs)
    assert ours["consistent"] is theirs["consistent"] is True
    assert ours["schema-version"] == theirs["schema-version"]
    assert ours["commitTS"] == recording.entries[-1].commit_ts


def crafted(recording: Recording, after: int, value: bytes) -> Recording:
    """The recording up to its `after`-th row transaction, then one whose prewrite value is `value`."""
    rows = [index for index, entry in enumerate(recording.entries) if entry.job is None]
    kept = recording.entries[: rows[after] + 1]
    last_ts = kept[-1].commit_ts
    payload = binlog.join(
        binlog.prewrite(last_ts + 1, b"k", value), binlog.commit(last_ts + 1, last_ts + 2, b"k")
    )
    return Recording(recording.cluster_id, recording.jobs, [*kept, Merged(last_ts + 2, payload)])


UNKNOWN_TABLE = prewrite_value(48, [(999_999, [INSERT], [bytes.fromhex("08020804020261")])])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"\x12\x7f\x08", "commit_ts"),
        (UNKNOWN_TABLE, "table id 999999"),
    ],
)
async def test_bad_binlogs_stop_before_them(target: Target, value: bytes, text: str) -> None:
    recording = crafted(read("basic"), 3, value)
    with pytest.raises(Corruption, match=text) as raised:
        await Life(recording, target).run(size=1)
    assert raised.value.exit_code == 6
    assert stored_ts(target) < recording.entries[-1].commit_ts


async def test_a_row_that_cannot_be_decoded_names_its_column(target: Target) -> None:
    recording = read("basic")
    (at,) = [i for i, entry in enumerate(recording.entries) if entry.job is None][:1]
    message = binlog.parse(recording.entries[at].payload)
    value = binlog_pb2.PrewriteValue.FromString(message.prewrite_value)
    mutation = value.mutations[0]
    mutation.inserted_rows[0] = mutation.inserted_rows[0][:-1]
    message.prewrite_value = value.SerializeToString()
    # The last of the recording: an image that a later one replaces is never rendered.
    recording.entries[at:] = [Merged(recording.entries[at].commit_ts, message.SerializeToString())]
    with pytest.raises(Corruption, match="column") as raised:
        await Life(recording, target).run(size=1)
    assert "customer" in str(raised.value)
    assert stored_ts(target) < recording.entries[at].commit_ts


async def test_half_a_transaction_is_never_applied(target: Target) -> None:
    """The second row's key cannot be read: the first row, in a table without key, must not be there."""
    keyless = TableInfo(7, "t", (column(1, "a", LONG), column(2, "b", VARCHAR)))
    keyed = TableInfo(8, "k", (column(1, "id", LONG, FLAG_NOT_NULL | FLAG_PRIMARY),), pk_is_handle=True)
    jobs = [create_job(keyless), create_job(keyed, job_id=10, schema_version=2)]
    good = RowEncoder(keyless).insert({"a": 1, "b": "x"}, rowid=1)
    value = prewrite_value(2, [(7, [INSERT], [good]), (8, [INSERT], [b"\x08"])])
    payload = binlog.join(binlog.prewrite(2000, b"k", value), binlog.commit(2000, 2001, b"k"))
    entries = [created(job, ts) for job, ts in zip(jobs, (900, 950), strict=True)]
    recording = Recording(4711, [json.dumps(job).encode() for job in jobs], [*entries, Merged(2001, payload)])
    life = Life(recording, target)
    run = asyncio.create_task(life.runner.run(life.batches(50)))
    with pytest.raises(Corruption):
        await run
    assert await life.runner.stop(PATIENCE_S)
    connection = connect(target)
    assert connection.rows(b"SELECT * FROM d.t") == []
    connection.close()
    assert stored_ts(target) < 2001


async def test_keyless_rows_are_neither_lost_nor_doubled(target: Target) -> None:
    """60,000 rows into a table without a key, ended dead ten times at random moments."""
    table = TableInfo(7, "t", (column(1, "a", LONG), column(2, "b", VARCHAR)))
    encoder = RowEncoder(table)
    job = create_job(table)
    entries = [created(job)]
    for number in range(300):
        rows = [
            encoder.insert({"a": number * 200 + i, "b": "x" * 40}, rowid=number * 200 + i + 1)
            for i in range(200)
        ]
        value = prewrite_value(1, [(7, [INSERT] * 200, rows)])
        ts = 1000 + 10 * number
        payload = binlog.join(binlog.prewrite(ts, b"k", value), binlog.commit(ts, ts + 1, b"k"))
        entries.append(Merged(ts + 1, payload))
    recording = Recording(4711, [json.dumps(job).encode()], entries)
    rng = random.Random(1)
    for dies_at_ts in sorted(rng.sample(range(1000, 4000), 10)):
        life = Life(recording, target, batch_rows=400)
        assert not await life.run(size=5, dies_at_ts=dies_at_ts)
    assert await Life(recording, target).run()
    connection = connect(target)
    ((count, distinct),) = connection.rows(b"SELECT COUNT(*), COUNT(DISTINCT a) FROM d.t")
    connection.close()
    assert (count, distinct) == (60_000, 60_000)

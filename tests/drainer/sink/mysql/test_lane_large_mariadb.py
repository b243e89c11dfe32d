"""Large transactions in pieces through the lanes into a real MariaDB: recorded ones, and one with crashes."""

from __future__ import annotations

import json

import pytest

from drainer.mysql.connection import Target, connect
from drainer.stream.pull import large_txn
from drainer.stream.pull.merged import Merged
from drainer.txn import DELETE, INSERT, UPDATE
from tests.drainer.support.apply_life import Life, Recording, create_job, created, differences, read
from tests.drainer.support.basis_world import keyed, keyless, spilled
from tidb_binlog import binlog
from tidb_binlog.rowcodec.encoder import RowEncoder, prewrite_value

pytestmark = pytest.mark.integration

START_TS, COMMIT_TS = 2000, 2001


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that transactions of a test have many."""
    assert large_txn.pieces.__kwdefaults__ is not None
    monkeypatch.setitem(large_txn.pieces.__kwdefaults__, "rows_max", 7)


@pytest.mark.parametrize("name", ["basic", "keys"])
async def test_contents_equal_tidb(name: str, target: Target) -> None:
    recording = read(name)
    recording = Recording(recording.cluster_id, recording.jobs, [*map(spilled, recording.entries)])
    assert await Life(recording, target).run()
    assert differences(name, target) == []


KEYLESS, KEYED = keyless(7, "t"), keyed(8, "k")


def one_transaction(rows: int) -> Recording:
    """Inserts into a table without key and one with a key, then updates and deletes in the latter."""
    jobs = [create_job(KEYLESS), create_job(KEYED, job_id=10, schema_version=2)]
    without_key, row_of = RowEncoder(KEYLESS), RowEncoder(KEYED)
    changes = [(INSERT, row_of.insert((number, "new"))) for number in range(rows)]
    changes += [(UPDATE, row_of.update((number, "new"), (number, "changed"))) for number in range(0, rows, 2)]
    changes += [(DELETE, row_of.delete((number, "new"))) for number in range(1, rows, 4)]
    several = [without_key.insert((number % 3, "same"), number) for number in range(rows)]
    value = prewrite_value(
        2, [(7, [INSERT] * rows, several), (8, [kind for kind, _ in changes], [row for _, row in changes])]
    )
    payload = binlog.join(binlog.prewrite(START_TS, b"k", value), binlog.commit(START_TS, COMMIT_TS, b"k"))
    entries = [created(job, ts) for job, ts in zip(jobs, (900, 950), strict=True)]
    large = spilled(Merged(COMMIT_TS, payload))
    return Recording(4711, [json.dumps(job).encode() for job in jobs], [*entries, large])


def counted(target: Target) -> int:
    """Rows in the table without key."""
    connection = connect(target)
    try:
        if not connection.rows(b"SHOW DATABASES LIKE 'd'"):
            return 0
        if not connection.rows(b"SHOW TABLES FROM d LIKE 't'"):
            return 0
        return int(connection.rows(b"SELECT COUNT(*) FROM d.t")[0][0])
    finally:
        connection.close()


async def test_a_large_transaction_is_applied_once_over_crashes_in_the_middle_of_it(
    target: Target,
) -> None:
    """The table without a key counts: a row applied twice, or not at all, shows."""
    rows = 3000
    recording = one_transaction(rows)
    inside, seconds = 0, 0.05
    while not await Life(recording, target, batch_rows=10).run(seconds=seconds):
        inside += 0 < counted(target) < rows
        seconds *= 1.1  # slow or fast, a machine is in the middle of it at one of them
    connection = connect(target)
    try:
        counts = connection.rows(b"SELECT id, COUNT(*) FROM d.t GROUP BY id ORDER BY id")
        assert [(int(one), int(count)) for one, count in counts] == [(each, rows // 3) for each in range(3)]
        found = connection.rows(b"SELECT id, v FROM d.k ORDER BY id")
        assert [(int(number), text) for number, text in found] == [
            (number, "new" if number % 2 else "changed") for number in range(rows) if number % 4 != 1
        ]
    finally:
        connection.close()
    assert inside

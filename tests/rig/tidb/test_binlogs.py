"""What is read of the binlogs of a TiDB: how transactions ended, and where a table contradicts itself."""

from __future__ import annotations

from tests.common.rowcodec.tables import kind, table
from tests.rig.tidb.binlogs import Overwritten, changes, contradicted, overwritten, unfinished
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.wire.binlog_pb2 import Binlog, BinlogType, MutationType, PrewriteValue, TableMutation

INSERT, UPDATE, DELETE = MutationType.Insert, MutationType.Update, MutationType.DeleteRow
KEYLESS = RowEncoder(table(("a", kind("bigint")), ("b", kind("varchar")), handle="rowid"))


def transaction(commit_ts: int, *rows: tuple[MutationType.ValueType, int], table_id: int = 7) -> list[Binlog]:
    """Both binlogs of (kind, rowid); `commit_ts` is odd."""
    mutation = TableMutation(table_id=table_id)
    for number, rowid in rows:
        values = (rowid * 2, "x")
        mutation.sequence.append(number)
        if number == INSERT:
            mutation.inserted_rows.append(KEYLESS.insert(values, rowid=rowid))
        elif number == UPDATE:
            mutation.updated_rows.append(KEYLESS.update(values, (rowid, "y"), rowid=rowid))
        else:
            mutation.deleted_rows.append(KEYLESS.delete(values, rowid=rowid))
    value = PrewriteValue(mutations=[mutation]).SerializeToString()
    start_ts = commit_ts - 1
    prewrite = Binlog(tp=BinlogType.Prewrite, start_ts=start_ts, prewrite_key=b"k", prewrite_value=value)
    return [prewrite, Binlog(tp=BinlogType.Commit, start_ts=start_ts, commit_ts=commit_ts)]


def test_a_transaction_without_an_outcome_is_told_with_its_key() -> None:
    (one, _), (other, end) = transaction(11, (INSERT, 1)), transaction(21, (INSERT, 1))
    rolled_back = Binlog(tp=BinlogType.Rollback, start_ts=30)
    begun = Binlog(tp=BinlogType.Prewrite, start_ts=30)
    assert unfinished([end, one, other, begun, rolled_back]) == [(10, b"k")]


def test_a_commit_of_what_a_pump_has_settled_as_rolled_back_is_a_contradiction() -> None:
    settled = [Binlog(tp=BinlogType.Rollback, start_ts=start_ts, settled=True) for start_ts in (10, 30)]
    rolled_back = Binlog(tp=BinlogType.Rollback, start_ts=20)
    log = [*transaction(11, (INSERT, 1)), *transaction(21, (INSERT, 2)), rolled_back, *settled]
    assert contradicted(log) == {10}


def test_changes_come_as_they_were_committed_with_their_rowids() -> None:
    (late, _) = transaction(41, (INSERT, 9))
    log = [*transaction(21, (UPDATE, -3), (DELETE, 2**40)), *transaction(11, (INSERT, 1)), late]
    log += transaction(31, (INSERT, 5), table_id=8)
    read = list(changes(log, {7}))
    assert [one[:3] for one in read] == [(11, INSERT, 1), (21, UPDATE, -3), (21, DELETE, 2**40)]
    assert [len(one.images) for one in read] == [0, 2, 1]


def test_a_row_in_the_place_of_another_is_told_once_for_each() -> None:
    log = [
        *transaction(11, (INSERT, 1), (INSERT, 2), (INSERT, 3)),
        *transaction(21, (DELETE, 2), (INSERT, 2), (UPDATE, 3)),
        *transaction(31, (INSERT, 1)),
        *transaction(41, (DELETE, 1), (INSERT, 1)),
        *transaction(51, (INSERT, 3)),
    ]
    assert overwritten(changes(log, {7})) == [Overwritten(1, 11, 31), Overwritten(3, 11, 51)]


def test_a_row_that_is_changed_twice_as_it_was_before_is_told() -> None:
    log = [
        *transaction(11, (UPDATE, 1), (UPDATE, 3), (UPDATE, 4)),
        *transaction(21, (UPDATE, 2), (DELETE, 2)),
        *transaction(31, (DELETE, 1), (INSERT, 3)),
        *transaction(41, (UPDATE, 3), (INSERT, 1), (DELETE, 1)),
    ]
    told = [Overwritten(2, 21, 21), Overwritten(1, 11, 31)]
    assert overwritten(changes(log, {7})) == told

"""Publisher: order of steps, outcomes, leases; in memory."""

from __future__ import annotations

import asyncio
import json

import pytest

from pumpclient import (
    BinlogTooLarge,
    ClientClosed,
    Failure,
    InvalidBinlog,
    Kind,
    OutcomeUnknown,
    Publisher,
    TransactionLost,
    TransactionOver,
    TransactionState,
    WriteFailed,
)
from pumpclient.send.transport import TransportFailure
from pumpclient.testing import MemoryCluster, settle
from tidb_binlog import binlog
from tidb_binlog.errors import ConfigError, Conflict, Unavailable
from tidb_binlog.rowcodec.encoder import prewrite_value
from tidb_binlog.upstream_port import Committed, RolledBack, Undecided
from tidb_binlog.wire import binlog_pb2

P, C, R = binlog.PREWRITE, binlog.COMMIT, binlog.ROLLBACK
JOB = json.dumps({"id": 77, "type": 3, "binlog": {"SchemaVersion": 12}}).encode()


async def publisher_of(*pump_ids: str) -> tuple[MemoryCluster, Publisher]:
    cluster = MemoryCluster(pump_ids or ("a",))
    return cluster, await cluster.publisher()


def steps(cluster: MemoryCluster) -> list[str]:
    return [name for name, _ in cluster.upstream.log]


async def test_commit_ts_is_drawn_after_the_prewrite_was_acknowledged() -> None:
    """The pump is asked to look at the upstream at the moment it stores each payload."""
    cluster, publisher = await publisher_of("a")
    seen: list[tuple[int, list[str]]] = []
    write = cluster.transport.write

    async def watching(address: str, cluster_id: int, payload: bytes, timeout_s: float) -> None:
        await write(address, cluster_id, payload, timeout_s)
        seen.append((binlog.parse(payload).tp, steps(cluster)))

    cluster.transport.write = watching  # type: ignore[method-assign]
    async with publisher:
        async with publisher.transaction() as txn:
            txn.insert(5, b"row")
        assert txn.commit_ts > txn.start_ts
        assert await publisher.flush(1.0)
    assert seen == [(P, ["begin"]), (C, ["begin", "commit"])]
    assert steps(cluster) == ["begin", "commit", "forget"]
    assert cluster.pumps["a"].transactions() == [(P, txn.start_ts, 0), (C, txn.start_ts, txn.commit_ts)]
    assert cluster.upstream.entries == {}


async def test_rows_become_one_mutation_per_table_in_order() -> None:
    cluster, publisher = await publisher_of()
    async with publisher, publisher.transaction(schema_version=9, key=b"primary") as txn:
        txn.insert(5, b"i1")
        txn.add(7, Kind.DELETE, b"d7")
        txn.update(5, b"u1")
        txn.delete(5, b"d1")
        txn.insert(5, b"i2")
    message = binlog.parse(cluster.pumps["a"].payloads[0])
    assert message.prewrite_key == b"primary"
    value = binlog_pb2.PrewriteValue.FromString(message.prewrite_value)
    assert value.schema_version == 9
    first, second = value.mutations
    assert (first.table_id, list(first.sequence)) == (5, [0, 1, 4, 0])
    assert (list(first.inserted_rows), list(first.updated_rows)) == ([b"i1", b"i2"], [b"u1"])
    assert list(first.deleted_rows) == [b"d1"]
    assert (second.table_id, list(second.sequence), list(second.deleted_rows)) == (7, [4], [b"d7"])


async def test_a_prewrite_is_what_the_row_codec_makes_of_the_same_rows() -> None:
    cluster, publisher = await publisher_of()
    async with publisher, publisher.transaction(schema_version=9) as txn:
        txn.insert(5, b"i1")
        txn.insert(7, b"i7")
        txn.update(5, b"u1")
        txn.delete(5, b"d1")
    value = binlog.parse(cluster.pumps["a"].payloads[0]).prewrite_value
    assert value == prewrite_value(9, [(5, (0, 1, 2), (b"i1", b"u1", b"d1")), (7, (0,), (b"i7",))])


async def test_a_transaction_without_rows_writes_no_binlog() -> None:
    cluster, publisher = await publisher_of()
    async with publisher:
        async with publisher.transaction() as txn:
            pass
        await publisher.flush()
        assert txn.commit_ts > txn.start_ts
    assert cluster.pumps["a"].attempts == 0
    assert cluster.upstream.entries == {}


async def test_an_exception_before_the_commit_rolls_back() -> None:
    cluster, publisher = await publisher_of()
    async with publisher:
        with pytest.raises(RuntimeError, match="of the host"):  # noqa: PT012
            async with publisher.transaction() as txn:
                txn.insert(5, b"row")
                raise RuntimeError("of the host")
        await publisher.flush()
        assert txn.state is TransactionState.ROLLED_BACK
    assert steps(cluster) == ["begin", "roll_back", "forget"]
    assert cluster.pumps["a"].attempts == 0


@pytest.mark.parametrize("deliver", [True, False])
async def test_a_prewritten_transaction_is_rolled_back_at_its_pump(deliver: bool) -> None:
    cluster, publisher = await publisher_of()
    async with publisher:
        async with publisher.transaction() as txn:
            txn.insert(5, b"row")
            await txn.prewrite()
            await txn.roll_back(deliver=deliver)
        await publisher.flush()
        kinds = [tp for tp, _, _ in cluster.pumps["a"].transactions()]
        assert kinds == ([P, R] if deliver else [P])
        kept = {} if deliver else {txn.start_ts: RolledBack()}
        assert cluster.upstream.entries == kept


async def test_a_commit_that_is_not_delivered_is_recorded_upstream() -> None:
    cluster, publisher = await publisher_of()
    async with publisher:
        txn = publisher.transaction()
        await txn.begin()
        txn.insert(5, b"row")
        commit_ts = await txn.commit(deliver=False)
        await publisher.flush()
    assert cluster.pumps["a"].transactions() == [(P, txn.start_ts, 0)]
    assert cluster.upstream.entries == {txn.start_ts: Committed(commit_ts)}


async def test_an_abandoned_transaction_is_decided_by_its_lease() -> None:
    cluster, publisher = await publisher_of()
    async with publisher:
        async with publisher.transaction(ttl_s=3.0) as txn:
            txn.insert(5, b"row")
            await txn.abandon()
        await cluster.time.run(2.9)
        assert await cluster.upstream.transactions.outcomes([(txn.start_ts, b"")]) == [Undecided(3.0)]
        await cluster.time.run(0.2)
        assert await cluster.upstream.transactions.outcomes([(txn.start_ts, b"")]) == [RolledBack()]
    assert cluster.pumps["a"].transactions() == [(P, txn.start_ts, 0)]
    assert "keep_alive" not in steps(cluster)


async def test_a_long_transaction_keeps_its_lease() -> None:
    cluster, publisher = await publisher_of()
    async with publisher:
        async with publisher.transaction(ttl_s=3.0) as txn:
            for _ in range(30):
                await cluster.time.run(1.0)
                (outcome,) = await cluster.upstream.transactions.outcomes([(txn.start_ts, b"")])
                assert isinstance(outcome, Undecided)
            txn.insert(5, b"row")
        assert txn.state is TransactionState.COMMITTED
        renewed = steps(cluster).count("keep_alive")
        await cluster.time.run(30.0)
        assert steps(cluster).count("keep_alive") == renewed == 30


async def test_a_lease_that_cannot_be_renewed_for_a_moment_does_no_harm() -> None:
    cluster, publisher = await publisher_of()
    async with publisher, publisher.transaction(ttl_s=3.0) as txn:
        cluster.upstream.failing["keep_alive"] = Unavailable("etcd is away")
        await cluster.time.run(1.5)
        cluster.upstream.failing.clear()
        await cluster.time.run(20.0)
        assert isinstance((await cluster.upstream.transactions.outcomes([(txn.start_ts, b"")]))[0], Undecided)


async def test_a_transaction_that_others_rolled_back_cannot_commit() -> None:
    """Noticed by the renewal (before the prewrite) or by the commit itself (after it)."""
    for prewrite_first in (False, True):
        cluster, publisher = await publisher_of()
        async with publisher:
            txn = publisher.transaction(ttl_s=3.0)
            await txn.begin()
            txn.insert(5, b"row")
            if prewrite_first:
                await txn.prewrite()
            await cluster.upstream.transactions.roll_back(txn.start_ts)
            if not prewrite_first:
                await cluster.time.run(1.0)
                assert txn.lost
            with pytest.raises(TransactionLost) as caught:
                await txn.commit()
            assert isinstance(caught.value, Conflict)
            assert txn.state is TransactionState.ROLLED_BACK
            await publisher.flush()
            kinds = [tp for tp, _, _ in cluster.pumps["a"].transactions()]
            assert kinds == ([P, R] if prewrite_first else [])


async def test_a_commit_whose_answer_is_lost_is_asked_again() -> None:
    cluster, publisher = await publisher_of()
    async with publisher:
        txn = publisher.transaction()
        await txn.begin()
        txn.insert(5, b"row")
        cluster.upstream.failing["commit"] = Unavailable("etcd is away")
        commit = asyncio.ensure_future(txn.commit())
        await cluster.time.run(5.0)
        assert not commit.done()
        cluster.upstream.failing.clear()
        await cluster.time.run(1.0)
        assert await commit == txn.commit_ts > txn.start_ts


async def test_an_outcome_nobody_knows_is_never_reported_as_rollback() -> None:
    cluster, publisher = await publisher_of()
    async with publisher:
        txn = publisher.transaction()
        await txn.begin()
        txn.insert(5, b"row")
        cluster.upstream.failing["commit"] = Unavailable("etcd is away")
        commit = asyncio.ensure_future(txn.commit())
        await cluster.time.run(11.0)
        with pytest.raises(OutcomeUnknown):
            await commit
        assert txn.state is TransactionState.UNKNOWN
        with pytest.raises(TransactionOver):
            await txn.roll_back()
    assert cluster.pumps["a"].transactions() == [(P, txn.start_ts, 0)]
    assert "roll_back" not in steps(cluster)


async def test_a_cancelled_commit_is_never_reported_as_rollback() -> None:
    cluster, publisher = await publisher_of()
    async with publisher:
        txn = publisher.transaction()
        await txn.begin()
        txn.insert(5, b"row")
        cluster.upstream.failing["commit"] = Unavailable("etcd is away")
        commit = asyncio.ensure_future(txn.commit())
        await settle()
        commit.cancel()
        with pytest.raises(asyncio.CancelledError):
            await commit
        assert txn.state is TransactionState.UNKNOWN
    assert "roll_back" not in steps(cluster)


async def test_a_prewrite_no_pump_takes_rolls_the_transaction_back() -> None:
    cluster, publisher = await publisher_of("a")
    cluster.pumps["a"].broken = Failure.TOO_LARGE
    async with publisher:
        with pytest.raises(BinlogTooLarge):
            async with publisher.transaction() as txn:
                txn.insert(5, b"row")
        assert txn.state is TransactionState.ROLLED_BACK
    assert steps(cluster) == ["begin", "roll_back", "forget"]


@pytest.mark.parametrize("cancelled", [False, True])
async def test_rows_that_a_pump_may_have_are_never_written_again_with_others(cancelled: bool) -> None:
    """The answer to the prewrite is lost, and the program goes on with the transaction."""
    cluster, publisher = await publisher_of("a")
    write = cluster.transport.write

    async def loses_answer(address: str, cluster_id: int, payload: bytes, timeout_s: float) -> None:
        await write(address, cluster_id, payload, timeout_s)
        if cancelled:
            await asyncio.Event().wait()
        raise TransportFailure(Failure.UNREACHABLE, "no answer")

    async with publisher:
        txn = publisher.transaction(ttl_s=300.0)
        await txn.begin()
        txn.insert(5, b"row")
        cluster.transport.write = loses_answer  # type: ignore[method-assign]
        prewrite = asyncio.ensure_future(txn.prewrite())
        await settle()
        with pytest.raises(TransactionOver, match="prewriting"):
            txn.insert(5, b"another one")
        if cancelled:
            prewrite.cancel()
        await cluster.time.run(100.0)
        with pytest.raises(asyncio.CancelledError if cancelled else WriteFailed):
            await prewrite
        cluster.transport.write = write  # type: ignore[method-assign]
        with pytest.raises(TransactionOver, match="rolled back"):
            txn.insert(5, b"another one")
        with pytest.raises(TransactionOver, match="rolled back"):
            await txn.commit()
        assert set(cluster.pumps["a"].payloads) == {cluster.pumps["a"].payloads[0]}
    assert steps(cluster) == ["begin", "roll_back", "forget"]


async def test_a_transaction_that_ends_while_a_pump_gets_its_rows_stays_ended() -> None:
    cluster, publisher = await publisher_of("a")
    async with publisher:
        txn = publisher.transaction()
        await txn.begin()
        txn.insert(5, b"row")
        commit = asyncio.ensure_future(txn.commit())
        await asyncio.sleep(0)
        with pytest.raises(TransactionOver, match="prewriting"):
            await txn.commit()
        await txn.roll_back()
        with pytest.raises(TransactionOver, match="rolled back"):
            await commit
        assert txn.state is TransactionState.ROLLED_BACK
    assert "commit" not in steps(cluster)


async def test_the_entry_stays_while_the_commit_is_not_delivered() -> None:
    cluster, publisher = await publisher_of("a")
    async with publisher:
        txn = publisher.transaction()
        await txn.begin()
        txn.insert(5, b"row")
        await txn.prewrite()
        cluster.pumps["a"].broken = Failure.UNREACHABLE
        await txn.commit()
        await cluster.time.run(700.0)
        assert await publisher.flush(0)
        assert cluster.upstream.entries == {txn.start_ts: Committed(txn.commit_ts)}
        assert publisher.client.counters.finishes_lost == 1


async def test_steps_out_of_order() -> None:
    _, publisher = await publisher_of()
    with pytest.raises(ConfigError):
        publisher.transaction(ttl_s=0)
    async with publisher:
        txn = publisher.transaction()
        with pytest.raises(TransactionOver):
            txn.insert(5, b"row")
        await txn.begin()
        with pytest.raises(TransactionOver):
            await txn.begin()
        with pytest.raises(InvalidBinlog):
            txn.insert(0, b"row")
        with pytest.raises(ValueError):
            txn.add(5, 3, b"row")  # type: ignore[arg-type]
        await txn.commit()
        for late in (txn.commit, txn.roll_back, txn.abandon, txn.prewrite):
            with pytest.raises(TransactionOver):
                await late()
    with pytest.raises(ClientClosed):
        await publisher.transaction().begin()


async def test_a_schema_change_is_in_the_history_before_its_commit() -> None:
    cluster, publisher = await publisher_of()
    async with publisher:
        commit_ts = await publisher.ddl(JOB, "create table t (a int)")
        await publisher.flush()
        assert publisher.schema_version == 12
        async with publisher.transaction() as txn:
            assert txn._value.schema_version == 12
    assert steps(cluster)[:3] == ["begin", "commit", "forget"]
    message = binlog.parse(cluster.pumps["a"].payloads[0])
    assert (message.tp, message.ddl_job_id, message.ddl_schema_state) == (P, 77, 5)
    assert message.ddl_query == b"create table t (a int)"
    assert cluster.pumps["a"].transactions()[1] == (C, message.start_ts, commit_ts)
    assert cluster.upstream.job_list == [JOB]


async def test_a_schema_change_whose_end_nobody_knows_is_not_rolled_back() -> None:
    cluster, publisher = await publisher_of()
    cluster.upstream.failing["commit"] = Unavailable("etcd is away")
    async with publisher:
        change = asyncio.ensure_future(publisher.ddl(JOB, "create table t (a int)"))
        await cluster.time.run(11.0)
        with pytest.raises(OutcomeUnknown):
            await change
        await publisher.flush()
        for wrong in (b"no json", b"{}", b"[]"):
            with pytest.raises(InvalidBinlog):
                await publisher.ddl(wrong, "create table t (a int)")
        assert publisher.schema_version == 0
    assert [tp for tp, _, _ in cluster.pumps["a"].transactions()] == [P]
    assert cluster.upstream.job_list == []


async def test_two_jobs_with_one_id_are_a_conflict() -> None:
    _, publisher = await publisher_of()
    async with publisher:
        await publisher.ddl(JOB, "create table t (a int)")
        await publisher.ddl(JOB, "create table t (a int)")  # another state of the same change
        with pytest.raises(Conflict, match="other contents"):
            await publisher.ddl(JOB.replace(b"12", b"13"), "create table t (a int)")


async def test_a_new_publisher_learns_the_schema_version_from_the_history() -> None:
    cluster = MemoryCluster(["a"])
    cluster.upstream.job_list.append(JOB)
    async with await cluster.publisher() as publisher:
        assert publisher.schema_version == 12


async def test_close_abandons_deliveries_that_do_not_end() -> None:
    cluster, publisher = await publisher_of("a")
    async with publisher.transaction() as txn:
        txn.insert(5, b"row")
        await txn.prewrite()
        cluster.pumps["a"].hanging = True
    await publisher.close(drain_s=0.0)
    assert cluster.upstream.entries == {txn.start_ts: Committed(txn.commit_ts)}
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("pumpclient")]

"""What each region error leads to: the decision, and the client over fake stores that give the error."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from google.protobuf.message import Message

from tests.fakes.region_message import region_message
from tests.fakes.tikv import Fault
from tests.fakes.world import TikvWorld
from tidb_binlog.errors import Rejected, Unavailable
from tidb_binlog.upstream.tidb.tikv import region_errors
from tidb_binlog.upstream.tidb.tikv.region_errors import AT_ONCE_MAX, CacheChange, Pause, Pauses, decide
from tidb_binlog.upstream.tidb.tikv.regions import peer_message
from tidb_binlog.wire import errorpb_pb2


@dataclass(frozen=True)
class Row:
    """One line of the table: back-off in milliseconds, None for none."""

    field: str
    change: CacheChange
    pause_ms: tuple[int, int] | None
    asks_pd_again: bool


DROP, AGAIN, FAIL = CacheChange.DROP_REGION, CacheChange.NOTHING, CacheChange.FAIL
TABLE = [
    Row("region_not_found", DROP, (2, 500), True),
    Row("key_not_in_region", DROP, (2, 500), True),
    Row("server_is_busy", AGAIN, (2000, 10000), False),
    Row("stale_command", AGAIN, (2, 1000), False),
    Row("store_not_match", CacheChange.DROP_STORE, None, True),
    Row("raft_entry_too_large", FAIL, None, False),
    Row("max_timestamp_not_synced", AGAIN, (2, 500), False),
    Row("read_index_not_ready", AGAIN, (2, 500), False),
    Row("proposal_in_merging_mode", AGAIN, (2, 500), False),
    Row("data_is_not_ready", AGAIN, (2, 2000), False),
    Row("region_not_initialized", AGAIN, (2, 1000), False),
    Row("disk_full", AGAIN, (500, 5000), False),
    Row("RecoveryInProgress", AGAIN, (100, 10000), False),
    Row("FlashbackInProgress", AGAIN, (100, 10000), False),
    Row("FlashbackNotPrepared", FAIL, None, False),
    Row("is_witness", DROP, (1000, 10000), True),
    Row("mismatch_peer_id", DROP, (2, 500), True),
    Row("bucket_version_not_match", DROP, (2, 500), True),
    Row("undetermined_result", DROP, (2, 500), True),
    Row("", DROP, (2, 500), True),  # of a later TiKV
]
RESTING = {row.field for row in TABLE} | {"not_leader", "epoch_not_match"}


def error_of(field: str) -> errorpb_pb2.Error:
    error = errorpb_pb2.Error(message="so it is")
    if field:
        part: Message = getattr(error, field)
        part.SetInParent()
    return error


def test_no_region_error_is_left_out() -> None:
    fields = {field.name for field in errorpb_pb2.Error.DESCRIPTOR.fields} - {"message"}
    assert fields | {""} == RESTING


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.field or "unknown")
def test_decision(row: Row) -> None:
    decision = decide(error_of(row.field))
    assert decision.change is row.change
    pause = decision.pause
    assert (None if pause is None else (pause.first_s * 1000, pause.max_s * 1000)) == row.pause_ms


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.field or "unknown")
async def test_the_client_goes_on_as_the_table_says(row: Row) -> None:
    world = TikvWorld()
    ts = world.cluster.put(b"k", b"v")
    snapshot = world.snapshot(ts)
    assert await snapshot.get(b"k") == b"v"  # everything is known now
    asked = world.pd.asked
    world.tikv.fault(Fault(times=3, region_error=error_of(row.field)))
    if row.change is FAIL:
        with pytest.raises(Rejected, match=row.field):
            await snapshot.get(b"k")
        assert world.slept == []
        return
    assert await snapshot.get(b"k") == b"v"
    assert len(world.tikv.called("KvGet")) == 5
    assert (world.pd.asked > asked) == row.asks_pd_again
    if row.pause_ms is None:
        assert world.slept == []
    else:
        steps = [min(row.pause_ms[0] * 2**n, row.pause_ms[1]) / 1000 for n in range(3)]
        assert len(world.slept) == 3
        assert all(step / 2 <= slept <= step for slept, step in zip(world.slept, steps, strict=True))


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.field or "unknown")
async def test_an_error_that_stays_ends_at_the_deadline(row: Row) -> None:
    """The message says what was tried, where, and the last answer."""
    world = TikvWorld()
    world.tikv.fault(Fault(times=10**6, region_error=error_of(row.field)))
    began_s = world.cluster.clock.now_s
    with pytest.raises((Unavailable, Rejected)) as caught:
        await world.snapshot().get(b"t\x80\0\0\0\0\0\0\x2d_r\x80\0\0\0\0\0\0\1")
    assert world.cluster.clock.now_s - began_s <= 20
    text = str(caught.value)
    assert f"{row.field or region_errors.UNKNOWN} {len(world.tikv.calls)}" in text
    assert "tikv-1:20160 (store 1, region 1004)" in text
    assert "so it is" in text
    if row.change is not FAIL:
        assert "KvGet of a key of table 45 within 20 s" in text


async def test_not_leader_names_the_leader() -> None:
    world = TikvWorld()
    ts = world.cluster.put(b"k", b"v")
    assert await world.snapshot(ts).get(b"k") == b"v"
    asked = world.pd.asked
    world.cluster.move_leader(b"k", 2)
    assert await world.snapshot(ts).get(b"k") == b"v"
    assert [call.store_id for call in world.tikv.calls] == [1, 1, 2]
    assert world.slept == []
    assert world.pd.asked == asked + 1  # for the address of store 2, not for the region
    assert await world.snapshot(ts).get(b"k") == b"v"
    assert world.tikv.calls[-1].store_id == 2  # and it is kept in mind


async def test_not_leader_without_a_leader_asks_pd() -> None:
    world = TikvWorld()
    ts = world.cluster.put(b"k", b"v")
    await world.snapshot(ts).get(b"k")
    world.cluster.move_leader(b"k", None)
    elections = iter([None, None, 3])
    world.on_sleep = lambda: world.cluster.move_leader(b"k", next(elections, 3))
    assert await world.snapshot(ts).get(b"k") == b"v"
    assert world.tikv.calls[-1].store_id == 3
    assert len(world.slept) == 3


async def test_not_leader_that_names_a_peer_of_later_asks_pd() -> None:
    world = TikvWorld()
    ts = world.cluster.put(b"k", b"v")
    await world.snapshot(ts).get(b"k")
    old = world.cluster.region_of(b"k")
    world.cluster.stores[4] = world.cluster.stores[1].__class__(4, "tikv-4:20160")
    world.tikv.serving["tikv-4:20160"] = 4
    world.cluster.move_peer(b"k", 2, 4)
    world.cluster.move_leader(b"k", 4)
    assert await world.snapshot(ts).get(b"k") == b"v"
    assert old.peers != world.cluster.region_of(b"k").peers
    assert [call.store_id for call in world.tikv.calls] == [1, 1, 4]


async def test_two_peers_that_name_each_other_are_not_asked_without_pauses() -> None:
    world = TikvWorld()
    region = world.cluster.region_of(b"k")
    for store_id, other in ((1, 2), (2, 1)):
        error = error_of("not_leader")
        error.not_leader.leader.CopyFrom(peer_message(region.peers[other - 1]))
        world.tikv.fault(Fault(store_id=store_id, times=10**6, region_error=error))
    with pytest.raises(Unavailable, match="not_leader"):
        await world.snapshot().get(b"k")
    assert len(world.slept) == len(world.tikv.calls) - AT_ONCE_MAX - 1


async def test_epoch_not_match_brings_the_regions() -> None:
    world = TikvWorld()
    ts = world.cluster.put_all({b"a": b"1", b"k": b"2"})
    world.cluster.move_leader(b"k", 2)
    await world.snapshot(ts).get(b"k")
    asked = world.pd.asked
    world.cluster.split(b"f")
    assert await world.snapshot(ts).get(b"k") == b"2"
    assert await world.snapshot(ts).get(b"a") == b"1"  # its region came with the other's
    assert world.pd.asked == asked
    assert world.slept == []
    assert {call.store_id for call in world.tikv.calls} == {2}  # who answers so leads


async def test_epoch_not_match_without_regions_asks_pd() -> None:
    world = TikvWorld()
    ts = world.cluster.put(b"k", b"v")
    await world.snapshot(ts).get(b"k")
    asked = world.pd.asked
    world.tikv.fault(Fault(region_error=error_of("epoch_not_match")))
    assert await world.snapshot(ts).get(b"k") == b"v"
    assert world.pd.asked == asked + 1


async def test_epoch_not_match_of_a_peer_that_lags_behind_changes_nothing() -> None:
    """It tells of regions older than those known: asked again, after a pause once that has gone on."""
    world = TikvWorld()
    ts = world.cluster.put(b"k", b"v")
    old = region_message(world.cluster.region_of(b"k"))
    world.cluster.split(b"f")
    await world.snapshot(ts).get(b"k")
    error = error_of("epoch_not_match")
    error.epoch_not_match.current_regions.append(old)
    world.tikv.fault(Fault(times=6, region_error=error))
    asked = world.pd.asked
    assert await world.snapshot(ts).get(b"k") == b"v"
    assert world.pd.asked == asked
    assert len(world.slept) == 6 - AT_ONCE_MAX


async def test_a_busy_server_says_for_how_long() -> None:
    world = TikvWorld()
    ts = world.cluster.put(b"k", b"v")
    error = error_of("server_is_busy")
    error.server_is_busy.backoff_ms = 7000
    world.tikv.fault(Fault(region_error=error))
    assert await world.snapshot(ts).get(b"k") == b"v"
    assert world.slept == [7.0]


def test_each_kind_of_pause_grows_by_itself() -> None:
    pauses = Pauses()
    slow, quick = Pause(8.0, 8.0), Pause(0.5, 1.0)
    assert 4 <= pauses.next_s(slow) <= 8
    assert 0.25 <= pauses.next_s(quick) <= 0.5
    assert 0.5 <= pauses.next_s(quick) <= 1
    assert pauses.next_s(quick, 3.0) == 3.0
    assert [pauses.next_s(None) for _ in range(AT_ONCE_MAX)] == [0.0] * AT_ONCE_MAX
    assert pauses.next_s(None) > 0

"""Whatever happens to regions, stores and locks under way: what is read is the snapshot."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fakes.mvcc import DELETE, PUT
from tests.fakes.tikv import Fault
from tests.fakes.world import TikvWorld, scanned
from tidb_binlog.wire import errorpb_pb2

LETTERS = [bytes((letter,)) for letter in b"abcdefghij"]
KEYS = st.sampled_from(LETTERS)
ERRORS = st.sampled_from(
    [field.name for field in errorpb_pb2.Error.DESCRIPTOR.fields if field.message_type is not None]
)
ENDING = {"raft_entry_too_large", "FlashbackNotPrepared"}  # end a read, as they should


def happening(world: TikvWorld, what: tuple[Any, ...]) -> None:
    """Something happens in the cluster that no reader may notice."""
    cluster, kind, key = world.cluster, what[0], what[1]
    if kind == "split":
        cluster.split(key)
    elif kind == "merge":
        cluster.merge(key)
    elif kind == "leader":
        cluster.move_leader(key, what[2])
    elif kind == "move":
        world.tikv.move(what[2], f"moved-{cluster.new_id()}:20160")
    elif kind == "write":
        if cluster.mvcc.row(key).lock is None:
            cluster.put(key, b"later")
    elif kind == "fault":
        setattr(world.tikv.fault(Fault(store_id=what[2])), what[3], True)
    elif kind == "error" and what[2] not in ENDING:
        error = errorpb_pb2.Error()
        getattr(error, what[2]).SetInParent()
        world.tikv.fault(Fault(region_error=error))


HAPPENINGS = st.one_of(
    st.tuples(st.just("split"), KEYS),
    st.tuples(st.just("merge"), KEYS),
    st.tuples(st.just("leader"), KEYS, st.integers(1, 3)),
    st.tuples(st.just("move"), KEYS, st.integers(1, 3)),
    st.tuples(st.just("write"), KEYS),
    st.tuples(st.just("fault"), KEYS, st.integers(1, 3), st.sampled_from(["refuse", "lose", "slow"])),
    st.tuples(st.just("error"), KEYS, ERRORS),
)
VERSIONS = st.lists(st.tuples(KEYS, st.one_of(st.none(), st.sampled_from([b"1", b"2"]))), max_size=12)
TRANSACTIONS = st.lists(
    st.tuples(
        st.lists(KEYS, min_size=1, max_size=4, unique=True),
        st.sampled_from(["live", "committed", "rolled back", "expired", "async", "async committed"]),
    ),
    max_size=3,
)


def write_all(world: TikvWorld, versions: list[Any], transactions: list[Any]) -> None:
    for key, value in versions:
        world.cluster.put(key, value)
    for keys, end in transactions:
        if any(world.cluster.mvcc.row(key).lock is not None for key in keys):
            continue
        start_ts = world.cluster.prewrite(
            dict.fromkeys(keys, b"new"),
            ttl_ms=8000 if end == "live" else 100,
            async_commit=end.startswith("async"),
        )
        if end in ("committed", "async committed"):
            world.cluster.commit(start_ts, keys[0])
        elif end == "rolled back":
            world.cluster.roll_back(start_ts, keys[0])


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(
    versions=VERSIONS,
    transactions=TRANSACTIONS,
    splits=st.lists(KEYS, max_size=3),
    happenings=st.lists(HAPPENINGS, max_size=12),
    page=st.integers(1, 5),
    bounds=st.tuples(st.one_of(st.just(b""), KEYS), st.one_of(st.just(b""), KEYS)),
    waits_s=st.sampled_from([0.0, 1.0]),
)
def test_what_is_read_is_the_snapshot(
    versions: list[Any],
    transactions: list[Any],
    splits: list[bytes],
    happenings: list[Any],
    page: int,
    bounds: tuple[bytes, bytes],
    waits_s: float,
) -> None:
    world = TikvWorld()
    write_all(world, versions, transactions)
    world.cluster.split(*splits)
    world.cluster.clock.advance(waits_s)
    read_ts = world.cluster.ts()
    coming = iter(happenings)

    def something() -> None:
        for what in coming:
            happening(world, what)
            break

    answer = world.tikv.answer

    async def answer_amid_happenings(store_id: int, method: str, data: bytes, timeout_s: float) -> bytes:
        something()
        return await answer(store_id, method, data, timeout_s)

    world.tikv.answer = answer_amid_happenings  # type: ignore[method-assign]

    async def read() -> tuple[dict[bytes, bytes], dict[bytes, bytes | None]]:
        snapshot = world.snapshot(read_ts, deadline_s=3600.0)
        by_scan = await scanned(snapshot, *bounds, page=page)
        by_get = {key: await world.snapshot(read_ts, deadline_s=3600.0).get(key) for key in LETTERS}
        return by_scan, by_get

    by_scan, by_get = asyncio.run(read())
    expected = world.cluster.snapshot(read_ts)
    start, end = bounds
    inside = {key: value for key, value in expected.items() if start <= key and (not end or key < end)}
    assert by_scan == inside
    assert {key: value for key, value in by_get.items() if value is not None} == expected
    blocking = [
        row.lock for row in world.cluster.mvcc.rows.values() if row.lock and row.lock.kind in (PUT, DELETE)
    ]
    assert blocking == []  # all were in the way, all are over by now

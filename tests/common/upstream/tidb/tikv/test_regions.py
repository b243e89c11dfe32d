"""Regions and their cache, against a plain list."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.region_message import region_message
from tidb_binlog.errors import Corruption, Rejected
from tidb_binlog.upstream.tidb.tikv.regions import (
    Peer,
    Region,
    RegionCache,
    key_for_pd,
    key_of_pd,
    refuse_keyspace,
    region_of_message,
)
from tidb_binlog.wire import metapb_pb2

PEERS = (Peer(1, 1), Peer(2, 2), Peer(3, 3, is_learner=True), Peer(4, 4, is_witness=True))
KEYS = [b"", *(bytes((letter,)) for letter in b"abcdefgh")]


def region(start: bytes, end: bytes, *, id: int = 1, version: int = 1, conf_ver: int = 1) -> Region:
    return Region(id, start, end, conf_ver, version, PEERS, PEERS[0])


@pytest.mark.parametrize("length", [0, 7, 8, 9, 16])
def test_boundaries_of_any_length_come_back(length: int) -> None:
    raw = bytes(range(1, length + 1))
    assert key_of_pd(key_for_pd(raw)) == raw


def test_a_key_is_encoded_as_pd_has_it() -> None:
    raw = bytes.fromhex("7480000000000000015f728000000000000001")
    assert key_for_pd(raw).hex() == "7480000000000000ff015f728000000000ff0000010000000000fa"


def test_a_region_comes_back_from_its_message() -> None:
    one = region(b"a", b"")
    message = region_message(one)
    assert region_of_message(message, metapb_pb2.Peer(id=1, store_id=1)) == one
    assert region_of_message(message, metapb_pb2.Peer()).leader is None  # PD's way to say "not known"
    assert region_of_message(message).leader is None


@pytest.mark.parametrize("boundary", [b"t", b"t" * 9, key_for_pd(b"a") + b"b", key_for_pd(b"a" * 9)[:12]])
def test_a_boundary_that_is_no_key_is_corruption(boundary: bytes) -> None:
    with pytest.raises(Corruption, match="boundary"):
        region_of_message(metapb_pb2.Region(id=1, start_key=boundary))


def test_a_key_of_a_keyspace_is_refused_by_name() -> None:
    with pytest.raises(Rejected, match="keyspace 5"):
        refuse_keyspace(b"x\x00\x00\x05t\x80")
    refuse_keyspace(b"t\x80")
    refuse_keyspace(b"m")


Insertion = tuple[int, int, int, int]  # start, length, id, version
INSERTIONS = st.lists(
    st.tuples(st.integers(0, 8), st.integers(1, 9), st.integers(1, 5), st.integers(1, 4)), max_size=30
)


@given(INSERTIONS, st.lists(st.integers(1, 5), max_size=3))
def test_the_cache_is_a_list_of_regions(insertions: list[Insertion], dropped: list[int]) -> None:
    """A region replaces those that it overlaps, unless one of them is newer; at every step each key is
    found where a plain list has it.
    """
    cache = RegionCache()
    naive: list[Region] = []
    steps: list[Insertion | int] = [*insertions, *dropped]
    for step in steps:
        if isinstance(step, int):
            cache.drop(step)
            naive = [one for one in naive if one.id != step]
        else:
            start, length, id, version = step
            end = KEYS[start + length] if start + length < len(KEYS) else b""
            new = region(KEYS[start], end, id=id, version=version)
            in_the_way = [one for one in naive if one.id == id or overlap(one, new)]
            taken = all(one.version <= version for one in in_the_way)
            assert cache.insert(new) == taken
            if taken:
                naive = [one for one in naive if one not in in_the_way] + [new]
        assert len(cache) == len(naive)
        for key in (*KEYS, *(key + b"x" for key in KEYS)):
            holding = [one for one in naive if one.holds(key)]
            found = cache.find(key)
            assert ([] if found is None else [found]) == holding


def overlap(one: Region, other: Region) -> bool:
    return (not one.end_key or other.start_key < one.end_key) and (
        not other.end_key or one.start_key < other.end_key
    )


def test_the_same_version_with_an_older_configuration_is_older() -> None:
    cache = RegionCache()
    assert cache.insert(region(b"", b"", conf_ver=2))
    assert not cache.insert(region(b"", b"", conf_ver=1))
    assert cache.insert(region(b"", b"", conf_ver=2))


def test_a_leader_is_switched_only_to_a_peer_that_is_known() -> None:
    cache = RegionCache()
    cache.insert(region(b"", b""))
    assert cache.switch_leader(1, Peer(2, 2))
    assert not cache.switch_leader(1, Peer(9, 2))
    assert not cache.switch_leader(7, Peer(2, 2))
    found = cache.find(b"k")
    assert found is not None
    assert found.leader == Peer(2, 2)


def test_a_store_is_dropped_with_the_regions_that_it_leads() -> None:
    cache = RegionCache()
    cache.insert(region(b"", b"b", id=1))
    cache.insert(region(b"b", b"", id=2))
    cache.switch_leader(2, PEERS[1])
    cache.drop_store(1)
    assert cache.find(b"a") is None
    assert cache.find(b"c") is not None


def test_the_cache_is_bounded() -> None:
    cache = RegionCache(regions_max=2)
    for id, start in enumerate(b"abc", start=1):
        cache.insert(region(bytes((start,)), bytes((start + 1,)), id=id))
    assert len(cache) == 2
    assert cache.find(b"a") is None
    assert cache.find(b"c") is not None

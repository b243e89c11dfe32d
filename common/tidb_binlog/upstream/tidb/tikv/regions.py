"""Regions: which part of the key space is where, as far as it is known.

Why    every request names region, epoch and peer; PD is asked only where nothing is known
Holds  at most `REGIONS_MAX` regions, never two for one key; those put in first go first
Never  keeps a region that overlaps a newer one: versions grow with every split and merge, so of two regions
       over one key the one with the larger version is true

Keys are raw, as TiDB writes them; PD's and TiKV's boundaries are the memcomparable form of raw keys. An empty
end key means without end.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from enum import Enum
from typing import Final

from tidb_binlog.errors import Corruption, Rejected
from tidb_binlog.late_dataclass import dataclass, replace
from tidb_binlog.rowcodec.keys import put_comparable_bytes, read_comparable_bytes, read_key
from tidb_binlog.rowcodec.row_error import RowError
from tidb_binlog.wire import metapb_pb2

REGIONS_MAX: Final = 50_000
KEYSPACE_PREFIX_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class Peer:
    """A replica of a region in a store."""

    id: int
    store_id: int
    is_learner: bool = False
    is_witness: bool = False


@dataclass(frozen=True, slots=True)
class Region:
    """A range of raw keys. `leader` is None while it is not known which peer leads."""

    id: int
    start_key: bytes
    end_key: bytes
    conf_ver: int
    version: int
    peers: tuple[Peer, ...]
    leader: Peer | None = None

    def holds(self, key: bytes) -> bool:
        return self.start_key <= key and (not self.end_key or key < self.end_key)


class StoreState(Enum):
    """As PD counts them."""

    UP = 0
    OFFLINE = 1
    TOMBSTONE = 2


@dataclass(frozen=True, slots=True)
class Store:
    """A TiKV server; `address` is host:port."""

    id: int
    address: str
    state: StoreState = StoreState.UP
    version: str = ""


def refuse_keyspace(key: bytes) -> None:
    """Raises `Rejected` for a key of API version 2, which puts "x" and a keyspace's id before TiDB's own.

    Region boundaries, which are no longer than that, do not show it: PD from v7.0 on splits at the edges of
    keyspace 0 in every cluster.
    """
    if key[:1] == b"x" and len(key) > KEYSPACE_PREFIX_BYTES:
        raise Rejected(
            "keyspaces (API version 2) are not supported: the key is one of keyspace "
            f"{int.from_bytes(key[1:4], 'big')}",
            hint="TiDB with binlog must run without keyspace-name, on TiKV with storage.api-version = 1",
        )


def name_of(key: bytes) -> str:
    """What a key belongs to, without the values that are in it."""
    try:
        return f"a key of table {read_key(key).table_id}"
    except RowError:
        return "a meta key" if key[:1] == b"m" else "a key"


def key_for_pd(key: bytes) -> bytes:
    """A raw key as PD wants it; empty (without start or end) stays empty."""
    return put_comparable_bytes(key) if key else b""


def key_of_pd(key: bytes) -> bytes:
    """The raw key of a boundary. Raises `Corruption` if it is no memcomparable key."""
    if not key:
        return b""
    try:
        raw, end = read_comparable_bytes(key, 0)
    except RowError as error:
        raise _strange_boundary(key) from error
    if end != len(key):
        raise _strange_boundary(key)
    return raw


def _strange_boundary(key: bytes) -> Corruption:
    return Corruption(
        f"a region boundary of {len(key)} bytes is no transactional key of API version 1",
        hint="clusters with raw keys or keyspaces (API version 2) are not supported",
    )


def peer_of_message(message: metapb_pb2.Peer) -> Peer:
    return Peer(message.id, message.store_id, message.role == metapb_pb2.Learner, message.is_witness)


def peer_message(peer: Peer) -> metapb_pb2.Peer:
    return metapb_pb2.Peer(
        id=peer.id,
        store_id=peer.store_id,
        role=metapb_pb2.Learner if peer.is_learner else metapb_pb2.Voter,
        is_witness=peer.is_witness,
    )


def region_of_message(message: metapb_pb2.Region, leader: metapb_pb2.Peer | None = None) -> Region:
    """A region as PD or an epoch error describes it; a leader with id 0 means that none is known.

    Raises `Corruption` for boundaries that are no memcomparable keys.
    """
    return Region(
        message.id,
        key_of_pd(message.start_key),
        key_of_pd(message.end_key),
        message.region_epoch.conf_ver,
        message.region_epoch.version,
        tuple(peer_of_message(peer) for peer in message.peers),
        peer_of_message(leader) if leader is not None and leader.id else None,
    )


class RegionCache:
    """Regions that do not overlap, by key and by id."""

    def __init__(self, regions_max: int = REGIONS_MAX) -> None:
        self._regions_max = regions_max
        self._starts: list[bytes] = []  # sorted
        self._by_start: dict[bytes, Region] = {}
        self._start_of: dict[int, bytes] = {}  # by id, in the order of arrival

    def __len__(self) -> int:
        return len(self._starts)

    def find(self, key: bytes) -> Region | None:
        """The region that holds a raw key, if it is known."""
        at = bisect_right(self._starts, key) - 1
        if at < 0:
            return None
        region = self._by_start[self._starts[at]]
        return region if region.holds(key) else None

    def insert(self, region: Region) -> bool:
        """Take a region in place of all that it overlaps. False, and nothing changes, if one is newer."""
        same = self._of_id(region.id)
        replaced = self._overlapping(region)
        if same is not None and same not in replaced:
            replaced.append(same)
        if any(_newer(old, region) for old in replaced):
            return False
        for old in replaced:
            self.drop(old.id)
        while len(self._starts) >= self._regions_max:
            self.drop(next(iter(self._start_of)))
        self._starts.insert(bisect_left(self._starts, region.start_key), region.start_key)
        self._by_start[region.start_key] = region
        self._start_of[region.id] = region.start_key
        return True

    def switch_leader(self, region_id: int, leader: Peer) -> bool:
        """Note who leads; False if it is none of the region's known peers, or the region is not known."""
        region = self._of_id(region_id)
        if region is None:
            return False
        for peer in region.peers:
            if peer.id == leader.id and peer.store_id == leader.store_id:
                self._by_start[region.start_key] = replace(region, leader=peer)
                return True
        return False

    def drop(self, region_id: int) -> None:
        """Forget a region; no matter if it is not known."""
        start_key = self._start_of.pop(region_id, None)
        if start_key is not None:
            del self._by_start[start_key]
            del self._starts[bisect_left(self._starts, start_key)]

    def drop_store(self, store_id: int) -> None:
        """Forget all regions that are led in a store."""
        led = [
            region.id
            for region in self._by_start.values()
            if region.leader is not None and region.leader.store_id == store_id
        ]
        for region_id in led:
            self.drop(region_id)

    def _of_id(self, region_id: int) -> Region | None:
        start_key = self._start_of.get(region_id)
        return None if start_key is None else self._by_start[start_key]

    def _overlapping(self, region: Region) -> list[Region]:
        first = bisect_right(self._starts, region.start_key) - 1
        if first < 0 or not self._by_start[self._starts[first]].holds(region.start_key):
            first += 1
        last = bisect_left(self._starts, region.end_key) if region.end_key else len(self._starts)
        return [self._by_start[start_key] for start_key in self._starts[first:last]]


def _newer(old: Region, region: Region) -> bool:
    if old.version != region.version:
        return old.version > region.version
    return old.id == region.id and old.conf_ver > region.conf_ver

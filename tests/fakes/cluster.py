"""What the fake PD and the fake TiKV share: time, members, stores, regions, and all versions of all keys."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.fakes.mvcc import DELETE, LOCK, PUT, Mvcc, MvccLock, Write
from tidb_binlog import tso
from tidb_binlog.clock import ManualClock
from tidb_binlog.upstream.tidb.tikv.regions import Peer, Region, Store

CLUSTER_ID = 7_000_000_000_000_000_001


@dataclass
class Member:
    """A PD server."""

    name: str
    member_id: int
    client_urls: tuple[str, ...] = ()
    version: str = "7.0.0"


class FakeCluster:
    """One region in as many stores as wanted, one PD member; the tests change all of it as they like.

    A change of the regions raises epochs as TiKV does: a split or merge the version, a moved peer conf_ver.
    """

    def __init__(self, *, stores: int = 3, clock: ManualClock | None = None) -> None:
        self.cluster_id = CLUSTER_ID
        self.clock = clock or ManualClock()
        self.suffix_bits = 0
        self.members: list[Member] = [Member("pd-1", 11)]
        self.leader: Member | None = self.members[0]
        self.stores: dict[int, Store] = {
            store_id: Store(store_id, f"tikv-{store_id}:20160", version="7.0.0")
            for store_id in range(1, stores + 1)
        }
        self._ids = 1000
        peers = tuple(Peer(self.new_id(), store_id) for store_id in self.stores)
        self.regions: list[Region] = [Region(self.new_id(), b"", b"", 1, 1, peers, peers[0])]
        self.mvcc = Mvcc()
        self.gc_safe_point = 0
        self.service_safe_points: dict[str, tuple[int, float]] = {}
        """Name -> (safe point, until when on the clock's wall)."""
        self._last_ts = 0

    def new_id(self) -> int:
        self._ids += 1
        return self._ids

    def ts(self, count: int = 1) -> int:
        """Draw `count` timestamps; the largest, as PD answers."""
        step = 1 << self.suffix_bits
        first = max(tso.from_wall_s(self.clock.wall_s()), self._last_ts + 1)
        if tso.physical_ms(first + count * step) > tso.physical_ms(first):
            first = tso.compose(tso.physical_ms(first) + 1)
        self._last_ts = first + (count - 1) * step
        return self._last_ts

    # Regions.

    def region_of(self, key: bytes) -> Region:
        """The region that holds a raw key."""
        return next(region for region in self.regions if region.holds(key))

    def region_by_id(self, region_id: int) -> Region | None:
        return next((region for region in self.regions if region.id == region_id), None)

    def split(self, *keys: bytes) -> None:
        """Split at raw keys; the left part gets a new id, as in TiKV."""
        for key in keys:
            whole = self.region_of(key)
            if whole.start_key == key:
                continue
            peers = tuple(replace(peer, id=self.new_id()) for peer in whole.peers)
            leader = _on_store(peers, whole.leader.store_id) if whole.leader else None
            version = whole.version + 1
            left = Region(self.new_id(), whole.start_key, key, whole.conf_ver, version, peers, leader)
            self._put(whole, left, replace(whole, start_key=key, version=version))

    def merge(self, key: bytes) -> None:
        """Merge the region of a raw key into the one right of it; the last has none."""
        source = self.region_of(key)
        if source.end_key:
            target = self.region_of(source.end_key)
            version = max(source.version, target.version) + 1
            self.regions.remove(source)
            self._put(target, replace(target, start_key=source.start_key, version=version))

    def move_leader(self, key: bytes, store_id: int | None) -> None:
        """Another peer leads the region of a key; None: nobody does for now."""
        region = self.region_of(key)
        leader = None if store_id is None else _on_store(region.peers, store_id)
        self._put(region, replace(region, leader=leader))

    def move_peer(self, key: bytes, from_store: int, to_store: int) -> None:
        """Replace the peer in one store by a new one in another; a leader moves along."""
        region = self.region_of(key)
        peer = Peer(self.new_id(), to_store)
        peers = tuple(peer if one.store_id == from_store else one for one in region.peers)
        leader = region.leader
        if leader is not None and leader.store_id == from_store:
            leader = peer
        self._put(region, replace(region, peers=peers, leader=leader, conf_ver=region.conf_ver + 1))

    def _put(self, old: Region, *new: Region) -> None:
        at = self.regions.index(old)
        self.regions[at : at + 1] = new

    def move_store(self, store_id: int, address: str) -> None:
        """The store has another address from now on."""
        self.stores[store_id] = replace(self.stores[store_id], address=address)

    # Data.

    def put(self, key: bytes, value: bytes | None, commit_ts: int | None = None) -> int:
        """Commit a value (None: a deletion) just so, no lock asked; the commit_ts.

        With `commit_ts` the start_ts is the timestamp before it, otherwise both are drawn.
        """
        start_ts = self.ts() if commit_ts is None else commit_ts - 1
        commit_ts = self.ts() if commit_ts is None else commit_ts
        kind = DELETE if value is None else PUT
        self.mvcc.row(key).add(Write(kind, start_ts, commit_ts, value or b""))
        return commit_ts

    def put_all(self, values: dict[bytes, bytes | None], commit_ts: int | None = None) -> int:
        """Commit many values at one commit_ts."""
        commit_ts = self.ts() + 1 if commit_ts is None else commit_ts
        for key, value in values.items():
            self.put(key, value, commit_ts)
        return commit_ts

    def prewrite(
        self,
        values: dict[bytes, bytes | None],
        *,
        start_ts: int | None = None,
        primary: bytes | None = None,
        ttl_ms: int = 3000,
        min_commit_ts: int = 0,
        async_commit: bool = False,
    ) -> int:
        """Lock keys (None: to delete them); the first is the primary unless it is named. The start_ts."""
        start_ts = self.ts() if start_ts is None else start_ts
        first = next(iter(values)) if primary is None else primary
        others = tuple(key for key in values if key != first)
        for key, value in values.items():
            lock = MvccLock(
                DELETE if value is None else PUT,
                start_ts,
                first,
                ttl_ms,
                value or b"",
                min_commit_ts,
                secondaries=(others if key == first else ()) if async_commit else None,
                txn_size=len(values),
            )
            self.mvcc.prewrite(key, lock)
        return start_ts

    def lock_only(self, key: bytes, *, start_ts: int | None = None, ttl_ms: int = 3000) -> int:
        """Lock a key without a change, as SELECT FOR UPDATE does at commit. The start_ts."""
        start_ts = self.ts() if start_ts is None else start_ts
        self.mvcc.prewrite(key, MvccLock(LOCK, start_ts, key, ttl_ms))
        return start_ts

    def commit(self, start_ts: int, *keys: bytes, commit_ts: int | None = None) -> int:
        """Commit locked keys; all of the transaction if none is named. The commit_ts."""
        commit_ts = self.ts() if commit_ts is None else commit_ts
        for key in keys or self.locked(start_ts):
            self.mvcc.commit(key, start_ts, commit_ts)
        return commit_ts

    def roll_back(self, start_ts: int, *keys: bytes) -> None:
        """Roll back keys; all that the transaction has locked if none is named."""
        for key in keys or self.locked(start_ts):
            self.mvcc.roll_back(key, start_ts)

    def locked(self, start_ts: int) -> list[bytes]:
        """The keys that a transaction has locked now."""
        return [key for key, row in self.mvcc.rows.items() if row.lock and row.lock.start_ts == start_ts]

    def collect(self, safe_point: int) -> int:
        """Garbage collection: up to `safe_point`, as far as services let it; how far it went.

        Ends old transactions first. Of each key what a reader at the safe point sees is left, and what is
        later; rollbacks and locks that were committed go, whatever they told of.
        """
        held = min((ts for ts, until_s in self.service_safe_points.values()), default=safe_point)
        safe_point = self.gc_safe_point = max(self.gc_safe_point, min(safe_point, held))
        for key, row in self.mvcc.rows.items():
            if row.lock is not None and row.lock.start_ts <= safe_point:
                self.mvcc.roll_back(key, row.lock.start_ts)
            seen = next(
                (one for one in row.writes if one.commit_ts <= safe_point and one.kind in (PUT, DELETE)), None
            )
            row.writes[:] = [
                one for one in row.writes if one.commit_ts > safe_point or (one is seen and one.kind == PUT)
            ]
        return safe_point

    def snapshot(self, ts: int) -> dict[bytes, bytes]:
        """All values at a timestamp, blind to locks; what a reader must see."""
        return self.mvcc.snapshot(ts)


def _on_store(peers: tuple[Peer, ...], store_id: int) -> Peer:
    return next(peer for peer in peers if peer.store_id == store_id)

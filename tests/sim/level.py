"""LevelDB of the world: a `Store` of the Pump's index in memory, with the end that a power cut takes.

Holds  a batch is there whole or not at all. A process that dies loses nothing; a host that loses its power
       loses the newest batches, as many as are drawn, of those since the last synced one

Tests  tests/sim/test_level.py
"""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pump.index.store import Entries, IndexDamaged


class Level:
    """The files of one index; `open` as often as its process begins."""

    def __init__(self) -> None:
        self._kept: list[
            dict[bytes, bytes | None]
        ] = []  # batches since the last synced one, the oldest first
        self._synced: dict[bytes, bytes] = {}
        self._values: dict[bytes, bytes] = {}
        self._keys: list[bytes] = []
        self.damaged: frozenset[bytes] = frozenset()  # keys that cannot be read

    def write(self, batch: dict[bytes, bytes | None], *, sync: bool) -> None:
        for key, value in batch.items():
            known = key in self._values
            if value is not None:
                self._values[key] = value
                if not known:
                    insort(self._keys, key)
            elif known:
                del self._values[key]
                del self._keys[bisect_left(self._keys, key)]
        self._kept.append(batch)
        if sync:
            self._synced, self._kept = dict(self._values), []

    def rot(self, rng: random.Random) -> None:
        """A block, or some of its keys."""
        at = rng.randrange(len(self._keys))
        self.damaged = frozenset(self._keys[at : at + rng.choice((1, 16))])

    def after_power_cut(self, rng: random.Random) -> Level:
        left = Level()
        left.damaged = self.damaged
        left.write(dict(self._synced), sync=True)
        for batch in self._kept[: rng.randint(0, len(self._kept))]:
            left.write(batch, sync=True)
        return left

    def get(self, key: bytes) -> bytes | None:
        if key in self.damaged:
            raise IndexDamaged("block checksum mismatch")
        return self._values.get(key)

    @property
    def keys(self) -> list[bytes]:
        return self._keys


class Database:
    """See `Store`. `life` says whether the process that has it open is alive; `pause` takes the time of a
    write, `wrote` is called after it."""

    def __init__(
        self,
        level: Level,
        life: Any,
        pause: Callable[[], None] = lambda: None,
        wrote: Callable[[], None] = lambda: None,
    ) -> None:
        self._level = level
        self._life = life
        self._pause = pause
        self._wrote = wrote

    def get(self, key: bytes) -> bytes | None:
        return self._level.get(key)

    def _write(self, batch: dict[bytes, bytes | None], *, sync: bool) -> None:
        self._pause()
        if self._life.alive:
            self._level.write(batch, sync=sync)
            self._wrote()

    @contextmanager
    def write_batch(self, *, sync: bool = False) -> Iterator[_Batch]:
        batch = _Batch()
        yield batch
        self._write(batch.changes, sync=sync)

    def runs(self, start: bytes, stop: bytes, count: int, *, cached: bool = True) -> Iterator[Entries]:
        keys = self._level.keys
        chosen = keys[bisect_left(keys, start) : bisect_right(keys, stop)]  # a snapshot
        for at in range(0, len(chosen), count):
            part = chosen[at : at + count]
            yield [(key, value) for key in part if (value := self._level.get(key)) is not None]

    def last_before(self, key: bytes) -> bytes:
        keys = self._level.keys
        at = bisect_left(keys, key)
        if not at:
            return b""
        self._level.get(keys[at - 1])
        return keys[at - 1]

    def settle(self) -> None:
        self._write({}, sync=True)  # tables are synced

    def close(self) -> None:
        """Its files stay."""


class _Batch:
    def __init__(self) -> None:
        self.changes: dict[bytes, bytes | None] = {}

    def put(self, key: bytes, value: bytes) -> None:
        self.changes[key] = value

    def delete(self, key: bytes) -> None:
        self.changes[key] = None

"""What packed times are shown as, by their bytes: whole times, or seconds and fractions apart.

Out    caches that fill themselves, with a bound
Holds  KeyError, ValueError or a `RowError` for bytes that are no varint of nine bytes or no time
Why    seconds come again, microseconds seldom do: a whole time is hardly ever met twice. At seven bits a byte
       the first three bytes are 21 bits of the fraction; its other three are 0 in every time that is right

Tests  tests/common/rowcodec/test_time_caches.py
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from tidb_binlog.rowcodec.datum import read_packed_time
from tidb_binlog.rowcodec.strict import Reader
from tidb_binlog.rowcodec.varint import uvarint

CACHE_MAX: Final = 20_000
TIME_BYTES: Final = 9
_FRACTIONS_MAX: Final = 2000
T = TypeVar("T")


class Times(dict[bytes, T], Generic[T]):
    """Whole times by all nine bytes. `show` gets a packed time."""

    def __init__(self, show: Callable[[int], T]) -> None:
        super().__init__()
        self._show = show

    def __missing__(self, key: bytes) -> T:
        packed, end = uvarint(key, 0)
        if end != TIME_BYTES:
            raise KeyError(key)
        return self._kept(key, packed)

    def _kept(self, key: bytes, packed: int) -> T:
        shown = self._show(packed)
        if len(self) >= CACHE_MAX:
            self.clear()
        self[key] = shown
        return shown


class Seconds(Times[T]):
    """Times without their fraction, by the last six bytes."""

    def __missing__(self, key: bytes) -> T:
        high, end = uvarint(key, 0)
        if end != TIME_BYTES - 3 or high & 7:
            raise KeyError(key)
        return self._kept(key, high << 21)


class Fractions(dict[bytes, T], Generic[T]):
    """Fractions of a second by the first three bytes. `show` gets microseconds."""

    def __init__(self, show: Callable[[int], T]) -> None:
        super().__init__()
        self._show = show

    def __missing__(self, key: bytes) -> T:
        c, d, e = key
        micro = c + (d << 7) + (e << 14) - 0x204080
        if not (c > 127 and d > 127 and e > 127 and micro <= 999_999):
            raise KeyError(key)
        shown = self._show(micro)
        # Milliseconds all stay; of microseconds there are too many to meet one again.
        if len(self) < _FRACTIONS_MAX:
            self[key] = shown
        return shown


def cached_reader(show: Callable[[int], T]) -> tuple[Reader, Times[T]]:
    """A strict reader of packed times, and a cache that shows them alike."""

    def read(b: bytes, i: int) -> tuple[T, int]:
        packed, end = read_packed_time(b, i)
        return show(packed), end

    return read, Times(show)

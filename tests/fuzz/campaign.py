"""Campaign: mutated inputs into one decoder, each within its bounds.

In     a `Fuzzer`, a seed, how many inputs or how long
Out    a `Tally`: what came of them
Holds  an input that ends in a way that none before it did is mutated further
Never  measures other than CPU of this thread; one that took too long is given again, for what else ran in it
"""

from __future__ import annotations

import random
import re
import resource
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.fuzz.octets import MUTATIONS, Mutation, any_of, repeat, spliced

CPU_S: Final = 0.25
CPU_S_PER_BYTE: Final = 50e-6
PEAK_BYTES: Final = 4 << 20
PEAK_PER_BYTE: Final = 100
RSS_KIB_MAX: Final = 256 << 10
"""A run grows by less, also where memory is not Python's."""
INPUT_BYTES_MAX: Final = 1 << 17
_GROWN_MAX: Final = 2000
_AGAIN: Final = 1 / 3
_MEASURED: Final = 1 / 32
_REPEATED: Final = 1 / 100
_SPLICED: Final = 1 / 20


@dataclass(frozen=True, slots=True)
class Fuzzer:
    """`feed` gives an input to the decoder and says what came of it; what it raises is a fault."""

    seeds: Callable[[], Sequence[bytes]]
    feed: Callable[[bytes, random.Random], str]
    inputs: int
    """Of `make test`: two seconds."""
    mutations: Sequence[Mutation] = MUTATIONS
    reaches: Collection[str] = ()
    """How ends begin that come of so many inputs."""


@dataclass
class Tally:
    inputs: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    slowest: tuple[float, int] = (0.0, 0)
    """CPU seconds of an input, and its size."""
    peak_bytes: int = 0
    rss_kib: int = 0

    def __str__(self) -> str:
        seconds, size = self.slowest
        return (
            f"{self.inputs:,} inputs, {len(self.ends)} ends, longest {seconds * 1000:.1f} ms of {size:,} "
            f"bytes, peak {self.peak_bytes >> 10:,} KiB, process +{self.rss_kib >> 10} MiB"
        )


def run(fuzzer: Fuzzer, seed: int, goes_on: Callable[[int], bool], corpus: Sequence[bytes] = ()) -> Tally:
    """While `goes_on(inputs so far)`. Raises what a decoder raised, with the input as a note."""
    rng, tally = random.Random(seed), Tally()
    seeds, grown = [*corpus, *fuzzer.seeds()], list[bytes]()
    before_kib = _peak_kib()
    for octets in _inputs(fuzzer, seeds, grown, rng):
        if not goes_on(tally.inputs):
            break
        try:
            end = _fed(fuzzer, octets, rng, tally)
        except Exception as error:
            error.add_note(f"seed {seed}, input {tally.inputs} of {len(octets)} bytes: {octets[:4096].hex()}")
            raise
        tally.inputs += 1
        tally.ends[end] += 1
        if tally.ends[end] == 1 and len(octets) < INPUT_BYTES_MAX >> 3:
            if len(grown) >= _GROWN_MAX:
                grown.pop(rng.randrange(len(grown)))
            grown.append(octets)
    tally.rss_kib = _peak_kib() - before_kib
    assert tally.rss_kib < RSS_KIB_MAX, tally
    return tally


def _inputs(
    fuzzer: Fuzzer, seeds: Sequence[bytes], grown: Sequence[bytes], rng: random.Random
) -> Iterator[bytes]:
    """The seeds as they are, then mutations of them and of those that ended as none before."""
    yield from seeds
    while True:
        octets = any_of(rng, grown if grown and rng.random() < _AGAIN else seeds)
        if rng.random() < _SPLICED:
            octets = spliced(octets, any_of(rng, seeds), rng)
        mutated = bytearray(octets)
        for _ in range(any_of(rng, (1, 1, 1, 2, 2, 3, 6))):
            if mutated:
                any_of(rng, fuzzer.mutations)(mutated, rng)
        if mutated and rng.random() < _REPEATED:
            repeat(mutated, rng)
        yield bytes(mutated[:INPUT_BYTES_MAX])


def _fed(fuzzer: Fuzzer, octets: bytes, rng: random.Random, tally: Tally) -> str:
    chance = rng.getrandbits(32)
    if rng.random() < _MEASURED:
        tracemalloc.start()
        try:
            end = fuzzer.feed(octets, random.Random(chance))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        tally.peak_bytes = max(tally.peak_bytes, peak)
        assert peak < PEAK_BYTES + PEAK_PER_BYTE * len(octets), f"{peak:,} bytes of memory"
        return end
    allowed_s, most_s = CPU_S + CPU_S_PER_BYTE * len(octets), 0.0
    for _ in range(3):
        began_s = time.thread_time()
        end = fuzzer.feed(octets, random.Random(chance))
        most_s = time.thread_time() - began_s
        if most_s < allowed_s:
            break
    assert most_s < allowed_s, f"{most_s:.3f} s of CPU"
    tally.slowest = max(tally.slowest, (most_s, len(octets)))
    return end


def _peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def ending(error: Exception, name: str = "#") -> str:
    """An error as an end: without what differs from input to input, and without `name`."""
    text = f"{type(error).__name__}: {error}".replace(name, "#")
    return re.sub(r"'.*'|\".*\"|0x[0-9a-f]+|-?\d+", "#", text, flags=re.S)[:90]

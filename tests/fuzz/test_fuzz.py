"""A sample of each fuzzer: so many inputs, always the same."""

from __future__ import annotations

import random
import time

import pytest

from tests.fuzz import campaign
from tests.fuzz.catalog import FUZZERS, found

SEED = 9113


@pytest.mark.parametrize("name", FUZZERS)
def test_no_input_breaks_a_decoder(name: str) -> None:
    fuzzer = FUZZERS[name]
    tally = campaign.run(fuzzer, SEED, lambda inputs: inputs < fuzzer.inputs, found(name))
    print(f"{name}: {tally}")
    lacking = [end for end in fuzzer.reaches if not any(came.startswith(end) for came in tally.ends)]
    assert not lacking, [*tally.ends]


@pytest.mark.parametrize("name", ["archive", "etcd", "relay"])
def test_what_was_a_fault_is_refused(name: str) -> None:
    """Some of them were read, without what could not be."""
    for octets in found(name):
        end = FUZZERS[name].feed(octets, random.Random(SEED))
        assert end.startswith("Corruption") or (name == "etcd" and "job" not in end), octets


def test_a_fault_is_told_with_its_input() -> None:
    """Any error, and time and memory beyond what an input is worth."""

    def slow(octets: bytes) -> None:
        end_s = time.thread_time() + 2 * campaign.CPU_S
        while time.thread_time() < end_s:
            pass

    faults = {
        "index": lambda octets: octets[999],
        "memory": lambda octets: len(bytearray(64 << 20)),
        "CPU": slow,
    }
    for name, fault in faults.items():
        fuzzer = campaign.Fuzzer(lambda: [b"abc"] * 200, lambda octets, _: str(fault(octets))[:9], 0)  # noqa: B023
        with pytest.raises((IndexError, AssertionError), match=name) as caught:
            campaign.run(fuzzer, SEED, lambda inputs: inputs < 200)
        assert f"{b'abc'.hex()}" in caught.value.__notes__[0]

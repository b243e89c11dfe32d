"""A sample of the sweep over all damages, and the footer whole."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pump.log import segment
from tests.crash import lives, sweep
from tests.crash.faults import disk
from tests.crash.faults.disk import Disk
from tests.crash.lives import Mount
from tests.crash.sweep import BYTES


@pytest.fixture
def mount() -> Iterator[Mount]:
    with disk.mounted() as mounted:
        yield mounted


def test_a_sample_of_damages_have_the_verdict_foretold(mount: Mount) -> None:
    # Strides prime to 8, so that every bit of a byte and every byte of a header has its turn.
    count, refused, cut = sweep.run(
        mount, range(0, BYTES + 1, 181), range(0, BYTES * 8, 199), from_start=False
    )
    assert count > 2900
    assert refused > 2900
    assert cut > 300


def test_damage_is_judged_alike_when_nothing_is_known_of_the_log(mount: Mount) -> None:
    count, refused, cut = sweep.run(
        mount, range(0, BYTES + 1, 997), range(0, BYTES * 8, 2503), from_start=True
    )
    assert count > 250
    assert refused > 250
    assert cut > 60


def test_a_wrong_length_misleads_nobody(mount: Mount, monkeypatch: pytest.MonkeyPatch) -> None:
    """It leads from header to header past good records, further than one reading of the file reaches."""
    monkeypatch.setattr(segment, "_CHUNK", 2048)
    damaged = sweep.Sweep(mount)
    for number in range(0, len(damaged.payloads), 3):
        for bit in range(17):
            start = damaged.place(number).offset
            damaged.flipped((start + 4) * 8 + bit, from_start=number % 2 == 0)


@pytest.mark.parametrize("octet", range(12))
def test_damaged_footer_of_the_newest_file_costs_no_record(octet: int, mount: Mount) -> None:
    made = lives.groups(4, 10)
    for bit in range(8):
        history, written = lives.History(), Disk()
        log = history.open(mount, written)
        for group in made:
            history.written += group
            places = log.append(group)
            log.commit(places, len(group[-1]), 1, sync=True)
        history.sure = history.written[:]
        log.active.close_with_footer()
        (file,) = written.files().values()
        file.data[len(file.data) - 12 + octet] ^= 1 << bit
        history.live(mount, written, lives.groups(2, 10_000))
        history.live(mount, written, [])
    for size in range(1, 12):  # or only begun
        log = history.open(mount, left := Disk())
        places = log.append(made[0])
        log.commit(places, len(made[0][-1]), 1, sync=True)
        log.active.close_with_footer()
        del left.files()["000000.vlog"].data[-size:]
        lives.History(sure=made[0][:], written=made[0][:]).live(mount, left, [])

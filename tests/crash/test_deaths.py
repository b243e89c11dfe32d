"""A sample of the deaths at every call; primes, so that no kind is passed over."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.crash import deaths, lives
from tests.crash.faults import disk
from tests.crash.faults.disk import Disk


@pytest.fixture
def mount() -> Iterator[lives.Mount]:
    with disk.mounted() as mounted:
        yield mounted


def test_an_undisturbed_life_meets_every_kind_of_call(mount: lives.Mount) -> None:
    calls = {call.split()[0] for call in deaths.calls_of(mount, Disk(), lives.History(), deaths.FIRST)}
    assert calls >= {"mkdir", "create", "fsync", "writev", "fdatasync"}


def test_death_while_writing_and_again_while_recovering(mount: lives.Mount) -> None:
    seen = deaths.run(mount, deaths.DEATHS, every=29)
    assert len(seen) == 36
    assert seen.total() > 800


def test_failing_call_while_writing_and_again_while_recovering(mount: lives.Mount) -> None:
    """After a failed sync the pages count as clean: the next life reads them, and must not trust them."""
    seen = deaths.run(mount, deaths.FAILURES, every=29)
    assert len(seen) == 36
    assert seen.total() > 800

"""What is proposed for a name that does not exist."""

from __future__ import annotations

from tidb_binlog.similar import similar


def test_the_nearest_is_proposed() -> None:
    assert similar("data-dri", ["addr", "data-dir", "data-dirs"]) == "data-dir"


def test_nothing_is_proposed_for_what_is_far_from_all() -> None:
    assert similar("gc", ["addr", "data-dir"]) == ""
    assert similar("gc", []) == ""

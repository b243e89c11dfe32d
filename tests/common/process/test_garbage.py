"""The collector's thresholds, set once a process."""

from __future__ import annotations

import gc

from tidb_binlog.process.garbage import collect_rarely


def test_it_is_set_once() -> None:
    before = gc.get_threshold()
    try:
        gc.set_threshold(700, 10, 10)
        collect_rarely()
        assert gc.get_threshold() > (700, 10, 10)
        frozen = gc.get_freeze_count()
        assert frozen
        collect_rarely()
        assert gc.get_freeze_count() <= frozen  # what was frozen may die
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)

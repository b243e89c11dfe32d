"""The index: what a time mark must not do to a commit that has its timestamp."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.binlog import COMMIT, PREWRITE, ROLLBACK
from pump.index import Index
from pump.logged import Logged
from pump.value_pointer import START, ValuePointer

P = Logged(PREWRITE, 10, 0, ValuePointer(0, 0))
C = Logged(COMMIT, 10, 20, ValuePointer(0, 100))
MARK = Logged(ROLLBACK, 20, 20, ValuePointer(0, 200))
LATER_MARK = Logged(ROLLBACK, 30, 30, ValuePointer(0, 300))


@pytest.mark.parametrize(
    "batches",
    [[[P, C], [MARK]], [[P, C, MARK]], [[P, MARK, C]], [[MARK], [P, C]], [[P, C], [MARK], [P, C, MARK]]],
)
def test_a_mark_never_takes_the_place_of_a_commit(tmp_path: Path, batches: list[list[Logged]]) -> None:
    index = Index.open(str(tmp_path / "kv"), write_buffer_bytes=1 << 20, cache_bytes=1 << 20)
    for batch in [*batches, [LATER_MARK]]:
        index.write(batch, START, 0, START)
    assert list(index.between(0, 100)) == [(10, P.place), (20, C.place), (30, LATER_MARK.place)]
    index.close()

"""Pumps killed and started again under load. Fifty times: `python -m tests.pumpclient.support.kills`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pumpclient.support import kills

pytestmark = pytest.mark.integration


async def test_no_acknowledged_prewrite_is_lost_when_pumps_are_killed(
    etcd_clean: str, tmp_path: Path
) -> None:
    written = await kills.run(etcd_clean, tmp_path, 5)
    assert len(written.prewrites) >= 5 * 100
    assert written.commits


@pytest.mark.parametrize(
    ("logs", "complaint"),
    [
        ([({1}, set()), (set(), set())], "1 acknowledged prewrites are in no log"),
        ([({1, 3}, set()), (set(), set())], "1 acknowledged commits are in no log"),
        ([({1, 3}, set()), (set(), {(1, 2)})], "commits have no prewrite beside them"),
    ],
)
def test_the_check_sees_what_is_lost_or_astray(logs: list[kills.Log], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        kills.check(kills.Written({1, 3}, {(1, 2)}), logs)

"""Skew: what a node says of the upstream's clock against its host's, in words.

Tests  tests/deploy/binlogctl/cluster/test_node_table.py
"""

from __future__ import annotations

from typing import Final

from tidb_binlog.quantities import span
from tidb_binlog.status.pump import ClockStatus

SKEW_S: Final = 5.0
"""From here on it is worth a word, in logs too."""
HINT: Final = "`binlogctl doctor` compares all clocks of the cluster; correct the one that is off"


def of(upstream_time: ClockStatus) -> str:
    """ "" where the clocks agree, or nothing is said."""
    ahead_s = upstream_time.ahead_of_host_s
    if abs(ahead_s) < SKEW_S:
        return ""
    return (
        f"the upstream's clock is {span(abs(ahead_s))} {'ahead of' if ahead_s > 0 else 'behind'} its host's"
    )

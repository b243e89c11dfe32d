"""Skew: what a node says of the upstream's clock against its host's, in words.

Tests  tests/deploy/ctl/cluster/test_node_table.py
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from common.quantities import span
from common.upstream.upstream_time import SKEW_S
from deploy.ctl.cluster.node_document import number

HINT: Final = "`binlogctl doctor` compares all clocks of the cluster; correct the one that is off"


def of(upstream_time: Mapping[str, Any]) -> str:
    """ "" where the clocks agree, or nothing is said."""
    ahead_s = number(upstream_time, "ahead_of_host_s") or 0.0
    if abs(ahead_s) < SKEW_S:
        return ""
    return (
        f"the upstream's clock is {span(abs(ahead_s))} {'ahead of' if ahead_s > 0 else 'behind'} its host's"
    )

"""Which drainers' binlogs an operator is told of before they are purged."""

from __future__ import annotations

from pump.retention.purger import conditions
from tidb_binlog.status.pump import PurgeOutlook, RetentionStatus


def test_only_a_purge_that_is_near_or_done_is_told() -> None:
    found = list(
        conditions(
            RetentionStatus(
                drainers=[
                    PurgeOutlook(node_id="fine", left_s=90000.0, live=True),
                    PurgeOutlook(node_id="late", left_s=7200.0, alarm=True, checkpoint=5, limit="age"),
                    PurgeOutlook(node_id="gone", left_s=0.0, lost=True),
                ]
            )
        )
    )
    assert [(one.type, one.subject) for one in found] == [("purge_ahead", "late"), ("purge_ahead", "gone")]
    assert found[0].message == "retention reaches in 2.0 hours what drainer late has not applied"
    assert found[0].details["checkpoint"] == 5
    assert found[1].message == "binlogs that drainer gone has not applied are purged"

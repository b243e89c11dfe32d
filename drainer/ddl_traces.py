"""DDL traces: whether a DDL can be seen in columns, keys and names, and whether it is to be seen downstream.

In     what a job changed, what the downstream has
Out    verdicts, for a start at a position behind which another program may have run the statement already
"""

from __future__ import annotations

from drainer import ddl_definition, ddl_derive, ddl_job
from drainer.ddl_compare import differences
from drainer.ddl_derive import Change


def shows(change: Change) -> bool:
    """Whether columns, keys or names are different after the DDL."""
    if len(change.before) != len(change.after):
        return True
    for one in change.after:
        old = ddl_derive.before_of(change, one)
        if old is None or change.at(old) != change.at(one):
            return True
        was, now = ddl_definition.read(old.document), ddl_definition.read(one.document)
        meanings = [[column.name for column in was.columns], was.keys, was.partitioning]
        if meanings != [[column.name for column in now.columns], now.keys, now.partitioning]:
            return change.action not in (ddl_job.TRUNCATE_TABLE, ddl_job.EXCHANGE_PARTITION)
    return False


def is_done(change: Change) -> bool:
    """Whether every table is as it is after the DDL, and nothing is left under a name that is gone."""
    after = {change.at(one) for one in change.after}
    if any(change.there(one) is not None for one in change.before if change.at(one) not in after):
        return False
    return all(
        not differences(ddl_definition.read(one.document), change.there(one), change.server)
        for one in change.after
    )

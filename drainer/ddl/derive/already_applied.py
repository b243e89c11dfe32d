"""DDL traces: whether a DDL can be seen in columns, keys and names, and whether it is to be seen downstream.

In     what a job changed, what the downstream has
Out    verdicts, for a start at a position behind which another program may have run the statement already
"""

from __future__ import annotations

from drainer.ddl.derive import definition as ddl_definition
from drainer.ddl.derive import derive as ddl_derive
from drainer.ddl.derive.compare import differences
from drainer.ddl.derive.derive import Change
from drainer.schema.ddl_effect import EffectKind
from drainer.txn import Tracked


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
            return change.effect.kind not in (EffectKind.TRUNCATE, EffectKind.EXCHANGE)
    return False


def is_done(change: Change) -> bool:
    """Whether every table is as it is after the DDL, and nothing is left under a name that is gone.

    False where it is exactly as before, too: a swap of tables that are alike is run.
    """
    if change.before and all(_is_exactly(change, one) for one in change.before):
        return False
    after = {change.at(one) for one in change.after}
    if any(change.there(one) is not None for one in change.before if change.at(one) not in after):
        return False
    return all(_is_as(change, one) for one in change.after)


def _is_exactly(change: Change, one: Tracked) -> bool:
    """As `_is_as`, with no column or key besides."""
    present, definition = change.there(one), ddl_definition.read(one.document)
    if present is None or not _is_as(change, one):
        return False
    return len(present.columns) == len(definition.columns) and len(present.keys) == len(definition.keys)


def _is_as(change: Change, one: Tracked) -> bool:
    return not differences(ddl_definition.read(one.document), change.there(one), change.server)

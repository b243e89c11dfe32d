"""Ran before: whether a DDL took effect downstream before a crash, a lost connection, or by another program.

Why    error codes cannot say it: a statement continues after its connection broke, and the answer to one that
       succeeded can be lost

    refused before   fingerprint now       the statement
    --------------   -------------------   ----------------------------------------------------------------
    yes              not asked             runs: a part of what was derived may be there, but not all
    no               as before it          runs: it changed nothing that a second run would do differently
    no               another one           has run: what it left undone is done now

At a start after which another program may have run the statement without recording it (`is_seen`), columns,
keys and names say it: what leaves no trace in them (TRUNCATE, EXCHANGE PARTITION) is run.
"""

from __future__ import annotations

from collections.abc import Mapping

from drainer.changes.ddl_effect import EffectKind
from drainer.ddl.derive import definition
from drainer.ddl.derive.compare import differences
from drainer.ddl.derive.derive import Change, before_of
from drainer.txn import Tracked


def has_run(before: Mapping[str, str | None], now: Mapping[str, str | None]) -> bool:
    """By the fingerprints before the statement and now."""
    return now != before


def is_seen(change: Change, *, has_database: bool) -> bool:
    """By what the downstream has; `has_database`: the database that the job is about."""
    if change.database is not None and not change.after:
        kind = change.effect.kind
        created, dropped = kind is EffectKind.CREATE_DATABASE, kind is EffectKind.DROP_DATABASE
        return (created and has_database) or (dropped and not has_database)
    return shows(change) and is_done(change)


def shows(change: Change) -> bool:
    """Whether columns, keys or names are different after the DDL."""
    if len(change.before) != len(change.after):
        return True
    for table in change.after:
        old = before_of(change, table)
        if old is None or change.at(old) != change.at(table):
            return True
        was, now = definition.read(old.document), definition.read(table.document)
        meanings = [[column.name for column in was.columns], was.keys, was.partitioning]
        if meanings != [[column.name for column in now.columns], now.keys, now.partitioning]:
            return change.effect.kind not in (EffectKind.TRUNCATE, EffectKind.EXCHANGE)
    return False


def is_done(change: Change) -> bool:
    """Whether every table is as it is after the DDL, and nothing is left of what is gone.

    False where it is exactly as before, too: a swap of tables that are alike is run.
    """
    if change.before and all(_is_exactly(change, table) for table in change.before):
        return False
    after = {change.at(table) for table in change.after}
    if any(change.present_of(table) is not None for table in change.before if change.at(table) not in after):
        return False
    return all(_is_as(change, table) and not _has_dropped(change, table) for table in change.after)


def _has_dropped(change: Change, table: Tracked) -> bool:
    """Whether a column or key is there that the DDL takes away."""
    old, present = before_of(change, table), change.present_of(table)
    if old is None or present is None:
        return False
    was, now = definition.read(old.document), definition.read(table.document)
    columns = (present.column(column.name) for column in was.columns if not now.column(column.name))
    kept = {key.name.lower() for key in now.keys}
    keys = (present.key(key.name) for key in was.keys if key.name.lower() not in kept)
    return any(columns) or any(keys)


def _is_exactly(change: Change, table: Tracked) -> bool:
    """As `_is_as`, with no column or key besides."""
    present, expected = change.present_of(table), definition.read(table.document)
    if present is None or not _is_as(change, table):
        return False
    return len(present.columns) == len(expected.columns) and len(present.keys) == len(expected.keys)


def _is_as(change: Change, table: Tracked) -> bool:
    return not differences(definition.read(table.document), change.present_of(table), change.server)

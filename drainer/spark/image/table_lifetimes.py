"""Table life: from which moment on an archive's rows make up a table, and under which definition.

In     schema changes in order, the names of the tables that are wanted, whether there is an image before
Out    of each table that is there at the end, the moment from which on its rows count; refusals
Holds  what makes rows without telling them (a table that moves, a partition that goes or comes) is refused:
       an image would be wrong, and nobody would see it
Tests  tests/spark/image/test_image.py
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from common.ddl_job import ActionType
from common.errors import Rejected
from drainer.schema.sql_tokens import tokens
from drainer.txn import Ddl

_UNTOLD: Final = frozenset({"RENAME", "EXCHANGE", "RECOVER", "FLASHBACK"})
_OF_PARTITIONS: Final = frozenset({"DROP", "TRUNCATE", "EXCHANGE"})
_CONVERTING: Final = frozenset({"MODIFY", "CHANGE"})
Name = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Life:
    """`since`: rows count behind this commit_ts. `whole`: the table began in the archive, there."""

    since: int
    whole: bool
    converted: bool = False


def lives(names: Iterable[Name], changes: Iterable[Ddl], since: int) -> dict[Name, Life]:
    """Tables that are there at the end. `since`: of the image before, 0 for none. Raises `Rejected`."""
    found: dict[Name, Life | None] = {name: Life(since, whole=False) for name in names}
    for ddl in changes:
        if ddl.commit_ts <= since:
            continue
        for name in found:
            if name in ddl.tables:
                found[name] = _after(found[name], ddl, name)
            elif (name[0], "") in ddl.tables and ddl.action == ActionType.DROP_SCHEMA:
                found[name] = None
    return {name: life for name, life in found.items() if life is not None}


def _after(life: Life | None, ddl: Ddl, name: Name) -> Life | None:
    if ddl.action in (ActionType.CREATE_TABLE, ActionType.TRUNCATE_TABLE):
        return Life(ddl.commit_ts, whole=True)
    if ddl.action == ActionType.DROP_TABLE:
        return None
    words = [word.upper() for word in tokens(ddl.query)]
    untold = _UNTOLD.intersection(words) and not {"COLUMN", "INDEX", "KEY"}.intersection(words)
    partition = "PARTITION" in words and _OF_PARTITIONS.intersection(words)
    if untold or partition:
        raise Rejected(
            f"the rows of {'.'.join(name)} cannot be known behind commit_ts {ddl.commit_ts}: {ddl.query}",
            hint="take an image of the database behind it as the base, or leave the table out with --tables",
        )
    if life is not None and _CONVERTING.intersection(words):
        return Life(life.since, life.whole, converted=True)
    return life

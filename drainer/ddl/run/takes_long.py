"""Takes long: whether a DDL would keep all tables waiting, so that it is to run beside the stream.

Drives  the DDL session's connection; the server is asked with an empty table of the same definition
Out     why it takes long, or "" where it does not

    kind of DDL                                        takes long, of a large table
    -------------------------------------------------  ----------------------------------------------------
    makes, drops, renames, empties whole tables        no
    drops or renames keys, foreign keys, counters      no
    converts values of columns (`convert.columns`)     yes
    swaps rows with a partition                        yes: the server looks at each row
    adds, drops, empties partitions by their names     no
    any other that alters a table                      unless the server does it with ALGORITHM=INSTANT
    ... of a TiDB, which alters definitions alone      if it is in `_READS_ROWS`

Holds  what cannot be known takes long: then only its own tables wait for it
Tests  tests/drainer/ddl/run/test_takes_long.py, tests/drainer/sink/mysql/test_long_ddl_mariadb.py
"""

from __future__ import annotations

import contextlib
from typing import Final

from drainer.changes.ddl_effect import TABLE, EffectKind
from drainer.ddl.convert import columns
from drainer.ddl.derive import derive
from drainer.ddl.derive.derive import Change, Name
from drainer.ddl.derive.render import NotDerivable, name_of
from drainer.ddl.run.facts import DdlFacts
from drainer.ddl.run.plan import Plan, intended
from drainer.mysql.chunks.table_size import TableSize, table_size
from drainer.mysql.connection import Connection
from drainer.mysql.errors import StatementRefused
from drainer.mysql.rows.dialect import Dialect
from drainer.txn import Ddl
from tidb_binlog import ddl_job
from tidb_binlog.ddl_job import ActionType
from tidb_binlog.late_dataclass import dataclass, replace

_ROW_BYTES: Final = 8192  # a long row counts for several
_PARTITIONS_MAX: Final = 32  # of the empty table, each of which is a file
_AT_ONCE: Final = frozenset(
    {
        *(ActionType.DROP_INDEX, ActionType.DROP_INDEXES, ActionType.RENAME_INDEX),
        *(ActionType.ALTER_INDEX_VISIBILITY, ActionType.DROP_CHECK_CONSTRAINT),
        *(ActionType.ADD_FOREIGN_KEY, ActionType.DROP_FOREIGN_KEY),  # `foreign_key_checks` are off
        *(ActionType.MODIFY_TABLE_COMMENT, ActionType.REBASE_AUTO_ID),
    }
)
"""Of a definition alone in every server, by whatever algorithm."""
_READS_ROWS: Final = frozenset(
    {
        *(ActionType.ADD_INDEX, ActionType.ADD_PRIMARY_KEY, ActionType.ADD_COLUMNAR_INDEX),
        *(ActionType.MODIFY_COLUMN, ActionType.ADD_CHECK_CONSTRAINT, ActionType.REORGANIZE_PARTITION),
        *(ActionType.ALTER_TABLE_PARTITIONING, ActionType.REMOVE_PARTITIONING),
    }
)
_BY_NAME: Final = ("ADD PARTITION (", "DROP PARTITION ", "TRUNCATE PARTITION ")


@dataclass(frozen=True, slots=True)
class Beside:
    """From how many rows on a table is a large one (0: every table; below: none), by the server's estimate.
    `spare`: a (schema, table) downstream that nobody else uses."""

    rows: int
    spare: Name

    def is_large(self, size: TableSize) -> bool:
        return 0 <= self.rows <= max(size.rows, size.size_bytes // _ROW_BYTES)


def why_long(facts: DdlFacts, ddl: Ddl, plan: Plan, conversions: str, beside: Beside) -> str:
    """`conversions`: see `ddl-conversions`. The session has the settings of the job."""
    change = intended(ddl, facts.server, facts.route)
    done = change.effect
    alters = done.kind in (EffectKind.ALTER, EffectKind.EXCHANGE) and done.object == TABLE
    parts = done.actions - {ActionType.MULTI_SCHEMA_CHANGE}
    if beside.rows < 0 or plan.texts or not alters or (parts and parts <= _AT_ONCE):
        return ""
    sizes = {name: table_size(facts.connection, *name) for name in derive.names(change)}
    large = {name: size.rows for name, size in sizes.items() if beside.is_large(size)}
    if not large:
        return ""
    with contextlib.suppress(NotDerivable):  # it is refused at once
        change = facts.change(ddl)
        plans = columns.plans(change)
        if plans and conversions != columns.DOWNSTREAM:
            return "; ".join(map(str, plans)) if conversions == columns.CONVERT else ""
        if facts.server.dialect is Dialect.TIDB:
            is_short = done.kind is EffectKind.ALTER and bool(parts) and not parts & _READS_ROWS
        else:
            is_short = _is_short(facts.connection, change, plan, beside.spare)
        if not is_short:
            tables = ", ".join(f"{'.'.join(name)} has about {rows} rows" for name, rows in large.items())
            return f"{ddl_job.action_name(ddl.action)}, {tables}"
    return ""


def _is_short(connection: Connection, change: Change, plan: Plan, spare: Name) -> bool:
    if len(change.after) != 1:
        return False
    (table,) = change.after
    present, source = change.present_of(table), change.at(table)
    change = replace(change, route=lambda *_: spare, present={spare: present})
    steps = derive.derive(change).steps
    if not steps and plan.text_last:
        return False
    by_name = tuple(f"ALTER TABLE {name_of(*spare)} {verb}" for verb in _BY_NAME)
    texts = [text for step in steps for text in step.statements if not text.startswith(by_name)]
    if not texts or present is None:
        return True
    return len(present.partitions) <= _PARTITIONS_MAX and _is_instant(connection, source, spare, texts)


def _is_instant(connection: Connection, source: Name, spare: Name, texts: list[str]) -> bool:
    """Whether the server does this with a definition alone; it is done with that of an empty table."""
    drop = f"DROP TABLE IF EXISTS {name_of(*spare)}"
    texts = [f"{text}, ALGORITHM=INSTANT" for text in texts]
    try:
        for text in (drop, f"CREATE TABLE {name_of(*spare)} LIKE {name_of(*source)}", *texts):
            connection.run(text.encode())
    except StatementRefused:
        return False
    finally:
        with contextlib.suppress(StatementRefused):
            connection.run(drop.encode())
    return True

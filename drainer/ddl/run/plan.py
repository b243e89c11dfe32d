"""Plan: in which way one DDL reaches the downstream, before anything is asked or run.

Out    texts to run, or that its statements are derived, and what is tried before and after that

    the DDL                                       runs as                     where it had run already
    --------------------------------------------  --------------------------  -------------------------
    an operator gave a text                       it; nothing is compared     nothing
    a filter gave texts                           they                        they, but for moves
    no definition says what it did, not routed    the upstream's text         nothing
    a sequence, not routed                        its text; refused: derived  derived
    any other                                     derived                     what is left is derived
    ... of a kind that is not known, not routed   derived nothing: its text   nothing

Tests  tests/drainer/ddl/run/test_runner.py, tests/drainer/changes/test_ddl_effect.py
"""

from __future__ import annotations

from typing import Final

from drainer.changes.ddl_effect import (
    SEQUENCE,
    EffectKind,
    columns_apart,
    effect,
    forces_auto_id,
    sub_actions,
)
from drainer.ddl.derive import derive
from drainer.ddl.derive.derive import Change
from drainer.ddl.derive.render import Server
from drainer.ddl.derive.values import Route
from drainer.ddl.run import recycle_bin
from drainer.mysql.literal.quoting import qualified
from drainer.txn import Ddl, Tracked
from tidb_binlog import ddl_job
from tidb_binlog.late_dataclass import dataclass

MOVES: Final = frozenset({EffectKind.RENAME, EffectKind.EXCHANGE})
"""They do not run again where they have run."""
NEVER_AS_TEXT: Final = frozenset({EffectKind.RESTORE, EffectKind.REWIND})
_BODIES: Final = frozenset({EffectKind.CREATE, EffectKind.ALTER})


@dataclass(frozen=True, slots=True)
class Plan:
    """Without `texts` statements are derived."""

    texts: tuple[str, ...] = ()  # run as they are, and nothing else
    repeats: bool = False  # texts run again where they had run
    compares: bool = True  # what is there afterwards is compared with the definitions
    takes_away: bool = False  # tables that it drops may be kept: that is all then
    brings_back: bool = False  # tables that were kept come back first
    body_first: bool = False  # its text says all of it; derived only where that is refused
    text_last: bool = False  # its text may do what the definitions do not say


def plan_of(ddl: Ddl, text: str | None, route: Route) -> Plan:
    """`text`: what an operator wants in its place."""
    if text is not None:
        return Plan((text,), compares=False)
    done = effect(ddl.action)
    if ddl.instead:
        return Plan(tuple(ddl.instead), repeats=done.kind not in MOVES)
    takes_away, brings_back = recycle_bin.takes_away(done), recycle_bin.brings_back(done)
    is_routed = any(route(*name) != name for name in ddl.tables)
    defined = derive.database_of(ddl.job) if is_of_database(ddl) else ddl.before or ddl.after
    if not (defined or done.kind in NEVER_AS_TEXT or is_routed) and ddl.query.strip():
        statement = statement_of(ddl).decode("utf-8", "surrogateescape")
        return Plan((statement,), takes_away=takes_away, brings_back=brings_back)
    return Plan(
        takes_away=takes_away,
        brings_back=brings_back,
        body_first=done.object == SEQUENCE and done.kind in _BODIES and bool(ddl.query) and not is_routed,
        text_last=ddl.action not in ddl_job.ACTION_NAMES and not is_routed,
    )


def is_of_database(ddl: Ddl) -> bool:
    """CREATE, DROP or ALTER DATABASE: must not run inside the database it is about."""
    return any(not table for _, table in ddl.tables)


def statement_of(ddl: Ddl) -> bytes:
    """What to run: the statement as it was, except where one statement became several jobs.

    `DROP TABLE a, b` is one job (and one binlog) for each table, all with the same text; each job drops its
    own table, or rows of `b` that come between the two would find no table.
    """
    done = effect(ddl.action)
    if done.kind is EffectKind.DROP and len(ddl.tables) == 1:
        return f"DROP {done.object.upper()} IF EXISTS ".encode() + qualified(*ddl.tables[0])
    return ddl.query.encode("utf-8", "surrogateescape")


def intended(ddl: Ddl, server: Server, route: Route) -> Change:
    """The DDL as it was upstream, to be derived; tables that the filter took away are left out."""
    kept = set(ddl.tables)

    def of_kept(tracked: tuple[Tracked, ...]) -> tuple[Tracked, ...]:
        return tuple(table for table in tracked if {(table.schema, table.name), (table.schema, "")} & kept)

    return Change(
        action=ddl.action,
        before=of_kept(ddl.before),
        after=of_kept(ddl.after),
        database=derive.database_of(ddl.job),
        sub_actions=sub_actions(ddl.job),
        server=server,
        route=route,
        apart=columns_apart(ddl.job),
        forced=forces_auto_id(ddl.job),
    )

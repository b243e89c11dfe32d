"""Facts: what the downstream says of a DDL: what it has, whether the DDL shows, whether it still runs.

Out     the change to be derived, with what is there; the shape of what it touches; what is in the recycle bin

Tests   tests/drainer/ddl/run/test_runner.py, tests/drainer/ddl/run/test_connection_lost.py
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from drainer.changes.ddl_effect import EffectKind, effect
from drainer.ddl.convert import columns
from drainer.ddl.derive import derive
from drainer.ddl.derive.derive import Change, Name
from drainer.ddl.derive.render import NotDerivable, Server
from drainer.ddl.derive.values import Derived, Route, Step
from drainer.ddl.run import downstream_schema, fingerprint, ran_before, recycle_bin
from drainer.ddl.run.plan import MOVES, Plan, intended
from drainer.ddl.run.progress import wait_for
from drainer.ddl.run.recycle_bin import KeepDropped
from drainer.mysql.connection import Connection
from drainer.txn import Ddl
from tidb_binlog.late_dataclass import dataclass, replace


@dataclass(frozen=True, slots=True)
class DdlFacts:
    """Asked anew by every call."""

    connection: Connection
    server: Server  # of the connection
    route: Route

    def change(self, ddl: Ddl, *, ran: bool = False) -> Change:
        """The DDL with what the downstream has now."""
        change = intended(ddl, self.server, self.route)
        present = downstream_schema.read_all(self.connection, derive.names(change), self.server)
        return replace(change, present=present, ran=ran)

    def shape(self, ddl: Ddl) -> fingerprint.Shape:
        """Definitions of what the DDL touches, as text that can be stored."""
        names = tuple(dict.fromkeys(self.route(*name) for name in ddl.tables))
        kind = effect(ddl.action).kind
        return fingerprint.read(
            self.connection,
            names,
            self.server,
            moves=kind in MOVES,
            contents=kind is EffectKind.EXCHANGE,
        )

    def shows(self, ddl: Ddl) -> bool:
        """Whether columns, keys or names are as they are after the DDL, and were not before."""
        change = self.change(ddl)
        has_database = change.database is not None and fingerprint.has_database(
            self.connection, self.route(change.database[0], "")[0], self.server
        )
        return ran_before.is_seen(change, has_database=has_database)

    def recycling(self, change: Change, plan: Plan, keep: KeepDropped, commit_ts: int) -> Derived | None:
        """Steps that move tables into the recycle bin or out of it; None where there are none."""
        kept = recycle_bin.kept(keep, downstream_schema.tables_in(self.connection, keep.schema))
        if plan.brings_back:
            return recycle_bin.bring_back(change, kept)
        movable = frozenset(
            name
            for table in change.before
            if downstream_schema.is_movable(self.connection, name := change.at(table))
        )
        return recycle_bin.take_away(change, keep, commit_ts, movable, kept)

    def outdated(self, keep: KeepDropped, commit_ts: int) -> list[Name]:
        """What is in the recycle bin for too long at that time of the stream."""
        tables = downstream_schema.tables_in(self.connection, keep.schema)
        return recycle_bin.outdated(keep, tables, commit_ts)

    def wait_for_end(self, ddl: Ddl, plan: Plan) -> None:
        """Until nothing of the DDL runs any more in a session that was lost."""
        texts = list(plan.texts)
        if not texts:
            with contextlib.suppress(NotDerivable):
                change = self.change(ddl)
                texts = [text for conversion in columns.plans(change) for text in conversion.statements]
                texts += _statements(derive.derive(change).steps)
        wait_for(self.connection, texts)


def _statements(steps: Iterable[Step]) -> Iterator[str]:
    for step in steps:
        yield from step.statements
        yield from _statements(step.instead)

"""Row gate: what becomes of the rows of one table id, decided once for many transactions.

In     row events of one table in execution order
Out    those that replicate; whether a mark row among them makes the whole transaction one of ours
Holds  the ordinal of a row does not depend on filters: where rows are taken out, events are cut into runs.
       The event filter is asked about rows as upstream wrote them, before row rules
Never  decodes rows, except those of the mark table and the columns that row rules are about
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING

from drainer.stream.translate.loopback_rows import MarkRows
from drainer.stream.translate.row_events import REPAIR_HINT
from drainer.txn import TableEvents, TableVersion, Transaction
from tidb_binlog.errors import Corruption
from tidb_binlog.rowcodec import RowError
from tidb_binlog.tso import Ts

if TYPE_CHECKING:
    from drainer.stream.translate.row_edit import Event, RowEdit


@dataclass(frozen=True, slots=True)
class RowGate:
    """`table` None: no row replicates. `version`: the schema version from which on the gate holds.

    `opens`: rows have to be opened at all. `plain`: all of them pass.
    """

    version: int
    table: TableVersion | None = None
    dropped: frozenset[int] = frozenset()
    mark: MarkRows | None = None
    edit: RowEdit | None = None
    opens: bool = field(init=False)
    plain: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "opens", self.table is not None or self.mark is not None)
        object.__setattr__(self, "plain", self.mark is None and self.edit is None and not self.dropped)

    def is_ours(self, kinds: Sequence[int], rows: Sequence[bytes], commit_ts: Ts) -> bool:
        """Whether a drainer of our channel wrote the transaction that these rows are from."""
        return self.mark is not None and self.mark.is_ours(kinds, rows, commit_ts)

    def passed(
        self, kinds: Sequence[int], rows: list[bytes], first_ordinal: int, commit_ts: Ts
    ) -> Iterator[TableEvents]:
        """Runs of the rows that replicate."""
        table = self.table
        if table is None:
            return
        if self.edit is not None:
            yield from self._edited(self.edit, table, kinds, rows, first_ordinal, commit_ts)
            return
        if self.dropped.isdisjoint(kinds):
            yield TableEvents(table, tuple(kinds), rows, first_ordinal)
            return
        start = 0
        for out, run in groupby(kinds, self.dropped.__contains__):
            end = start + sum(1 for _ in run)
            if not out:
                yield TableEvents(table, tuple(kinds[start:end]), rows[start:end], first_ordinal + start)
            start = end

    def _edited(
        self,
        edit: RowEdit,
        table: TableVersion,
        kinds: Sequence[int],
        rows: list[bytes],
        first_ordinal: int,
        commit_ts: Ts,
    ) -> Iterator[TableEvents]:
        """Runs of what row rules leave of the rows."""
        run: list[Event] = []
        dropped = self.dropped
        for ordinal, (kind, row) in enumerate(zip(kinds, rows, strict=True), first_ordinal):
            try:
                event = None if kind in dropped else edit.event(kind, row, commit_ts)
            except RowError as error:
                raise Corruption(
                    f"transaction with commit_ts {commit_ts}: {error.message}", hint=REPAIR_HINT
                ) from None
            if event is not None:
                run.append(event)
            elif run:
                yield _run(table, run, ordinal)
                run = []
        if run:
            yield _run(table, run, first_ordinal + len(rows))


def _run(table: TableVersion, run: Sequence[Event], end: int) -> TableEvents:
    return TableEvents(table, [kind for kind, _ in run], [row for _, row in run], end - len(run))


def screened(piece: Transaction, gates: Mapping[TableVersion, RowGate]) -> Transaction:
    """What passes of a piece of a large transaction."""
    if all(gates[events.table].plain for events in piece.tables):
        return piece
    passed = (
        kept
        for events in piece.tables
        for kept in gates[events.table].passed(
            events.kinds, events.rows, events.first_ordinal, piece.commit_ts
        )
    )
    return replace(piece, tables=tuple(passed))


CLOSED = RowGate(0)
"""Nothing passes, whatever the schema version."""

"""Row gate: what becomes of the rows of one table id, decided once for many transactions.

In     row events of one table in execution order
Out    those that replicate; whether a mark row among them makes the whole transaction one of ours
Holds  the ordinal of a row does not depend on filters: where rows are taken out, events are cut into runs
Never  decodes rows, except those of the mark table
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from drainer.translate.loopback_rows import MarkRows
from drainer.txn import TableEvents, TableVersion


@dataclass(frozen=True, slots=True)
class RowGate:
    """`table` None: no row replicates. `version`: the schema version from which on the gate holds.

    `opens`: rows have to be opened at all. `plain`: all of them pass.
    """

    version: int
    table: TableVersion | None = None
    dropped: frozenset[int] = frozenset()
    mark: MarkRows | None = None
    opens: bool = field(init=False)
    plain: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "opens", self.table is not None or self.mark is not None)
        object.__setattr__(self, "plain", self.mark is None and not self.dropped)

    def is_ours(self, kinds: Sequence[int], rows: Sequence[bytes], commit_ts: int) -> bool:
        """Whether a drainer of our channel wrote the transaction that these rows are from."""
        return self.mark is not None and self.mark.is_ours(kinds, rows, commit_ts)

    def passed(self, kinds: Sequence[int], rows: list[bytes], first_ordinal: int) -> Iterator[TableEvents]:
        """Runs of the rows that replicate."""
        table = self.table
        if table is None:
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


CLOSED = RowGate(0)
"""Nothing passes, whatever the schema version."""

"""Edited rows: rows of upstream as row rules make them, beside what the downstream prints.

Drives  one session at a time, which sees the moment
In      the definition of each upstream table, its rules; how the downstream's table is compared
Out     rows in the form in which `RowComparison` takes them
Holds   a row goes the way of a load and of the stream: read as values, encoded as a binlog has it, edited by
        the rules, decoded. What a rule withholds is not there; what a mask shows is compared
Tests   tests/drainer/compare/verify/test_live.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from drainer.changes import canonical
from drainer.compare.verify.column_pairs import ColumnPair
from drainer.compare.verify.compared_table import ComparedTable
from drainer.compare.verify.row_differences import Printed
from drainer.mysql.chunks.chunk import Chunk
from drainer.mysql.chunks.cut_key import WHOLE
from drainer.mysql.chunks.value_rows import ValueSelect
from drainer.mysql.connection import Connection
from drainer.mysql.rows.column_match import DownstreamTable
from drainer.txn import INSERT, TableVersion
from tidb_binlog.rowcodec.plan import compile_table

if TYPE_CHECKING:
    from drainer.stream.rules.row_rule import RowRule
    from drainer.stream.translate.row_edit import RowEdit


@dataclass(frozen=True, slots=True)
class Edited:
    """An upstream table whose rows are not written as they are. `edit` None: of one beside such a table."""

    version: TableVersion
    edit: RowEdit | None = field(compare=False, repr=False)
    rules: tuple[RowRule, ...] = field(compare=False, repr=False)

    @property
    def changed(self) -> frozenset[str] | None:
        """Columns, in lower case, whose values may be others downstream; None: any."""
        if any(rule.python is not None for rule in self.rules):
            return None
        return frozenset(mask.column.lower() for rule in self.rules for mask in rule.masks)


class EditedRows:
    """Of one compared table at one moment."""

    def __init__(
        self,
        table: ComparedTable,
        edited: Sequence[Edited],
        session: Callable[[], AbstractContextManager[Connection]],
        ts: int,
    ) -> None:
        self._session = session
        self._ts = ts
        self._sources = [
            _Source(one, there, table.pairs) for one, there in zip(edited, table.upstream, strict=True)
        ]

    def read(self, chunk: Chunk) -> Iterator[Printed]:
        """Raises `SessionError`, `RowError`, `DownstreamError`."""
        for source in self._sources:
            with self._session() as connection:
                yield from source.rows(connection, chunk, self._ts)


class _Source:
    def __init__(self, edited: Edited, there: DownstreamTable, pairs: Sequence[ColumnPair]) -> None:
        info = edited.version.info
        self._edit = edited.edit
        self._select = ValueSelect.of(info, there, WHOLE)
        plan = compile_table(info)
        self._decode = plan.decode_insert
        places = {column.name.lower(): place for place, column in enumerate(plan.columns)}
        self._shown = [(places[pair.name.lower()], _shown(pair.form)) for pair in pairs]

    def rows(self, connection: Connection, chunk: Chunk, ts: int) -> Iterator[Printed]:
        for rows in self._select.read(connection, chunk):
            for row in rows:
                if self._edit is not None:
                    event = self._edit.event(INSERT, row, ts)
                    if event is None:
                        continue
                    row = event[1]
                values = self._decode(row)
                yield tuple(
                    None if values[place] is None else show(values[place]) for place, show in self._shown
                )


def _shown(form: str) -> Callable[[Any], bytes]:
    return canonical.OF_IMAGE[form]

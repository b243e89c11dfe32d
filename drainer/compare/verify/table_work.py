"""Table work: how far the comparison of one downstream table is.

Holds  what was equal stays equal as long as columns and key stay; a table that was altered begins anew.
       Without every chunk a table is not equal
Tests  tests/drainer/compare/verify/test_verifying.py
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from drainer.compare.verify.chunk_comparison import Part
from drainer.compare.verify.compared_table import ComparedTable
from drainer.compare.verify.result import ComparedColumn, How, Name, RowDifference, State, TableResult, listed
from drainer.compare.verify.row_source import SourceTable, StoredTable
from drainer.mysql.chunks.chunk import Chunk, Place
from drainer.reading.subscribe.table_choice import TablePattern
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.status.drainer import ChunkGrid


@dataclass(frozen=True, slots=True)
class Request:
    """A downstream table with the upstream's ones that go there. `left_out`: columns, in lower case, that
    are not written. `why_not`: the reason for which its rows need not be equal, "" for none.
    `rows_expected`: as a server estimates them; `rows_known`: how many there are, 0 where only that says.
    `edited`: the tables upstream, where a server does not show their rows as they are to be. `published`:
    columns of each table upstream that its definition has and a row shows, in lower case; () where nothing
    is published. `stored`: the downstream's, where no server has it."""

    upstream: tuple[Name, ...]
    downstream: Name
    left_out: frozenset[str] = frozenset()
    why_not: str = ""
    rows_expected: int = 0
    rows_known: int = 0
    edited: tuple[SourceTable, ...] = ()
    published: tuple[frozenset[str], ...] = ()
    stored: StoredTable | None = None

    @property
    def label(self) -> str:
        return ".".join(self.downstream)


def is_selected(names: Sequence[Name], selected: Sequence[TablePattern]) -> bool:
    """Whether tables that go to one, by their names upstream, are to be compared."""
    chosen, taken_out = (
        [any(pattern.fits(*name) for pattern in selected if pattern.takes_out is is_out) for name in names]
        for is_out in (False, True)
    )
    is_limited = any(not pattern.takes_out for pattern in selected)
    return (any(chosen) or not is_limited) and not all(taken_out)


@dataclass(slots=True)
class TableWork:
    """`edited`: those of `request` that are there. `is_described`: what both sides have is known.

    `listed`: the first differences, with the number of their chunk. `refusal`: why it could not be read at
    the last moment; `absent`: a side that lacks it.
    """

    request: Request
    how: ComparedTable | None = None
    edited: tuple[SourceTable, ...] = ()
    chunks: list[Chunk] = field(default_factory=list)
    is_cut: bool = False
    is_described: bool = False
    equal: dict[int, Part] = field(default_factory=dict)
    wrong: dict[int, Part] = field(default_factory=dict)
    listed: list[tuple[int, RowDifference]] = field(default_factory=list)
    refusal: str = ""
    absent: str = ""
    is_gone: bool = False
    seconds: float = 0.0

    # -- what is left ---------------------------------------------------------------------------------

    @property
    def is_settled(self) -> bool:
        """Nothing is left to do at the look that is under way."""
        if self.request.why_not or self.is_gone or self.refusal or self.absent:
            return True
        return self.is_described and self.is_cut and not any(self.left())

    @property
    def is_right(self) -> bool:
        """No later look is needed."""
        if self.request.why_not or self.is_gone:
            return True
        if self.wrong or self.refusal or self.absent or not self.is_settled:
            return False
        return self.how is not None and self.how.is_whole

    @property
    def trouble(self) -> str:
        """Why a later look is needed."""
        wrong = sum(part.missing + part.extra + part.changed for part in self.wrong.values())
        said = f"{wrong:,} rows differed" if wrong else "its columns differed"
        return self.refusal or self.absent or said

    def left(self) -> Iterator[Chunk]:
        """Chunks that are known and not compared at this look."""
        for chunk in self.chunks:
            if chunk.number not in self.equal and chunk.number not in self.wrong:
                yield chunk

    def look_again(self) -> None:
        """What differed is to be compared once more."""
        self.wrong.clear()
        self.listed.clear()
        self.refusal = self.absent = ""
        self.is_described = False

    def take(self, how: ComparedTable) -> None:
        """How the table is compared now; if that is not as before nothing counts that was compared."""
        self.is_described = True
        if how != self.how:
            self.how = how
            self.chunks, self.is_cut = [], False
            self.equal, self.wrong, self.listed = {}, {}, []

    def resume(self, how: ComparedTable, parts: Iterable[tuple[Chunk, Part]]) -> None:
        """What earlier runs found equal; from the first gap on it is cut and compared anew. Chunks of two
        runs may have one number and other ends: one counts only where the last one ends."""
        self.take(how)
        part_at = {(chunk.number, chunk.low): (chunk, part) for chunk, part in parts}
        number = 0
        low: Place = ()
        while not self.is_cut and (entry := part_at.get((number, low))) is not None:
            chunk, part = entry
            self.chunks.append(chunk)
            self.equal[number] = part
            self.is_cut = chunk.is_last
            number, low = number + 1, chunk.high

    def add(self, chunk: Chunk, part: Part, seconds: float) -> None:
        self.seconds += seconds
        (self.equal if part.is_equal else self.wrong)[chunk.number] = part.settled()
        both = [*self.listed, *((chunk.number, difference) for difference in part.differences)]
        both.sort(key=lambda entry: entry[0])
        self.listed = both[: len(listed(difference for _, difference in both))]

    # -- result ---------------------------------------------------------------------------------------

    @property
    def rows(self) -> int:
        return sum(part.rows for part in (*self.equal.values(), *self.wrong.values()))

    def columns(self) -> tuple[ComparedColumn, ...]:
        return self.how.columns if self.how is not None else ()

    def so_far(self) -> TableResult:
        """Names and columns, for who takes differences one by one."""
        request = self.request
        return TableResult(request.upstream, request.downstream, State.DIFFERS, columns=self.columns())

    def result(self) -> TableResult:
        parts = [*self.equal.values(), *self.wrong.values()]
        state, why = self._state()
        how = self.how
        absent = self.request.rows_known if self.absent else 0
        return TableResult(
            upstream=self.request.upstream,
            downstream=self.request.downstream,
            state=state,
            why=why,
            columns=self.columns(),
            how=How.NOT_COMPARED if how is None else How.CHECKSUM if how.is_by_checksum else How.VALUES,
            chunks=len(parts),
            read_whole=sum(part.is_read for part in parts),
            rows=sum(part.rows for part in parts) + absent,
            downstream_rows=sum(part.downstream_rows for part in parts),
            missing=sum(part.missing for part in parts) + absent,
            extra=sum(part.extra for part in parts),
            changed=sum(part.changed for part in parts),
            computed=sum(part.computed for part in parts),
            differences=tuple(difference for _, difference in self.listed),
            other_columns=() if how is None else how.only_downstream,
            seconds=self.seconds,
        )

    def _computed(self) -> str:
        """Of rows in which all that is written is right."""
        parts = self.wrong.values()
        number = sum(part.computed for part in parts)
        if not number or self.how is None:
            return ""
        names = ", ".join(pair.name for pair in self.how.pairs if pair.is_generated)
        return f"{number:,} rows differ only in what each server computes by itself ({names})"

    def _state(self) -> tuple[State, str]:
        if self.request.why_not:
            return State.NOT_COMPARABLE, self.request.why_not
        if self.absent:
            return State.DIFFERS, self.absent
        if self.refusal:
            return (State.DIFFERS if self.wrong else State.NOT_COMPARABLE), self.refusal
        if self.how is None or not self.is_settled:
            return State.NOT_COMPARABLE, "it was not compared to its end"
        if self.how.missing:
            names = ", ".join(self.how.missing)
            return State.DIFFERS, f"downstream has no column {names}"
        if self.wrong:
            return State.DIFFERS, self._computed()
        if self.how.unknown:
            said = "; ".join(f"column {column.name}: {column.why}" for column in self.how.unknown)
            return State.NOT_COMPARABLE, said
        return State.EQUAL, ""


# Grid: how far a comparison is, chunk by chunk, for whoever looks at it.

CELLS_MAX: Final = 200
TABLES_MAX: Final = 20
EQUAL, LEFT, DIFFERS = "=", ".", "!"
_WORST: Final = (DIFFERS, LEFT, EQUAL)


def grids(works: Iterable[TableWork]) -> list[ChunkGrid]:
    """Tables of which something is known: with a difference, under way, done."""
    begun = [work for work in works if work.chunks and not work.is_gone]
    begun.sort(key=lambda work: (not work.wrong, work.is_settled))
    return [_grid(work) for work in begun[:TABLES_MAX]]


def _grid(work: TableWork) -> ChunkGrid:
    states = [
        DIFFERS if chunk.number in work.wrong else EQUAL if chunk.number in work.equal else LEFT
        for chunk in work.chunks
    ]
    each = -(-len(states) // CELLS_MAX)
    groups = (states[at : at + each] for at in range(0, len(states), each))
    return ChunkGrid(
        table=work.request.label,
        cells="".join(min(group, key=_WORST.index) for group in groups),
        chunks=len(states),
        is_cut=work.is_cut,
        rows=work.rows,
        rows_expected=work.request.rows_expected,
    )

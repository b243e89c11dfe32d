"""Verifying: compares the tables of both sides chunk by chunk, at one moment after the other.

Drives  moments (opened one at a time), threads that compare chunks, a rate limit
Out     `Verification`; each difference as it is confirmed (`OnDifference`); progress
Holds   a chunk is compared at one moment. One that differs is looked at again at later moments, `retries`
        times, before it is reported. A moment that is lost, or that has lasted for `moment_s`, is followed by
        another one, and what is left goes on there: chunks that were equal are not compared again
Why     an old snapshot keeps servers from cleaning up, so none is held for hours
Never   calls a table equal of which a part was not compared
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from typing import Final, Protocol

from drainer.compare.verify.budget import Budget
from drainer.compare.verify.chunk_comparison import ChunkComparison, Part
from drainer.compare.verify.compared_table import (
    DOWNSTREAM,
    NOT_SHOWN,
    UPSTREAM,
    ComparedTable,
    compared_table,
)
from drainer.compare.verify.result import Name, OnDifference, TableResult, Verification
from drainer.compare.verify.row_source import Rows, Sides, SourceTable, Tables
from drainer.compare.verify.table_work import Request, TableWork
from drainer.mysql.chunks.chunk import Chunk
from drainer.mysql.chunks.cut_key import WHOLE, key_to_compare
from drainer.mysql.chunks.splitter import Splitter
from drainer.mysql.errors import StatementRefused, TransientError, safe_text
from drainer.points.snapshot.drainer_hold import is_waiting
from tidb_binlog.clock import Clock, SystemClock
from tidb_binlog.errors import BinlogError, Corruption, DownstreamError, Rejected, Unavailable
from tidb_binlog.late_dataclass import dataclass, field, replace
from tidb_binlog.rowcodec.row_error import RowError

CHUNK_ROWS: Final = 50_000
MOMENT_S: Final = 600.0
LISTEN_EVERY_S: Final = 2.0
_IDLE_MOMENTS_MAX: Final = 5
_SHOWN: Final = "it was dropped a moment ago, or the user has no right on it"
_NEITHER: Final = f"neither side shows it: {_SHOWN}"
_TOO_LATE: Final = "it got its name during the last look: verify again"
_DESCRIBED_AGAIN: Final = 2
_PASSES: Final = (Unavailable, TransientError, Rejected)
"""What a later moment may mend. `Rejected`: the upstream collected what stood at this one."""
REFUSALS: Final = (StatementRefused, DownstreamError, RowError, Corruption)
"""What keeps one table from being read."""


Describing = tuple[Tables, Tables]


class Stopped(Exception):
    """It was asked to end; what is equal so far is in its state file, if it has one."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far it is. `rows_expected`: as servers estimate them, 0 for unknown. `look`: 0 the first one.
    `works`: to be looked at at once, not kept."""

    table: str
    tables_done: int
    tables: int
    rows: int
    rows_expected: int
    wrong_tables: int
    look: int
    works: Sequence[TableWork] = ()


class Journal(Protocol):
    """Keeps what is equal, for a run that goes on after this one."""

    def kept(self, work: TableWork, how: ComparedTable) -> Iterable[tuple[Chunk, Part]]:
        """Chunks that an earlier run found equal when the table was compared in this way."""
        ...

    def keep(self, work: TableWork, chunk: Chunk, part: Part) -> None: ...


@dataclass(frozen=True, slots=True)
class Pace:
    """`workers`: chunks that are compared at a time. `rows_a_second`: 0 for no limit."""

    workers: int = 4
    rows_a_second: int = 0
    retries: int = 2
    retry_pause_s: float = 1.0
    chunk_rows: int = CHUNK_ROWS
    moment_s: float = MOMENT_S


@dataclass
class Verifying:
    """One run. `open_moment` may wait, and raises what keeps both sides from being read at one moment.
    `behind`: how many seconds the Drainer is, to which the pace gives way; None where it does not say."""

    open_moment: Callable[[], Sides]
    listing: Callable[[Sides], Sequence[Request]]
    pace: Pace = field(default_factory=Pace)
    on_difference: OnDifference | None = None
    on_progress: Callable[[Progress], None] | None = None
    journal: Journal | None = None
    behind: Callable[[], float | None] | None = None
    clock: Clock = field(default_factory=SystemClock)
    stop: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._works: list[TableWork] = []
        self._budget = Budget(self.pace.rows_a_second)
        self._moments: list[Sides] = []
        self._look = 0
        self._compared = 0
        self._again: dict[str, str] = {}  # why it was looked at more than once, by table
        self._flying: dict[Future[Part], tuple[TableWork, Chunk, float, int]] = {}
        self._listen_s = 0.0

    def run(self, upstream: str = "", downstream: str = "", notes: Sequence[str] = ()) -> Verification:
        """The names are for the result. Raises `Stopped`, `BinlogError`, `SessionError`."""
        began_s = self.clock.wall_s()
        workers = self.pace.workers
        with (
            ThreadPoolExecutor(workers, "verify") as self._comparing,
            ThreadPoolExecutor(workers, "verify-downstream") as self._downstream,
        ):
            self._passes()
        first, last = self._moments[0], self._moments[-1]
        said = list(notes)
        if len(self._moments) > 1:
            said.append(f"parts were compared at {len(self._moments)} moments from {first.ts} to {last.ts}")
        right = {work.request.label for work in self._works if work.is_right and not work.is_gone}
        said += [
            f"{table} was right when it was looked at again: {why}"
            for table, why in self._again.items()
            if table in right
        ]
        return Verification(
            upstream=upstream,
            downstream=downstream,
            ts=last.ts,
            downstream_ts=last.downstream_ts,
            began_s=began_s,
            ended_s=self.clock.wall_s(),
            tables=tuple(self.results()),
            held_ms=max(sides.held_ms for sides in self._moments),
            looked_again=self._look,
            notes=tuple(said),
        )

    def results(self) -> list[TableResult]:
        return [work.result() for work in self._works if not work.is_gone]

    def compared(self) -> dict[Name, ComparedTable]:
        """How each table was compared, by its name downstream."""
        return {work.request.downstream: work.how for work in self._works if work.how is not None}

    # -- looks and moments ----------------------------------------------------------------------------

    def _passes(self) -> None:
        self._all_at_moments(None)
        while self._look < self.pace.retries:
            wrong = [work for work in self._works if not work.is_right]
            if not wrong:
                return
            if self.stop.wait(self.pace.retry_pause_s):
                raise Stopped
            self._look += 1
            for work in wrong:
                self._again.setdefault(work.request.label, work.trouble)
                work.look_again()
            self._all_at_moments(wrong)

    def _all_at_moments(self, works: list[TableWork] | None) -> None:
        """Moments until everything was looked at once; None: all that is listed at the first one."""
        idle, is_listed = 0, False
        while not is_listed or not all(work.is_settled for work in works or ()):
            before = self._compared
            with closing(self.open_moment()) as sides:
                self._moments.append(sides)
                if not is_listed:
                    works = self._list(sides, works)
                    is_listed = True
                assert works is not None
                trouble = self._at(sides, [work for work in works if not work.is_settled])
            if trouble is None:
                continue
            idle = idle + 1 if self._compared == before else 0
            if idle > _IDLE_MOMENTS_MAX:
                raise trouble

    def _list(self, sides: Sides, works: list[TableWork] | None) -> list[TableWork]:
        """What is to be compared as it is called now; what is not there any more is gone."""
        listed = {request.downstream: request for request in self.listing(sides)}
        if works is None:
            works = self._works = [TableWork(request) for request in listed.values()]
        for work in works:
            now = listed.get(work.request.downstream)
            work.is_gone = now is None
            work.request = now or work.request
        if any(work.is_gone for work in works):
            works = [*works, *self._renamed(listed)]
        return works

    def _renamed(self, listed: Mapping[Name, Request]) -> list[TableWork]:
        """Tables of names that were not there before: one that differed may have got another name."""
        names = {work.request.downstream for work in self._works}
        why_not = _TOO_LATE if self._look == self.pace.retries else ""
        works = [
            TableWork(replace(request, why_not=request.why_not or why_not))
            for name, request in listed.items()
            if name not in names
        ]
        self._works += works
        return works

    def _at(self, sides: Sides, works: Iterable[TableWork]) -> Exception | None:
        """Compare what is left at one moment; what ended it before all was compared."""
        ends_s = self.clock.monotonic_s() + self.pace.moment_s
        trouble: Exception | None = None
        try:
            with closing(sides.upstream.describe()) as above, closing(sides.downstream.describe()) as below:
                for work in works:
                    self._table(sides, (above, below), work, ends_s)
            self._gather(0)
        except _PASSES as error:
            trouble = error
        except _MomentOver:
            pass
        finally:
            late = self._settle_rest()
        return trouble or late

    def _table(self, sides: Sides, describing: Describing, work: TableWork, ends_s: float) -> None:
        try:
            how = self._how(sides, describing, work)
            if how is not None:
                self._chunks(sides, work, how, ends_s)
        except REFUSALS as error:  # of this table: others are told of when they are taken
            work.refusal = said(error)

    def _chunks(self, sides: Sides, work: TableWork, how: ComparedTable, ends_s: float) -> None:
        """Cut the table, and have what is left of it compared."""
        if work.how is None and self.journal is not None:
            work.resume(how, self.journal.kept(work, how))
        work.take(how)
        readers = [
            source.reader(table, how.pairs, sides.upstream.session, sides.ts)
            for source, table in zip(work.edited, how.upstream, strict=bool(work.edited))
        ]
        stored = work.request.stored
        below = stored.reader(how.downstream, how.pairs, sides.upstream.session, sides.ts) if stored else None
        comparison = ChunkComparison(
            how,
            sides,
            self._downstream,
            given=(_chained(readers) if readers else None, below),
            keep_all=self._look == self.pace.retries and self.on_difference is not None,
        )
        for chunk in list(work.left()):
            self._submit(work, chunk, comparison, ends_s)
        splitter = _splitter(
            how,
            [*work.edited, *([stored] if stored else ())],
            min(self.pace.chunk_rows, self._budget.chunk_rows),
        )
        side = sides.of(UPSTREAM if len(how.upstream) == 1 else DOWNSTREAM)
        while not work.is_cut and not work.refusal:
            if splitter.key.columns:
                with side.session() as connection:
                    last = work.chunks[-1] if work.chunks else None
                    chunks = splitter.next_chunks(connection, last)
            else:
                chunks = [Chunk(0)]
            work.chunks += chunks
            work.is_cut = not chunks or chunks[-1].is_last
            for chunk in chunks:
                self._submit(work, chunk, comparison, ends_s)

    def _how(self, sides: Sides, describing: Describing, work: TableWork) -> ComparedTable | None:
        """How a table is compared as both sides have it; None with the reason in `work`."""
        if is_waiting(sides.waiting, work.request.upstream):
            work.refusal = "rows of it wait for a decision: `binlogctl ddl list`"
            return None
        described = self._described(describing, work)
        for _ in range(_DESCRIBED_AGAIN):
            # Servers tell what a table is now: one side may have a change that the other gets in a moment.
            if isinstance(described, ComparedTable) and described.is_whole:
                break
            if self.stop.wait(self.pace.retry_pause_s / 2):
                raise Stopped
            described = self._described(describing, work)
        if isinstance(described, ComparedTable):
            return described
        work.refusal = described
        return None

    def _described(self, describing: Describing, work: TableWork) -> ComparedTable | str:
        """As it is now, or why it cannot be compared, "" where that is in `work`."""
        request = work.request
        above, below = describing
        upstream = [above.read(*name) for name in request.upstream]
        downstream = below.read(*request.downstream)
        tables = [table for table in upstream if table is not None]
        work.edited = tuple(
            source for source, at in zip(request.edited, upstream, strict=False) if at is not None
        )
        work.absent = ""
        if not tables and downstream is None:
            return _NEITHER
        if downstream is None:
            return lacking(work, "downstream", below, [request.downstream])
        if not tables:
            return lacking(work, "upstream", above, request.upstream)
        if len(tables) < len(upstream):
            # Its rows would be taken for some too many.
            name = ".".join(request.upstream[upstream.index(None)])
            return f"upstream does not show {name}, which goes there, too: {_SHOWN}"
        edited, published = bool(request.edited or request.stored), request.published
        return seen_whole(
            below, compared_table(tables, downstream, request.left_out, edited=edited, published=published)
        )

    # -- chunks ---------------------------------------------------------------------------------------

    def _submit(self, work: TableWork, chunk: Chunk, comparison: ChunkComparison, ends_s: float) -> None:
        self._gather(2 * self.pace.workers - 1)
        self._listen()
        wait_s = self._budget.wait_s(self.clock.monotonic_s())
        if self.stop.wait(wait_s) if wait_s else self.stop.is_set():
            raise Stopped
        if work.refusal:
            return
        now_s = self.clock.monotonic_s()
        if now_s > ends_s:
            raise _MomentOver
        expected = self._budget.begin(now_s)
        self._flying[self._comparing.submit(comparison.compare, chunk)] = (work, chunk, now_s, expected)

    def _listen(self) -> None:
        """Now and then: whether the Drainer keeps up."""
        if self.behind is None or self.clock.monotonic_s() < self._listen_s:
            return
        behind_s = self.behind()
        if behind_s is not None:
            self._budget.heard(behind_s)
        self._listen_s = self.clock.monotonic_s() + LISTEN_EVERY_S

    def _gather(self, flying_max: int) -> None:
        """Take answers until no more than so many are awaited. Raises what ends the moment."""
        while len(self._flying) > flying_max:
            done, _ = wait(self._flying, return_when=FIRST_COMPLETED)
            for future in done:
                self._take(future)

    def _take(self, future: Future[Part]) -> None:
        work, chunk, began_s, expected = self._flying.pop(future)
        try:
            part = future.result()
        except REFUSALS as error:
            work.refusal = said(error)
            return
        now_s = self.clock.monotonic_s()
        self._budget.end(expected, max(part.rows, part.downstream_rows), now_s)
        self._compared += 1
        if self._look == self.pace.retries and self.on_difference is not None:
            table = work.so_far()
            for difference in part.all():
                self.on_difference(table, difference)
        work.add(chunk, part, now_s - began_s)
        if part.is_equal and self.journal is not None:
            self.journal.keep(work, chunk, part)
        self._say(work)

    def _settle_rest(self) -> Exception | None:
        """Wait for what is under way, so that the moment can be closed."""
        trouble: Exception | None = None
        while self._flying:
            try:
                self._gather(0)
            except _PASSES as error:
                trouble = error
        return trouble

    def _say(self, work: TableWork) -> None:
        if self.on_progress is None:
            return
        works = self._works
        self.on_progress(
            Progress(
                table=work.request.label,
                tables_done=sum(work.is_settled for work in works),
                tables=len(works),
                rows=sum(work.rows for work in works),
                rows_expected=sum(work.request.rows_expected for work in works),
                wrong_tables=sum(bool(work.wrong) for work in works),
                look=self._look,
                works=works,
            )
        )


def seen_whole(downstream: Tables, table: ComparedTable | str) -> ComparedTable | str:
    """Unless the downstream has a column that it does not show."""
    if isinstance(table, str):
        return table
    hidden = [name for name in table.missing if not downstream.lacks(*table.name, name)]
    return f"downstream does not show column {', '.join(hidden)}: {NOT_SHOWN}" if hidden else table


def lacking(work: TableWork, side: str, tables: Tables, names: Sequence[Name]) -> str:
    """Why it cannot be compared, "" where it is absent, as `work` says then. A server shows no table to who
    may not read it: absent is what a SELECT does not find."""
    if not all(tables.lacks(*name) for name in names):
        return f"{side} does not show it: {NOT_SHOWN}"
    work.absent = f"{side} has no such table"
    return ""


class _MomentOver(Exception):
    """It has lasted long enough."""


def said(error: Exception) -> str:
    return error.message if isinstance(error, BinlogError) else safe_text(error)


def _chained(readers: Sequence[Rows]) -> Rows:
    return lambda chunk: itertools.chain.from_iterable(read(chunk) for read in readers)


def _splitter(how: ComparedTable, edited: Sequence[SourceTable], chunk_rows: int) -> Splitter:
    """Cuts the upstream's table, or the downstream's one where several go there."""
    table, others = how.downstream, how.upstream
    if len(how.upstream) == 1:
        table, others = how.upstream[0], (how.downstream,)
    changed: set[str] = set()
    for source in edited:
        if source.changed is None:
            return Splitter(table, WHOLE, chunk_rows)
        changed |= source.changed
    keys = {key_to_compare(table, other, changed) for other in others}
    return Splitter(table, keys.pop() if len(keys) == 1 else WHOLE, chunk_rows)

"""Pump range: what Pumps have between two timestamps, read from them as if it were a slice of an archive.

Out     `Changes` in commit order, each transaction once; the DDL that it was given
Holds   all Pumps are read together: a transaction that two of them have is dropped here, where both are seen
        A range that lies at or below the watermark of every Pump is the same whenever it is read
Why     a task of Spark needs no more than this to read a part of a live stream
Tests   tests/spark/live/test_stream.py
"""

from __future__ import annotations

import functools
import itertools
import pickle
import zlib
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Final

from drainer.reading.archive.decode.definitions import Definitions
from drainer.reading.archive.decode.images import Images
from drainer.reading.archive.decode.records import Changes, Record, SchemaChange, changes
from drainer.reading.archive.files.segments import Slice
from drainer.reading.archive.files.selection import Selection
from drainer.stream.pull.merged import Merged
from drainer.stream.pull.range_reader import PumpSet, merged_range
from drainer.stream.rules.rule_history import rules_from
from drainer.stream.rules.rule_set import Rules
from drainer.stream.schema.tracker import SchemaTracker
from drainer.stream.translate.translator import Translator
from drainer.txn import Ddl, Transaction
from tidb_binlog.errors import BinlogError, Corruption
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.rowcodec.row_error import RowError
from tidb_binlog.tso import Ts

PUMPS: Final = "pumps"


@dataclass(frozen=True, slots=True)
class StreamState:
    """What rows of a stream are read by at one place of it; travels to tasks. `tracker`: a `SchemaTracker` as
    it was there, `packed`; `rules`: the text of `Rules`."""

    pumps: PumpSet
    tracker: bytes = field(repr=False)
    rules: str = ""

    def translator(self) -> Translator:
        """One that begins there. Tasks of a process share it as long as it stands there."""
        tracker, generation, translator = _unpacked(self.tracker, self.rules)
        if tracker.generation != generation:
            _unpacked.cache_clear()
            translator = _unpacked(self.tracker, self.rules)[2]
        return translator


def packed(tracker: SchemaTracker) -> bytes:
    """As it is now: definitions are alike, so that little is left of them."""
    return zlib.compress(pickle.dumps(tracker), 1)


@functools.lru_cache(1)
def _unpacked(tracker: bytes, rules: str) -> tuple[SchemaTracker, int, Translator]:
    schema: SchemaTracker = pickle.loads(zlib.decompress(tracker))
    return schema, schema.generation, Translator(schema, rules_from(rules) if rules else Rules())


@dataclass(frozen=True, slots=True, kw_only=True)
class PumpSlice(Slice):
    """Everything with `after_ts` < commit_ts <= `until_ts`, and `ddl`, which the driver has read."""

    after_ts: Ts
    until_ts: Ts
    state: StreamState
    ddl: tuple[Ddl, ...] = ()

    @classmethod
    def of(
        cls, state: StreamState, after_ts: Ts, until_ts: Ts, size: int, ddl: tuple[Ddl, ...] = ()
    ) -> PumpSlice:
        """`size`: in bytes, about."""
        return cls(
            name=f"{after_ts}-{until_ts}",
            index=0,
            kind=PUMPS,
            size=size,
            after_ts=after_ts,
            until_ts=until_ts,
            state=state,
            ddl=ddl,
        )

    def joined(self, following: Slice) -> Slice | None:
        """Both as one: every range costs a task its own connections."""
        assert isinstance(following, PumpSlice)
        assert following.after_ts == self.until_ts
        return PumpSlice.of(self.state, self.after_ts, following.until_ts, self.size + following.size)


def records(part: PumpSlice, selection: Selection, definitions: Definitions) -> Iterator[Record]:
    """Rows of the range, then its DDL. Raises `Corruption`, `Unavailable`."""
    images = Images()
    for item in transactions_of(part):
        yield from rows_of(item, part, selection, definitions, images)
    for ddl in part.ddl:
        if selection.wants_ddl(ddl.tables):
            yield SchemaChange(ddl, part.name, 0)


def _binlogs(part: PumpSlice, table_ids: tuple[int, ...] = ()) -> Generator[Merged, None, None]:
    return merged_range(part.state.pumps, part.after_ts, part.until_ts, table_ids)


def has_rows(parts: Sequence[PumpSlice]) -> bool:
    """Whether they have a transaction of ours: read up to it, as sizes are no more than estimates. Raises
    `Corruption`, `Unavailable`."""
    for part in parts:
        with closing(transactions_of(part)) as items:
            if next(items, None) is not None:
                return True
    return False


def transactions_of(part: PumpSlice, table_ids: tuple[int, ...] = ()) -> Generator[Transaction, None, None]:
    """`table_ids`: as `merged_range`. The schema is unpacked where there is something to translate: between
    two DDL there mostly is not. Raises `Corruption`, `Unavailable`."""
    with closing(_binlogs(part, table_ids)) as entries:
        for entry in entries:
            yield from transactions(itertools.chain((entry,), entries), part.state.translator())


def stretches(part: PumpSlice, bytes_max: int) -> Iterator[list[Merged]]:
    """The range as Pumps send it, about so many bytes at once; what lies on disk by itself, to be read before
    the next stretch is asked for. Raises `Corruption`, `Unavailable`."""
    some: list[Merged] = []
    size = 0
    for entry in _binlogs(part):
        if entry.spilled is not None and some:
            yield some
            some, size = [], 0
        some.append(entry)
        size += len(entry.payload)
        if entry.spilled is not None or size >= bytes_max:
            yield some
            some, size = [], 0
    if some:
        yield some


def transactions(entries: Iterable[Merged], translator: Translator) -> Iterator[Transaction]:
    """Rows as upstream wrote them; large ones in pieces, whose disk space is free when the next one is asked
    for. Raises `Corruption`, and what asking for entries does."""
    for entry in entries:
        try:
            if entry.spilled is not None:
                yield from translator.pieces(entry.spilled)
                continue
            item = translator.translate(entry)
        except (Corruption, RowError) as error:
            raise _at(entry.commit_ts, error) from None
        if isinstance(item, Transaction):
            yield item


def rows_of(
    item: Transaction, part: PumpSlice, selection: Selection, definitions: Definitions, images: Images
) -> Iterator[Changes]:
    """Rows of one of them, as images. Raises `Corruption`."""
    begin = Changes(item.commit_ts, item.start_ts, part.name, 0, 0, [])
    try:
        yield from changes(images.runs(item, definitions), selection, begin, last=item.last)
    except RowError as error:
        raise _at(item.commit_ts, error) from None


def _at(commit_ts: Ts, error: BinlogError) -> Corruption:
    return Corruption(f"pumps, commit_ts {commit_ts}: {error.message}", hint=error.hint)

"""Large txn: a large transaction's spilled payload becomes pieces of it, a little in memory at a time.

Out    `Transaction` pieces in execution order, of about a mebibyte or 4,000 rows, with running ordinals
Holds  kinds, rows and ordinals are those that the whole payload has when it is decoded at once. Everything
       is checked before the first piece: a payload that is broken further on, or rows of a table that
       is not known, leave nothing half applied
Why    no list of rows or of their places is kept, since a gibibyte of short rows has a hundred million of
       them: each of the three lists of a table is read by a cursor of its own, and `sequence`, which says
       from which list the next row comes, by a fourth

    Binlog          1 tp  2 start_ts  3 commit_ts  4 key  5 PrewriteValue  6 ddl_query  7 job id  8 state
    PrewriteValue   1 schema_version  2 TableMutation ...
    TableMutation   1 table_id  2 inserted ...  3 updated ...  6 deleted ...  7 sequence ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from drainer.stream.pull.merged import Spilled
from drainer.txn import DELETE, INSERT, UPDATE, TableEvents, TableVersion, Transaction
from tidb_binlog import binlog, protobuf_fields
from tidb_binlog.errors import Corruption
from tidb_binlog.late_dataclass import dataclass, field, replace
from tidb_binlog.protobuf_fields import (
    LENGTH,
    VARINT,
    WINDOW_BYTES,
    MalformedMessage,
    Read,
    field_head,
    sure_to,
    varint,
)
from tidb_binlog.tso import Ts

PIECE_BYTES: Final = 1 << 20
PIECE_ROWS: Final = 4000
Resolve = Callable[[int, int, int], TableVersion | None]
"""(table id, schema version, commit_ts): the table, or None for rows to be left out. May raise."""

_TAG_INSERTED, _TAG_UPDATED, _TAG_DELETED = 0x12, 0x1A, 0x32
_TAG_KIND, _TAG_KINDS_PACKED = 0x38, 0x3A
_TAGS_OBSOLETE: Final = frozenset((0x20, 0x22, 0x2A))  # deleted_ids, also packed, and deleted_pks
# Octets of `sequence`: the list that the next row comes from, and what it is for the lanes.
_LISTS: Final = {0: _TAG_INSERTED, 1: _TAG_UPDATED, 4: _TAG_DELETED}
_KINDS: Final = {0: INSERT, 1: UPDATE, 4: DELETE}
_HINT: Final = "`binlogctl -cmd pumps` lists the pumps; check the log of the one that served it for damage"


@dataclass(frozen=True, slots=True)
class Outline:
    """The fields of a payload but the large one. `value`: where field 5 begins and how long it is."""

    tp: int
    start_ts: Ts
    commit_ts: Ts
    ddl_job_id: int
    value: tuple[int, int] | None


def outline(read: Read, size: int) -> Outline:
    """Inspect a payload without reading its rows. Raises `Corruption`; blocks if `read` does."""
    numbers: dict[int, int] = {}
    value: tuple[int, int] | None = None
    try:
        for tag, content, begin in protobuf_fields.fields(read, 0, size):
            if tag & 7 == VARINT:
                numbers[tag >> 3] = content
            elif tag == 0x2A:
                value = (begin, content)
    except MalformedMessage as error:
        raise Corruption(f"payload of {size} bytes is not a binlog: {error}", hint=_HINT) from None
    get = numbers.get
    return Outline(get(1, 0), get(2, 0), get(3, 0), get(7, 0), value)


def pieces(
    spilled: Spilled,
    resolve: Resolve,
    *,
    routed: bool = False,
    rows_max: int = PIECE_ROWS,
    bytes_max: int = PIECE_BYTES,
) -> Iterator[Transaction]:
    """The transaction in pieces, at least one; `last` on the last. A row of any size is in one piece.

    `routed`: tables may have one target, and come in the order of `left_first` (`translate.row_filter`).
    `resolve` is called once for each table of the payload, in order, before the first piece. Raises
    `Corruption`, also before the first piece, and what `resolve` raises.
    """
    where = f"transaction with commit_ts {spilled.commit_ts}"
    try:
        version, mutations = _survey(spilled)
    except MalformedMessage as error:
        raise Corruption(f"{where}: rows cannot be decoded: {error}", hint=_HINT) from None
    if routed:
        entered = {of.table_id for of in mutations if of.kinds[0] or of.kinds[1]}
        mutations.sort(key=lambda of: of.table_id in entered)
    tables = []
    for mutation in mutations:
        tables.append(resolve(mutation.table_id, version, spilled.commit_ts))
        if tables[-1] is not None:
            mutation.check(where)
    empty = Transaction(spilled.start_ts, spilled.commit_ts, (), 0, schema_version=version)
    waiting: Transaction | None = None
    for events, size in _gathered(spilled.read, mutations, tables, rows_max, bytes_max):
        if waiting is not None:
            yield waiting
        waiting = replace(empty, tables=events, size_bytes=size, last=False)
    yield replace(waiting or empty, last=True)


# -- checking it -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Mutation:
    """One TableMutation: where each list begins and ends, and how much is in it."""

    table_id: int = 0
    begins: dict[int, int] = field(default_factory=dict)  # by tag
    ends: dict[int, int] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=lambda: dict.fromkeys(_LISTS.values(), 0))
    kinds: dict[int, int] = field(default_factory=lambda: dict.fromkeys(_LISTS, 0))
    others: int = 0  # entries of `sequence` that are none of these
    obsolete: bool = False

    @property
    def rows(self) -> int:
        return sum(self.kinds.values()) + self.others

    def check(self, where: str) -> None:
        """Raise `Corruption` unless `sequence` fits the lists."""
        where = f"{where}, table id {self.table_id}"
        if self.obsolete or self.others:
            raise Corruption(f"{where}: rows of an obsolete mutation type", hint=_HINT)
        inserts, updates, deletes = (self.counts[tag] for tag in _LISTS.values())
        if [inserts, updates, deletes] != list(self.kinds.values()):
            raise Corruption(
                f"{where}: its sequence of {self.rows} rows does not fit its {inserts} inserts, "
                f"{updates} updates and {deletes} deletes",
                hint=_HINT,
            )


def _survey(spilled: Spilled) -> tuple[int, list[_Mutation]]:
    """Schema version and mutations."""
    read, fields = spilled.read, outline(spilled.read, spilled.size)
    where = f"binlog with commit_ts {spilled.commit_ts}"
    if fields.tp > binlog.ROLLBACK:
        raise Corruption(f"{where} is of obsolete type {fields.tp}", hint=_HINT)
    if fields.value is None or fields.ddl_job_id:
        raise Corruption(f"commit without prewrite: {where} has no rows", hint=_HINT)
    begin, length = fields.value
    version, mutations = 0, []
    for tag, value, at in protobuf_fields.fields(read, begin, begin + length):
        if tag == 0x08:
            version = value
        elif tag == 0x12:
            mutations.append(_mutation(read, at, at + value))
    return version, mutations


def _mutation(read: Read, start: int, stop: int) -> _Mutation:
    mutation = _Mutation()
    begins, ends, counts = mutation.begins, mutation.ends, mutation.counts
    base, data, at, sure = start, b"", 0, -1
    while True:
        if at > sure:
            base += at
            if base >= stop:
                break
            data, at = read(base, min(WINDOW_BYTES, stop - base)), 0
            sure = sure_to(data, base, stop)
        head, tag = at, data[at]
        if tag == _TAG_KIND:
            kinds, at = _run_of_kinds(data, at)
            if kinds:
                _count(mutation, kinds)
                begins.setdefault(tag, base + head)
                ends[tag] = base + at
                continue
        if tag in counts:
            rows, at = _run_of_rows(data, at, sure)
            if base + at > stop:
                raise MalformedMessage("a row ends early")
            counts[tag] += rows
            begins.setdefault(tag, base + head)
            ends[tag] = base + at
            continue
        tag, value, at = field_head(data, at)
        if tag & 7 == LENGTH:
            at += value
            if base + at > stop:
                raise MalformedMessage(f"a field of {value} bytes ends early")
        if tag == 0x08:
            mutation.table_id = value if value < 1 << 63 else value - (1 << 64)
        elif tag in _TAGS_OBSOLETE:
            mutation.obsolete = mutation.obsolete or tag != 0x22 or value > 0
        elif tag == _TAG_KIND:
            mutation.others += 1
        elif tag == _TAG_KINDS_PACKED:
            for kinds in _packed(read, base + at - value, value):
                _count(mutation, kinds)
            begins.setdefault(_TAG_KIND, base + head)
            ends[_TAG_KIND] = base + at
    return mutation


def _run_of_rows(data: bytes, at: int, sure: int) -> tuple[int, int]:
    """How many rows of one list follow each other from `at` on, and where the last one ends."""
    tag, rows = data[at], 0
    try:
        while at <= sure and data[at] == tag:
            size = data[at + 1]
            if size < 0x80:
                at += 2 + size
            elif data[at + 2] < 0x80:
                at += 3 + (size & 0x7F | data[at + 2] << 7)
            else:
                size, at = varint(data, at + 1)
                at += size
            rows += 1
    except IndexError:
        raise MalformedMessage("the length of a row ends early") from None
    return rows, at


def _count(mutation: _Mutation, kinds: bytes) -> None:
    others = len(kinds)
    for kind in _LISTS:
        count = kinds.count(kind)
        mutation.kinds[kind] += count
        others -= count
    mutation.others += others


# -- reading it in order --------------------------------------------------------------------------------


def _gathered(
    read: Read,
    mutations: Sequence[_Mutation],
    tables: Sequence[TableVersion | None],
    rows_max: int,
    bytes_max: int,
) -> Iterator[tuple[tuple[TableEvents, ...], int]]:
    """Events of consecutive tables, and their bytes, as many as make a piece."""
    events: list[TableEvents] = []
    rows = size = ordinal = 0
    for mutation, table in zip(mutations, tables, strict=True):
        begin, ordinal = ordinal, ordinal + mutation.rows
        if table is None or not mutation.rows:
            continue
        reader = _InOrder(read, mutation)
        while begin < ordinal:
            kinds, taken, taken_bytes = reader.take(rows_max - rows, bytes_max - size)
            events.append(TableEvents(table, kinds, taken, begin))
            begin += len(taken)
            rows += len(taken)
            size += taken_bytes
            if rows >= rows_max or size >= bytes_max:
                yield tuple(events), size
                events, rows, size = [], 0, 0
    if events:
        yield tuple(events), size


class _InOrder:
    """The rows of one mutation in execution order."""

    def __init__(self, read: Read, mutation: _Mutation) -> None:
        begins, ends = mutation.begins, mutation.ends
        self._rows = {
            kind: _rows(read, tag, begins[tag], ends[tag]).__next__
            for kind, tag in _LISTS.items()
            if tag in begins
        }
        self._kinds = _kinds(read, begins[_TAG_KIND], ends[_TAG_KIND])
        self._run, self._at = b"", 0

    def take(self, rows_max: int, bytes_max: int) -> tuple[list[int], list[bytes], int]:
        """The next rows with their kinds, until one of the limits is reached, and their bytes."""
        if self._at == len(self._run):
            self._run, self._at = next(self._kinds), 0
        run, following = self._run[self._at : self._at + rows_max], self._rows
        rows: list[bytes] = []
        size = 0
        for kind in run:
            row = following[kind]()
            rows.append(row)
            size += len(row)
            if size >= bytes_max:
                break
        self._at += len(rows)
        return [_KINDS[kind] for kind in run[: len(rows)]], rows, size


def _rows(read: Read, list_tag: int, start: int, stop: int) -> Iterator[bytes]:
    """The rows of one list; what lies between them is stepped over."""
    base, data, at, sure = start, b"", 0, -1
    while True:
        if at > sure:
            base += at
            if base >= stop:
                return
            data, at = read(base, min(WINDOW_BYTES, stop - base)), 0
            sure = sure_to(data, base, stop)
        tag, size = data[at], data[at + 1]
        if tag == list_tag and size < 0x80:
            at += 2
        elif tag == list_tag and data[at + 2] < 0x80:
            size, at = size & 0x7F | data[at + 2] << 7, at + 3
        else:
            tag, size, at = field_head(data, at)
        end = at + size if tag & 7 == LENGTH else at
        if tag == list_tag:
            if end <= len(data):
                yield data[at:end]
            else:
                yield data[at:] + read(base + len(data), end - len(data))
        at = end


def _kinds(read: Read, start: int, stop: int) -> Iterator[bytes]:
    """The entries of `sequence`, an octet each, many at a time."""
    base, data, at, sure = start, b"", 0, -1
    while True:
        if at > sure:
            base += at
            if base >= stop:
                return
            data, at = read(base, min(WINDOW_BYTES, stop - base)), 0
            sure = sure_to(data, base, stop)
        if data[at] == _TAG_KIND:
            kinds, at = _run_of_kinds(data, at)
            yield kinds
            continue
        tag, size, at = field_head(data, at)
        if tag == _TAG_KINDS_PACKED:
            yield from _packed(read, base + at, size)
        if tag & 7 == LENGTH:
            at += size


def _run_of_kinds(data: bytes, at: int) -> tuple[bytes, int]:
    """Entries of an unpacked `sequence` from `at` on, two octets each, and where they end; b"" if the first
    one is longer than that."""
    even = len(data) - (len(data) - at) % 2
    tags, kinds = data[at:even:2], data[at + 1 : even : 2]
    run = len(tags) - len(tags.lstrip(b"\x38"))
    kinds = kinds[:run]
    if kinds and max(kinds) >= 0x80:
        kinds = kinds[: next(place for place, kind in enumerate(kinds) if kind >= 0x80)]
    return kinds, at + 2 * len(kinds)


def _packed(read: Read, start: int, size: int) -> Iterator[bytes]:
    """The entries of a packed `sequence`, which have one octet each; longer ones count as several, all
    obsolete."""
    for at in range(start, start + size, WINDOW_BYTES):
        yield read(at, min(WINDOW_BYTES, start + size - at))

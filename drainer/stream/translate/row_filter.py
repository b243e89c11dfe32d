"""Row filter: what becomes of the rows of one table id, decided once for many transactions.

In     a table mutation: inserts, updates and deletes in lists of their own, and the sequence of their kinds
Out    kinds and encoded rows in execution order, and those that replicate; whether a row of the mark table
       `retl._drainer_repl_mark` among them makes the whole transaction one of our channel
Holds  the ordinal of a row does not depend on filters: where rows are taken out, events are cut into runs.
       The event filter is asked about rows as upstream wrote them, before row rules. Any event of a mark row
       counts: the update at the beginning of a drainer's transaction, the rows written when a drainer starts,
       their removal when it ends
Never  decodes rows, except those of the mark table and the columns that row rules are about; takes a sequence
       that does not fit its rows, or a channel_id that is no whole number: `Corruption`
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from drainer.mysql.mark import MARK_SCHEMA, MARK_TABLE
from drainer.txn import DELETE, INSERT, UPDATE, TableEvents, TableVersion, Transaction
from tidb_binlog.errors import Corruption
from tidb_binlog.late_dataclass import dataclass, field, replace
from tidb_binlog.rowcodec.plan import compile_table
from tidb_binlog.rowcodec.row_error import RowError
from tidb_binlog.table_info import INTEGER_TYPES, TableInfo
from tidb_binlog.tso import Ts
from tidb_binlog.wire import binlog_pb2

if TYPE_CHECKING:
    from drainer.stream.translate.row_edit import Event, RowEdit

_CHANNEL: Final = "channel_id"


class MarkRows:
    """Reads rows of one version of the mark table. Raises `Corruption` if it has no usable channel_id."""

    def __init__(self, info: TableInfo, channel_id: int) -> None:
        self._channel_id = channel_id
        self._plan = compile_table(info)
        places = [
            place
            for place, column in enumerate(self._plan.columns)
            if column.name.lower() == _CHANNEL and column.type.tp in INTEGER_TYPES
        ]
        if len(places) != 1:
            raise Corruption(
                f"{MARK_SCHEMA}.{MARK_TABLE} has no column {_CHANNEL} of an integer type",
                hint="drop the table where the rows come from; the drainer that writes there makes it again",
            )
        self._place = places[0]

    def is_ours(self, kinds: Sequence[int], rows: Sequence[bytes], commit_ts: Ts) -> bool:
        """Whether any of the rows carries our channel, in its old or its new image."""
        return any(
            image[self._place] == self._channel_id
            for kind, row in zip(kinds, rows, strict=True)
            for image in self._images(kind, row, commit_ts)
        )

    def _images(self, kind: int, row: bytes, commit_ts: Ts) -> Sequence[tuple[Any, ...]]:
        try:
            if kind == INSERT:
                return (self._plan.decode_insert(row),)
            if kind == DELETE:
                return (self._plan.decode_delete(row),)
            return self._plan.decode_update(row)
        except RowError as error:
            raise Corruption(
                f"mark row of the transaction with commit_ts {commit_ts} cannot be read: {error}",
                hint=f"compare the columns of {MARK_SCHEMA}.{MARK_TABLE} with its rows",
            ) from None


REPAIR_HINT: Final = (
    "`binlogctl -cmd pumps` lists the pumps; check the log of the one that served it for damage"
)
_WIRE_INSERT: Final = int(binlog_pb2.Insert)
_WIRE_UPDATE: Final = int(binlog_pb2.Update)
_WIRE_DELETE: Final = int(binlog_pb2.DeleteRow)
_WIRE_ORDER: Final = (_WIRE_INSERT, _WIRE_UPDATE, _WIRE_DELETE)
_KINDS: Final = {_WIRE_INSERT: INSERT, _WIRE_UPDATE: UPDATE, _WIRE_DELETE: DELETE}


@dataclass(frozen=True, slots=True)
class _Shape:
    """What a sequence of row kinds asks for: how many rows of each list, and in which order.

    `pick` takes the execution order out of inserts + updates + deletes; None: it is that order already.
    """

    kinds: tuple[int, ...]
    counts: tuple[int, int, int]
    pick: Callable[[list[bytes]], tuple[bytes, ...]] | None

    @classmethod
    def of(cls, sequence: Sequence[int]) -> _Shape | None:
        """None for a sequence with obsolete kinds."""
        if not all(kind in _KINDS for kind in sequence):
            return None
        counts = tuple(sequence.count(kind) for kind in _WIRE_ORDER)
        following = dict(zip(_WIRE_ORDER, (0, counts[0], counts[0] + counts[1]), strict=True))
        order = []
        for kind in sequence:
            order.append(following[kind])
            following[kind] += 1
        pick = None if order == sorted(order) else operator.itemgetter(*order)
        kinds = tuple(_KINDS[kind] for kind in sequence)
        return cls(kinds, (counts[0], counts[1], counts[2]), pick)


_SHAPES: Final[dict[bytes, _Shape]] = {}
_SHAPES_KEPT: Final = 4096
_SHAPE_LENGTH_KEPT: Final = 32


def _shape(sequence: Sequence[int]) -> _Shape | None:
    """Short sequences repeat, so their shapes are kept."""
    if len(sequence) > _SHAPE_LENGTH_KEPT:
        return _Shape.of(sequence)
    key = bytes(sequence)
    shape = _SHAPES.get(key)
    if shape is None:
        shape = _Shape.of(sequence)
        if shape is not None:
            if len(_SHAPES) >= _SHAPES_KEPT:
                _SHAPES.clear()
            _SHAPES[key] = shape
    return shape


def row_events(
    mutation: binlog_pb2.TableMutation, sequence: Sequence[int], commit_ts: Ts
) -> tuple[tuple[int, ...], list[bytes]]:
    """Kinds and rows in execution order: `sequence` says from which list the next row comes."""
    inserts = mutation.inserted_rows[:]
    updates = mutation.updated_rows[:]
    deletes = mutation.deleted_rows[:]
    shape = _shape(sequence)
    if (
        shape is None
        or shape.counts != (len(inserts), len(updates), len(deletes))
        or mutation.deleted_ids
        or mutation.deleted_pks
    ):
        raise _broken_sequence(mutation, sequence, commit_ts)
    rows = inserts + updates + deletes
    return shape.kinds, rows if shape.pick is None else list(shape.pick(rows))


def left_first(
    mutations: Sequence[binlog_pb2.TableMutation], *, routed: bool
) -> Sequence[binlog_pb2.TableMutation]:
    """Tables that rows only leave before the others, where tables may have one target: TiDB tells them in any
    order, and a row that moves from one to another would come before it goes. As `large_txn.pieces`."""
    if not routed or len(mutations) < 2:
        return mutations
    entered = {of.table_id for of in mutations if of.inserted_rows or of.updated_rows}
    return sorted(mutations, key=lambda of: of.table_id in entered)


def _broken_sequence(
    mutation: binlog_pb2.TableMutation, sequence: Sequence[int], commit_ts: Ts
) -> Corruption:
    where = f"transaction with commit_ts {commit_ts}, table id {mutation.table_id}"
    obsolete = sorted({kind for kind in sequence if kind not in _KINDS})
    if obsolete or mutation.deleted_ids or mutation.deleted_pks:
        return Corruption(
            f"{where}: rows of an obsolete mutation type {obsolete or ''}".rstrip(), hint=REPAIR_HINT
        )
    return Corruption(
        f"{where}: its sequence of {len(sequence)} rows does not fit its {len(mutation.inserted_rows)} "
        f"inserts, {len(mutation.updated_rows)} updates and {len(mutation.deleted_rows)} deletes",
        hint=REPAIR_HINT,
    )


@dataclass(frozen=True, slots=True)
class RowFilter:
    """`table` None: no row replicates. `version`: the schema version from which on the filter holds.

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


def screened(piece: Transaction, filters: Mapping[TableVersion, RowFilter]) -> Transaction:
    """What passes of a piece of a large transaction."""
    if all(filters[events.table].plain for events in piece.tables):
        return piece
    passed = (
        kept
        for events in piece.tables
        for kept in filters[events.table].passed(
            events.kinds, events.rows, events.first_ordinal, piece.commit_ts
        )
    )
    return replace(piece, tables=tuple(passed))


CLOSED = RowFilter(0)
"""Nothing passes, whatever the schema version."""

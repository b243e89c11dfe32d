"""Row shape: the rows of one mutation, brought from their three lists into execution order.

In     a table mutation: inserts, updates and deletes in lists of their own, and the sequence of their kinds
Out    kinds and encoded rows in execution order
Never  decodes a row; a sequence that does not fit its rows is `Corruption`
Tests  tests/drainer/stream/translate/test_translator.py
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from drainer.txn import DELETE, INSERT, UPDATE
from tidb_binlog.errors import Corruption
from tidb_binlog.tso import Ts
from tidb_binlog.wire import binlog_pb2

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

"""Folding gives the same contents as the changes one by one: all sequences of up to five on two keys."""

from __future__ import annotations

from itertools import chain

import pytest

from drainer.mysql.rows.change import (
    APPEND,
    DROP_ONE,
    KEY,
    OP,
    PUT_INSERT,
    PUT_MOVED,
    PUT_UPDATE,
    REMOVE,
    REMOVE_OLD,
    ROW,
    SPLIT,
    Change,
    TableTarget,
)
from drainer.mysql.rows.row_fold import fold
from tests.drainer.support.lane_model import table

KEYS = (b"a", b"b")


def sequences(target: TableTarget, present: set[bytes], length: int) -> list[list[Change]]:
    """Every valid sequence of row events: insert what is absent, update, move or delete what is there."""
    if length == 0:
        return [[]]
    found: list[list[Change]] = []
    mark = str(length).encode()
    for key in KEYS:
        other = KEYS[1] if key == KEYS[0] else KEYS[0]
        if key not in present:
            step: list[Change] = [(target, PUT_INSERT, key, key + b"=" + mark, 0)]
            found += [step + rest for rest in sequences(target, present | {key}, length - 1)]
            continue
        row = key + b"=?>" + key + b"=" + mark
        step = [(target, PUT_UPDATE, key, row, len(key) + 3)]
        found += [step + rest for rest in sequences(target, present, length - 1)]
        step = [(target, REMOVE, key, key + b"=?", 0)]
        found += [step + rest for rest in sequences(target, present - {key}, length - 1)]
        if other not in present:
            row = key + b"=?>" + other + b"=" + mark
            step = [(target, REMOVE_OLD, key, row, 0), (target, PUT_MOVED, other, row, len(key) + 3)]
            found += [step + rest for rest in sequences(target, present - {key} | {other}, length - 1)]
    return found


def image(change: Change) -> bytes:
    return (change[ROW] if change[OP] == PUT_INSERT else change[ROW][change[SPLIT] :]).partition(b"=")[2]


def one_by_one(changes: list[Change], rows: dict[bytes, bytes]) -> dict[bytes, bytes]:
    rows = dict(rows)
    for change in changes:
        if change[OP] in (REMOVE, REMOVE_OLD):
            del rows[change[KEY]]
        else:
            rows[change[KEY]] = image(change)
    return rows


@pytest.mark.parametrize("unique", [False, True])
@pytest.mark.parametrize("present", [set(), {b"a"}, {b"a", b"b"}])
def test_fold_equals_the_changes_one_by_one(present: set[bytes], unique: bool) -> None:
    target = table(1, keyed=True, pinned=False, lanes=1, unique=unique)
    count = 0
    for length in range(1, 6):
        for changes in sequences(target, present, length):
            before = dict.fromkeys(present, b"old")
            (net,) = fold(changes)
            rows = dict(before)
            for change in net.removals(replaying=False):
                assert change[KEY] in before, "only rows that were there before the batch are removed"
                del rows[change[KEY]]
            written = set()
            writes = [*chain(*net.writes(replaying=False))]
            for change in writes:
                if unique:
                    assert change[KEY] not in rows, "an INSERT would collide"
                rows[change[KEY]] = image(change)
                written.add(change[KEY])
            assert rows == one_by_one(changes, before)
            assert len(written) == len(writes)
            # A replay meets a downstream in any later state: removals come for every key that goes or moves.
            later = dict.fromkeys(KEYS, b"later")
            for change in net.removals(replaying=True):
                later.pop(change[KEY])
            count += 1
    assert count > 100


def test_tables_are_folded_apart_and_keyless_changes_keep_their_order() -> None:
    keyed = table(1, keyed=True, pinned=False, lanes=1)
    keyless = table(2, keyed=False, pinned=True, lanes=1)
    changes: list[Change] = [
        (keyless, APPEND, b"", b"x=1", 0),
        (keyed, PUT_INSERT, b"a", b"a=1", 0),
        (keyless, DROP_ONE, b"", b"x=1", 0),
        (keyless, APPEND, b"", b"x=1", 0),
    ]
    first, second = fold(changes)
    assert first.table is keyless
    assert [change[OP] for change in first.ordered] == [APPEND, DROP_ONE, APPEND]
    assert list(second.last) == [b"a"]

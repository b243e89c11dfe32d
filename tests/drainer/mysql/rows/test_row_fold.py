"""Folding gives the same contents as the changes one by one: all sequences of up to five on two keys."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, pairwise, product

import pytest

from drainer.mysql.rows.change import (
    APPEND,
    DROP_ONE,
    KEY,
    OP,
    PUT_INSERT,
    PUT_MOVED,
    PUT_UPDATE,
    PUTS,
    REMOVE,
    REMOVE_OLD,
    ROW,
    SPLIT,
    Change,
    Form,
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


@pytest.mark.parametrize("form", [Form.REPLACE, Form.UPSERT, Form.REWRITE])
@pytest.mark.parametrize("present", [set(), {b"a"}, {b"a", b"b"}])
def test_fold_equals_the_changes_one_by_one(present: set[bytes], form: Form) -> None:
    target = replace(table(1, keyed=True, pinned=False, lanes=1), form=form)
    count = 0
    for length in range(1, 6):
        for changes in sequences(target, present, length):
            before = dict.fromkeys(present, b"old")
            (net,) = fold(changes)
            rows = dict(before)
            for change in net.removals(replaying=False):
                if change[OP] in PUTS:
                    assert change[KEY] in before, "only rows of before the batch give way to others"
                rows.pop(change[KEY], None)
            writes = [*chain(*net.writes(replaying=False))]
            for change in writes:
                if form is Form.REWRITE:
                    assert change[KEY] not in rows, "an INSERT would collide"
                if form is Form.UPSERT:
                    stays = change[KEY] in present and not _came_back(changes, change[KEY])
                    assert (change[KEY] in rows) == stays, "an update in place leaves what upstream lacks"
                rows[change[KEY]] = image(change)
            assert rows == one_by_one(changes, before)
            latest = {change[KEY]: change for change in changes}
            assert writes == [one for one in changes if one is latest[one[KEY]] and one[OP] in PUTS]
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
    assert not first.last
    assert list(second.last) == [b"a"]


class Plan:
    """Says what a row has under further unique keys: the same in all images, or another in each."""

    def __init__(self, same: bool) -> None:
        self._same = same

    def unique_values(self, image: str, row: bytes) -> tuple[bytes, ...]:
        return () if self._same else (image.encode(), row)


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("cut", [False, True])
def test_a_row_of_a_gentle_table_stays_where_its_unique_values_do(same: bool, cut: bool) -> None:
    target = replace(table(1, keyed=True, pinned=False, lanes=1, unique=True), gentle=True, sql=Plan(same))
    before = dict.fromkeys(KEYS, b"old")
    for length in range(1, 5):
        for changes in sequences(target, set(KEYS), length):
            (net,) = fold(changes)
            updated = {
                key
                for key in KEYS
                if (ops := {change[OP] for change in changes if change[KEY] == key}) and ops == {PUT_UPDATE}
            }
            removed = {change[KEY] for change in net.removals(replaying=False, cut=cut)}
            absent, present = net.writes(replaying=False, cut=cut)
            assert {change[KEY] for change in present} == (updated if same else set())
            assert removed == {change[KEY] for change in changes} - (updated if same else set())
            rows = {key: value for key, value in before.items() if key not in removed}
            for change in absent:
                assert change[KEY] not in rows
                rows[change[KEY]] = image(change)
            rows |= {change[KEY]: image(change) for change in present}
            assert rows == one_by_one(changes, before)
            assert {change[KEY] for change in net.removals(replaying=True)} == {c[KEY] for c in changes}
            assert net.writes(replaying=True, cut=cut) == ([*net.writes(replaying=True)[0]], [])
            gone = [
                key for key in KEYS if any(c[KEY] == key and c[OP] in (REMOVE, REMOVE_OLD) for c in changes)
            ]
            assert net.reborn == {key for key in gone if _came_back(changes, key)}


def _came_back(changes: list[Change], key: bytes) -> bool:
    ops = [change[OP] for change in changes if change[KEY] == key]
    return any(op in (REMOVE, REMOVE_OLD) for op in ops[:-1])


class ValuePlan:
    """The one further unique key is on what stands behind the sign of equality."""

    def unique_values(self, image: str, row: bytes) -> bytes:
        old, _, new = row.partition(b">")
        return (old if image == "old" else new).partition(b"=")[2]


def test_a_row_of_a_gentle_table_stays_if_its_values_are_the_same_or_in_a_cut_part_were_all_the_time() -> (
    None
):
    target = replace(table(1, keyed=True, pinned=False, lanes=1, unique=True), gentle=True, sql=ValuePlan())
    for length in range(2, 5):
        for values in product(b"12", repeat=length):
            rows = [b"a=%c>a=%c" % pair for pair in pairwise(values)]
            (net,) = fold([(target, PUT_UPDATE, b"a", row, 4) for row in rows])
            for cut, stays in ((False, values[0] == values[-1]), (True, len(set(values)) == 1)):
                assert (not net.removals(replaying=False, cut=cut)) == stays
                assert [*map(len, net.writes(replaying=False, cut=cut))] == [not stays, stays]


def test_a_row_that_two_tables_upstream_had_is_written_anew() -> None:
    """One of them deletes it; nothing says which values the other one's had."""
    target = replace(table(1, keyed=True, pinned=False, lanes=1, unique=True), gentle=True, sql=ValuePlan())
    (net,) = fold([(target, REMOVE, b"a", b"a=1", 0), (target, PUT_UPDATE, b"a", b"a=2>a=1", 4)])
    assert len(net.removals(replaying=False)) == 1


@pytest.mark.parametrize("form", [Form.REPLACE, Form.UPSERT, Form.REWRITE])
def test_a_row_that_came_and_went_is_removed(form: Form) -> None:
    """It was there all the time if TiDB said INSERT of one that stayed the same."""
    target = replace(table(1, keyed=True, pinned=False, lanes=1), form=form)
    went: Change = (target, REMOVE, b"a", b"a=1", 0)
    (net,) = fold([(target, PUT_INSERT, b"a", b"a=1", 0), went])
    assert net.removals(replaying=False) == [went]
    assert net.writes(replaying=False) == ([], [])


def test_a_row_that_takes_the_place_of_another_is_told() -> None:
    target = table(1, keyed=True, pinned=False, lanes=1, unique=True)
    other = table(1, keyed=True, pinned=False, lanes=1, unique=True)
    first: Change = (target, PUT_INSERT, b"a", b"a=1", 0)
    (once,) = fold([first])
    (twice,) = fold([first, (target, PUT_INSERT, b"a", b"a=2", 0)])
    (left,) = fold([first, (target, REMOVE, b"a", b"a=1", 0), (other, PUT_INSERT, b"a", b"a=2", 0)])
    assert [net.doubled for net in (once, twice, left)] == [False, True, False]
    assert [net.mixed for net in (once, twice, left)] == [False, False, True]
    assert [net.was_there(b"a") for net in (once, twice, left)] == [False] * 3
    assert fold([(target, REMOVE, b"a", b"a=1", 0)])[0].was_there(b"a")

"""Contents on the driver: last rows of the archive beside those of the reference side, by key.

In      steps of rows with their lineage, what to compare with what
Out     the outcome of `contents`
Holds   as Spark does it in `on_executors.contents`; all rows of the compared tables are in memory, of both
        sides
Tests   tests/spark/audit/test_runners_agree.py
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from drainer.reading.archive.decode.definitions import Definitions
from drainer.spark.audit.checks import contents
from drainer.spark.audit.checks.comparison import Comparison
from drainer.spark.audit.checks.contents import (
    DIFFERS,
    EQUAL,
    MISSING,
    PARTLY,
    SURPLUS,
    UNSEEN,
    Contents,
    Expected,
    Group,
    Judged,
    LastStep,
)
from drainer.spark.audit.checks.findings import Findings, in_order
from drainer.spark.audit.checks.runner import ContentsInput
from drainer.spark.audit.on_driver import xxhash64
from drainer.spark.audit.on_driver.chains import Followed
from drainer.spark.audit.rows.row_steps import RowStep

Key = tuple[int, bytes]
"""Number of the comparison, key."""


class _Row(NamedTuple):
    """What the archive says of a key."""

    turn: int
    row: bytes | None
    times: int
    unknown: str | None


def check(steps: Iterable[Followed], wanted: ContentsInput, definitions: Definitions) -> Contents:
    """`steps` in the order of the cluster."""
    comparisons, begun = wanted.comparisons, wanted.beginning
    last = _last_rows(steps, wanted)
    rows = contents.compared(last, contents.readers(comparisons, definitions))
    if begun is not None:
        rows = itertools.chain(rows, begun.rows.work(begun.rows.items))
    known, passed_over = _known(rows, comparisons, has_beginning=begun is not None)
    judged = list(_judged(known, _there(wanted.live.work(wanted.live.items)), comparisons))
    differing = [one for one in judged if one.state not in (EQUAL, UNSEEN)]
    found = Findings()
    found.extend(in_order(contents.findings(differing, comparisons)))
    return contents.outcome(found, _groups(judged, wanted.chunks), comparisons, passed_over)


def _last_rows(steps: Iterable[Followed], wanted: ContentsInput) -> Iterator[LastStep]:
    """The last step of every row of the compared tables; of tables without key all steps, each once."""
    comparisons, begun = wanted.comparisons, wanted.beginning
    begun_ts = begun.until_ts if begun is not None else -1
    begun_lineages = begun.lineages if begun is not None else frozenset()
    last: dict[tuple[int, bytes], RowStep] = {}
    every: dict[tuple[int, int, int], RowStep] = {}
    for lineage, step in steps:
        how = comparisons.get(lineage)
        if how is None or step.commit_ts > wanted.at_ts:
            continue
        if step.commit_ts <= begun_ts and lineage in begun_lineages:
            continue
        if not how.keyed:
            every.setdefault((lineage, step.commit_ts, step.order), step)
        elif step.key is not None:
            row = (lineage, step.key)
            before = last.get(row)
            if before is None or before.commit_ts != step.commit_ts or _is_later(step, before):
                last[row] = step
    for of_rows in (last, every):
        for place, step in of_rows.items():
            yield LastStep(place[0], step.definition, step.before, step.after)


def _is_later(step: RowStep, before: RowStep) -> bool:
    """Of steps of one commit_ts; of one that is there twice with other contents the larger."""
    return _rank(step) > _rank(before)


def _rank(step: RowStep) -> tuple[object, ...]:
    return step.order, step.definition, *_nulls_first(step.before), *_nulls_first(step.after)


def _nulls_first(value: bytes | str | None) -> tuple[bool, bytes | str]:
    return (False, b"") if value is None else (True, value)


def _known(
    rows: Iterable[Expected], comparisons: Mapping[int, Comparison], *, has_beginning: bool
) -> tuple[dict[Key, _Row], int]:
    """By key, and how many rows have none. Of a table with a beginning and a key the last row counts."""
    found: dict[Key, _Row] = {}
    passed_over = 0
    for number, key, row, times, turn, unknown in rows:
        if key is None:
            passed_over += 1
            continue
        one, place = _Row(turn, row, times, unknown), (number, key)
        other = found.get(place)
        if other is not None:
            only_last = has_beginning and comparisons[number].keyed
            one = max(one, other, key=_turn) if only_last else _both(one, other)
        found[place] = one
    return found, passed_over


def _turn(one: _Row) -> tuple[object, ...]:
    return one.turn, *_nulls_first(one.row), one.times, *_nulls_first(one.unknown)


def _both(one: _Row, other: _Row) -> _Row:
    row = max(one.row, other.row, key=_nulls_first)
    unknown = max(one.unknown, other.unknown, key=_nulls_first)
    return _Row(one.turn, row, one.times + other.times, unknown)


def _there(rows: Iterable[tuple[int, bytes, bytes]]) -> dict[Key, tuple[bytes, int]]:
    """Rows of the reference side by key, and how often they are there."""
    found: dict[Key, tuple[bytes, int]] = {}
    for number, key, row in rows:
        place = (number, key)
        other = found.get(place)
        found[place] = (row, 1) if other is None else (max(row, other[0]), other[1] + 1)
    return found


def _judged(
    known: Mapping[Key, _Row],
    there: Mapping[Key, tuple[bytes, int]],
    comparisons: Mapping[int, Comparison],
) -> Iterator[Judged]:
    """What each row is."""
    nothing: tuple[None, int] = (None, 0)
    for place, (_, row, times, unknown) in known.items():
        actual, count = there.get(place, nothing)
        if unknown is not None and times == count == 1:
            state = PARTLY
        elif times == count and (not times or row == actual):
            state = EQUAL
        elif times == count:
            state = DIFFERS
        else:
            state = MISSING if count < times else SURPLUS
        yield Judged(*place, state, times, count, row, actual, unknown)
    for place in there.keys() - known.keys():
        row_there, count = there[place]
        state = SURPLUS if comparisons[place[0]].whole else UNSEEN
        yield Judged(*place, state, 0, count, None, row_there, None)


def _groups(judged: Sequence[Judged], chunks: int) -> list[Group]:
    of_chunk = (xxhash64.of_keys([one.key for one in judged]).view(np.int64) % chunks).tolist()
    here, there = _sides(judged)
    sums: dict[tuple[int, int, str], list[int]] = {}
    for at, (one, chunk) in enumerate(zip(judged, of_chunk, strict=True)):
        parts = sums.setdefault((one.number, chunk, one.state), [0, 0, 0, 0, 0])
        of_row = 1, one.here, one.there, one.here * here.get(at, 0), one.there * there.get(at, 0)
        for place, value in enumerate(of_row):
            parts[place] += value
    return [Group(*key, *parts) for key, parts in sums.items()]


def _sides(judged: Sequence[Judged]) -> tuple[dict[int, int], dict[int, int]]:
    """By place hashes of the rows of both sides: of those that are there, and known whole. Equal rows, nearly
    all of them, are hashed once."""
    counted = [at for at, one in enumerate(judged) if one.state not in (PARTLY, UNSEEN)]
    here = _hashes(judged, [(at, judged[at].expected) for at in counted if judged[at].here > 0])
    other = [at for at in counted if judged[at].there > 0 and judged[at].state != EQUAL]
    there = _hashes(judged, [(at, judged[at].actual) for at in other])
    return here, {at: here[at] for at in counted if judged[at].state == EQUAL and at in here} | there


def _hashes(judged: Sequence[Judged], rows: Sequence[tuple[int, bytes | None]]) -> dict[int, int]:
    keys = [judged[at].key for at, _ in rows]
    found = xxhash64.of_rows(keys, [row or b"" for _, row in rows]).tolist()
    return {at: number for (at, _), number in zip(rows, found, strict=True)}

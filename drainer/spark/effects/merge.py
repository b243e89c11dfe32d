"""Effect merge: effects of one key that were found in several pieces of a range become one.

In     record batches of effects: of a stretch, in any order (`taken_together`); of all, by place (`merged`)
Out    record batches; `merged`: one row a key, by place, keys that share a place by table and key
Holds  the first and the last operation of a key are found by (commit_ts, order) alone, whatever pieces its
       changes were in. The order of `merged` depends on the keys alone
Why    numbers are sorted and compared, thousands at once; bytes are moved only where keys repeat
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from drainer.mysql.rows.change import PUT_MOVED
from drainer.spark.effects.batches import ARROW, BATCH_ROWS
from drainer.spark.effects.operations import OPERATION

_OF_FIRST: Final = ("place", "table", "key", "first_ts", "first_order", "before")
_OF_LAST: Final = ("last_ts", "last_order", "definition", "image")
_WORTH: Final = 8
"""One row of so many has to be a repeat, or a stretch is left as it is."""


def taken_together(batches: Iterable[Any], bytes_max: int) -> Iterator[Any]:
    """The same with fewer rows, if keys repeat. Holds about `bytes_max`."""
    held: list[Any] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size >= bytes_max:
            held = _together(held)
            size = sum(batch.nbytes for batch in held)
            if size > bytes_max // 2:
                yield from _in_pieces(held)
                held, size = [], 0
    yield from _in_pieces(_together(held))


def merged(batches: Iterable[Any]) -> Iterator[Any]:
    """One row a key; `batches` are sorted by place."""
    held: Any = None
    for batch in batches:
        if not batch.num_rows:
            continue
        rows = batch if held is None else pa.concat_batches([held, batch])
        places = _numbers(rows, "place")
        end = int(np.searchsorted(places, places[-1]))  # of the last place more may come
        held = _one_a_key(rows.slice(end))
        if end:
            yield _one_a_key(rows.slice(0, end))
    if held is not None:
        yield held


def _together(held: list[Any]) -> list[Any]:
    if not held:
        return held
    places = np.sort(np.concatenate([_numbers(batch, "place") for batch in held]))
    if np.count_nonzero(places[1:] == places[:-1]) * _WORTH < len(places):
        return held
    rows = pa.concat_batches(held)
    return [_one_a_key(rows.take(pa.array(np.argsort(_numbers(rows, "place"), kind="stable"))))]


def _in_pieces(held: Iterable[Any]) -> Iterator[Any]:
    for batch in held:
        for start in range(0, batch.num_rows, BATCH_ROWS):
            yield batch.slice(start, BATCH_ROWS)


def _numbers(rows: Any, name: str) -> Any:
    return rows.column(name).to_numpy(zero_copy_only=False)


def _one_a_key(rows: Any) -> Any:
    """Of rows sorted by place."""
    places = _numbers(rows, "place")
    repeats = places[1:] == places[:-1]
    if not repeats.any():
        return rows
    rank = _ranks(rows, places, np.flatnonzero(repeats))
    ts, order = _numbers(rows, "first_ts"), _numbers(rows, "first_order")
    by_first = np.lexsort((order, ts, rank, places))
    by_last = np.lexsort((_numbers(rows, "last_order"), _numbers(rows, "last_ts"), rank, places))
    rank, ts, order = rank[by_first], ts[by_first], order[by_first]  # places are in order already
    begins = np.concatenate(([True], ~repeats | (rank[1:] != rank[:-1])))
    starts = np.flatnonzero(begins)
    key = np.cumsum(begins) - 1
    is_later = (ts != ts[starts][key]) | (order != order[starts][key])
    born_later = is_later & (order & OPERATION <= PUT_MOVED)
    reborn = np.logical_or.reduceat(_numbers(rows, "reborn")[by_first] | born_later, starts)
    times = np.add.reduceat(_numbers(rows, "times")[by_first], starts)
    first = rows.select(_OF_FIRST).take(pa.array(by_first[starts]))
    last = rows.select(_OF_LAST).take(pa.array(by_last[np.append(starts[1:], len(places)) - 1]))
    return pa.RecordBatch.from_arrays(
        [*first.columns, *last.columns, pa.array(reborn), pa.array(times)], schema=ARROW
    )


def _ranks(rows: Any, places: Any, repeats: Any) -> Any:
    """Of each row the rank of its key among those of the same place: 0, but where a place has several.

    `repeats`: rows whose place the next one has too.
    """
    ranks = np.zeros(len(places), np.int64)
    tables, keys = _numbers(rows, "table"), rows.column("key")
    nexts = repeats + 1
    differs = pc.not_equal(keys.take(pa.array(repeats)), keys.take(pa.array(nexts)))
    several = (tables[repeats] != tables[nexts]) | differs.to_numpy(zero_copy_only=False)
    for place in np.unique(places[repeats[several]]):
        start, stop = np.searchsorted(places, [place, place + 1])
        pairs = list(
            zip(tables[start:stop].tolist(), keys.slice(start, stop - start).to_pylist(), strict=True)
        )
        of_key = {key: rank for rank, key in enumerate(sorted(set(pairs)))}
        ranks[start:stop] = [of_key[key] for key in pairs]
    return ranks

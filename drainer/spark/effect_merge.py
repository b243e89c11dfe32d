"""Effect merge: effects of one key that were found in several pieces of a range become one.

In     record batches of effects, sorted by place (`fold.by_place`)
Out    record batches, one row a key, sorted by place; keys that share a place by table and key
Holds  the first and the last operation of a key are found by (commit_ts, order) alone, whatever pieces its
       changes were in. The order depends on the keys alone
Why    where nothing repeats it costs a comparison of numbers: there is no fold that one would have to skip
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from drainer.change import PUT_MOVED
from drainer.spark.effect_batches import ARROW
from drainer.spark.operations import OPERATION

_OF_FIRST: Final = ("place", "table", "key", "first_ts", "first_order", "before")
_OF_LAST: Final = ("last_ts", "last_order", "definition", "image")


def merged(batches: Iterable[Any]) -> Iterator[Any]:
    """One row a key."""
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


def _numbers(rows: Any, name: str) -> Any:
    return rows.column(name).to_numpy(zero_copy_only=False)


def _one_a_key(rows: Any) -> Any:
    places = _numbers(rows, "place")
    repeats = places[1:] == places[:-1]
    if not repeats.any():
        return rows
    rank = _ranks(rows, places, np.flatnonzero(repeats))
    ts, order = _numbers(rows, "first_ts"), _numbers(rows, "first_order")
    by_first = np.lexsort((order, ts, rank, places))
    by_last = np.lexsort((_numbers(rows, "last_order"), _numbers(rows, "last_ts"), rank, places))
    place, rank, ts, order = (column[by_first] for column in (places, rank, ts, order))
    begins = np.concatenate(([True], (place[1:] != place[:-1]) | (rank[1:] != rank[:-1])))
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
        found = list(
            zip(tables[start:stop].tolist(), keys.slice(start, stop - start).to_pylist(), strict=True)
        )
        of_key = {key: rank for rank, key in enumerate(sorted(set(found)))}
        ranks[start:stop] = [of_key[key] for key in found]
    return ranks

"""Statistics: what an archive holds, in numbers.

Out    tables: changes by table, kind and hour; bytes by hour; transactions' sizes; keys that change most
Holds  bytes are those of complete rows before and after, as an archive of TiDB rows has them, not of files.
       In memory is a count for every size of a transaction, and in this process one for every key
Tests  tests/spark/test_history.py, tests/spark/local/test_same_output.py
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from heapq import nsmallest
from itertools import chain, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from drainer.reading.archive.archive_source import ArchiveSource
from drainer.reading.archive.views.view import TIME
from drainer.spark.engine import Engine, Executors, Rows, over_view

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PERCENTS: Final = (50, 90, 99)
HOTTEST: Final = 10
_HOUR_US: Final = 3_600_000_000
_KEYS_HELD: Final = 200_000
_COLUMNS: Final = "schema string, table string, name string, hour long, changes long"
Options = Mapping[str, str]
Columns = Iterator[list[list[Any]]]
_NAMES: Final = ("_schema", "_table", "_change_type")
_KEY: Final = ("_schema", "_table", "key")


def rates(spark: SparkSession, archive: str, options: Options) -> DataFrame:
    """Changes by hour, table and kind."""
    return spark.createDataFrame(of_changes(Executors(spark), archive, options, 0)["changes"])


def hottest(spark: SparkSession, archive: str, options: Options, number: int = HOTTEST) -> DataFrame:
    """The keys with most changes. Rows of tables without a key have none."""
    return spark.createDataFrame(of_changes(Executors(spark), archive, options, number)["hottest"])


def volumes(spark: SparkSession, archive: str, options: Options) -> DataFrame:
    """Transactions, rows and bytes by hour."""
    return spark.createDataFrame(of_transactions(Executors(spark), archive, options)["volumes"])


def sizes(spark: SparkSession, archive: str, options: Options) -> DataFrame:
    """One row: how many transactions, and percentiles of their rows and bytes."""
    return spark.createDataFrame(of_transactions(Executors(spark), archive, options)["transactions"])


# -- changes ----------------------------------------------------------------------------------------------


def of_changes(engine: Engine, archive: str, options: Options, hottest: int) -> dict[str, pa.Table]:
    """Changes by hour, table and kind; with `hottest` above 0 so many keys with most changes."""
    names = ("_commit_timestamp", *_NAMES, *(("key",) if hottest > 0 else ()))
    counts = _over(engine, archive, options, "changes", names, _changes, _COLUMNS)
    in_order = counts.together(("schema", "table", "name", "hour"), ("changes",))
    rows = in_order.gather(partial(_most, hottest))
    by_hour = sorted(row for row in rows if row[0] is not None)
    tables = {"changes": _table(("hour", *_NAMES, "changes"), by_hour)}
    if hottest > 0:
        of_keys = nsmallest(hottest, (row[1:] for row in rows if row[0] is None), key=_hotter)
        tables["hottest"] = _table((*_KEY, "changes"), of_keys)
    return tables


def _hotter(row: Sequence[Any]) -> tuple[Any, ...]:
    return -row[-1], *row[:-1]


def _changes(batches: Columns) -> Iterator[tuple[Any, ...]]:
    """Counts of kinds by hour, and of keys, which have none."""
    rates: Counter[tuple[Any, ...]] = Counter()
    keys: Counter[tuple[Any, ...]] = Counter()
    for times, schemas, tables, kinds, *more in batches:
        rates.update(zip(schemas, tables, kinds, _hours(times), strict=True))
        for values in more:
            keys.update(
                (*key, None) for key in zip(schemas, tables, values, strict=True) if key[2] is not None
            )
        if len(keys) >= _KEYS_HELD:
            yield from ((*key, changes) for key, changes in keys.items())
            keys.clear()
    yield from ((*key, changes) for key, changes in chain(rates.items(), keys.items()))


def _most(number: int, rows: Iterator[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """(hour, schema, table, name, changes): of hours all, of keys so many."""
    keys: list[tuple[Any, ...]] = []
    for (*name, hour), some in groupby(rows, itemgetter(0, 1, 2, 3)):
        row = (hour, *name, sum(part[4] for part in some))
        if hour is not None:
            yield row
            continue
        keys.append(row)
        if len(keys) >= number + _KEYS_HELD:
            keys = nsmallest(number, keys, key=lambda row: _hotter(row[1:]))
    yield from nsmallest(number, keys, key=lambda row: _hotter(row[1:]))


# -- transactions -----------------------------------------------------------------------------------------


def of_transactions(engine: Engine, archive: str, options: Options) -> dict[str, pa.Table]:
    """Transactions, rows and bytes by hour; sizes of transactions."""
    names = ("_commit_timestamp", "rows", "bytes")
    parts = _over(engine, archive, options, "transactions", names, _transactions).gather(iter)
    columns = ("hour", "transactions", *names[1:])
    totals = [sum((part[place] for part in parts), Counter[int]()) for place in range(5)]
    by_hour = [(hour, *(counts[hour] for counts in totals[:3])) for hour in sorted(totals[0])]
    measures: dict[str, int | None] = {"transactions": totals[0].total()}
    for name, counts in zip(names[1:], totals[3:], strict=True):
        ordered = sorted(counts.items())
        measures[name] = sum(value * number for value, number in ordered) if ordered else None
        for percent in PERCENTS:
            measures[f"{name}_p{percent}"] = _percentile(ordered, percent / 100 * counts.total())
        measures[f"{name}_max"] = ordered[-1][0] if ordered else None
    return {"volumes": _table(columns, by_hour), "transactions": _table(measures, [list(measures.values())])}


def _transactions(batches: Columns) -> Iterator[list[Counter[int]]]:
    """By hour transactions, rows and bytes; how many transactions have so many rows, and bytes."""
    counts = [Counter[int]() for _ in range(5)]
    for times, *of_batch in batches:
        hours = _hours(times)
        counts[0].update(hours)
        for of_hours, of_sizes, values in zip(counts[1:3], counts[3:], of_batch, strict=True):
            of_sizes.update(values)
            for hour, value in zip(hours, values, strict=True):
                of_hours[hour] += value
    yield counts


def _percentile(ordered: Sequence[tuple[int, int]], rank: float) -> int | None:
    """The value that has this rank, which counts from 1."""
    below = 0
    for value, number in ordered:
        below += number
        if below >= rank:
            return value
    return None


# -- both -------------------------------------------------------------------------------------------------


def _over(
    engine: Engine,
    archive: str,
    options: Options,
    view: str,
    names: Sequence[str],
    count: Callable[[Columns], Iterator[Any]],
    columns: str = "",
) -> Rows:
    """What is counted in the columns of a view. What these names leave out is not made."""
    source = ArchiveSource({**options, "path": archive, "view": view})
    return over_view(engine, source, names, count, columns)


def _hours(times: Sequence[int]) -> list[int]:
    return [time - time % _HOUR_US for time in times]


def _table(names: Iterable[str], rows: Iterable[Sequence[Any]]) -> pa.Table:
    kinds = {"hour": TIME, "key": pa.string(), **dict.fromkeys(_NAMES, pa.string())}
    schema = pa.schema([(name, kinds.get(name, pa.int64())) for name in names])
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)

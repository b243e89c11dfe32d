"""History: every version of rows, from when to when it was there, and which transaction made it.

Out    one row a version: `valid_from` (commit_ts, included) to `valid_to` (commit_ts, excluded; null while it
       lasts), the change that made it, both images; as a data frame, or as a table of this process
Holds  a change that moves a row to another key ends the version under the old key and begins one under the
       new. What was there before the first change that is read is a version without a beginning
Why    Spark prunes no columns of a Python source and filters late: tables and times are options, which
       skip segments and rows; keys are compared before versions are put in order

In a table without a key a version is an image. Equal rows cannot be told from each other: each change of one
of them ends a version of all.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, groupby, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from drainer.reading.archive.archive_source import ArchiveSource
from drainer.spark.engine import Engine, Executors, Rows, frame_of, over_view, rows_of
from tidb_binlog.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_KEY_HINT: Final = """write id=5, or {"a": 1, "b": "x"}"""
CHANGES: Final = (
    *("_commit_ts", "_commit_timestamp", "_start_ts", "_seq", "_schema", "_table", "_change_type", "_file"),
    *("_pos", "key", "before", "after"),
)
_NAME: Final = ("_schema", "_table", "key")
_ENDS: Final = (
    "_schema string, _table string, key string, _commit_ts long, _seq long, part long, ended long,"
    " begun long, time long, _change_type string, _start_ts long, before string, after string, _file string,"
    " _pos long"
)
_VERSIONS: Final = (
    "_schema string, _table string, key string, valid_from long, valid_to long, from_time long, to_time long,"
    " exists long, _change_type string, _commit_ts long, _start_ts long, _seq long, before string,"
    " after string, _file string, _pos long"
)
COLUMNS: Final = tuple(column.split()[0] for column in _VERSIONS.split(", "))
"""`key`: its values as JSON texts. `exists`: whether there is a row between the two. All from
`_change_type` on tell of the change at `valid_from`, and are null for what was there before."""
_TIMES: Final = ("from_time", "to_time")


def history(
    spark: SparkSession,
    archive: str,
    table: str,
    key: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Versions of the rows of a table, or of the one with these key values, in their order."""
    named = {name.lower(): str(value) for name, value in (options or {}).items()}  # as Spark takes them
    source = ArchiveSource({**named, "path": archive, "tables": table})
    frame = _frame(of_archive(Executors(spark), source, key))
    return frame.orderBy(*_NAME, "valid_from", "_seq")


def versions(changes: DataFrame, key: Mapping[str, str] | None = None) -> DataFrame:
    """Of any changes with JSON images, as `format("binlog")` reads them."""
    from pyspark.sql import functions as f

    columns = [f.unix_micros(name) if name == "_commit_timestamp" else f.col(name) for name in CHANGES]
    return _frame(of_changes(rows_of(changes.select(*columns)), key))


def _frame(rows: Rows) -> DataFrame:
    from pyspark.sql import functions as f

    frame = frame_of(rows).withColumns({name: f.timestamp_micros(name) for name in _TIMES})
    return frame.withColumn("exists", f.col("exists").cast("boolean"))


def table(versions: Rows) -> pa.Table:
    """All of them, in their order, in this process."""
    import pyarrow as pa

    from drainer.reading.archive.views.view import TIME

    kinds = {**dict.fromkeys(_TIMES, TIME), "exists": pa.bool_()}
    columns = list(zip(*versions.gather(iter), strict=True)) or [()] * len(COLUMNS)
    arrays = {}
    for described, values in zip(_VERSIONS.split(", "), columns, strict=True):
        name, kind = described.split()
        array = pa.array(values, pa.string() if kind == "string" else pa.int64())
        arrays[name] = array.cast(kinds.get(name, array.type))
    return pa.table(arrays)


def of_archive(engine: Engine, source: ArchiveSource, key: Mapping[str, str] | None = None) -> Rows:
    """Of the tables that are selected there."""

    def rows(batches: Iterator[list[list[Any]]]) -> Iterator[tuple[Any, ...]]:
        return (row for batch in batches for row in zip(*batch, strict=True))

    return of_changes(over_view(engine, source, CHANGES, rows), key)


def of_changes(changes: Rows, key: Mapping[str, str] | None = None) -> Rows:
    """Of any changes with JSON images, in the order of keys and times."""
    ends = changes.then(partial(_ends, key or {}), _ENDS)
    return ends.together(_NAME, ("_commit_ts", "_seq", "part")).then(_versions, _VERSIONS)


def _ends(key_values: Mapping[str, str], changes: Iterator[Sequence[Any]]) -> Iterator[tuple[Any, ...]]:
    """One row a change and key: `ended` a version of it, `begun` one."""
    for ts, time, start_ts, seq, schema, table, kind, file, pos, key, before, after in changes:
        for of_key, part, ended, begun in _of_change(key, before, after):
            if _has(of_key, key_values):
                change = (time, kind, start_ts, before, after, file, pos)
                yield (schema, table, of_key, ts, seq, part, int(ended), int(begun), *change)


def _of_change(
    key: str | None, before: str | None, after: str | None
) -> Iterator[tuple[str, int, bool, bool]]:
    was, now = before is not None, after is not None
    new = old = (after if after is not None else before) or ""
    if key is None:
        old = before if before is not None and now else new
    else:
        values = _map(key)
        new = old = _text(values)
        if before is not None and now:
            former = _map(before)
            old = _text({name: former[name] for name in former if name in values})
    if old != new:
        yield old, 0, True, False
        yield new, 1, False, True
    else:
        yield new, 1, was, now


def _versions(ends: Iterator[Sequence[Any]]) -> Iterator[tuple[Any, ...]]:
    for name, of_key in groupby(ends, itemgetter(0, 1, 2)):
        is_first = True
        for end, following in pairwise(chain(of_key, (None,))):
            assert end is not None
            ts, seq, _, ended, begun, time, kind, start_ts, before, after, file, pos = end[3:]
            if is_first and ended:
                yield (*name, None, ts, None, time, 1, None, None, None, None, None, before, None, None)
            is_first = False
            until_ts, until = (following[3], following[8]) if following is not None else (None, None)
            change = (kind, ts, start_ts, seq, before, after, file, pos)
            yield (*name, ts, until_ts, time, until, begun, *change)


def _has(key: str, key_values: Mapping[str, str]) -> bool:
    values = _map(key) if key_values else {}
    return all(values.get(name) == value for name, value in key_values.items())


def _map(document: str) -> dict[str, str | None]:
    """Values as texts, numbers as they are written."""
    values = json.loads(document, parse_int=str, parse_float=str)
    return {name: _value(value) for name, value in values.items()}


def _value(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _text(values: Mapping[str, str | None]) -> str:
    """Equal for equal values, whatever their order."""
    return json.dumps(dict(sorted(values.items())), ensure_ascii=False, separators=(",", ":"))


def parse_key(text: str) -> dict[str, str]:
    """`id=5`, `a=1,b=x`, or JSON. Raises `ConfigError`."""
    if text.lstrip().startswith("{"):
        try:
            document = json.loads(text)
        except ValueError as error:
            raise ConfigError(f"the key cannot be read: {error}", hint=_KEY_HINT) from None
        return {
            name: value if isinstance(value, str) else json.dumps(value) for name, value in document.items()
        }
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(name.strip() and mark for name, mark, _ in pairs):
        raise ConfigError(f"{text!r} is no key", hint=_KEY_HINT)
    return {name.strip(): value for name, _, value in pairs}

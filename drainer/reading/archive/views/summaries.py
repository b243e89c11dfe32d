"""Summaries: one row a transaction, a schema change, a file, a definition of a table.

Tests  tests/spark/source/test_source.py
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import astuple, fields
from typing import Any, Final, TypeVar

import pyarrow as pa

from drainer.formats.obinlog.writer import definition_json
from drainer.reading.archive.decode.coverage import FileCoverage, cover
from drainer.reading.archive.decode.records import Changes, Record, SchemaChange
from drainer.reading.archive.views.view import (
    ROWS_MAX,
    TEXTS,
    TIME,
    ReadTask,
    View,
    of_tuples,
    physical_us,
    records_of,
)

_R = TypeVar("_R", bound=Record)
_COMMIT: Final = {"_commit_ts": pa.int64(), "_commit_timestamp": TIME}
_PLACE: Final = {"_file": pa.string(), "_pos": pa.int64()}
_TEXT_FIELDS: Final = frozenset({"file", "kind", "problem"})
_TRANSACTIONS: Final = pa.schema(
    {
        **_COMMIT,
        "_start_ts": pa.int64(),
        **_PLACE,
        **dict.fromkeys(("rows", "inserts", "updates", "deletes"), pa.int64()),
        "tables": TEXTS,
        "bytes": pa.int64(),
    }
)
"""`bytes`: of the images."""
_DDL: Final = pa.schema(
    {
        **_COMMIT,
        **_PLACE,
        "part": pa.int32(),
        "schema": pa.string(),
        "query": pa.string(),
        "job_id": pa.int64(),
        "kind": pa.int32(),
        "tables": TEXTS,
    }
)
_DEFINITIONS: Final = pa.schema(
    {
        "definition": pa.int64(),
        "first_commit_ts": pa.int64(),
        "schema": pa.string(),
        "table": pa.string(),
        "document": pa.string(),
    }
)
_FILES: Final = pa.schema(
    {entry.name: pa.string() if entry.name in _TEXT_FIELDS else pa.int64() for entry in fields(FileCoverage)}
)


def _batches(task: ReadTask, names: list[str], rows: Iterable[tuple[Any, ...]]) -> Iterator[pa.RecordBatch]:
    rows = iter(rows)
    while some := list(itertools.islice(rows, ROWS_MAX)):
        yield of_tuples(task.columns, names, some)


def _records(task: ReadTask, kind: type[_R]) -> Iterator[_R]:
    return (record for record in records_of(task) if isinstance(record, kind))


def _transactions(task: ReadTask) -> Iterator[tuple[Any, ...]]:
    for _, pieces in itertools.groupby(_records(task, Changes), lambda changes: changes.commit_ts):
        first = next(pieces)
        counts, tables, size = [0, 0, 0], dict[str, None](), 0
        for changes in itertools.chain((first,), pieces):
            for version, kind, before, after in changes.rows:
                counts[kind] += 1
                size += len(before or b"") + len(after or b"")
                tables[".".join(version.downstream)] = None
        ts = first.commit_ts
        place = (ts, physical_us(ts), first.start_ts or None, first.file, first.pos)
        yield (*place, sum(counts), *counts, list(tables), size)


def _ddl(task: ReadTask) -> Iterator[tuple[Any, ...]]:
    for record in _records(task, SchemaChange):
        ddl = record.ddl
        tables = [f"{database}.{name}" if name else database for database, name in ddl.tables]
        query = ddl.query.encode("utf-8", "backslashreplace").decode()
        place = (ddl.commit_ts, physical_us(ddl.commit_ts), record.file, record.pos, record.part)
        # A job's number and kind are not in a file archive.
        yield (*place, ddl.schema, query, ddl.job_id or None, ddl.action or None, tables)


def _definitions(task: ReadTask) -> Iterator[tuple[Any, ...]]:
    for table in task.definitions:
        if task.selection.wants_table(table.schema, table.table):
            number = task.definitions.number_of(table.version)
            yield number, table.first_ts, table.schema, table.table, definition_json(table.version)


def _files(task: ReadTask) -> Iterator[tuple[Any, ...]]:
    """Files with an index are not read."""
    for part, segment in task.files:
        yield astuple(cover(task.location, part, segment, verify=task.verify))


TRANSACTIONS: Final = View(
    _TRANSACTIONS, lambda task: _batches(task, _TRANSACTIONS.names, _transactions(task))
)
DDL: Final = View(_DDL, lambda task: _batches(task, _DDL.names, _ddl(task)))
DEFINITIONS: Final = View(
    _DEFINITIONS, lambda task: _batches(task, _DEFINITIONS.names, _definitions(task)), is_of_definitions=True
)
FILES: Final = View(_FILES, lambda task: _batches(task, _FILES.names, _files(task)), is_of_files=True)

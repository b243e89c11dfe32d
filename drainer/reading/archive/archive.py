"""Archive: what a Drainer or a Pump left in files, read by a program, without Java.

    for item in drainer.open_archive("/data/archive", tables=["shop.*"], start="2026-11-22 03:00:00"):
        if isinstance(item, drainer.Transaction):
            for row in item.rows: ...

In     a directory or URI: a file archive (db-type = "file", the Go Drainer's too), a relay log, or the data
       directories of pumps with the DDL history
Out    transactions and DDL in commit order (`drainer.changes.model`); Arrow batches
Holds  both ends of a range are included. A transaction that a Drainer wrote again after a restart comes once.
       What cannot be read ends the reading with `Corruption`, which names the file and the offset, unless
       `damage` is "report": then it is left out, and `files` says what is wrong where
Never  writes, or takes a lock: the Drainer or Pump may be running; what is written later is not seen
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from drainer.changes.model import Ddl, Row, Table, Transaction
from drainer.changes.row_reader import PLANS_MAX, RowPlan, RowReader, table_of
from drainer.places.file_system import EXTRA_HINT
from drainer.places.place import OPTION_PREFIX, Place
from drainer.reading.archive.decode import coverage, ddl_history, definitions, reading, records
from drainer.reading.archive.decode.coverage import FileCoverage
from drainer.reading.archive.decode.definitions import Definitions
from drainer.reading.archive.decode.reading import Reach
from drainer.reading.archive.decode.records import Changes, Record, SchemaChange
from drainer.reading.archive.decode.value_log import PumpLogs
from drainer.reading.archive.files import segments
from drainer.reading.archive.files.payload import PB, RELAY
from drainer.reading.archive.files.segments import AUTO, PUMP, WHOLE_FILES, Slice, Survey
from drainer.reading.archive.files.selection import Selection
from drainer.reading.archive.read_options import ReadOptions, check_tables, ddl_names, table_names, version_of
from drainer.reading.errors import BinlogsLost
from drainer.reading.large_rows import LargeRows
from drainer.txn import DELETE, INSERT, TableVersion
from tidb_binlog import time_text
from tidb_binlog.errors import ConfigError, Corruption
from tidb_binlog.rowcodec.row_error import RowError
from tidb_binlog.tso import Ts

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl
    import pyarrow as pa

Where = str | os.PathLike[str]
Bound = int | str | datetime | None
_OLDEST: Final = "oldest"


def open_archive(
    where: Where | Sequence[Where],
    kind: str = AUTO,
    *,
    tables: str | Iterable[str] = (),
    start: Bound = None,
    stop: Bound = None,
    damage: str = reading.FAIL,
    ddl_history: str = "",
    time_zone: str = "",
    options: Mapping[str, str] | None = None,
) -> Archive:
    """Open an archive: a path or URI (s3://, gs://, hdfs://), several of them for the pumps of a cluster.

    `kind` is auto, pb, relay or pump. `start` and `stop` are a commit_ts, a time of UTC as text, a datetime
    with a zone, or None for the end of the archive; `tables` are patterns: `shop.orders`, `shop.*`, `~REGEX`.
    `damage`: fail, or report, which leaves out what cannot be read. `ddl_history`: a file of DDL jobs, which
    value logs need. `time_zone`: in which a Go Drainer wrote TIMESTAMPs. `options`: of the file system.

    Raises `ConfigError` for what is not there or not of that kind, `BinlogsLost` for a range that begins
    before the archive, `NoSuchTable` for a table that it has not; `Unavailable` where a file system does not
    answer.
    """
    places = [where] if isinstance(where, str | os.PathLike) else list(where)
    if not places:
        raise ConfigError("no archive is named", hint="give a directory or a URI")
    given = {f"{OPTION_PREFIX}{name}": value for name, value in (options or {}).items()}
    given |= {"kind": kind, "damage": damage, "ddl-history": ddl_history, "time-zone": time_zone}
    given |= {"path": os.fspath(places[0]), "tables": _patterns(tables)}
    given |= {"start": _text(start), "stop": _text(stop)}
    archive = Archive(given, [Place.of(os.fspath(place), given) for place in places])
    archive.check()
    return archive


class Archive:
    """An archive as it was when opened. Made by `open_archive`; iterating it gives what was selected."""

    def __init__(self, given: Mapping[str, str], locations: Sequence[Place]) -> None:
        self._given = dict(given)
        self._options = ReadOptions.of(given)
        self._locations = locations
        self._survey: Survey = segments.survey(locations[0], self._options.kind, self._options.time_zone)
        if len(locations) > 1 and self._survey.kind != PUMP:
            raise ConfigError(
                f"{self._survey.location.shown} is of kind {self._survey.kind}, and several are given",
                hint="only the data directories of pumps are read together",
            )

    def __repr__(self) -> str:
        return f"<{self.kind} archive {self._survey.location.shown}>"

    @property
    def kind(self) -> str:
        """pb, relay or pump."""
        return self._survey.kind

    @property
    def first_ts(self) -> Ts:
        """The timestamp of the first record; 0 where there is none."""
        return next((segment.first_ts for segment in self._survey.segments if segment.first_ts), 0)

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables that it has definitions of, each as it is last. A Go Drainer writes none."""
        newest = {(table.schema, table.table): table.version for table in self._definitions}
        return tuple(table_of(version) for version in newest.values())

    def files(self) -> list[FileCoverage]:
        """What each file holds, and what is wrong with it."""
        parts = zip(coverage.slices(self._survey), self._survey.segments, strict=True)
        return [coverage.cover(self._survey.location, part, segment) for part, segment in parts]

    def __iter__(self) -> Iterator[Transaction | Ddl]:
        return self.read()

    def read(
        self, *, tables: str | Iterable[str] | None = None, start: Bound = None, stop: Bound = None
    ) -> Iterator[Transaction | Ddl]:
        """Transactions and DDL of a range; what is not given here is as it was given to `open_archive`.

        Rows of other tables are left out, and transactions without a row that is left. The rows of a large
        transaction are iterated once, before the next item. Raises `Corruption`.
        """
        again = self._again(tables, start, stop)
        again.check()
        path_of = self._survey.location.path_of
        return iter(RowItems(again._records(again._options.selection), path_of))

    def to_arrow(
        self,
        *,
        table: str = "",
        tables: str | Iterable[str] | None = None,
        start: Bound = None,
        stop: Bound = None,
        columns: Sequence[str] = (),
        batch_rows: int = 0,
    ) -> pa.RecordBatchReader:
        """Changes as record batches; needs the extra `arrow`.

        With `table` ("shop.orders") images are structs of its columns, as its newest definition in the range
        has them; a value that its column cannot hold is null and stands in `_invalid`. Without it images are
        JSON. `columns` names those that are wanted ("after.id" for one of an image): only they are decoded.
        `batch_rows` is the most rows of a batch.
        """
        try:
            from drainer.reading.archive.views import changes
            from drainer.reading.archive.views.view import ReadTask
        except ModuleNotFoundError as error:
            raise ConfigError(f"{error.name} is not installed", hint=EXTRA_HINT) from None
        if table and tables is None:
            tables = ()
        again = self._again(tables, start, stop, table)
        again.check()
        options, survey = again._options, self._survey
        version = version_of(options, survey, self._definitions) if table else None
        task = ReadTask(
            survey.location,
            Slice("", 0, survey.kind),
            options.selection,
            self._definitions,
            changes.chosen_schema(version, columns),
            version,
            options.damage,
            reach=Reach(),
        )
        records = (lambda: again._records(options.selection)) if self.kind == PUMP else None
        return changes.reader(task, again._slices(options.selection), records, batch_rows)

    def to_pandas(
        self, table: str = "", *, start: Bound = None, stop: Bound = None, columns: Sequence[str] = ()
    ) -> pd.DataFrame:
        """`to_arrow` as a pandas frame of Arrow's types, with a column for each column of an image
        ("after.id"); needs the extra `pandas`."""
        return pandas_frame(self.to_arrow(table=table, start=start, stop=stop, columns=columns))

    def to_polars(
        self, table: str = "", *, start: Bound = None, stop: Bound = None, columns: Sequence[str] = ()
    ) -> pl.DataFrame:
        """`to_arrow` as a polars frame, images are structs; needs the extra `polars`."""
        return polars_frame(self.to_arrow(table=table, start=start, stop=stop, columns=columns))

    def sql(self, query: str, *, start: Bound = None, stop: Bound = None) -> duckdb.DuckDBPyRelation:
        """Ask DuckDB, with the extra `duckdb`: `shop.orders` are the changes of that table, with `before` and
        `after` as structs, `changes` those of all tables, with images as JSON.

        Raises `ConfigError` for what is no query of these, and as `read`.
        """
        return answer_of(query, lambda table: self.to_arrow(table=table, start=start, stop=stop))

    # -- parts ---------------------------------------------------------------------------------------

    @cached_property
    def _definitions(self) -> Definitions:
        is_pump = self.kind == PUMP
        history = ddl_history.load(self._locations[0], self._options.ddl_history) if is_pump else ()
        return definitions.of_archive(self._survey.location, self._survey, ddl_history=history)

    @cached_property
    def _logs(self) -> PumpLogs:
        skip_damage = self._options.damage == reading.REPORT
        return PumpLogs(self._locations, self._definitions, skip_damage=skip_damage)

    def _again(
        self, tables: str | Iterable[str] | None, start: Bound, stop: Bound, table: str = ""
    ) -> Archive:
        """The same archive, something else selected."""
        given = self._given | {"table": table}
        if tables is not None:
            given["tables"] = _patterns(tables)
        if start is not None:
            given["start"] = _text(start)
        if stop is not None:
            given["stop"] = _text(stop)
        again = object.__new__(Archive)
        vars(again).update(vars(self))
        again._given, again._options = given, ReadOptions.of(given)
        again.__dict__["_definitions"] = self._definitions
        if self.kind == PUMP:
            again.__dict__["_logs"] = self._logs
        return again

    def _slices(self, selection: Selection) -> list[Slice]:
        skip_damage = self._options.damage == reading.REPORT
        return self._survey.plan(selection, WHOLE_FILES, skip_damage=skip_damage)

    def _records(self, selection: Selection) -> Iterator[Record]:
        if self.kind == PUMP:
            yield from self._logs.records(selection)
            return
        reach = Reach()
        location, damage = self._survey.location, self._options.damage
        for part in self._slices(selection):
            yield from reading.read(location, part, selection, self._definitions, damage=damage, reach=reach)

    # -- checks --------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raises `ConfigError`, `BinlogsLost`, `NoSuchTable` for what these files cannot answer."""
        survey, selection = self._survey, self._options.selection
        if not survey.segments:
            raise ConfigError(
                f"{survey.location.shown} has no file of an archive, a relay log or a pump",
                hint="give the directory with the files binlog-..., or the data directory of a pump",
            )
        if self._options.kind in (PB, RELAY):
            names = [segment.name for segment in survey.segments]
            kind = segments.kind_of_files(survey.location, names)
            if kind is not None and kind != self._options.kind:
                raise ConfigError(
                    f"{survey.location.shown} is of kind {kind}, not {self._options.kind}",
                    hint="leave the kind out: it is found out",
                )
        if selection.start and self.first_ts and selection.start < self.first_ts:
            first, start = (f"{ts} ({time_text.utc(ts)})" for ts in (self.first_ts, selection.start))
            raise BinlogsLost(
                f"{survey.location.shown} begins at {first}, after the start {start}",
                position=selection.start,
                lowest=self.first_ts,
                hint=f"begin there, or with {_OLDEST!r} for what there is",
            )
        if selection.tables:
            check_tables(
                survey.location.shown,
                table_names(survey, self._definitions),
                selection,
                lambda alone: ddl_names(survey, self._definitions, alone),
            )


def _patterns(tables: str | Iterable[str]) -> str:
    return tables if isinstance(tables, str) else ",".join(tables)


def _text(bound: Bound) -> str:
    """A bound as options have it."""
    if bound is None or bound == _OLDEST:
        return ""
    if isinstance(bound, datetime):
        if bound.tzinfo is None:
            raise ConfigError(f"{bound} has no time zone", hint="datetime(..., tzinfo=timezone.utc)")
        first = bound.astimezone(UTC)
        moment = first - timedelta(microseconds=first.microsecond % 1000)
        return f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03d}"
    return str(bound)


# Frames: changes of an archive as pandas and polars have them, and asked by SQL.
# Holds  what a query names is taken into DuckDB once, so that it may be named twice. What cannot be read of
#        the archive is told as by every other reader, not in an error of DuckDB's
# Needs  the extra of its name: pandas, polars, duckdb

CHANGES: Final = "changes"


def library(name: str) -> Any:
    """A package. Raises `ConfigError` that says how to get it."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{error.name} is not installed", hint=f"pip install 'tidb-binlog[{name}]'"
        ) from None


def pandas_frame(reader: pa.RecordBatchReader) -> pd.DataFrame:
    """A column of each column of an image ("after.id"). By Arrow's types integers beside nulls stay exact."""
    pandas = library("pandas")
    frame: pd.DataFrame = reader.read_all().flatten().to_pandas(types_mapper=pandas.ArrowDtype)
    return frame


def polars_frame(reader: pa.RecordBatchReader) -> pl.DataFrame:
    """Images are structs."""
    frame: pl.DataFrame = library("polars").from_arrow(reader.read_all())
    return frame


def answer_of(text: str, changes: Callable[[str], pa.RecordBatchReader]) -> duckdb.DuckDBPyRelation:
    """What DuckDB answers. `changes` reads those of a table, or of all ("")."""
    engine = library("duckdb")
    connection: duckdb.DuckDBPyConnection = engine.connect()
    try:
        named = {
            (schema.lower(), table.lower()): (schema, table) for schema, table in _tables(connection, text)
        }
        for schema, table in named.values():
            source, target = changes(f"{schema}.{table}" if schema else ""), _quoted(table)
            if schema:
                connection.execute(f"CREATE SCHEMA IF NOT EXISTS {_quoted(schema)}")
                target = f"{_quoted(schema)}.{target}"
            connection.register("batch", source.schema.empty_table())
            connection.execute(f"CREATE TABLE {target} AS SELECT * FROM batch")
            for batch in source:
                connection.register("batch", batch)
                connection.execute(f"INSERT INTO {target} SELECT * FROM batch")
            connection.unregister("batch")
        return connection.sql(text)
    except engine.Error as error:
        hint = f"name tables as database.table, or those of all as {CHANGES}"
        raise ConfigError(f"the query cannot be answered: {error}", hint=hint) from None


def _tables(connection: duckdb.DuckDBPyConnection, text: str) -> Iterator[tuple[str, str]]:
    """Schema and name of each table that a SELECT names, by DuckDB's own parser; "" and `changes`."""
    ((parsed,),) = connection.execute("SELECT json_serialize_sql(?)", [text]).fetchall()
    waiting: list[Any] = [json.loads(parsed)]
    if waiting[0].get("error"):
        raise ConfigError(
            f"the query cannot be answered: {waiting[0]['error_message']}", hint="write a SELECT"
        )
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += node
        elif isinstance(node, dict):
            waiting += node.values()
            if node.get("type") == "BASE_TABLE":
                catalog, schema, table = (node[f"{part}_name"] for part in ("catalog", "schema", "table"))
                if not catalog and (schema or table.lower() == CHANGES):
                    yield schema, table


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


# Row items: the records of an archive as transactions and DDL that programs see.
# Holds  a transaction of more than `LARGE_ROWS` rows is read piece by piece while its rows are iterated:
#        once, and before the next item is asked for. What of it is not iterated is passed over
# Never  gives a row that cannot be right: `Corruption` names the file and the offset

LARGE_ROWS: Final = 10_000
Item = Transaction | Ddl
PathOf = Callable[[str], str]


class ImageRows:
    """Rows of any table version from complete images, which have the form of a DELETE."""

    def __init__(self) -> None:
        self._plans: dict[TableVersion, RowPlan] = {}

    def rows(self, images: Iterable[records.Row]) -> Iterator[Row]:
        """Raises `RowError`."""
        plans = self._plans
        for version, kind, before, after in images:
            plan = plans.get(version) or self._made(version)
            read = plan.read[DELETE]
            if kind == INSERT:
                assert after is not None
                yield Row(plan.table, "insert", None, read(after).before)
            elif kind == DELETE:
                assert before is not None
                yield read(before)
            else:
                assert before is not None
                assert after is not None
                yield Row(plan.table, "update", read(before).before, read(after).before)

    def _made(self, version: TableVersion) -> RowPlan:
        if len(self._plans) >= PLANS_MAX:
            self._plans.clear()
        plan = self._plans[version] = RowPlan(version)
        return plan


class RowItems:
    """`path_of` says how a file is called in messages."""

    def __init__(self, records: Iterable[Record], path_of: PathOf) -> None:
        self._records = iter(records)
        self._path_of = path_of
        self._images = ImageRows()
        self._schema = RowReader()
        self._waiting: Record | None = None

    def __iter__(self) -> Iterator[Item]:
        while (record := self._next()) is not None:
            if isinstance(record, SchemaChange):
                if not record.ddl.skip:
                    yield self._schema.ddl(record.ddl)
                continue
            yield from self._transaction(record)

    def _next(self) -> Record | None:
        record, self._waiting = self._waiting, None
        return next(self._records, None) if record is None else record

    def _transaction(self, first: Changes) -> Iterator[Transaction]:
        """Pieces of one transaction follow each other; the last one may have been left out by a filter."""
        pieces, count = [first], len(first.rows)
        while count <= LARGE_ROWS and (more := self._more(first)) is not None:
            pieces.append(more)
            count += len(more.rows)
        if count <= LARGE_ROWS:
            rows = [row for piece in pieces for row in self._rows(piece)]
            yield Transaction(first.commit_ts, first.start_ts, rows)
            return
        large = LargeRows(first.commit_ts, self._large(first, pieces))
        yield Transaction(first.commit_ts, first.start_ts, large, large=True)
        large.pass_over()
        while self._more(first) is not None:
            pass

    def _large(self, first: Changes, pieces: list[Changes]) -> Iterator[Row]:
        pieces.reverse()
        while pieces:
            yield from self._rows(pieces.pop())
        while (more := self._more(first)) is not None:
            yield from self._rows(more)

    def _more(self, first: Changes) -> Changes | None:
        """The next piece of the same transaction."""
        record = self._next()
        if isinstance(record, Changes) and record.commit_ts == first.commit_ts:
            return record
        self._waiting = record
        return None

    def _rows(self, piece: Changes) -> Iterator[Row]:
        try:
            yield from self._images.rows(piece.rows)
        except RowError as error:
            path = self._path_of(piece.file)
            raise Corruption(f"{path}: offset {piece.pos}: {error.message}", hint=error.hint) from None

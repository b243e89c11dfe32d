"""Tracker: which table an id means, at the place of the stream where the translator is.

In     finished DDL jobs, in the order of their binlogs (`apply`); before that the history, or the schema at
       a timestamp and what the history has since
Out    TableVersion by table id; the names that a job touched
Holds  a job is applied once, whatever brings it; jobs that were rolled back change nothing
Why    the history at start ends later than the stream begins. What lies at or below the starting position
       is applied at once. The rest is pending until its binlog comes; a pending job whose binlog cannot
       come any more (it finished before the binlog at hand, or a row was written under its schema version)
       is applied then. So a position between a job's commit and its entry in the history, purged pumps and
       jobs without a binlog (ALTER TABLE ... CACHE) lose nothing.
Never  raises for an action that it does not know: with a table definition the table is updated, without
       one nothing is tracked
Tests  tests/drainer/changes/test_ddl_effect.py, tests/drainer/stream/schema/test_history_reader.py
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, Final

from drainer.changes import ddl_effect
from drainer.changes.ddl_effect import DdlEffect, EffectKind, Name, Names, effect_kind
from drainer.mysql.sql_tokens import RenamePair, rename_pairs
from drainer.stream.schema.catalog import TABLE_ID_MAX, Catalog, Row, name_in
from drainer.stream.schema.history_reader import JOBS_REMEMBERED, PendingJob, SchemaReading, Until, put_page
from drainer.txn import TableVersion, Tracked
from tidb_binlog.ddl_job import ActionType, DdlJob
from tidb_binlog.errors import Corruption
from tidb_binlog.tso import TS_MAX, Ts
from tidb_binlog.upstream_port import SchemaAt, SchemaPage

SYSTEM_SCHEMAS: Final = frozenset(
    {"mysql", "information_schema", "performance_schema", "metrics_schema", "inspection_schema", "sys"}
)
_JOBS_KEY: Final = "jobs/applied"


def is_system_schema(name: str) -> bool:
    """Says whether a database is a server's own, which never replicates."""
    return name.lower() in SYSTEM_SCHEMAS


class UnknownTable(Corruption):
    """Rows of a table that no DDL up to here has made."""


class SchemaTracker:
    """Databases and tables by id, at one place of the stream.

    `version` is the highest schema version applied; `generation` grows whenever a table may have changed.
    """

    def __init__(self) -> None:
        self.version = 0
        self.generation = 0
        self._catalog = Catalog()
        self._applied: dict[int, DdlEffect | None] = {}  # the last ones, oldest first
        self._jobs_changed = False
        self._pending: dict[int, PendingJob] = {}
        self._history_read = 0
        self._pending_finished_ts = TS_MAX
        self._pending_version = TS_MAX

    @classmethod
    def from_history(
        cls, jobs: Iterable[bytes | DdlJob], *, schema_version: int | None = None, finished_ts: Ts = 0
    ) -> SchemaTracker:
        """The schema at a position: jobs up to `schema_version`, or without one finished by `finished_ts`.

        Later jobs become pending. Raises `Corruption` for a job that cannot be read.
        """
        tracker = cls()
        tracker.expect(jobs, schema_version=schema_version, finished_ts=finished_ts)
        return tracker

    def expect(
        self, jobs: Iterable[bytes | DdlJob], *, schema_version: int | None = None, finished_ts: Ts = 0
    ) -> None:
        """Apply jobs of the history up to a position, as `from_history`; later ones become pending.

        On a restored tracker, with its own version, this makes known what happened since.
        """
        reading = self.read_history(Until(schema_version, finished_ts))
        reading.take(jobs)
        self.end_history(reading)

    def read_history(self, until: Until) -> SchemaReading:
        """As `expect`, in pages: for `take`, then `end_history`."""
        version = self.version
        return SchemaReading(
            self._catalog, self.apply, until, known_version=version, known_ids=self._applied, bulk=not version
        )

    def take_schema(self, page: SchemaPage, version: int) -> None:
        """A part of the schema at a timestamp, into an empty tracker. Raises `Corruption`."""
        put_page(self._catalog, page, version)

    def read_since(self, schema: SchemaAt) -> SchemaReading:
        """After `take_schema`: the history above `schema.history_after`, for `take`, then `end_history`."""
        self.version = schema.version
        self._history_read = schema.history_after
        until = Until(schema.version, but=schema.unfinished)
        return SchemaReading(self._catalog, self.apply, until, only_note=True)

    def end_history(self, reading: SchemaReading) -> None:
        """All pages are taken."""
        reading.end()
        self.version = max(self.version, reading.version)
        self.generation += reading.settled > 0
        self._applied = {job_id: self._applied.get(job_id) for job_id in reading.last_ids}
        self._pending.update((job.id, job) for job in reading.pending)
        self._note_pending()

    # -- questions ------------------------------------------------------------------------------------

    def table_for(self, table_id: int, schema_version: int) -> TableVersion:
        """The table as its rows are to be read; `schema_version` is the rows'.

        Raises `UnknownTable` for an id that nothing made, or that was dropped.
        """
        table = self._catalog.tables.get(table_id)
        if table is None and self._pending:
            self._apply_pending(lambda job: job.schema_version <= schema_version)
            table = self._catalog.tables.get(table_id)
        if table is None:
            raise self._unknown(table_id)
        return table.for_rows_of(schema_version)

    def is_truncated(self, table_id: int) -> bool:
        """Whether the id belonged to a table that was truncated: its late rows are to be dropped."""
        return table_id in self._catalog.truncated

    def table_named(self, schema: str, name: str) -> TableVersion | None:
        """The newest definition of a table by name, without regard to case."""
        table = self._catalog.table_named(schema, name)
        return None if table is None else table.current.table()

    def tracked(self, name: tuple[str, str]) -> Tracked | None:
        """The same as the upstream writes it."""
        table = self._catalog.table_named(*name)
        return None if table is None else table.current.tracked()

    def names(self) -> list[tuple[str, str]]:
        """(schema, name) of every table."""
        return [table.key for table in list(self._catalog.tables.values())]

    def names_to_come(self) -> list[Name]:
        """(schema, name) of tables that pending jobs make or change: they exist later in the stream."""
        names: list[Name] = []
        databases: dict[int, str] = {}
        for pending in self._pending.values():
            job = pending.read()
            if job.db_info is not None:
                databases[job.schema_id] = name_in(job.db_info, "db_name")
            home = databases.get(job.schema_id) or self._home(job)
            documents = job.table_infos or ((job.table_info,) if job.table_info is not None else ())
            names += [(home, name_in(document)) for document in documents]
        return names

    def database_collation(self, schema: str) -> tuple[str, str] | None:
        """(charset, collation) of a database; None for one that does not exist or does not say."""
        database = self._catalog.database_named(schema)
        return (database[1].charset, database[1].collate) if database and database[1].charset else None

    def _unknown(self, table_id: int) -> UnknownTable:
        version = self._catalog.dropped.get(table_id)
        if version is not None:
            return UnknownTable(f"table id {table_id} was dropped at schema version {version}")
        return UnknownTable(f"table id {table_id} is not known at schema version {self.version}")

    @property
    def last_job_id(self) -> int:
        """Highest id of a job that was applied; 0 if none was."""
        return max(self._applied, default=self._history_read)

    # -- a stored copy ----------------------------------------------------------------------------------

    def dump(self) -> list[Row]:
        """Everything known at this place as rows for `restore`; pending jobs are not part of it."""
        self._catalog.changed.clear()
        return [*self._catalog.rows(), self._jobs_row()]

    def changed_since_last_dump(self) -> list[Row]:
        """Rows to put over those of the last `dump` or call of this; a value of None: the row is gone."""
        if not self._catalog.changed and not self._jobs_changed:
            return []
        rows = self._catalog.rows(sorted(self._catalog.changed))
        self._catalog.changed.clear()
        return [*rows, self._jobs_row()]

    @classmethod
    def restore(cls, rows: Iterable[Row], version: int) -> SchemaTracker:
        """The tracker that `dump` (and what changed since, in order) described, at its schema version.

        Raises `Corruption` for a row that cannot be read.
        """
        tracker = cls()
        tracker._catalog.databases.clear()
        for row in rows:
            if row.get("key") == _JOBS_KEY:
                tracker._applied = dict.fromkeys(row["value"])
            else:
                tracker._catalog.load(row)
        tracker.version = version
        return tracker

    def _jobs_row(self) -> Row:
        self._jobs_changed = False
        return {"key": _JOBS_KEY, "value": list(self._applied)}

    # -- jobs -----------------------------------------------------------------------------------------

    def catch_up(self, commit_ts: Ts, schema_version: int) -> None:
        """Apply pending jobs whose binlogs cannot come any more at this place of the stream.

        A job finishes after its binlog's commit_ts. Rows have a job's schema version only after the job's
        binlog is committed, except with multi-schema changes, which reach their last version earlier.
        """
        if commit_ts > self._pending_finished_ts or schema_version >= self._pending_version:
            self._apply_pending(
                lambda job: (
                    0 < job.finished_ts < commit_ts
                    or (job.schema_version <= schema_version and job.action != ActionType.MULTI_SCHEMA_CHANGE)
                )
            )

    def apply(self, job: DdlJob) -> DdlEffect:
        """Change the schema as the job did; the names it touched. Again, or rolled back: names only."""
        if self._pending.pop(job.id, None) is not None:
            self._note_pending()
        if job.id in self._applied or not job.took_effect:
            return self._applied.get(job.id) or self._touched(job)
        self._catalog.watch()
        change = _HANDLERS[effect_kind(job.action)](self, job)
        before, after = self._catalog.seen()
        change = dataclasses.replace(change, before=before, after=after)
        self._applied[job.id] = change
        self._jobs_changed = True
        if len(self._applied) > JOBS_REMEMBERED:
            del self._applied[next(iter(self._applied))]
        self.version = max(self.version, job.schema_version)
        self.generation += 1
        return change

    def _apply_pending(self, may: Callable[[PendingJob], bool]) -> None:
        for job in list(self._pending.values()):
            if not may(job):
                return
            self.apply(job.read())

    def _note_pending(self) -> None:
        head = next(iter(self._pending.values()), None)
        self._pending_finished_ts = self._pending_version = TS_MAX
        if head is not None:
            self._pending_finished_ts = head.finished_ts or TS_MAX
            if head.action != ActionType.MULTI_SCHEMA_CHANGE:
                self._pending_version = head.schema_version

    def _home(self, job: DdlJob, schema_id: int | None = None) -> str:
        """Name of the job's database, or of another one."""
        database = self._catalog.databases.get(job.schema_id if schema_id is None else schema_id)
        return job.schema_name if database is None else database.name

    def _touched(self, job: DdlJob) -> DdlEffect:
        """Names of a job that changes nothing (any more)."""
        if job.db_info is not None:
            name = name_in(job.db_info, "db_name")
            return _about(
                job, name if effect_kind(job.action) is EffectKind.ALTER_DATABASE else "", ((name, ""),)
            )
        documents = job.table_infos or ((job.table_info,) if job.table_info is not None else ())
        if not documents:
            return _about(job)
        schema = self._home(job)
        return _about(
            job, schema, tuple(dict.fromkeys((schema, name_in(document)) for document in documents))
        )

    # -- one method a kind of effect -------------------------------------------------------------------------

    def _create_schema(self, job: DdlJob) -> DdlEffect:
        name = self._catalog.put_database(ddl_effect.required(job.db_info, job))
        return _about(job, "", ((name, ""),))

    def _modify_schema(self, job: DdlJob) -> DdlEffect:
        name = self._catalog.put_database(ddl_effect.required(job.db_info, job))
        return _about(job, name, ((name, ""),))

    def _drop_schema(self, job: DdlJob) -> DdlEffect:
        inside = tuple(
            (*table.key, ddl_effect.object_of(table.current.document))
            for table in self._catalog.tables.values()
            if table.schema_id == job.schema_id
        )
        name = self._catalog.drop_database(job.schema_id, job.schema_version) or job.schema_name
        return _about(job, "", ((name, ""),), inside=inside)

    def _recover_schema(self, job: DdlJob) -> DdlEffect:
        document = ddl_effect.required(job.db_info, job)
        name = self._catalog.put_database(document)
        arguments = job.raw_args[0] if isinstance(job.raw_args, list) and job.raw_args else None
        recovered = arguments.get("RecoverTabsInfo") if isinstance(arguments, dict) else None
        for table in recovered or ():
            self._catalog.put(table["TableInfo"], int(document["id"]), name, job.schema_version)
        return _about(job, "", ((name, ""),))

    def _create_table(self, job: DdlJob) -> DdlEffect:
        document = ddl_effect.required(job.table_info, job)
        schema, name = self._home(job), name_in(document)
        replaced = self._catalog.table_named(schema, name)
        if replaced is not None and replaced.id != document["id"]:  # CREATE OR REPLACE VIEW
            self._catalog.remove(replaced.id, job.schema_version)
        self._put(document, job.schema_id, schema, job)
        return _about(job, schema, ((schema, name),))

    def _create_tables(self, job: DdlJob) -> DdlEffect:
        schema = self._home(job)
        documents = job.table_infos or (ddl_effect.required(job.table_info, job),)
        for document in documents:
            self._put(document, job.schema_id, schema, job)
        return _about(job, schema, tuple((schema, name_in(document)) for document in documents))

    def _drop_table(self, job: DdlJob) -> DdlEffect:
        removed = self._catalog.remove(job.table_id, job.schema_version)
        if removed is not None:
            key = removed.key
        else:
            key = self._home(job), name_in(job.table_info) if job.table_info else job.table_name
        return _about(job, key[0], (key,))

    def _truncate(self, job: DdlJob) -> DdlEffect:
        document = ddl_effect.required(job.table_info, job)
        old = self._catalog.remove(job.table_id, job.schema_version, truncated=True)
        schema = old.current.schema if old else self._home(job)
        self._put(document, job.schema_id, schema, job)
        return _about(job, schema, ((schema, name_in(document)),))

    def _rename(self, job: DdlJob) -> DdlEffect:
        documents = job.table_infos or (ddl_effect.required(job.table_info, job),)
        pairs = rename_pairs(job.query)
        if len(pairs) != len(documents):
            pairs = (RenamePair("", "", "", ""),) * len(documents)
        names: list[tuple[str, str]] = []
        renames: list[tuple[tuple[str, str], tuple[str, str]]] = []
        session = ""
        homes = self._rename_targets(job, documents, pairs)
        for document, pair, (schema_id, schema) in zip(documents, pairs, homes, strict=True):
            table = self._catalog.tables.get(int(document["id"]))
            if table is not None:
                names.append(table.key)
                renames.append((table.key, (schema, name_in(document))))
                if not session and not pair.old_schema:
                    session = table.current.schema
            if not session and not pair.new_schema:
                session = schema
            names.append((schema, name_in(document)))
            self._catalog.put(document, schema_id, schema, job.schema_version)
        return _about(job, session or names[0][0], _unique(names), renamed=tuple(renames))

    def _rename_targets(
        self, job: DdlJob, documents: tuple[dict[str, Any], ...], pairs: tuple[RenamePair, ...]
    ) -> list[tuple[int, str]]:
        """(id, name) of the database that each table of a rename goes to."""
        if len(documents) == 1:
            return [(job.schema_id, self._home(job))]
        arguments = job.raw_args
        ids = arguments[1] if isinstance(arguments, list) and len(arguments) > 1 else None
        if isinstance(ids, list) and len(ids) == len(documents):
            return [(int(schema_id), self._home(job, int(schema_id))) for schema_id in ids]
        # The job leaves it out: take it from the statement. A name without a database belongs to the
        # session's, which is where the first table with an unqualified old name was.
        session_id = job.schema_id
        moved: set[int] = set()
        for document, pair in zip(documents, pairs, strict=True):
            table = self._catalog.tables.get(int(document["id"]))
            if table is not None and not pair.old_schema and table.id not in moved:
                session_id = table.schema_id
                break
            moved.add(int(document["id"]))
        targets = []
        for pair in pairs:
            database = self._catalog.database_named(pair.new_schema) if pair.new_schema else None
            schema_id = database[0] if database else session_id
            targets.append((schema_id, self._home(job, schema_id)))
        return targets

    def _exchange_partition(self, job: DdlJob) -> DdlEffect:
        """The plain table and a partition swap ids; rows of partitions carry the partitioned table's id."""
        document = ddl_effect.required(job.table_info, job)
        partitioned = self._catalog.tables.get(int(document["id"]))
        if partitioned is None:
            return self._update(job)
        plain = self._catalog.tables.get(job.table_id)
        gone = ddl_effect.partition_ids(partitioned.current.document) - ddl_effect.partition_ids(document)
        schema = partitioned.current.schema
        self._catalog.put(document, partitioned.schema_id, schema, job.schema_version)
        names = [partitioned.key]
        if plain is not None:
            names.append(plain.key)
            if len(gone) == 1:
                self._catalog.move(plain, gone.pop(), job.schema_version)
        return _about(job, schema, _unique(names))

    def _update(self, job: DdlJob) -> DdlEffect:
        """Everything that replaces one table's definition, and actions of the future."""
        document = job.table_info
        if document is None:
            return _about(job) if job.db_info is None else self._modify_schema(job)
        table = self._catalog.tables.get(job.table_id) or self._catalog.tables.get(int(document["id"]))
        schema = table.current.schema if table else self._home(job)
        if table is not None and table.id != document["id"]:  # PARTITION BY, REMOVE PARTITIONING
            self._catalog.move(table, int(document["id"]), job.schema_version)
        self._put(document, table.schema_id if table else job.schema_id, schema, job)
        return _about(job, schema, ((schema, name_in(document)),))

    def _put(self, document: dict[str, Any], schema_id: int, schema: str, job: DdlJob) -> None:
        if int(document["id"]) <= TABLE_ID_MAX:
            self._catalog.put(document, schema_id, schema, job.schema_version)


def _unique(names: list[tuple[str, str]]) -> Names:
    return tuple(dict.fromkeys(names))


def _about(
    job: DdlJob,
    schema: str = "",
    tables: Names = (),
    *,
    renamed: tuple[tuple[Name, Name], ...] = (),
    inside: tuple[tuple[str, str, str], ...] = (),
) -> DdlEffect:
    effect = ddl_effect.effect(job.action, ddl_effect.sub_actions(job.document))
    return dataclasses.replace(effect, schema=schema, tables=tables, renamed=renamed, inside=inside)


_HANDLERS: Final[dict[EffectKind, Callable[[SchemaTracker, DdlJob], DdlEffect]]] = {
    EffectKind.CREATE_DATABASE: SchemaTracker._create_schema,
    EffectKind.ALTER_DATABASE: SchemaTracker._modify_schema,
    EffectKind.DROP_DATABASE: SchemaTracker._drop_schema,
    EffectKind.RECOVER_DATABASE: SchemaTracker._recover_schema,
    EffectKind.CREATE: SchemaTracker._create_table,
    EffectKind.RESTORE: SchemaTracker._create_tables,
    EffectKind.RECOVER: SchemaTracker._create_table,
    EffectKind.DROP: SchemaTracker._drop_table,
    EffectKind.TRUNCATE: SchemaTracker._truncate,
    EffectKind.RENAME: SchemaTracker._rename,
    EffectKind.EXCHANGE: SchemaTracker._exchange_partition,
    EffectKind.REWIND: SchemaTracker._update,
    EffectKind.ALTER: SchemaTracker._update,
}

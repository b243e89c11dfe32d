"""Schema reading: the DDL history, page by page, into the catalog of a tracker.

In     pages of jobs by ascending id; up to where they are to be applied
Out    the catalog as it was there; later jobs, unread, for the tracker to wait for
Why    a history is long and most of it is about tables that are gone. Of a job's text only the head is read,
       and the definition is copied as text; what few actions need more are read as a whole
Holds  two windows of jobs. Ids are given when a job begins and schema versions when it ends, and the versions
       decide: a window is put into their order. A job that is later than even a window can mend changes its
       table only if nothing newer is known of that
Never  parses a definition that nobody asks for
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from common.errors import Corruption
from common.upstream import SchemaPage
from drainer import ddl_job
from drainer.catalog import TABLE_ID_MAX, Catalog, id_and_name, name_in
from drainer.ddl_job import DdlJob, JobHead

WINDOW: Final = 2048
JOBS_REMEMBERED: Final = 512

_DROPS: Final = frozenset({ddl_job.DROP_TABLE, ddl_job.DROP_VIEW, ddl_job.DROP_SEQUENCE})
_CREATES: Final = frozenset(
    {ddl_job.CREATE_TABLE, ddl_job.CREATE_VIEW, ddl_job.CREATE_SEQUENCE, ddl_job.RECOVER_TABLE}
)
_READ_WHOLE: Final = frozenset(
    {
        ddl_job.CREATE_SCHEMA,
        ddl_job.DROP_SCHEMA,
        ddl_job.MODIFY_SCHEMA_CHARSET,
        ddl_job.MODIFY_SCHEMA_PLACEMENT,
        ddl_job.RECOVER_SCHEMA,
        ddl_job.CREATE_TABLES,
        ddl_job.RENAME_TABLES,
        ddl_job.EXCHANGE_PARTITION,
    }
)
"""Actions on more than one table."""


@dataclass(frozen=True, slots=True)
class Until:
    """A position: jobs up to `schema_version`, or without one finished by `finished_ts`; none of `but`."""

    schema_version: int | None
    finished_ts: int = 0
    but: frozenset[int] = frozenset()

    def has(self, job_id: int, version: int, finished_ts: int) -> bool:
        if job_id in self.but:
            return False
        if self.schema_version is not None:
            return version <= self.schema_version
        return 0 < finished_ts <= self.finished_ts


class PendingJob(NamedTuple):
    """A job that is to come, not read yet."""

    id: int
    action: int
    schema_version: int
    finished_ts: int
    source: bytes | DdlJob

    def read(self) -> DdlJob:
        return self.source if isinstance(self.source, DdlJob) else ddl_job.parse(self.source)


Job = DdlJob | JobHead


class SchemaReading:
    """One walk through the history. `take` every page, then `end`; `pending` and `last_ids` are good then.

    `apply` is for jobs that are read as a whole. `known_version`: older jobs are in the catalog already, as
    are those of `known_ids`. `bulk`: the catalog was empty, so nothing that is read has to be noted as a
    change. `only_note`: the catalog is of the position, of jobs up to there only what they removed is noted.
    """

    def __init__(
        self,
        catalog: Catalog,
        apply: Callable[[DdlJob], object],
        until: Until,
        *,
        known_version: int = 0,
        known_ids: Iterable[int] = (),
        bulk: bool = False,
        only_note: bool = False,
    ) -> None:
        self.version = known_version
        self.jobs = 0  # seen
        self.settled = 0  # of them at or below the position
        self.last_ids: deque[int] = deque(known_ids, JOBS_REMEMBERED)
        self.pending: list[PendingJob] = []
        self._catalog = catalog
        self._apply = apply
        self._until = until
        self._known_version = known_version
        self._known_ids = frozenset(known_ids)
        self._settle_one = self._note if only_note else self._fold if bulk else self._apply_whole
        self._waiting: list[tuple[int, int, Job, bytes | DdlJob]] = []

    def take(self, page: Iterable[bytes | DdlJob]) -> None:
        """The next page. Raises `Corruption` for a job that cannot be read."""
        waiting, has = self._waiting, self._until.has
        for source in page:
            self.jobs += 1
            job = source if isinstance(source, DdlJob) else ddl_job.head(source) or ddl_job.parse(source)
            if not job.took_effect or job.id in self._known_ids:
                continue
            version, finished_ts = job.schema_version, job.finished_ts
            if not has(job.id, version, finished_ts):
                self.pending.append(PendingJob(job.id, job.action, version, finished_ts, source))
            elif version > self._known_version:
                waiting.append((version, job.id, job, source))
        if len(waiting) >= 2 * WINDOW:
            self._settle(len(waiting) - WINDOW)

    def end(self) -> None:
        """There are no more."""
        self._settle(len(self._waiting))
        self._catalog.trim()
        self.pending.sort(key=lambda job: (job.schema_version, job.id))

    def _settle(self, count: int) -> None:
        waiting, settle, last_ids = self._waiting, self._settle_one, self.last_ids
        waiting.sort()
        for version, job_id, job, source in waiting[:count]:
            settle(version, job, source)
            last_ids.append(job_id)
            if version > self.version:
                self.version = version
        del waiting[:count]
        self.settled += count

    def _apply_whole(self, version: int, job: Job, source: bytes | DdlJob) -> None:
        self._apply(source if isinstance(source, DdlJob) else ddl_job.parse(source))

    def _fold(self, version: int, job: Job, source: bytes | DdlJob) -> None:
        if not isinstance(job, JobHead) or not self._fold_head(version, job):
            self._apply_whole(version, job, source)

    def _fold_head(self, version: int, job: JobHead) -> bool:
        """False: it takes more than the head."""
        catalog, action, table_id = self._catalog, job.action, job.table_id
        if action in _DROPS:
            catalog.drop(table_id, version)
            return True
        if action in _READ_WHOLE:
            return False
        text = job.definition
        named = id_and_name(text)
        if named is None:
            return False
        number, name = named
        known = catalog.tables.get(table_id)
        if action == ddl_job.TRUNCATE_TABLE or action in _CREATES or action == ddl_job.RENAME_TABLE:
            schema_id = job.schema_id
        elif known is None or number != table_id:
            return False
        else:
            schema_id = known.schema_id
        database = catalog.databases.get(schema_id)
        if database is None:
            return False
        if action == ddl_job.TRUNCATE_TABLE:
            catalog.drop(table_id, version, truncated=True)
        elif action in _CREATES:
            replaced = catalog.table_named(database.name, name)
            if replaced is not None and replaced.id != number:
                catalog.drop(replaced.id, version)
        if number <= TABLE_ID_MAX:
            catalog.put_text(text, number, name, schema_id, version)
        return True

    def _note(self, version: int, job: Job, source: bytes | DdlJob) -> None:
        """The catalog is behind the job: of what it removed, late rows may come."""
        if job.table_id and job.table_id not in self._catalog.tables:
            truncated = job.action == ddl_job.TRUNCATE_TABLE
            self._catalog.gone(job.table_id, version, truncated=truncated)


def put_page(catalog: Catalog, page: SchemaPage, version: int) -> None:
    """Take over a part of the schema at a moment. Raises `Corruption`."""
    for text in page.databases:
        catalog.put_database(ddl_job.decode(text))
    for schema_id, text in page.tables:
        named = id_and_name(text)
        if named is None:
            document = ddl_job.decode(text)
            named = int(document["id"]), name_in(document)
        if named[0] > TABLE_ID_MAX:
            continue
        if schema_id not in catalog.databases:
            raise Corruption(f"table {named[0]} is in database {schema_id}, which is not there")
        catalog.put_text(text, *named, schema_id, version)

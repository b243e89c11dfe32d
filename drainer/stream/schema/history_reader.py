"""History reader: the DDL history, page by page, into the catalog of a tracker.

In     pages of jobs by ascending id; up to where they are to be applied
Out    the catalog as it was there; later jobs, unread, for the tracker to wait for
Why    a history is long and most of it is about tables that are gone. Of a job's text only the head is read,
       of a table's definitions only the newest is kept, as text; the few actions that are about more are read
       as a whole
Holds  two windows of jobs. Ids are given when a job begins and schema versions when it ends, and the versions
       decide: a window is put into their order. A job that is later than even a window can mend changes its
       table only if nothing newer is known of that
Never  parses a definition that is not asked for
Tests  tests/drainer/changes/test_ddl_effect.py
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from drainer.changes.ddl_effect import EffectKind, effect_kind
from drainer.stream.schema.catalog import TABLE_ID_MAX, Catalog, has_defaults, id_and_name
from tidb_binlog import ddl_job
from tidb_binlog.ddl_job import ActionType, DdlJob, JobHead
from tidb_binlog.errors import Corruption
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.tso import Ts
from tidb_binlog.upstream_port import SchemaPage

WINDOW: Final = 2048
JOBS_REMEMBERED: Final = 512

FRESH_MAX: Final = 8192
Job = DdlJob | JobHead

_DROPS: Final = frozenset(action for action in ActionType if effect_kind(action) is EffectKind.DROP)
_ONE_TABLE: Final = (EffectKind.CREATE, EffectKind.RECOVER, EffectKind.RENAME, EffectKind.TRUNCATE)
_PLACES: Final = frozenset(action for action in ActionType if effect_kind(action) in _ONE_TABLE) - {
    ActionType.CREATE_VIEW,  # it may replace another one
    ActionType.RENAME_TABLES,
}
"""Actions that say which database their table is in."""
_UPDATES: Final = frozenset(action for action in ActionType if effect_kind(action) is EffectKind.ALTER) - {
    ActionType.LOCK_TABLE,  # several tables
    ActionType.UNLOCK_TABLE,
    ActionType.ALTER_TABLE_PARTITIONING,  # another id
    ActionType.REMOVE_PARTITIONING,
}
"""Actions that replace the definition of one table under its id."""
_SHORTEST: Final = 64
"""Bytes; a definition has more, `null` has less."""


@dataclass(frozen=True, slots=True)
class Until:
    """A position: jobs up to `schema_version`, or without one finished by `finished_ts`; none of `but`."""

    schema_version: int | None
    finished_ts: Ts = 0
    but: frozenset[int] = frozenset()


class PendingJob(NamedTuple):
    """A job that is to come, not read yet."""

    id: int
    action: int
    schema_version: int
    finished_ts: Ts
    source: bytes | DdlJob

    def read(self) -> DdlJob:
        """Parses the job, unless it is parsed."""
        return self.source if isinstance(self.source, DdlJob) else ddl_job.parse(self.source)


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
        self.jobs = 0  # that had an effect
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
        self._fresh: dict[int, tuple[int, int, bytes]] = {}

    def take(self, page: Iterable[bytes | DdlJob]) -> None:
        """The next page. Raises `Corruption` for a job that cannot be read."""
        waiting, head, until = self._waiting, ddl_job.head, self._until
        last_version, last_ts, but = until.schema_version, until.finished_ts, until.but
        known_version, known_ids = self._known_version, self._known_ids
        for source in page:
            job = (head(source) or ddl_job.parse(source)) if isinstance(source, bytes) else source
            version = job.effective_version
            if not version or job.id in known_ids:
                continue
            self.jobs += 1
            reached = version <= last_version if last_version is not None else 0 < job.finished_ts <= last_ts
            if not reached or job.id in but:
                self.pending.append(PendingJob(job.id, job.action, version, job.finished_ts, source))
            elif version > known_version:
                waiting.append((version, job.id, job, source))
        if len(waiting) >= 2 * WINDOW:
            self._settle(len(waiting) - WINDOW)

    def end(self) -> None:
        """There are no more."""
        self._settle(len(self._waiting))
        self._flush()
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
        if len(self._fresh) > FRESH_MAX:
            self._flush()

    def _apply_whole(self, version: int, job: Job, source: bytes | DdlJob) -> None:
        self._apply(source if isinstance(source, DdlJob) else ddl_job.parse(source))

    def _fold(self, version: int, job: Job, source: bytes | DdlJob) -> None:
        if not isinstance(job, JobHead) or not self._fold_head(version, job):
            self._flush()
            self._apply_whole(version, job, source)

    def _fold_head(self, version: int, job: JobHead) -> bool:
        """False: it takes more than the head."""
        action, table_id = job.action, job.table_id
        if action in _DROPS:
            self._drop(table_id, version)
            return True
        pending = self._fresh.get(table_id)
        if action in _PLACES:
            schema_id = job.schema_id
        elif action not in _UPDATES:
            return False
        elif pending is not None:
            schema_id = pending[1]
        elif (table := self._catalog.tables.get(table_id)) is not None:
            schema_id = table.schema_id
        else:
            return False
        if schema_id not in self._catalog.databases:
            return False  # only the whole job says what it is called
        text = bytes(job.definition)
        if len(text) < _SHORTEST:
            return False
        if action == ActionType.TRUNCATE_TABLE:
            self._drop(table_id, version, truncated=True)
            table_id = id_and_name(text)[0]
        elif pending is not None:
            if pending[0] > version:
                return True
            if has_defaults(pending[2]) or has_defaults(text):
                self._place(table_id, *pending)  # so that every step is seen
        self._fresh[table_id] = version, schema_id, text
        return True

    def _drop(self, table_id: int, version: int, *, truncated: bool = False) -> None:
        pending = self._fresh.get(table_id)
        if pending is not None:
            if pending[0] > version:
                return
            del self._fresh[table_id]
            self._catalog.gone(table_id, version, truncated=truncated)
            if table_id not in self._catalog.tables:
                return
        self._catalog.drop(table_id, version, truncated=truncated)

    def _place(self, table_id: int, version: int, schema_id: int, text: bytes) -> None:
        if table_id <= TABLE_ID_MAX:
            self._catalog.put_text(text, table_id, id_and_name(text)[1], schema_id, version)

    def _flush(self) -> None:
        """Definitions read since the last time go into the catalog: of each table the newest."""
        for table_id, pending in self._fresh.items():
            self._place(table_id, *pending)
        self._fresh.clear()

    def _note(self, version: int, job: Job, source: bytes | DdlJob) -> None:
        """The catalog has the job already: of what it removed, late rows may come."""
        if job.table_id and job.table_id not in self._catalog.tables:
            truncated = job.action == ActionType.TRUNCATE_TABLE
            self._catalog.gone(job.table_id, version, truncated=truncated)


def put_page(catalog: Catalog, page: SchemaPage, version: int) -> None:
    """Take over a part of the schema at a timestamp. Raises `Corruption`."""
    for text in page.databases:
        catalog.put_database(ddl_job.decode(text))
    for schema_id, text in page.tables:
        table_id, name = id_and_name(text)
        if table_id > TABLE_ID_MAX:
            continue
        if schema_id not in catalog.databases:
            raise Corruption(f"table {table_id} is in database {schema_id}, which is not there")
        catalog.put_text(text, table_id, name, schema_id, version)

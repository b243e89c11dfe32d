"""Pump reader: records of a value log, read with the DDL history as a drainer reads them.

In     transactions of a file by commit_ts, definitions with the history
Out    `Changes` and `SchemaChange` in that order
Holds  the schema is followed from the first transaction that is read on; what the history has before it is
       applied at once. System schemas are left out, and DDL that changed nothing
Tests  tests/drainer/reading/archive/decode/test_value_log.py
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

from drainer.reading.archive.decode.definitions import Definitions
from drainer.reading.archive.decode.images import Images
from drainer.reading.archive.decode.records import Changes, Record, RowRun, SchemaChange, changes
from drainer.reading.archive.decode.value_log import Transactions, ValueLog, payload_at
from drainer.reading.archive.files.location import File, Location
from drainer.reading.archive.files.payload import PayloadHead
from drainer.reading.archive.files.segments import Slice
from drainer.reading.archive.files.selection import Selection
from drainer.stream.pull.merged import Merged
from drainer.stream.rules.rule_set import Rules
from drainer.stream.schema.tracker import SchemaTracker
from drainer.stream.translate.translator import Translator
from drainer.txn import Ddl, Transaction
from tidb_binlog import binlog, ddl_job
from tidb_binlog.errors import ConfigError, Corruption
from tidb_binlog.rowcodec.row_error import RowError
from tidb_binlog.table_info import SchemaState
from tidb_binlog.wire import binlog_pb2


def followed(definitions: Definitions, first_ts: int) -> Translator:
    """Follows the schema from the transaction with this commit_ts on."""
    return Translator(SchemaTracker.from_history(definitions.history, finished_ts=first_ts - 1), Rules())


class PumpReader:
    """Of one file of a value log."""

    def __init__(
        self, location: Location, part: Slice, definitions: Definitions, *, skip_damage: bool = False
    ) -> None:
        self._location = location
        self._part = part
        self._definitions = definitions
        self._log = ValueLog(location, part, skip_damage=skip_damage)
        self._images = Images()

    @property
    def path(self) -> str:
        """How the file is called in messages."""
        return self._location.path_of(self._part.name)

    def open(self) -> contextlib.AbstractContextManager[File]:
        """The file."""
        return self._location.open(self._part.name)

    def transactions(self) -> Transactions:
        """Those that began in the file. Raises `Corruption`."""
        return self._log.transactions()

    def records(self, selection: Selection) -> Iterator[Record]:
        """Raises `Corruption`, and `ConfigError` without a DDL history."""
        wanted = [one for one in self.transactions().committed if selection.wants_ts(one[0])]
        if not wanted:
            return
        if not self._definitions.history:
            raise ConfigError(
                f"{self._location.shown} is a value log, which has no definitions of tables",
                hint="give the file with the DDL history (ddl-history): one job of the history a line",
            )
        translator = followed(self._definitions, wanted[0][0])
        with self.open() as file:
            for commit_ts, pos in wanted:
                entry = self.merged(file, commit_ts, pos)
                if entry is None:
                    continue
                try:
                    yield from self.record(translator, entry, pos, selection)
                except (Corruption, RowError) as error:
                    raise Corruption(f"{self.path}: offset {pos}: {error.message}", hint=error.hint) from None

    def merged(self, file: File, commit_ts: int, pos: int) -> Merged | None:
        """A transaction as the collector hands it on; None for the new value of a sequence."""
        payload = payload_at(file, pos)
        message = binlog.parse(payload)
        job = None
        if message.ddl_job_id:
            if message.ddl_query.lstrip().lower().startswith(binlog.SEQUENCE_VALUE):
                return None
            if message.ddl_schema_state != SchemaState.DELETE_ONLY:
                job = self._jobs.get(message.ddl_job_id)
        ended = binlog.commit(message.start_ts, commit_ts)
        return Merged(commit_ts, binlog.join(payload, ended), ddl_job.decode(job) if job else None)

    @functools.cached_property
    def _jobs(self) -> dict[int, bytes]:
        return {(ddl_job.head(job) or ddl_job.parse(job)).id: job for job in self._definitions.history}

    def record(
        self, translator: Translator, entry: Merged, pos: int, selection: Selection
    ) -> Iterator[Record]:
        """What a transaction or a schema change is. Raises `Corruption`, `RowError`."""
        item = translator.translate(entry)
        if isinstance(item, Ddl):
            if not item.skip and selection.wants_ddl(item.tables):
                yield SchemaChange(item, self._part.name, pos)
            return
        begin = Changes(item.commit_ts, item.start_ts, self._part.name, pos, 0, [])
        yield from changes(self._runs(item), selection, begin)

    def _runs(self, item: Transaction) -> Iterator[RowRun]:
        for events in item.tables:
            version = self._definitions.of_upstream(events.table)
            rows = self._images.rows(events)
            yield events.first_ordinal, [(version, *row[1:]) for row in rows]

    def heads(self) -> Iterator[PayloadHead]:
        """Of the transactions that were committed."""
        with self.open() as file:
            for commit_ts, pos in self.transactions().committed:
                payload = payload_at(file, pos)
                message: Any = binlog.parse(payload)
                value = binlog_pb2.PrewriteValue.FromString(message.prewrite_value)
                rows = sum(len(mutation.sequence) for mutation in value.mutations)
                yield PayloadHead(commit_ts, pos, len(payload), message.ddl_job_id != 0, rows)

"""Translator: one binlog of the merged stream becomes a Transaction of row events, or a Ddl.

In     Merged(commit_ts, payload, job), in order
Out    Transaction (rows still encoded, tables resolved, filtered ones left out) or Ddl (with the reason if
       it is not to run downstream)
Holds  the schema tracker sees every DDL, also those that are filtered or skipped; the ordinal of a row does
       not depend on filters
Never  drops a binlog in silence: what cannot be understood raises `Corruption` with its commit_ts
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import DecodeError

from common.binlog import SCHEMA_STATE_DELETE_ONLY
from common.errors import Corruption, DownstreamError
from common.wire import binlog_pb2
from drainer import ddl_job
from drainer.ddl_job import DdlJob
from drainer.merger import Merged
from drainer.schema import TABLE_ID_MAX, SchemaTracker, UnknownTable, is_system_schema
from drainer.table_filter import TableFilter
from drainer.txn import DELETE, INSERT, UPDATE, Ddl, Item, TableEvents, TableVersion, Transaction

NO_DOWNSTREAM_MEANING: Final[dict[int, str]] = {
    27: "table locks live in the upstream's sessions",
    28: "table locks live in the upstream's sessions",
    30: "TiFlash replicas belong to the upstream's storage",
    31: "TiFlash replicas belong to the upstream's storage",
    49: "attributes belong to the upstream's storage",
    50: "attributes belong to the upstream's storage",
    51: "placement belongs to the upstream's storage",
    52: "placement belongs to the upstream's storage",
    53: "placement belongs to the upstream's storage",
    54: "placement belongs to the upstream's storage",
    55: "placement belongs to the upstream's storage",
    56: "placement belongs to the upstream's storage",
    57: "cached tables belong to the upstream",
    59: "cached tables belong to the upstream",
    65: "rows that expire upstream arrive as deletes",
    67: "rows that expire upstream arrive as deletes",
    68: "resource groups belong to the upstream",
    69: "resource groups belong to the upstream",
    70: "resource groups belong to the upstream",
}
"""DDL actions that are not executed downstream, with the reason."""

_WIRE_INSERT: Final = int(binlog_pb2.Insert)
_WIRE_UPDATE: Final = int(binlog_pb2.Update)
_WIRE_DELETE: Final = int(binlog_pb2.DeleteRow)
_WIRE_ORDER: Final = (_WIRE_INSERT, _WIRE_UPDATE, _WIRE_DELETE)
_KINDS: Final = {_WIRE_INSERT: INSERT, _WIRE_UPDATE: UPDATE, _WIRE_DELETE: DELETE}
_LAST_TYPE_IN_USE: Final = int(binlog_pb2.Rollback)
_REPAIR_HINT: Final = (
    "`binlogctl -cmd pumps` lists the pumps; check the log of the one that served it for damage"
)


class UnsupportedDdl(DownstreamError):
    """A DDL that this drainer cannot hand to a downstream."""


class Translator:
    """Resolves tables by the tracked schema and drops what the filter rejects."""

    def __init__(self, schema: SchemaTracker, table_filter: TableFilter) -> None:
        self._schema = schema
        self._filter = table_filter
        # table id -> (schema version from which on it holds, table or None for rows to be left out)
        self._routes: dict[int, tuple[int, TableVersion | None]] = {}
        self._generation = schema.generation

    def translate(self, merged: Merged) -> Item:
        """Raises `Corruption` (unknown table, broken payload) or `UnsupportedDdl`; stop then."""
        commit_ts, payload = merged.commit_ts, merged.payload
        try:
            message = binlog_pb2.Binlog.FromString(payload)
        except DecodeError as error:
            raise Corruption(
                f"binlog with commit_ts {commit_ts} ({len(payload)} bytes) cannot be decoded: {error}",
                hint=_REPAIR_HINT,
            ) from None
        if message.tp > _LAST_TYPE_IN_USE:
            raise Corruption(
                f"binlog with commit_ts {commit_ts} is of obsolete type {message.tp}", hint=_REPAIR_HINT
            )
        if message.ddl_job_id:
            return self._ddl(merged, message)
        value = message.prewrite_value
        if not value and not message.HasField("prewrite_value"):
            raise Corruption(
                f"commit without prewrite: binlog with start_ts {message.start_ts} and commit_ts {commit_ts} "
                "has neither rows nor a DDL",
                hint=_REPAIR_HINT,
            )
        try:
            prewrite = binlog_pb2.PrewriteValue.FromString(value)
        except DecodeError as error:
            raise Corruption(
                f"rows of the binlog with commit_ts {commit_ts} cannot be decoded: {error}", hint=_REPAIR_HINT
            ) from None
        return Transaction(message.start_ts, commit_ts, self._tables(prewrite, commit_ts), len(payload))

    # -- rows -----------------------------------------------------------------------------------------

    def _tables(self, prewrite: binlog_pb2.PrewriteValue, commit_ts: int) -> tuple[TableEvents, ...]:
        schema_version = prewrite.schema_version
        schema = self._schema
        schema.catch_up(commit_ts, schema_version)
        if schema.generation != self._generation:
            self._generation = schema.generation
            self._routes.clear()
        tables = []
        ordinal = 0
        for mutation in prewrite.mutations:
            table_id = mutation.table_id
            route = self._routes.get(table_id)
            if route is not None and schema_version >= route[0]:
                table = route[1]
            else:
                table = self._route(table_id, schema_version, commit_ts)
            sequence = mutation.sequence[:]  # a slice is several times faster than list()
            if table is not None:
                kinds, rows = _events(mutation, sequence, commit_ts)
                if rows:
                    tables.append(TableEvents(table, kinds, rows, ordinal))
            ordinal += len(sequence)
        return tuple(tables)

    def _route(self, table_id: int, schema_version: int, commit_ts: int) -> TableVersion | None:
        schema = self._schema
        if schema.is_truncated(table_id) or table_id > TABLE_ID_MAX:
            self._routes[table_id] = (0, None)
            return None
        try:
            table = schema.table_for(table_id, schema_version)
        except UnknownTable as error:
            raise UnknownTable(
                f"transaction with commit_ts {commit_ts} has rows of an unknown table: {error.message} "
                f"(rows were written at schema version {schema_version})",
                hint=f"find the DDL job that made table id {table_id} with `ADMIN SHOW DDL JOBS` upstream; "
                "it must be in the DDL history before the drainer can go on",
            ) from None
        wanted = not is_system_schema(table.schema) and self._filter.allows(table.schema, table.name)
        if not wanted:
            self._routes[table_id] = (0, None)
            return None
        if schema_version >= table.version:
            self._routes[table_id] = (table.version, table)
        return table

    # -- DDL ------------------------------------------------------------------------------------------

    def _ddl(self, merged: Merged, message: binlog_pb2.Binlog) -> Ddl:
        commit_ts, job_id = merged.commit_ts, message.ddl_job_id
        query = message.ddl_query.decode("utf-8", "surrogateescape")
        if message.ddl_schema_state == SCHEMA_STATE_DELETE_ONLY:
            reason = "delete-only state: the column is on its way out, the job's last binlog drops it"
            version = self._schema.version
            return Ddl(commit_ts, job_id, ddl_job.DROP_COLUMN, "", query, (), version, reason)
        if merged.job is None:
            raise Corruption(
                f"DDL binlog with commit_ts {commit_ts} came without its job {job_id}",
                hint=f"check `ADMIN SHOW DDL JOBS` of the upstream for job {job_id}",
            )
        job = DdlJob.from_document(merged.job)
        self._schema.catch_up(commit_ts, 0)
        change = self._schema.apply(job)
        skip = self._skip_reason(job, change.tables)
        if not skip and job.action == ddl_job.CREATE_TABLES:
            raise UnsupportedDdl(
                f"DDL job {job_id} with commit_ts {commit_ts} creates {len(change.tables)} tables at once, "
                f"for which there is no statement: {', '.join('.'.join(name) for name in change.tables[:5])}",
                hint="leave them out with `ignore-table`, or create them one by one upstream",
            )
        return Ddl(
            commit_ts=commit_ts,
            job_id=job_id,
            action=job.action,
            schema=change.schema,
            query=query,
            tables=change.tables,
            schema_version=job.schema_version if job.took_effect else self._schema.version,
            skip=skip,
            job=merged.job,
        )

    def _skip_reason(self, job: DdlJob, names: Sequence[tuple[str, str]]) -> str:
        if not job.took_effect:
            return f"the job did not take effect upstream: it is {job.state_name}"
        if names and all(is_system_schema(schema) for schema, _ in names):
            return "system schema"
        if any(document["id"] > TABLE_ID_MAX for document in _documents(job)):
            return "internal table of the upstream"
        reason = NO_DOWNSTREAM_MEANING.get(job.action)
        if reason is not None:
            return f"{ddl_job.action_name(job.action)} has no meaning downstream: {reason}"
        if names and not any(self._filter.allows(schema, table) for schema, table in names):
            return "filtered"
        return ""


def _documents(job: DdlJob) -> Sequence[dict[str, Any]]:
    return (job.table_info,) if job.table_info is not None else job.table_infos


@dataclass(frozen=True, slots=True)
class _Shape:
    """What a sequence of row kinds asks for: how many rows of each list, and in which order.

    `pick` takes the execution order out of inserts + updates + deletes; None: it is that order already.
    """

    kinds: tuple[int, ...]
    counts: tuple[int, int, int]
    pick: Callable[[list[bytes]], tuple[bytes, ...]] | None

    @classmethod
    def of(cls, sequence: Sequence[int]) -> _Shape | None:
        """None for a sequence with obsolete kinds."""
        if not all(kind in _KINDS for kind in sequence):
            return None
        counts = tuple(sequence.count(kind) for kind in _WIRE_ORDER)
        following = dict(zip(_WIRE_ORDER, (0, counts[0], counts[0] + counts[1]), strict=True))
        order = []
        for kind in sequence:
            order.append(following[kind])
            following[kind] += 1
        pick = None if order == sorted(order) else operator.itemgetter(*order)
        kinds = tuple(_KINDS[kind] for kind in sequence)
        return cls(kinds, (counts[0], counts[1], counts[2]), pick)


_SHAPES: Final[dict[bytes, _Shape]] = {}
_SHAPES_KEPT: Final = 4096
_SHAPE_LENGTH_KEPT: Final = 32


def _shape(sequence: Sequence[int]) -> _Shape | None:
    """Short sequences repeat, so their shapes are kept."""
    if len(sequence) > _SHAPE_LENGTH_KEPT:
        return _Shape.of(sequence)
    key = bytes(sequence)
    shape = _SHAPES.get(key)
    if shape is None:
        shape = _Shape.of(sequence)
        if shape is not None:
            if len(_SHAPES) >= _SHAPES_KEPT:
                _SHAPES.clear()
            _SHAPES[key] = shape
    return shape


def _events(
    mutation: binlog_pb2.TableMutation, sequence: Sequence[int], commit_ts: int
) -> tuple[tuple[int, ...], list[bytes]]:
    """Kinds and rows in execution order: `sequence` says from which list the next row comes."""
    inserts = mutation.inserted_rows[:]
    updates = mutation.updated_rows[:]
    deletes = mutation.deleted_rows[:]
    shape = _shape(sequence)
    if (
        shape is None
        or shape.counts != (len(inserts), len(updates), len(deletes))
        or mutation.deleted_ids
        or mutation.deleted_pks
    ):
        raise _broken_sequence(mutation, sequence, commit_ts)
    rows = inserts + updates + deletes
    return shape.kinds, rows if shape.pick is None else list(shape.pick(rows))


def _broken_sequence(
    mutation: binlog_pb2.TableMutation, sequence: Sequence[int], commit_ts: int
) -> Corruption:
    where = f"transaction with commit_ts {commit_ts}, table id {mutation.table_id}"
    obsolete = sorted({kind for kind in sequence if kind not in _KINDS})
    if obsolete or mutation.deleted_ids or mutation.deleted_pks:
        return Corruption(
            f"{where}: rows of an obsolete mutation type {obsolete or ''}".rstrip(), hint=_REPAIR_HINT
        )
    return Corruption(
        f"{where}: its sequence of {len(sequence)} rows does not fit its {len(mutation.inserted_rows)} "
        f"inserts, {len(mutation.updated_rows)} updates and {len(mutation.deleted_rows)} deletes",
        hint=_REPAIR_HINT,
    )

"""Translator: one binlog of the merged stream becomes a Transaction of row events, or a Ddl.

In     Merged(commit_ts, payload, job), in order; rules (filters, routes, columns, loopback), which may change
Out    Transaction (rows still encoded, tables resolved, filtered ones left out) or Ddl (with the reason if
       it is not to run downstream)
Holds  the schema tracker sees every DDL, also those that are filtered or skipped; the ordinal of a row does
       not depend on filters; a transaction of which nothing is left is an empty one, in its place; the same
       object stands for a table until a DDL changes that table
Never  drops a binlog in silence: what cannot be understood raises `Corruption` with its commit_ts
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message import DecodeError

from drainer.changes.ddl_effect import DdlEffect, early_version, partition_ids
from drainer.mysql import sql_tokens
from drainer.mysql.mark import is_mark_table
from drainer.stream.pull import large_txn
from drainer.stream.pull.merged import Merged, Spilled
from drainer.stream.pull.pull_message import Undecodable
from drainer.stream.rules.rule_history import Era, RuleHistory
from drainer.stream.rules.rule_set import Rules
from drainer.stream.rules.table_rules import TableFilter
from drainer.stream.schema.catalog import TABLE_ID_MAX
from drainer.stream.schema.tracker import SchemaTracker, UnknownTable, is_system_schema
from drainer.stream.translate import ddl_filter
from drainer.stream.translate.moved_rows import WHOLE_BYTES_MAX, in_order
from drainer.stream.translate.row_filter import (
    CLOSED,
    REPAIR_HINT,
    MarkRows,
    RowFilter,
    left_first,
    row_events,
    screened,
)
from drainer.txn import DELETE, INSERT, UPDATE, Ddl, Item, TableEvents, TableVersion, Tracked, Transaction
from tidb_binlog.ddl_job import ActionType, DdlJob, action_name
from tidb_binlog.errors import Corruption
from tidb_binlog.late_dataclass import replace
from tidb_binlog.table_info import SchemaState
from tidb_binlog.tso import Ts
from tidb_binlog.wire import binlog_pb2

if TYPE_CHECKING:
    from drainer.stream.translate.row_edit import RowEdit

PASSED_OVER: Final = "listed in ignore-txn-commit-ts"
EARLY_ROWS: Final = (
    "rows that were written while the statement was under way have the defaults of its new columns, not their"
    " values, or are gone with a partition from whose range they were"
)
LEFT_OUT_ROWS: Final = "rows of transactions that did not know yet that the table was truncated are not there"
AS_BEFORE: Final = (
    "it came back as it was when its DROP began: rows of partitions that were truncated or dropped after that"
    " are not there"
)
_ENDED_KEPT: Final = 100
_ROW_KINDS: Final = (INSERT, UPDATE, DELETE)

_LAST_TYPE_IN_USE: Final = int(binlog_pb2.Rollback)
# Tables with routes or left-out columns that are remembered as such; with more of them plans are made anew.
_PLACED_MAX: Final = 50_000


class Translator:
    """Resolves tables by the tracked schema and applies the rules. A name filter alone is rules, too.

    `after_ts`: rows up to there are translated elsewhere: by an earlier life, or by tasks. `looped`:
    transactions dropped because a drainer of our channel wrote them.
    """

    def __init__(self, schema: SchemaTracker, rules: Rules | TableFilter, after_ts: Ts = 0) -> None:
        self._schema = schema
        self._after_ts = after_ts
        self._filters: dict[int, RowFilter] = {}
        self._row_versions: dict[int, int] = {}  # by table id, the newest of its rows since its last DDL
        self._ended: deque[tuple[Ts, int]] = deque(maxlen=_ENDED_KEPT)  # DDL and its schema version
        self._truncated: dict[int, bool] = {}  # ids that this life truncated: whether rows of them came later
        # Of tables that this life saw go, by their ids.
        self._partitions: dict[int, set[int]] = {}
        self._generation = schema.generation
        self._placed: dict[TableVersion, TableVersion] = {}
        self.looped = 0
        self._eras: deque[Era] = deque()  # of an earlier life, still to come
        self.replace_rules(rules if isinstance(rules, Rules) else Rules(names=rules))

    # -- rules ----------------------------------------------------------------------------------------

    def replace_rules(self, rules: Rules) -> None:
        """Rules from here on, between two transactions. Raises `ConfigError`, and keeps the old ones, if they
        contradict each other for a table that exists."""
        self.check_rules(rules)
        self.take_rules(rules)

    def check_rules(self, rules: Rules) -> None:
        """Raises `ConfigError` as `replace_rules` would."""
        by_columns = not (rules.columns.is_empty and rules.rows.is_empty)
        if by_columns or not rules.router.is_empty:
            for name in self._schema.names():
                if rules.allows(*name):
                    rules.router.route(*name)
                    table = self._schema.table_named(*name) if by_columns else None
                    if table is not None:
                        rules.columns.left_out(*name, table.info)
                        _row_edit(rules, table)

    def take_rules(self, rules: Rules) -> None:
        """`replace_rules` for rules that were checked."""
        self._eras.clear()
        self._enter(rules)

    def replay(self, history: RuleHistory) -> None:
        """Rules as they were, each from its place of the stream on, until others are taken."""
        self._enter(history.eras[0].rules)
        self._eras = deque(history.eras[1:])

    def _enter(self, rules: Rules) -> None:
        self.rules = rules
        self._filters.clear()
        self._placed.clear()

    def _follow_eras(self, commit_ts: Ts) -> None:
        while self._eras and self._eras[0].after_ts < commit_ts:
            self._enter(self._eras.popleft().rules)

    def names(self) -> list[tuple[str, str]]:
        """All tables of the tracked schema, whether they replicate or not."""
        return list(self._schema.names())

    def route(self, schema: str, table: str = "") -> tuple[str, str]:
        """The downstream name of a table, or with "" of a database, by the rules of now."""
        return self.rules.router.route(schema, table)

    def placed(self, table: TableVersion) -> TableVersion:
        """The table as it is written downstream: with its target and without the columns left out."""
        if self.rules.keep_all_as_is:
            return table
        target = self._placed.get(table)
        if target is None:
            target = self.rules.placed(table)
            if len(self._placed) >= _PLACED_MAX:
                self._placed.clear()
            self._placed[table] = target
        return target

    def replicated(self, table_id: int) -> TableVersion | None:
        """A table as its rows of now are written; None for one that is not there, or does not replicate."""
        try:
            return self._filter_of(self._schema.table_for(table_id, self._schema.version)).table
        except UnknownTable:
            return None

    def runs(self, table: TableVersion, action: int, query: str) -> bool:
        """Whether filters let a statement on a table that replicates run downstream."""
        events = sql_tokens.events_of(query, action)
        return self.rules.sync_ddl and not self.rules.events.ignores_ddl(
            table.schema, table.name, events, query
        )

    # -- binlogs --------------------------------------------------------------------------------------

    def translate(self, merged: Merged) -> Item:
        """Raises `Corruption` (unknown table, broken payload) or `ConfigError` (contradicting rules)."""
        commit_ts, payload = merged.commit_ts, merged.payload
        if self._eras:
            self._follow_eras(commit_ts)
        passed_over = commit_ts in self.rules.passed_over
        try:
            message = binlog_pb2.Binlog.FromString(payload)
        except DecodeError as error:
            if passed_over:
                return Transaction(commit_ts, commit_ts, (), len(payload))
            raise Undecodable(
                f"binlog with commit_ts {commit_ts} ({len(payload)} bytes) cannot be decoded: {error}",
                hint=REPAIR_HINT,
            ) from None
        if message.ddl_job_id:
            return self._ddl(merged, message, passed_over)
        if passed_over:
            return Transaction(message.start_ts, commit_ts, (), len(payload))
        if message.tp > _LAST_TYPE_IN_USE:
            raise Corruption(
                f"binlog with commit_ts {commit_ts} is of obsolete type {message.tp}", hint=REPAIR_HINT
            )
        value = message.prewrite_value
        if not value and not message.HasField("prewrite_value"):
            raise Corruption(
                f"commit without prewrite: binlog with start_ts {message.start_ts} and commit_ts {commit_ts} "
                "has neither rows nor a DDL",
                hint=REPAIR_HINT,
            )
        try:
            prewrite = binlog_pb2.PrewriteValue.FromString(value)
        except DecodeError as error:
            raise Undecodable(
                f"rows of the binlog with commit_ts {commit_ts} cannot be decoded: {error}", hint=REPAIR_HINT
            ) from None
        tables = self._tables(prewrite, commit_ts)
        if len(tables) > 1 and not self.rules.router.is_empty:
            tables = in_order(tables, commit_ts)
        version = prewrite.schema_version
        return Transaction(message.start_ts, commit_ts, tables, len(payload), True, payload, "", version)

    def pieces(self, spilled: Spilled) -> Iterator[Transaction]:
        """A large transaction, as `translate` has it, in pieces. Raises as `translate`, before the first.

        Rules must not be replaced before the last piece is made.
        """
        self._follow_eras(spilled.commit_ts)
        empty = Transaction(spilled.start_ts, spilled.commit_ts, (), spilled.size)
        if spilled.commit_ts in self.rules.passed_over:
            return iter((empty,))
        filters: dict[TableVersion, RowFilter] = {}
        routed = not self.rules.router.is_empty
        if routed and spilled.size <= WHOLE_BYTES_MAX:
            whole = self.translate(Merged(spilled.commit_ts, spilled.read(0, spilled.size)))
            assert isinstance(whole, Transaction)
            return iter((replace(whole, payload=b""),))
        if self.rules.channel_id is not None:
            marks = large_txn.pieces(
                spilled, lambda *of: self.resolve(filters, *of, marks=True), routed=routed
            )
            for piece in marks:
                for of_table in piece.tables:
                    if filters[of_table.table].is_ours(of_table.kinds, of_table.rows, spilled.commit_ts):
                        self.looped += 1
                        return iter((empty,))
            filters = {}
        parts = large_txn.pieces(spilled, lambda *of: self.resolve(filters, *of), routed=routed)
        return (_in_order(screened(piece, filters)) for piece in parts)

    def resolve(
        self,
        filters: dict[TableVersion, RowFilter],
        table_id: int,
        schema_version: int,
        commit_ts: Ts,
        *,
        marks: bool = False,
    ) -> TableVersion | None:
        """The table of an id, with its filter noted. `marks`: only mark tables, also filtered ones."""
        self.catch_up(commit_ts, schema_version)
        self._note_version(table_id, schema_version)
        row_filter = self.row_filter(table_id, schema_version, commit_ts)
        table = row_filter.table
        if marks:
            table = self._schema.table_for(table_id, schema_version) if row_filter.mark is not None else None
        if table is not None:
            filters[table] = row_filter
        return table

    # -- rows -----------------------------------------------------------------------------------------

    def _tables(self, prewrite: binlog_pb2.PrewriteValue, commit_ts: Ts) -> tuple[TableEvents, ...]:
        schema_version = prewrite.schema_version
        self.catch_up(commit_ts, schema_version)
        filters = self._filters
        tables = []
        ordinal = 0
        for mutation in left_first(prewrite.mutations, routed=not self.rules.router.is_empty):
            table_id = mutation.table_id
            self._note_version(table_id, schema_version)
            row_filter = filters.get(table_id)
            if row_filter is None or schema_version < row_filter.version:
                row_filter = self.row_filter(table_id, schema_version, commit_ts)
            sequence = mutation.sequence[:]  # a slice is several times faster than list()
            if row_filter.opens:
                kinds, rows = row_events(mutation, sequence, commit_ts)
                if row_filter.plain:
                    if rows:
                        tables.append(TableEvents(row_filter.table, kinds, rows, ordinal))  # type: ignore[arg-type]
                elif row_filter.is_ours(kinds, rows, commit_ts):
                    self.looped += 1
                    return ()
                else:
                    tables.extend(row_filter.passed(kinds, rows, ordinal, commit_ts))
            ordinal += len(sequence)
        return tuple(tables)

    def catch_up(self, commit_ts: Ts, schema_version: int) -> None:
        """Bring the schema to where a transaction is, before its tables are asked for."""
        schema = self._schema
        schema.catch_up(commit_ts, schema_version)
        if schema.generation != self._generation:
            self._generation = schema.generation
            self._filters.clear()

    def row_filter(self, table_id: int, schema_version: int, commit_ts: Ts) -> RowFilter:
        """What becomes of the rows of a table id. Raises `UnknownTable`, or `ConfigError` as `placed`."""
        schema = self._schema
        if schema.is_truncated(table_id) or table_id > TABLE_ID_MAX:
            if table_id in self._truncated:
                self._truncated[table_id] = True
            self._filters[table_id] = CLOSED
            return CLOSED
        try:
            table = schema.table_for(table_id, schema_version)
        except UnknownTable as error:
            raise UnknownTable(
                f"transaction with commit_ts {commit_ts} has rows of an unknown table: {error.message} "
                f"(rows were written at schema version {schema_version})",
                hint=f"find the DDL job that made table id {table_id} with `ADMIN SHOW DDL JOBS` upstream; "
                "it must be in the DDL history before the drainer can go on",
            ) from None
        row_filter = self._filter_of(table)
        if schema_version >= table.version or row_filter is CLOSED:
            self._filters[table_id] = row_filter
        return row_filter

    def _filter_of(self, table: TableVersion) -> RowFilter:
        rules = self.rules
        mark = None
        if rules.channel_id is not None and is_mark_table(table.schema, table.name):
            mark = MarkRows(table.info, rules.channel_id)
        dropped = rules.events.ignored_rows(table.schema, table.name)
        replicates = not is_system_schema(table.schema) and rules.allows(table.schema, table.name)
        if not replicates or len(dropped) == len(_ROW_KINDS):
            return CLOSED if mark is None else RowFilter(table.version, mark=mark)
        return RowFilter(table.version, self.placed(table), dropped, mark, _row_edit(rules, table))

    # -- DDL ------------------------------------------------------------------------------------------

    def _ddl(self, merged: Merged, message: binlog_pb2.Binlog, passed_over: bool) -> Ddl:
        commit_ts, job_id = merged.commit_ts, message.ddl_job_id
        query = message.ddl_query.decode("utf-8", "surrogateescape")
        if message.ddl_schema_state == SchemaState.DELETE_ONLY:
            reason = "delete-only state: the column is on its way out, the job's last binlog drops it"
            version = self._schema.version
            return Ddl(
                commit_ts, job_id, ActionType.DROP_COLUMN, "", query, (), version, reason, half_done=True
            )
        if merged.job is None:
            if passed_over:
                return Ddl(
                    commit_ts, job_id, ActionType.NONE, "", query, (), self._schema.version, PASSED_OVER
                )
            raise Corruption(
                f"DDL binlog with commit_ts {commit_ts} came without its job {job_id}",
                hint=f"check `ADMIN SHOW DDL JOBS` of the upstream for job {job_id}",
            )
        job = DdlJob.from_document(merged.job)
        if not passed_over and not job.may_have_binlog:
            raise Corruption(
                f"the DDL binlog of commit_ts {commit_ts} is committed, but its job {job.id}"
                f" ({action_name(job.action)}) is {job.state_name} in the history: {query}",
                hint="compare with `ADMIN SHOW DDL JOBS` of the upstream; ignore-txn-commit-ts ="
                f" [{commit_ts}] passes over this binlog",
            )
        self._schema.catch_up(commit_ts, 0)
        left_out = self._schema.is_truncated(job.table_id) and self._truncated.get(job.table_id, True)
        change = self._schema.apply(job)
        verdict = ddl_filter.Verdict(change.tables, skip=PASSED_OVER if passed_over else "")
        if not passed_over:
            skip = self._skip_reason(job, change.tables)
            all_names = self._schema.names() if not self.rules.router.is_empty else ()
            verdict = (
                ddl_filter.Verdict(change.tables, skip=skip)
                if skip
                else ddl_filter.judge(job, change, self.rules, all_names)
            )
        before, after = change.before, change.after
        if verdict.tables != change.tables:
            before, after = (_of_names(tracked, verdict.tables) for tracked in (before, after))
        names = {(table.schema, table.name) for table in (*before, *after)}
        early = EARLY_ROWS if self._had_early_rows(merged.job, (*change.before, *change.after)) else ""
        if left_out and not self._schema.is_truncated(job.table_id):  # RECOVER or FLASHBACK brought it back
            early = LEFT_OUT_ROWS
        elif self._has_other_partitions(change):
            early = AS_BEFORE
        if job.took_effect:
            self._ended.append((commit_ts, job.schema_version))
            if job.action == ActionType.TRUNCATE_TABLE:
                self._truncated[job.table_id] = False
        return Ddl(
            commit_ts=commit_ts,
            job_id=job_id,
            action=job.action,
            schema=change.schema,
            query=query,
            tables=verdict.tables,
            schema_version=job.schema_version if job.took_effect else self._schema.version,
            skip=verdict.skip,
            job=merged.job,
            instead=verdict.instead,
            refused=verdict.refused,
            before=before,
            after=after,
            targets=() if verdict.skip else self._targets(verdict.tables),
            unread=frozenset(name for name in names if not self.rules.allows(*name)),
            shared=() if verdict.skip else self.sharing(verdict.tables),
            apart=self.rules.disjoint_shards,
            early=early,
        )

    def _has_other_partitions(self, change: DdlEffect) -> bool:
        """Whether a table comes back with others than it went with."""
        before = {table.id: partition_ids(table.document) for table in change.before}
        after = {table.id: partition_ids(table.document) for table in change.after}
        self._partitions |= {number: ids for number, ids in before.items() if ids and number not in after}
        back = after.keys() - before.keys()
        return any(self._partitions.pop(number, after[number]) != after[number] for number in back)

    def _note_version(self, table_id: int, schema_version: int) -> None:
        if schema_version > self._row_versions.get(table_id, 0):  # transactions of an older one may follow
            self._row_versions[table_id] = schema_version

    def _had_early_rows(self, job: Mapping[str, Any] | None, tables: Sequence[Tracked]) -> bool:
        """Of an earlier life it is not known: a job that began in it may have had some."""
        last = [version for table in tables if (version := self._row_versions.pop(table.id, None))]
        early = early_version(job, self._ended)
        began_ts = int((job or {}).get("start_ts") or 0)
        return bool(early) and (any(early <= version for version in last) or began_ts < self._after_ts)

    def sharing(self, names: Sequence[tuple[str, str]]) -> tuple[Tracked, ...]:
        """Other tables, as they are now, that replicate into the targets of these."""
        if self.rules.router.is_empty:
            return ()
        all_names, own = (
            list(self._schema.names()),
            {(schema.lower(), name.lower()) for schema, name in names},
        )
        shared = {other for name in names for other in ddl_filter.sharing(name, self.rules, all_names)}
        others = sorted(name for name in shared if tuple(map(str.lower, name)) not in own)
        return tuple(table for table in map(self._schema.tracked, others) if table is not None)

    def _targets(self, names: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
        router = self.rules.router
        return () if router.is_empty else tuple(router.route(*name) for name in names)

    def _skip_reason(self, job: DdlJob, names: Sequence[tuple[str, str]]) -> str:
        if not job.took_effect:
            return f"the job did not take effect upstream: it is {job.state_name}"
        if names and all(is_system_schema(schema) for schema, _ in names):
            return "system schema"
        if any(document["id"] > TABLE_ID_MAX for document in _documents(job)):
            return "internal table of the upstream"
        return "" if self.rules.sync_ddl else "sync-ddl is false"


def _in_order(piece: Transaction) -> Transaction:
    return replace(piece, tables=in_order(piece.tables, piece.commit_ts)) if len(piece.tables) > 1 else piece


def _row_edit(rules: Rules, table: TableVersion) -> RowEdit | None:
    if rules.rows.is_empty:
        return None
    from drainer.stream.translate.row_edit import row_edit  # most Drainers start without

    return row_edit(rules, table)


def _of_names(tables: Iterable[Tracked], names: Collection[tuple[str, str]]) -> tuple[Tracked, ...]:
    return tuple(table for table in tables if (table.schema, table.name) in names)


def _documents(job: DdlJob) -> Sequence[dict[str, Any]]:
    return (job.table_info,) if job.table_info is not None else job.table_infos

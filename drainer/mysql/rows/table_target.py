"""Builds the lanes' view of a table version: compiled SQL plan, key, form of statement, lane.

Tests  tests/drainer/mysql/rows/test_column_match.py, tests/drainer/mysql/rows/test_statement.py
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from drainer.mysql.literal.charset import Charset
from drainer.mysql.literal.collation import Collation
from drainer.mysql.literal.plan import SqlPlan, Written, compile_sql
from drainer.mysql.literal.quoting import qualified
from drainer.mysql.rows.causality import (
    KeyFacts,
    Spread,
    fold_id_of,
    is_binary,
    key_facts,
    lane_of_table,
)
from drainer.mysql.rows.change import Form, TableTarget
from drainer.mysql.rows.column_match import (
    FULL,
    PARTIAL,
    DownstreamTable,
    Match,
    match,
    refuse_key_left_out,
)
from drainer.mysql.rows.dialect import Dialect
from drainer.txn import TableVersion
from tidb_binlog.errors import DownstreamError
from tidb_binlog.table_info import Column


class NotTransactional(DownstreamError):
    """Rows of the table could not be applied exactly once."""


class TableUnfit(DownstreamError):
    """The table downstream takes no rows of this version, as it is."""

    def __init__(self, error: DownstreamError, version: TableVersion) -> None:
        super().__init__(error.message, hint=error.hint)
        self.version = version


_NO_COLLATIONS: Final[Mapping[str, Collation]] = {}
_NARROW: Final = frozenset({"latin1", "ascii", "gbk", "gb18030"})


def target_of(
    version: TableVersion,
    lanes: int,
    downstream: DownstreamTable | None = None,
    *,
    sync_mode: int = FULL,
    plan: type[SqlPlan] = SqlPlan,
    collations: Mapping[str, Collation] = _NO_COLLATIONS,
) -> TableTarget:
    """Compile everything that lanes need to apply rows of this table version; `plan` says what they are,
    `collations` by name are those that rows can be spread by.

    Without `downstream` the table there is taken to be as upstream's. Raises `DownstreamError` if the
    downstream's table cannot take the rows, `ConfigError` if a key column is left out.
    """
    info = version.info
    if version.left_out:
        refuse_key_left_out(info, compile_sql(info).key_columns, version.left_out)
    mode = PARTIAL if version.ddl_filtered else sync_mode
    how = match(info, downstream, mode, version.left_out) if downstream else Match(version.left_out)
    sql = _plan(version, how, downstream, plan)
    facts = key_facts(info, sql.key_columns, sql.key_index, downstream, collations)
    form = Form.KEYLESS
    if sql.key_columns:
        form = Form.REPLACE if how.replaceable else Form.UPSERT
        if facts.others or not facts.unique:
            form = Form.REWRITE
    repeats = downstream is not None and not downstream.transactional
    if repeats and form is Form.KEYLESS:
        assert downstream is not None
        raise NotTransactional(
            f"table {downstream.label} has no key, and is of {downstream.engine}, which has no transactions:"
            " a crash would leave rows twice",
            hint=f"ALTER TABLE `{downstream.schema}`.`{downstream.name}` ENGINE=InnoDB, or give it a key",
        )
    by: tuple[Collation | None, ...] = ()
    if facts.spread is Spread.BY_COLLATED_KEY:
        assert downstream is not None
        by = tuple(_collation(downstream, column, collations) for column in sql.key_columns)
        sql = sql.under(by)
    fold_id = fold_id_of(info.id, version.target)
    schema, name = (downstream.schema, downstream.name) if downstream else version.downstream
    return TableTarget(
        version=version,
        sql=sql,
        spread=facts.spread,
        lane=lane_of_table(fold_id, lanes),
        name=qualified(schema, name),
        form=form,
        fold_id=fold_id,
        keyed=form is not Form.KEYLESS,
        gentle=not how.replaceable and _may_stay(form, facts, downstream),
        row_key=_row_key(sql, downstream) if downstream and facts.unique else "",
        fillers=how.fillers,
        repeats=repeats,
        collations=by,
    )


def _collation(
    downstream: DownstreamTable, column: Column, collations: Mapping[str, Collation]
) -> Collation | None:
    theirs = downstream.column(column.name)
    return None if theirs is None or is_binary(theirs) else collations[theirs.collation]


def _row_key(sql: SqlPlan, downstream: DownstreamTable) -> str:
    names = {column.name.lower() for column in sql.key_columns}
    return next((index.name for index in downstream.unique_keys if index.columns == names), "")


def _may_stay(form: Form, facts: KeyFacts, downstream: DownstreamTable | None) -> bool:
    """Whether rows can be overwritten in place although the form is another."""
    if form is Form.KEYLESS:
        return True
    return form is Form.REWRITE and facts.unique and _keys_are_known(downstream)


def _keys_are_known(downstream: DownstreamTable | None) -> bool:
    """Every value of a unique key downstream comes from a column that is written."""
    if downstream is None:
        return True
    computed = {column.name.lower() for column in downstream.columns if column.generated}
    return not any({None, *computed} & key.columns for key in downstream.unique_keys)


def _plan(
    version: TableVersion, how: Match, downstream: DownstreamTable | None, kind: type[SqlPlan]
) -> SqlPlan:
    if downstream is None:
        # Which server will compare is not known: a list of rows may miss texts of narrower character sets.
        narrow = any(column.type.charset in _NARROW for column in version.info.columns)
        written = Written(how.left_out, how.unwritten, alternatives=narrow)
        return compile_sql(version.info, written=written, kind=kind)
    key = compile_sql(version.info, written=Written(how.left_out)).key_columns
    identifying = {column.id for column in key}
    names = {column.name.lower() for column in key}
    prefixes = {
        part.column.lower(): part.length
        for index in downstream.unique_keys
        if index.columns == names
        for part in index.parts
        if part.column and part.length
    }
    charsets = {}
    theirs_by_id = {}
    in_keys = {name for key in downstream.unique_keys for name in key.columns}
    watched = {column.id for column in version.info.columns if column.name.lower() in in_keys}
    # TiDB has all text as UTF-8: any text fits, and none is converted to be compared.
    is_tidb = downstream.dialect is Dialect.TIDB
    for column in version.info.columns:
        theirs = downstream.column(column.name)
        if theirs is not None:
            theirs_by_id[column.id] = replace(theirs, charset="") if is_tidb else theirs
            if Charset.is_narrow(theirs_by_id[column.id].charset):
                in_key = f"{downstream.label}.{theirs.name}" if column.id in identifying else ""
                length = prefixes.get(theirs.name.lower(), theirs.length)
                charsets[column.id] = Charset(theirs.charset, length, in_key)
    written = Written(
        how.left_out,
        how.unwritten,
        charsets,
        frozenset(watched),
        casts_json=downstream.dialect is not Dialect.MARIADB,
        downstream=theirs_by_id,
        alternatives=downstream.dialect is Dialect.MYSQL,
        label=downstream.label,
    )
    return compile_sql(version.info, written=written, kind=kind)


def missing(version: TableVersion) -> DownstreamError:
    """The error for rows of a table that is not there."""
    return DownstreamError(
        f"table {'.'.join(version.downstream)} does not exist downstream",
        hint=f"`binlogctl load -tables {version.schema}.{version.name}` copies it, rows and all, into the"
        " downstream of a Drainer; or leave it out with ignore-table",
    )


def refreshed(target: TableTarget, downstream: DownstreamTable, *, sync_mode: int) -> TableTarget | None:
    """The target after the table was changed downstream, for changes that are in a lane already.

    None if nothing that statements name is different. The changes stay spread as they were, whatever the
    table is now: later ones are spread anew (`table_learning`).
    """
    target_now = target_of(target.version, 1, downstream, sync_mode=sync_mode)
    fresh = replace(target_now, spread=target.spread, lane=target.lane, fold_id=target.fold_id)
    same = (fresh.name, fresh.sql.column_list, fresh.form, fresh.fillers)
    return None if same == (target.name, target.sql.column_list, target.form, target.fillers) else fresh

"""Rule options: which databases, tables, columns, rows and DDL replicate, and under which names.

In     lists and tables of the file, as texts; `drainer.stream.rules` reads what they say
Tests  tests/drainer/config/test_options.py, tests/drainer/stream/rules/test_rule_set.py
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drainer.config import rule_keys
from drainer.config.sink_options import SinkOptions
from tidb_binlog.config.declaring import option
from tidb_binlog.errors import ConfigError
from tidb_binlog.late_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class RuleOptions(SinkOptions):
    """All of section `syncer`; what the Go drainer has is read as it reads it."""

    ignore_schemas: str = option(
        "INFORMATION_SCHEMA,PERFORMANCE_SCHEMA,mysql",
        key="syncer.ignore-schemas",
        flag="ignore-schemas",
        help="databases that are not replicated, comma separated",
        starter=True,
        live=True,
    )
    replicate_do_db: tuple[str, ...] = option(
        (),
        key="syncer.replicate-do-db",
        kind="list",
        help="databases that are replicated; ~ begins a regular expression; empty: all",
        starter=True,
        live=True,
    )
    replicate_do_table: tuple[dict[str, Any], ...] = option(
        (),
        key="syncer.replicate-do-table",
        kind="tables",
        help="tables that are replicated: db-name, tbl-name; ~ begins a regular expression",
        example='[[syncer.replicate-do-table]]\ndb-name = "shop"\ntbl-name = "~^order.*"',
        live=True,
        keys=rule_keys.NAMES,
    )
    ignore_table: tuple[dict[str, Any], ...] = option(
        (),
        key="syncer.ignore-table",
        kind="tables",
        help="tables that are not replicated: db-name, tbl-name; ~ begins a regular expression",
        example='[[syncer.ignore-table]]\ndb-name = "shop"\ntbl-name = "audit"',
        live=True,
        keys=rule_keys.NAMES,
    )
    ddl_rules: tuple[dict[str, Any], ...] = option(
        (),
        key="syncer.ddl-rule",
        kind="tables",
        help="what becomes of DDL: kind, db-name, tbl-name, sql; action apply, skip, rewrite (text) or stop",
        more="The first rule that means a statement decides; where none does, what has no meaning "
        "downstream is passed over and the rest is applied. `kind` is a kind of DDL as ADMIN SHOW "
        "DDL JOBS names it, or a group: all, unknown, database, table, column, index, "
        "foreign-key, check, partition, view, sequence, auto-id, placement, tiflash, attributes, "
        "cache, ttl, lock, resource-group, flashback. `sql` is a regular expression. Rules can be "
        "changed while the drainer runs.",
        example="[[syncer.ddl-rule]]\n"
        'kind = ["index", "check"]\n'
        'db-name = "shop"\n'
        'tbl-name = "~^log_"\n'
        'sql = "fulltext"\n'
        'action = "rewrite" # or apply, skip, stop\n'
        "text = \"ALTER TABLE {db}.{table} COMMENT 'no index here'\"",
        live=True,
        keys=rule_keys.DDL,
    )
    ignore_txn_commit_ts: tuple[str | int, ...] = option(
        (),
        key="syncer.ignore-txn-commit-ts",
        kind="ints",
        help="commit timestamps of binlogs that are passed over",
        more="A DDL among them still counts for the schema that rows are read by.",
        live=True,
    )
    case_sensitive: bool = option(
        False,
        key="syncer.case-sensitive",
        help="source patterns of table-migrate-rule distinguish upper and lower case",
        live=True,
    )
    disjoint_shards: bool = option(
        False,
        key="syncer.disjoint-shards",
        help="rows never move between tables that are routed to one: while a DDL of one waits, others go on",
        more="Without it all tables of the target wait, in the order of the stream. With it a row that does "
        "move meanwhile is lost or doubled.",
    )
    table_migrate_rule: tuple[dict[str, Any], ...] = option(
        (),
        key="syncer.table-migrate-rule",
        kind="tables",
        help="which tables replicate under which name, and the binlog-filter-rules that count for them",
        more="Patterns: * at the end, ?, [a-z], [!x]. A source without a table means the whole "
        "database. No rule is an allow-list.",
        example="[[syncer.table-migrate-rule]]\n"
        'source = { schema = "shop_*", table = "order_?" }\n'
        'target = { schema = "shop", table = "orders" }\n'
        'binlog-filter-rule = ["no-deletes"]\n'
        "\n"
        "[syncer.binlog-filter-rule.no-deletes]\n"
        'ignore-event = ["delete", "drop table", "truncate table"]',
        live=True,
        keys=rule_keys.ROUTE,
    )
    binlog_filter_rule: Mapping[str, Any] = option(
        None,
        key="syncer.binlog-filter-rule",
        kind="table",
        help="filters by name: ignore-event, ignore-sql",
        more="A table-migrate-rule says for which tables a filter counts. Where a filter may leave out an "
        "ALTER TABLE, rows leave out columns that the table downstream lacks; the log names them.",
        example="[syncer.binlog-filter-rule.no-deletes]\n"
        'ignore-event = ["delete", "drop table", "truncate table"]\n'
        'ignore-sql = ["^alter table .* add column internal"]',
        live=True,
        keys=rule_keys.EVENTS,
    )
    column_rule: tuple[dict[str, Any], ...] = option(
        (),
        key="syncer.column-rule",
        kind="tables",
        help="columns that are written (columns), or that are not (ignore-columns): db-name, tbl-name",
        more="The columns of a key always are.",
        example='[[syncer.column-rule]]\ndb-name = "shop"\ntbl-name = "customer"\ncolumns = ["id", "name"]',
        live=True,
        keys=rule_keys.COLUMNS,
    )
    row_rule: tuple[dict[str, Any], ...] = option(
        (),
        key="syncer.row-rule",
        kind="tables",
        help="rows that replicate, and what of them is hidden: db-name, tbl-name, where, mask, python",
        more="An update that leaves the condition is a delete downstream; one that enters it is an "
        'insert. Masks: "null", "hash" (with salt-file), "keep-last 4", { value = "-" }. python '
        "names a function that takes a row and returns it, changed or not, or None. See [row "
        "rules](row-rules.md).",
        example="[[syncer.row-rule]]\n"
        'db-name = "shop"\n'
        'tbl-name = "customer"\n'
        "where = \"country IN ('DE', 'FR') AND deleted_at IS NULL\"\n"
        'mask = { email = "hash", phone = "keep-last 4" }\n'
        'salt-file = "/etc/tidb-binlog/salt"\n'
        'python = "shop_rules:clean"',
        live=True,
        keys=rule_keys.ROWS,
    )
    sync_ddl: bool = option(
        True,
        key="syncer.sync-ddl",
        flag="sync-ddl",
        help="run DDL downstream",
        more="In two-way replication one of the two directions must say false.",
        live=True,
    )

    def check_names(self) -> None:
        """Raises `ConfigError`."""
        if self.ignore_schemas.strip() and any(not name.strip() for name in self.ignore_schemas.split(",")):
            raise ConfigError("empty schema name in `ignore-schemas` config", hint="remove the stray comma")
        if not all(self.replicate_do_db):
            raise ConfigError("empty schema name in `replicate-do-db` config", hint="remove the empty entry")

"""Rules: from a configuration file to filters, and every error with its key and rule."""

from __future__ import annotations

from pathlib import Path

import pytest

from drainer.config.options import ENV_PREFIX, DrainerConfig
from drainer.stream.rules.rule_set import Rules, read_rules
from drainer.txn import DELETE, TableVersion
from tidb_binlog.config import loading
from tidb_binlog.errors import ConfigError
from tidb_binlog.table_info import TableInfo


def rules(tmp_path: Path, toml: str, *argv: str) -> Rules:
    path = tmp_path / "drainer.toml"
    path.write_text(f"[syncer]\n{toml}")
    flags = [f"--config={path}", *argv]
    return read_rules(loading.load(DrainerConfig, flags, {}, program="drainer", env_prefix=ENV_PREFIX))


def test_every_key(tmp_path: Path) -> None:
    found = rules(
        tmp_path,
        """
replicate-do-db = ["~^shop"]
ignore-txn-commit-ts = [400, "401"]
sync-ddl = false
[[syncer.replicate-do-table]]
db-name = "crm"
tbl-name = "~^c"
[[syncer.ignore-table]]
db-name = "shop"
tbl-name = "audit"
[[syncer.table-migrate-rule]]
source = { schema = "Shop_?", table = "order*" }
target = { schema = "shop", table = "orders" }
binlog-filter-rule = ["no-deletes", "no-drops"]
[[syncer.table-migrate-rule]]
binlog-filter-rule = ["no-drops"]
[syncer.table-migrate-rule.source]
schema = "crm"
[syncer.binlog-filter-rule.no-deletes]
ignore-event = ["Delete"]
[syncer.binlog-filter-rule.no-drops]
ignore-event = ["drop table"]
ignore-sql = ["^drop"]
[[syncer.column-rule]]
db-name = "crm"
tbl-name = "customer"
ignore-columns = ["phone"]
""",
    )
    assert (found.allows("shop_1", "x"), found.allows("crm", "c1"), found.allows("crm", "d")) == (
        True,
        True,
        False,
    )
    assert not found.allows("shop", "audit")
    assert found.router.route("shop_1", "order9") == ("shop", "orders")
    assert found.router.route("crm", "c1") == ("crm", "c1")
    assert found.events.ignored_rows("SHOP_1", "orders") == {DELETE}
    assert found.events.ignores_ddl("crm", "", (), "DROP DATABASE crm") == "no-drops"
    assert found.passed_over == {400, 401}
    assert not found.sync_ddl
    assert not found.columns.is_empty
    assert found.channel_id is None


def test_defaults_leave_everything_but_system_databases(tmp_path: Path) -> None:
    found = rules(tmp_path, "")
    assert found.allows("db", "t")
    assert found.allows("tidb_binlog", "checkpoint")
    assert not found.allows("mysql", "user")
    assert found.sync_ddl


def test_an_empty_list_of_ignored_databases_is_allowed(tmp_path: Path) -> None:
    assert rules(tmp_path, 'ignore-schemas = ""').allows("mysql", "user")


def test_case_sensitive_sources(tmp_path: Path) -> None:
    toml = 'case-sensitive = true\n[[syncer.table-migrate-rule]]\nsource.schema = "A"\ntarget.schema = "b"\n'
    found = rules(tmp_path, toml)
    assert (found.router.route("a", "t"), found.router.route("A", "t")) == (("a", "t"), ("b", "t"))


def test_two_way_replication_leaves_out_what_drainers_write_about_themselves(tmp_path: Path) -> None:
    toml = '[syncer.to.checkpoint]\nschema = "My_Checkpoints"\n'
    found = rules(tmp_path, toml, "-loopback-control", "-channel-id=3", "-sync-ddl=false")
    assert (found.channel_id, found.sync_ddl) == (3, False)
    assert not found.allows("tidb_binlog", "checkpoint")
    assert not found.allows("my_checkpoints", "lanes")
    assert found.allows("retl", "_drainer_repl_mark"), "marks of other channels go on"


def test_a_checkpoint_row_that_is_stored_upstream_is_no_change(tmp_path: Path) -> None:
    """It would move the checkpoint, which would be stored."""
    toml = 'db-type = "kafka"\n[syncer.to.checkpoint]\ntype = "mysql"\nschema = "Mine"\n'
    assert not rules(tmp_path, toml).allows("mine", "checkpoint")
    assert rules(tmp_path, toml.replace("mysql", "file")).allows("mine", "checkpoint")


def test_a_table_knows_that_its_ddl_may_be_left_out(tmp_path: Path) -> None:
    toml = (
        '[[syncer.table-migrate-rule]]\nsource = { schema = "a" }\nbinlog-filter-rule = ["r"]\n'
        '[syncer.binlog-filter-rule.r]\nignore-sql = ["add column x"]\n'
    )
    placed = rules(tmp_path, toml).placed
    info = TableInfo(7, "t", ())
    assert [placed(TableVersion(info, schema, "t", 1)).ddl_filtered for schema in "ab"] == [True, False]


MIGRATE = "[[syncer.table-migrate-rule]]\n"
ROW = "[[syncer.row-rule]]\ndb-name = 'a'\ntbl-name = 't'\n"
SOURCE = MIGRATE + 'source = { schema = "a" }\n'


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        (MIGRATE, ("`table-migrate-rule` 1", "has no source")),
        (SOURCE + SOURCE.replace("schema", "shcema"), ("rule` 2: source", "shcema", "schema")),
        (SOURCE.replace('"a"', '""'), ("rule` 1: source names no schema",)),
        (SOURCE.replace('"a"', '"*a"'), ("rule` 1: source is no pattern", "*a")),
        (SOURCE + "target = { table = 't' }", ("rule` 1: target names no schema",)),
        (SOURCE + "targt = { schema = 'b' }", ("rule` 1", "targt", "target")),
        (SOURCE + "binlog-filter-rule = 'x'", ("rule` 1: binlog-filter-rule is not a list",)),
        (
            SOURCE + "binlog-filter-rule = ['nodel']\n[syncer.binlog-filter-rule.nodels]",
            ("event filter rule name nodel not found", "nodels"),
        ),
        ("[syncer.binlog-filter-rule.x]\nignore-event = ['delte']", ("`binlog-filter-rule.x`", "delte")),
        ("[syncer.binlog-filter-rule.x]\nignore-evnt = []", ("`binlog-filter-rule.x`", "ignore-event")),
        ("[syncer.binlog-filter-rule.x]\nignore-sql = ['(']", ("`binlog-filter-rule.x`", "ignore-sql")),
        ("[syncer.binlog-filter-rule]\nx = 1", ("`binlog-filter-rule.x`", "not a table")),
        ("[[syncer.column-rule]]\ndb-name = 'a'", ("`column-rule` 1", "tbl-name")),
        (
            "[[syncer.column-rule]]\ndb-name = 'a'\ntbl-name = 't'",
            ("`column-rule` 1", "neither of columns and ignore-columns"),
        ),
        (
            "[[syncer.column-rule]]\ndb-name='a'\ntbl-name='t'\ncolumns=['a']\nignore-columns=['b']",
            ("`column-rule` 1", "both"),
        ),
        ("[[syncer.column-rule]]\ndb-name='a'\ntbl-name='t'\ncolum=['a']", ("`column-rule` 1", "columns")),
        ("[[syncer.row-rule]]\ndb-name='a'\nwhere='a=1'", ("`row-rule` 1 has no tbl-name",)),
        (ROW, ("`row-rule` 1 does nothing", "where, mask or python")),
        (ROW + "wher = 'a = 1'", ("`row-rule` 1", "wher", "where")),
        (ROW + "where = 1", ("`row-rule` 1: where is no text",)),
        (ROW + "where = 'a ='", ("`row-rule` 1: where: at character 4", "the end")),
        (ROW + "mask = 'x'", ("`row-rule` 1: mask is no table",)),
        (ROW + "mask = {}", ("`row-rule` 1: mask is no table",)),
        (ROW + "mask = { a = 'hidden' }", ("`row-rule` 1: mask of a is 'hidden'", "keep-last 4")),
        (ROW + "mask = { a = { value = 2024-01-01 } }", ("`row-rule` 1: mask of a is",)),
        (ROW + "mask = { a = 'hash' }", ("`row-rule` 1", "no salt-file", "openssl rand")),
        (ROW + "salt-file = '/nowhere'\nmask = { a = 'null' }", ("`row-rule` 1 has a salt-file",)),
        (
            ROW + "salt-file = '/nowhere'\nmask = { a = 'hash' }",
            ("`row-rule` 1.salt-file /nowhere", "cannot read"),
        ),
        (ROW + "python = 'nowhere'", ("`row-rule` 1: python is 'nowhere'", "module:function")),
        (ROW + "python = 'nowhere_at_all:f'", ("`row-rule` 1: python: there is no module nowhere_at_all",)),
        (ROW + "python = 'json:nothing'", ("`row-rule` 1: python: json has no nothing",)),
        (ROW + "python = 'json:__name__'", ("`row-rule` 1: python: json:__name__ is no function",)),
        ("ignore-txn-commit-ts = ['x']", ("`ignore-txn-commit-ts`",)),
        ("[[syncer.ignore-table]]\ndb-name = 'a'", ("`ignore-table`", "tbl-name")),
        ("[[syncer.ignore-table]]\ndb-name = 'a'\ntable = 'b'", ("`ignore-table`", "table")),
        ("[[syncer.replicate-do-table]]\ndb-name = '('\ntbl-name = 'b'", ("replicate-do-table.db-name",)),
        ("replicate-do-db = ['']", ("replicate-do-db",)),
    ],
)
def test_errors_name_key_and_rule(tmp_path: Path, toml: str, words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as raised:
        rules(tmp_path, toml)
    assert all(word in str(raised.value) for word in words), str(raised.value)
    assert raised.value.hint

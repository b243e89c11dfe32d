"""Setting: a translator with an upstream whose schema is made of DDL jobs."""

from __future__ import annotations

from typing import Any

from drainer.stream.pull.merged import Merged
from drainer.stream.rules.rule_set import Rules
from drainer.stream.rules.table_rules import (
    TableFilter,
)
from drainer.stream.schema.tracker import SchemaTracker
from drainer.stream.translate.translator import Translator
from drainer.txn import Ddl, Transaction
from tests.drainer.stream.schema.upstream_jobs import Upstream, table
from tidb_binlog import binlog
from tidb_binlog.table_info import (
    FLAG_NOT_NULL,
    FLAG_PRIMARY,
    LONGLONG,
    VARCHAR,
    Column,
    FieldType,
    Index,
    IndexColumn,
    TableInfo,
)
from tidb_binlog.wire import binlog_pb2


def rows(*mutations: binlog_pb2.TableMutation, commit_ts: int = 1001, version: int = 4) -> Merged:
    value = binlog_pb2.PrewriteValue(schema_version=version, mutations=mutations).SerializeToString()
    payload = binlog.join(binlog.prewrite(1000, b"k", value), binlog.commit(1000, commit_ts, b"k"))
    return Merged(commit_ts, payload)


def ddl(job: Any, query: str = "ALTER TABLE t", commit_ts: int = 2001, state: int = 5) -> Merged:
    prewritten = binlog.prewrite_ddl(commit_ts - 1, b"k", query, job.id, state)
    payload = binlog.join(prewritten, binlog.commit(commit_ts - 1, commit_ts, b"k"))
    return Merged(commit_ts, payload, job.document)


class Setting:
    """Db (1000) with t (1), u (2); other (2000); mysql.user (4)."""

    def __init__(self, rules: Rules | None = None, **lists: Any) -> None:
        self.up = Upstream()
        self.tracker = SchemaTracker()
        for job in (
            self.up.create_database(),
            self.up.create_database(2000, "other"),
            self.up.create(table(1, "t")),
            self.up.create(table(2, "u")),
            self.up.create(table(4, "user"), schema_id=1),
        ):
            self.tracker.apply(job)
        self.translator = Translator(self.tracker, rules or TableFilter(**lists))

    def rows(self, *mutations: binlog_pb2.TableMutation, version: int = 5) -> Transaction:
        item = self.translator.translate(rows(*mutations, version=version))
        assert isinstance(item, Transaction)
        return item

    def ddl(self, action: int, query: str = "ALTER TABLE t", **fields: Any) -> Ddl:
        item = self.translator.translate(ddl(self.up.job(action, **fields), query))
        assert isinstance(item, Ddl)
        return item


KEY = FieldType(LONGLONG, FLAG_NOT_NULL | FLAG_PRIMARY, 20)


def mark_table(*, clustered: bool = True, channel: FieldType = KEY, name: str = "channel_id") -> TableInfo:
    return TableInfo(
        id=90,
        name="_drainer_repl_mark",
        columns=(
            Column(1, "id", 0, KEY),
            Column(2, name, 1, channel),
            Column(3, "val", 2, FieldType(LONGLONG, 0, 20)),
            Column(4, "channel_info", 3, FieldType(VARCHAR, 0, 64, -1, "utf8mb4", "utf8mb4_bin")),
        ),
        indexes=(Index(1, "PRIMARY", (IndexColumn("id", 0), IndexColumn(name, 1)), True, True),),
        is_common_handle=clustered,
    )

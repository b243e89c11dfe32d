"""DDL of the recorded scenarios as the translator hands them on, and what is to be seen downstream then."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from drainer.ddl.derive import definition as ddl_definition
from drainer.ddl.derive.compare import differences
from drainer.ddl.derive.render import Server
from drainer.ddl.policy import NO_DOWNSTREAM_MEANING
from drainer.ddl.run import downstream_schema as ddl_present
from drainer.mysql.connection import Connection
from drainer.stream.schema.tracker import SchemaTracker, is_system_schema
from drainer.txn import Ddl
from tests.drainer.support import recorded
from tidb_binlog.ddl_job import DdlJob
from tidb_binlog.wire import binlog_pb2

SYSTEM = ("mysql", "information_schema", "performance_schema", "sys")


def applied(scenario: str) -> Iterator[tuple[SchemaTracker, Ddl]]:
    """Every DDL that is to run downstream, with the tracker right after it."""
    tracker = SchemaTracker()
    for entry in recorded.merged(scenario):
        message = binlog_pb2.Binlog.FromString(entry.payload)
        if not message.ddl_job_id or entry.job is None:
            continue
        job = DdlJob.from_document(entry.job)
        change = tracker.apply(job)
        internal = change.tables and all(is_system_schema(schema) for schema, _ in change.tables)
        if not job.took_effect or internal or job.action in NO_DOWNSTREAM_MEANING:
            continue
        query = message.ddl_query.decode("utf-8", "surrogateescape")
        yield (
            tracker,
            Ddl(
                entry.commit_ts,
                job.id,
                job.action,
                change.schema,
                query,
                change.tables,
                job.schema_version,
                job=entry.job,
                before=change.before,
                after=change.after,
            ),
        )


def wrong(connection: Any, tracker: SchemaTracker, ddl: Ddl, server: Server, missing: set[str]) -> list[str]:
    """What differs downstream from the tracked schema after a DDL, but for what is known to be missing."""
    found = []
    for one in ddl.after:
        present = ddl_present.read(connection, (one.schema, one.name), server)
        lines = differences(ddl_definition.read(one.document), present, server)
        found += [f"{one.name}: {line}" for line in lines if not _is_missing(line, missing)]
    kept = {(one.schema, one.name) for one in ddl.after}
    for gone in ddl.before:
        name = gone.schema, gone.name
        free = name not in kept and tracker.table_named(*name) is None
        if free and ddl_present.read(connection, name, server) is not None:
            found.append(f"{gone.name}: the table is still there")
    return found


def _is_missing(line: str, missing: set[str]) -> bool:
    """`key kg is not there` after `expression key kg` was said to be missing."""
    words = line.split()
    return words[0] == "key" and any(f"key {words[1]}" in said for said in missing)


def drop_all(connection: Connection) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT SCHEMA_NAME FROM information_schema.SCHEMATA")
        for (name,) in cursor.fetchall():
            if name not in SYSTEM:
                cursor.execute(f"DROP DATABASE `{name}`")

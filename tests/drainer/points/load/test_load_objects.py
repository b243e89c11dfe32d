"""What a real TiDB had is made downstream by a load: views, sequences, partitions, generated columns."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.checkpoint.job_findings import JobFindings
from drainer.ddl.run import downstream_schema
from drainer.ddl.run.runner import DdlRunner
from drainer.mysql.connection import Connection
from drainer.mysql.errors import SessionError
from drainer.mysql.literal.quoting import qualified
from drainer.points.load.contents import Contents, contents_of
from drainer.points.load.preparing import Definitions
from drainer.stream.rules.rule_set import Rules
from drainer.stream.schema.tracker import SchemaTracker
from tests.drainer.points.load.load_bed import Bed
from tests.drainer.support import recorded
from tidb_binlog import ddl_job

pytestmark = pytest.mark.integration

SCENARIO = "ddl"
SUFFIX = "_copied"


def tracked() -> SchemaTracker:
    jobs = recorded.jobs(SCENARIO)
    newest = max(ddl_job.parse(job).effective_version for job in jobs)
    return SchemaTracker.from_history(jobs, schema_version=newest)


@pytest.fixture
def bed(mariadb: MariaDbServer) -> Iterator[Bed]:
    bed = Bed(mariadb)
    schemas = [name for name, _ in contents_of(tracked(), Rules()).databases]  # none of the server's own
    yield bed
    bed.clean()
    bed.run(*(f"DROP DATABASE IF EXISTS `{name}{end}`" for name in schemas for end in ("", SUFFIX)))


def make(bed: Bed, tracker: SchemaTracker) -> Contents:
    """What the upstream has: the same definitions under their own names, with a few rows."""
    contents = contents_of(tracker, Rules())
    runner = DdlRunner(bed.target, tracker)
    definitions = Definitions(runner, tracker.version, JobFindings("tidb_binlog", 7))
    definitions.open()
    for name, _ in contents.databases:
        definitions.make_database(name, *(tracker.database_collation(name) or ("", "")))
    for source in (*contents.sequences, *contents.tables):
        definitions.make(source)
    definitions.make_views(contents.views)
    runner.close()
    connection = bed.connect()
    connection.run(b"SET SESSION sql_mode=''")
    filled = sum(fill(connection, source.name) for source in contents.tables)
    connection.commit()
    connection.close()
    assert filled > len(contents.tables) / 2
    return contents


def fill(connection: Connection, table: tuple[str, str]) -> bool:
    """A row or two of defaults; False where a check takes none."""
    for number in range(2):
        try:
            connection.run(b"INSERT INTO " + qualified(*table) + b" () VALUES ()")
        except SessionError:
            return number > 0
    return True


async def test_everything_that_a_tidb_had_is_there_and_like_it(bed: Bed) -> None:
    tracker = tracked()
    contents = make(bed, tracker)
    bed.history.jobs = recorded.jobs(SCENARIO)
    bed.options["table_migrate_rule"] = tuple(
        {"source": {"schema": name}, "target": {"schema": f"{name}{SUFFIX}"}}
        for name, _ in contents.databases
    )
    done = await bed.load()
    assert done.tables == len(contents.tables)
    connection = bed.connect()
    server = downstream_schema.server_of(connection)
    for source in (*contents.tables, *contents.views, *contents.sequences):
        schema, name = source.name
        here = downstream_schema.read(connection, (schema, name), server)
        there = downstream_schema.read(connection, (f"{schema}{SUFFIX}", name), server)
        assert here == there, source.label
    for source in contents.tables:
        schema, name = source.name
        query = b"SELECT * FROM %b"
        rows, copies = (
            sorted(connection.rows(query % qualified(one, name)), key=repr)
            for one in (schema, f"{schema}{SUFFIX}")
        )
        assert rows == copies, source.label
    connection.close()
    ((text,),) = bed.rows("SELECT checkPoint FROM tidb_binlog.checkpoint")
    assert json.loads(text)["schema-version"] == tracker.version

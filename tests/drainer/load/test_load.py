"""A load from a publisher's database into MariaDB: all rows at T, the checkpoint there; resumed."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from deploy.playground.cluster.mariadb import MariaDbServer
from tests.drainer.load.load_bed import CLUSTER, COPY, SCHEMA, Bed

pytestmark = pytest.mark.integration


@pytest.fixture
def bed(mariadb: MariaDbServer) -> Iterator[Bed]:
    bed = Bed(mariadb)
    yield bed
    bed.clean()


def fill(bed: Bed) -> None:
    """A table with a key, one without, one of text."""
    bed.publish("orders", [("id", "bigint"), ("item", "varchar(40)"), ("price", "decimal(10,2)")], ("id",))
    bed.publish("log", [("a", "int"), ("b", "varchar(20)")])
    bed.publish("names", [("name", "varchar(40)"), ("born", "datetime(3)")], ("name",))
    bed.run(
        f"CREATE TABLE {SCHEMA}.orders (id BIGINT PRIMARY KEY, item VARCHAR(40), price DECIMAL(10,2))",
        f"CREATE TABLE {SCHEMA}.log (a INT, b VARCHAR(20))",
        f"CREATE TABLE {SCHEMA}.names (name VARCHAR(40) COLLATE utf8mb4_bin PRIMARY KEY, born DATETIME(3))",
        f"INSERT INTO {SCHEMA}.orders SELECT seq, CONCAT('it''em\\\\', seq), seq / 7 FROM seq_1_to_5000",
        f"INSERT INTO {SCHEMA}.log SELECT seq DIV 3, 'x' FROM seq_1_to_3000",
        f"INSERT INTO {SCHEMA}.names SELECT CONCAT('ü', seq), '2024-01-01 00:00:00.125' FROM seq_1_to_300",
    )


async def test_what_is_upstream_at_t_is_downstream_and_the_checkpoint_stands_there(bed: Bed) -> None:
    fill(bed)
    done = await bed.load()
    assert (done.tables, done.rows, done.missing) == (3, 8300, ())
    assert bed.is_equal("orders", "log", "names")
    ((text,),) = bed.rows(f"SELECT checkPoint FROM tidb_binlog.checkpoint WHERE clusterID={CLUSTER}")
    stored = json.loads(text)
    assert (stored["consistent"], stored["commitTS"], stored["schema-version"]) == (True, done.ts, 4)
    assert bed.rows("SELECT COUNT(*) FROM tidb_binlog.load_chunks") == [(0,)]
    assert bed.rows("SELECT phase FROM tidb_binlog.load_state") == [("done",)]
    lanes = bed.rows("SELECT DISTINCT applied_ts FROM tidb_binlog.lanes WHERE lane < 65536")
    assert lanes == [(done.ts,)]
    entry = bed.nodes.drainers["load-test"].status
    assert (entry.state, entry.max_commit_ts) == ("paused", done.ts)
    assert bed.rows(f"SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA='{COPY}'") == [(3,)]

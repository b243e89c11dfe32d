"""What is known of the tables downstream before rows are written."""

from __future__ import annotations

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.reading.archive.decode.definitions import Definitions
from drainer.spark.effects.operations import table_id
from drainer.spark.replay.writer import DownstreamTables
from drainer.txn import TableVersion
from tidb_binlog.table_info import FLAG_NOT_NULL, FLAG_PRIMARY, LONG, Column, FieldType, TableInfo

pytestmark = pytest.mark.integration

TABLE = TableInfo(
    1, "t", (Column(1, "id", 0, FieldType(LONG, FLAG_NOT_NULL | FLAG_PRIMARY)),), pk_is_handle=True
)
VIEW = TableInfo(2, "v", (Column(1, "id", 0, FieldType(0)),), is_view=True)  # TiDB gives its columns no types


def test_a_view_is_no_table_to_write_to(mariadb: MariaDbServer) -> None:
    table, view = (TableVersion(info, "d", info.name, 3) for info in (TABLE, VIEW))
    connection = mariadb.connect()
    try:
        for statement in (
            b"DATABASE d",
            b"TABLE d.t (id INT PRIMARY KEY)",
            b"VIEW d.v AS SELECT id FROM d.t",
        ):
            connection.run(b"CREATE " + statement)
        known = DownstreamTables(Definitions(), connection).tables([table, view])
        assert table_id(table) in known.downstream
    finally:
        connection.run(b"DROP DATABASE d")
        connection.close()

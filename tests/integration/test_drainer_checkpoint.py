"""The drainer as a process, started on what belongs to somebody else: one line and its own exit code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.mysql.connection import Target, connect
from tests.integration.support.drainer_command import command, downstream, ended
from tidb_binlog.upstream.standalone import StandaloneUpstream

pytestmark = pytest.mark.integration
SCHEMA = "process_clash"
OWN_SCHEMA = f'[syncer.to.checkpoint]\nschema = "{SCHEMA}"\n'


@pytest.fixture
def target(mariadb: MariaDbServer) -> Iterator[Target]:
    target = Target(mariadb.host, mariadb.port, mariadb.user, mariadb.password)
    yield target
    connection = connect(target)
    connection.run(f"DROP DATABASE IF EXISTS {SCHEMA}".encode())
    connection.close()


def write_row(target: Target, cluster_id: int, text: str) -> None:
    connection = connect(target)
    for statement in (
        f"CREATE DATABASE IF NOT EXISTS {SCHEMA}",
        f"CREATE TABLE {SCHEMA}.checkpoint (clusterID BIGINT UNSIGNED PRIMARY KEY, checkPoint MEDIUMTEXT)",
        f"INSERT INTO {SCHEMA}.checkpoint VALUES ({cluster_id}, '{text}')",
    ):
        connection.run(statement.encode())
    connection.commit()
    connection.close()


async def founded(etcd: str) -> int:
    upstream = await StandaloneUpstream.connect(etcd)
    await upstream.close()
    return upstream.cluster_id


async def test_the_data_directory_of_another_cluster(
    tmp_path: Path, etcd_clean: str, free_port: Callable[[], int], mariadb: MariaDbServer
) -> None:
    cluster_id = await founded(etcd_clean)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / ".cluster").write_text("12")
    code, line = ended(command(tmp_path, etcd_clean, free_port(), downstream(mariadb) + OWN_SCHEMA))
    assert code == 10
    assert f"belongs to cluster 12, but the upstream is cluster {cluster_id}" in line


async def test_the_checkpoint_of_another_cluster(
    tmp_path: Path,
    etcd_clean: str,
    free_port: Callable[[], int],
    mariadb: MariaDbServer,
    target: Target,
) -> None:
    cluster_id = await founded(etcd_clean)
    write_row(target, 12, '{"commitTS":5}')
    code, line = ended(command(tmp_path, etcd_clean, free_port(), downstream(mariadb) + OWN_SCHEMA))
    assert code == 5
    assert f"nothing of cluster {cluster_id}, but of cluster 12" in line


async def test_a_checkpoint_of_the_future(
    tmp_path: Path,
    etcd_clean: str,
    free_port: Callable[[], int],
    mariadb: MariaDbServer,
    target: Target,
) -> None:
    cluster_id = await founded(etcd_clean)
    write_row(target, cluster_id, f'{{"commitTS":{(1 << 62)}}}')
    code, line = ended(command(tmp_path, etcd_clean, free_port(), downstream(mariadb) + OWN_SCHEMA))
    assert code == 6
    assert f"the checkpoint of cluster {cluster_id} is at {1 << 62}, but the upstream is at" in line

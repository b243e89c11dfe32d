"""binlogctl restore, killed as a process: the next one goes on, and a row without a key comes once, too."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from drainer.mysql.connection import Target, connect
from drainer.mysql.errors import SessionError
from drainer.points.image.manifest import ROWS, Manifest
from drainer.points.image.parquet_writer import TableWriter
from drainer.reading.archive.decode.images import ImagePlan
from drainer.txn import TableVersion
from tests import forked
from tests.drainer.support.apply_life import column, run
from tests.forked import Forked
from tests.waiting import PATIENCE_S
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.table_info import LONG, VARCHAR, TableInfo

pytestmark = pytest.mark.integration
COUNT = 12_000


@pytest.fixture
def arguments(target: Target, tmp_path: Path) -> list[str]:
    """Of a restore of one table without a key, each row of which is there three times."""
    info = TableInfo(1, "plain", (column(1, "a", LONG), column(2, "b", VARCHAR)))
    encoder, plan = RowEncoder(info), ImagePlan(info)
    writer = TableWriter(str(tmp_path / "image"), TableVersion(info, "kept", "plain", 1))
    writer.begin()
    with writer.part(0) as part:
        part.add([plan.insert(encoder.insert((row // 3, "x"), 1)) for row in range(COUNT)])
    Manifest(1 << 58, "", "", "", (), (writer.table_image(),), ROWS).store(str(tmp_path / "image"))
    account = f'host = "{target.host}"\nport = {target.port}\nuser = "{target.user}"\n'
    (tmp_path / "to.toml").write_text(
        f'[syncer]\ndb-type = "mysql"\n[syncer.to]\n{account}password = "{target.password}"\n'
    )
    config, image = str(tmp_path / "to.toml"), str(tmp_path / "image")
    return ["restore", "-drainer-config", config, "-image", image, "-output", "json"]


def rows_there(target: Target) -> int:
    connection = connect(target)
    try:
        return int(connection.rows(b"SELECT COUNT(*) FROM kept.plain")[0][0])
    except SessionError:
        return 0
    finally:
        connection.close()


def test_a_process_that_is_killed_loses_and_doubles_nothing(target: Target, arguments: list[str]) -> None:
    slow = Forked("binlogctl", [*arguments, "-rate", "2000"])
    end_s = time.monotonic() + PATIENCE_S
    while slow.poll() is None and not rows_there(target):
        assert time.monotonic() < end_s
    slow.kill()
    slow.wait()
    assert rows_there(target)
    done = forked.run("binlogctl", *arguments)
    done.check_returncode()
    found = json.loads(done.stdout)
    assert (found["finished"], found["different"], found["compared"]) == (True, [], COUNT)
    counts = "SELECT MIN(n), MAX(n), COUNT(*) FROM (SELECT COUNT(*) n FROM kept.plain GROUP BY a) each_of"
    assert run(target, counts) == [(3, 3, COUNT // 3)]

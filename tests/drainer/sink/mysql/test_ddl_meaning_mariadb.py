"""DDL whose text means something else to a server than to TiDB, recorded from a TiDB, on a real MariaDB."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import random
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from binlog_playground.check.downstream import Downstream
from binlog_playground.check.verify import compare
from binlog_playground.cluster.mariadb import MariaDbServer
from binlog_playground.scenario import load
from drainer.config.options import BESIDE_ROWS
from drainer.ddl.run import downstream_schema
from drainer.mysql.connection import Target, connect
from drainer.mysql.errors import SessionError
from drainer.sink.mysql.mysql_sink import MysqlSink
from drainer.stream.pull.merged import Merged
from tests.crash.faults.statement_proxy import StatementProxy
from tests.drainer.support.apply_life import Life, Recording
from tests.rig.workload.limits import MARIADB, misplaced
from tidb_binlog import binlog
from tidb_binlog.errors import DownstreamError, Unavailable

DIRECTORY = Path(__file__).resolve().parents[3] / "golden" / "meaning" / "ddl-meaning"

OPEN = {"m.c38"}
"""Tables with values that only a TiDB holds: 2^64-1 in an INT UNSIGNED, out of a DOUBLE."""

pytestmark = pytest.mark.integration


def lines(name: str) -> list[dict[str, Any]]:
    with gzip.open(DIRECTORY / name) as file:
        return [json.loads(line) for line in file]


def recording() -> Recording:
    """As a pump would have served what TiDB wrote: by commit_ts, each commit with its prewrite."""
    jobs = {line["id"]: base64.b64decode(line["raw"]) for line in lines("ddl_jobs.jsonl.gz")}
    prewrites: dict[int, bytes] = {}
    entries = []
    for line in lines("written.jsonl.gz"):
        payload = base64.b64decode(line["payload"])
        if line["tp"] == "P":
            prewrites[line["start_ts"]] = payload
        else:
            job = jobs.get(line["ddl_job_id"])
            whole = binlog.join(prewrites.pop(line["start_ts"]), payload)
            entries.append(Merged(line["commit_ts"], whole, json.loads(job) if job else None))
    cluster_id = int(json.loads((DIRECTORY / "meta.json").read_text())["cluster_id"])
    return Recording(cluster_id, list(jobs.values()), sorted(entries, key=lambda entry: entry.commit_ts))


STRANGE = {
    "explicit_defaults_for_timestamp": "OFF",
    "default_storage_engine": "MEMORY",
    "completion_type": "RELEASE",
    "sql_select_limit": 2,
    "max_join_size": 3,
    "sql_safe_updates": "ON",
    "sql_if_exists": "ON",
    "innodb_strict_mode": "OFF",
    "time_zone": "+05:00",
    "alter_algorithm": "COPY",
}


@pytest.fixture
def settings(mariadb: MariaDbServer) -> Iterator[None]:
    """A server whose administrator had ideas of his own. As it is, it is under the kills below."""
    root = mariadb.connect()
    before = {name: root.rows(f"SELECT @@GLOBAL.{name}".encode())[0][0] for name in STRANGE}
    for name, value in STRANGE.items():
        root.run(f"SET GLOBAL {name}={value!r}".encode())
    yield
    for name, value in before.items():
        root.run(f"SET GLOBAL {name}={value!r}".encode())
    root.close()


@pytest.mark.usefixtures("settings")
async def test_contents_equal_tidb(target: Target) -> None:
    """Tables, rows, engines, partitions, and values of columns whose type changed."""
    assert await Life(recording(), target).run()
    check(target)


WORDS = (b"ALTER", b"UPDATE `m`", b"COMMIT", b"")
"""Before or behind commands that begin so every life ends: steps of a DDL, chunks of values, rows, any."""


@pytest.mark.parametrize(
    ("seed", "beside_rows"),
    [(0, BESIDE_ROWS), (4, 0)],
    ids=["at once", "beside the stream"],
)
async def test_contents_equal_tidb_after_kills(target: Target, seed: int, beside_rows: int) -> None:
    """One life after the other dies; what is left of a DDL, of a conversion too, is done by the next."""
    target = replace(target, socket="")  # by its port, where the proxy listens
    recorded, chance, deaths = recording(), random.Random(seed), 0
    proxy = StatementProxy(target.host, target.port)
    try:
        while deaths < 8:
            word = chance.choice(WORDS)
            number = chance.randint(1, 20 if word else 400)
            proxy.arm(number, passes=chance.random() < 0.5, word=word)
            if await _lives(recorded, replace(target, port=proxy.port), proxy.struck, beside_rows):
                break
            deaths += 1
    finally:
        proxy.close()
    assert await Life(recorded, target, beside_rows=beside_rows).run(at_end=MysqlSink.finish_waiting)
    assert deaths > 5
    check(target)


async def _lives(recorded: Recording, target: Target, struck: threading.Event, beside_rows: int) -> bool:
    """Whether it got through before it was struck."""
    try:
        life = Life(recorded, target, beside_rows=beside_rows)
        run = asyncio.create_task(life.run(at_end=MysqlSink.finish_waiting))
        while not run.done() and not struck.is_set():
            await asyncio.wait([run], timeout=0.002)
        if struck.is_set():
            life.sink.stop()  # or release waits for the server to come back
            run.cancel()
        return await run and not struck.is_set()
    except (SessionError, OSError, Unavailable, DownstreamError, asyncio.CancelledError):
        if not struck.is_set():
            raise
        return False


def check(target: Target) -> None:
    scenario = load(DIRECTORY)
    with connect(target) as connection:
        actual = Downstream(connection).contents(scenario.expected)
        waiting = connection.rows(b"SELECT `tables` FROM tidb_binlog.quarantine")
        engines = connection.rows(
            b"SELECT DISTINCT ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA='m'"
        )
        beside = connection.rows(
            b"SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE COLUMN_NAME LIKE 'tidb_binlog_cast%'"
        )
        bounds = downstream_schema.read(connection, ("m", "p2"), downstream_schema.server_of(connection))
    report = compare(scenario.expected, actual, MARIADB, misplaced(scenario.statements))
    # Bytes of this recording are in upper case.
    differ = [one for one in report.differences if str(one.expected).upper() != str(one.actual).upper()]
    assert {found.table for found in differ} == OPEN
    assert {f"m.{json.loads(names)[0][1]}" for (names,) in waiting} <= OPEN
    assert engines == [("InnoDB",)]
    assert not beside
    assert bounds is not None
    assert bounds.partitions == ("p1", "p2")
    assert bounds.bounds == ("1609479000", "1641015000"), "of the session in -05:30"

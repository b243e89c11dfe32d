"""A drainer's first start copies what its upstream has, is killed, goes on, and follows the stream then."""

from __future__ import annotations

import asyncio
import json
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pumpclient
from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.mysql.connection import Connection, Target, connect
from tests import forked
from tests.common.page.support.reading import read
from tests.forked import Forked
from tests.integration.support.copied_shop import COPY, ROWS, SCHEMA, Shop, answers, equal
from tests.rig.workload.application import Application
from tests.waiting import PATIENCE_S
from tidb_binlog.upstream.standalone import StandaloneUpstream

pytestmark = pytest.mark.integration


async def test_a_first_start_loads_and_goes_on_where_it_was_killed(
    etcd_clean: str, mariadb: MariaDbServer, free_port: Callable[[], int], tmp_path: Path
) -> None:
    await (await StandaloneUpstream.connect(etcd_clean)).close()
    status, own = (f"127.0.0.1:{free_port()}" for _ in range(2))
    config = tmp_path / "drainer.toml"
    account = f'host = "127.0.0.1"\nport = {mariadb.port}\n'
    account += f'user = "{mariadb.user}"\npassword = "{mariadb.password}"\n'
    route = f'source = {{ schema = "{SCHEMA}" }}\ntarget = {{ schema = "{COPY}" }}\n'
    config.write_text(
        f'pd-urls = "{etcd_clean}"\naddr = "{own}"\nnode-id = "first"\ndata-dir = "{tmp_path}/drainer"\n'
        f'[syncer]\nworker-count = 2\n[syncer.from]\n{account}outcome-table = "{SCHEMA}.binlog_outcome"\n'
        f"[syncer.to]\n{account}"
        f"[[syncer.table-migrate-rule]]\n{route}"
    )
    pump = Forked(
        "pump",
        [f"--pd-urls={etcd_clean}", f"--addr={status}", f"--data-dir={tmp_path}/pump"],
        tmp_path / "log",
    )
    connection = connect(Target("127.0.0.1", mariadb.port, mariadb.user, mariadb.password))
    drainer: Forked | None = None
    try:
        await answers(f"http://{status}/status", pump)
        application = Application(mariadb, SCHEMA)
        application.create()
        publisher = await pumpclient.open_publisher(etcd_clean, outcomes=application.outcomes)
        async with publisher:
            shop = Shop(application, publisher)
            await shop.begin()
            await shop.write()
            # A table that nobody may read: the load stands still in the middle.
            connection.run(f"LOCK TABLES {SCHEMA}.plain WRITE".encode())
            drainer = Forked("drainer", ["--load", f"--config={config}"], tmp_path / "log")
            await begun(mariadb, drainer)
            await shows_bars(own)
            drainer.send_signal(signal.SIGKILL)
            drainer.wait()
            connection.run(b"UNLOCK TABLES")
            await shop.write()
            refused(config)
            drainer = Forked("drainer", ["--load", f"--config={config}"], tmp_path / "log")
            for _ in range(20):
                await shop.write()
            await publisher.flush()
            await equal(connection, drainer)
            drainer.send_signal(signal.SIGTERM)
            assert drainer.wait(PATIENCE_S) == 0
            config.write_text(config.read_text() + '[verify]\nevery = "1s"\nrows-per-second = 0\n')
            again = Forked("drainer", ["--load", f"--config={config}"], tmp_path / "log")
            drainer = again
            await shop.write()
            await publisher.flush()
            await equal(connection, again)
            await compares_by_itself(own, shop, connection)
            assert b"1 row" in (tmp_path / "drainer" / "verify.html").read_bytes()
    finally:
        for process in (pump, drainer):
            if process is not None:
                process.kill()
                process.wait()
        connection.run(b"UNLOCK TABLES")
        for name in (SCHEMA, COPY, "tidb_binlog"):
            connection.run(f"DROP DATABASE IF EXISTS {name}".encode())
        connection.close()


async def shows_bars(address: str) -> None:
    """The page of a drainer that is not up yet: each table, and that rows of one are there."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with pytest.raises(urllib.error.HTTPError, match="503") as starting:
                await asyncio.to_thread(urllib.request.urlopen, f"http://{address}/")
            page = read(starting.value.read().decode())
            bars = {one.named("figcaption")[0].text: one.text for one in page.named("figure")}
            if bars.keys() >= {f"{SCHEMA}.keyed", f"{SCHEMA}.plain"} and "copying: 0 rows" not in page.text:
                return
            await asyncio.sleep(0.05)


async def compares_by_itself(address: str, shop: Shop, connection: Connection) -> None:
    """A drainer with [verify] says that all is equal while rows go on, and which table is not any more."""
    equal = await verified(address, shop, "equal")
    assert (equal["tables"], equal["wrong"], equal["failures"]) == (2, 0, 0)
    assert equal["rows"] > 2 * ROWS
    assert equal["held_ms"] > 0
    connection.run(f"DELETE FROM {COPY}.keyed WHERE id = 7".encode())
    connection.commit()
    differs = await verified(address, shop, "differs")
    assert (differs["wrong"], differs["wrong_rows"]) == (1, {f"{COPY}.keyed": 1})
    assert differs["ts"] > equal["ts"]


async def verified(address: str, shop: Shop, state: str) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            await shop.write()
            found = await asyncio.to_thread(verify_status, address)
            assert not found.get("trouble"), found
            if found.get("state") == state:
                return found
            await asyncio.sleep(0.05)


def verify_status(address: str) -> dict[str, Any]:
    """Nothing while the drainer starts."""
    try:
        with urllib.request.urlopen(f"http://{address}/status") as page:
            return dict(json.loads(page.read()).get("Verify") or {})
    except urllib.error.HTTPError:
        return {}


async def begun(mariadb: MariaDbServer, drainer: Forked) -> None:
    """Until rows of the first table have been copied."""
    connection = connect(Target("127.0.0.1", mariadb.port, mariadb.user, mariadb.password))
    end = time.monotonic() + PATIENCE_S
    query = b"SELECT COUNT(*) FROM tidb_binlog.load_chunks WHERE state=2"
    while connection.rows_if_there(query)[0] in ([], [(0,)]):
        connection.rollback()
        assert drainer.poll() is None, f"drainer ended with {drainer.returncode}"
        assert time.monotonic() < end, "nothing is copied"
        await asyncio.sleep(0.02)
    connection.close()


def refused(config: Path) -> None:
    """A start without --load says why there is none."""
    ended = forked.run("drainer", f"--config={config}")
    assert ended.returncode == 4, ended.stderr
    assert "the downstream is only partly loaded" in ended.stderr.splitlines()[-1]
    assert "binlogctl load" in ended.stderr.splitlines()[-1]

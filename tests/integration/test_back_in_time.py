"""The downstream goes back in time under a living drainer: a directory put back, a lagging replica promoted.

The table has no key: a row too many or too few shows.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.mysql.connection import Target, connect
from tests.forked import Forked
from tests.integration.support.standby_scene import Scene
from tests.rig.proxy import Proxy
from tests.waiting import PATIENCE_S, until
from tidb_binlog.upstream.standalone import StandaloneUpstream

pytestmark = pytest.mark.integration


class BackInTime(Scene):
    """A scene with a server of its own, behind `port`, and a drainer with `extra` lines in its file."""

    port = 0
    extra = ""

    def start_drainer(self, name: str, *arguments: str) -> Forked:
        config = self.directory / "drainer.toml"
        config.write_text(
            "initial-commit-ts = 0\n[syncer]\nworker-count = 4\n"
            f'[syncer.to]\nhost = "127.0.0.1"\nport = {self.port}\n'
            f'user = "{self.server.user}"\npassword = "{self.server.password}"\n' + self.extra
        )
        return self.start(name, "drainer", f"--config={config}", "--node-id=back", *arguments)

    async def went_back(self) -> list[str]:
        """What the drainer says of it."""
        code, text = await self.ask("drainer", "/status")
        assert code == 200
        return [str(one["why"]) for one in json.loads(text).get("WentBack", ())]

    async def until_went_back(self) -> None:
        await until(self.went_back, "it went back")


@asynccontextmanager
async def running(
    endpoint: str,
    directory: Path,
    free_port: Callable[[], int],
    port: Callable[[MariaDbServer], int],
    *,
    ends: bool = False,
) -> AsyncIterator[BackInTime]:
    """A drainer that replicates what a writer writes; at the end everything is there once.

    `ends`: the test ends it.
    """
    await (await StandaloneUpstream.connect(endpoint)).close()
    server = MariaDbServer()
    await asyncio.to_thread(server.start, directory / "a")
    scene = BackInTime(endpoint, server, directory, free_port)
    scene.port = port(server)
    scene.extra = f'\n[syncer.relay]\nlog-dir = "{directory / "relay"}"\nmax-file-size = "4KiB"\n'
    scene.start("pump", "pump", "--node-id=back-pump")
    writing: asyncio.Task[None] | None = None
    try:
        await scene.until_ready("pump", 200, "ok")
        scene.start_drainer("drainer")
        await scene.until_ready("drainer", 200, "ok")
        writing = asyncio.create_task(scene.write())
        await scene.until_rows(100)
        yield scene
        if ends:
            return
        scene.finished = True
        await asyncio.wait_for(writing, PATIENCE_S)
        await scene.until_rows(scene.written)
        assert scene.rows() == (scene.written, scene.written), "nothing twice, nothing lost"
        assert scene.processes["drainer"].poll() is None, "without a restart"
        assert (
            f"binlog_drainer_downstream_went_back_total {len(await scene.went_back())}.0"
            in (await scene.ask("drainer", "/metrics"))[1]
        )
    finally:
        if writing is not None:
            writing.cancel()
            await asyncio.wait({writing})  # its publisher closes
        for process in scene.processes.values():
            process.kill()
            process.wait()
        scene.server.kill()
        server.kill()


def copied(server: MariaDbServer, to: Path) -> None:
    """Its data directory as it is now."""
    server.stop()
    shutil.copytree(server.directory / "data", to)
    server.restart()


async def test_a_data_directory_is_put_back(
    etcd_clean: str, free_port: Callable[[], int], tmp_path: Path
) -> None:
    async with running(etcd_clean, tmp_path, free_port, lambda server: server.port) as scene:
        server = scene.server
        await asyncio.to_thread(copied, server, tmp_path / "before")
        kept = scene.rows()[0]
        await scene.until_rows(kept + 200)
        server.kill()
        shutil.rmtree(server.directory / "data")
        shutil.copytree(tmp_path / "before", server.directory / "data")
        await asyncio.to_thread(server.restart)
        await scene.until_went_back()
        await scene.until_rows(scene.written + 50)
        (why,) = await scene.went_back()
        assert "the downstream went back in time" in why
        await scene.until_ready("drainer", 200, "ok")


async def test_a_replica_that_lags_is_promoted_while_sessions_still_work_on_the_old_one(
    etcd_clean: str, free_port: Callable[[], int], tmp_path: Path
) -> None:
    proxy = Proxy("127.0.0.1", 0)
    await proxy.start()

    def port(server: MariaDbServer) -> int:
        proxy.lead_to(server.host, server.port)
        return proxy.port

    replica = MariaDbServer()
    try:
        async with running(etcd_clean, tmp_path, free_port, port) as scene:
            old = scene.server
            await asyncio.to_thread(replica.prepare, tmp_path / "b")
            shutil.rmtree(replica.directory / "data")
            await asyncio.to_thread(copied, old, replica.directory / "data")
            replica.user, replica.password = old.user, old.password
            await asyncio.to_thread(replica.restart)
            await scene.until_rows(scene.rows()[0] + 200)
            proxy.lead_to(replica.host, replica.port)
            scene.server = replica
            target = Target(old.host, old.port, old.user, old.password)
            await asyncio.to_thread(end_one_session, target, proxy.local_ports)
            await scene.until_went_back()
            await scene.until_rows(scene.written + 50)
            assert scene.processes["drainer"].poll() is None
    finally:
        replica.kill()
        await proxy.close()


def end_one_session(target: Target, ports: set[int]) -> None:
    """Of a lane, by its port at the proxy: the others keep theirs, and go on committing where they are."""
    connection = connect(target)
    sessions = connection.rows(b"SELECT ID, HOST FROM information_schema.PROCESSLIST ORDER BY ID DESC")
    (newest, *_) = [number for number, host in sessions if host.rpartition(":")[2] in map(str, ports)]
    connection.run(b"KILL CONNECTION %d" % newest)
    connection.close()


async def test_an_emptied_downstream_is_not_filled_from_now_on(
    etcd_clean: str, free_port: Callable[[], int], tmp_path: Path
) -> None:
    """Without a checkpoint a start begins where it is told to: that would be a gap here."""
    async with running(etcd_clean, tmp_path, free_port, lambda server: server.port, ends=True) as scene:
        connection = scene.server.connect()
        with connection.cursor() as cursor:
            cursor.execute("DROP DATABASE tidb_binlog")
        connection.close()
        assert await asyncio.to_thread(scene.processes["drainer"].wait, PATIENCE_S) == 5
        said = (tmp_path / "drainer.log").read_text()
        assert "and there was before" in said

"""docs/verify.md: its commands, in their order, beside a program that writes and a Drainer that runs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shlex
import signal
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

import pytest

import pumpclient
from binlog_playground.cluster.mariadb import MariaDbServer
from binlogctl.cli.commands import DIFFERS, DONE, EXIT_CODES, NOT_COMPARABLE
from drainer.compare.verify.result import LISTED_MAX
from drainer.mysql.connection import Connection, Target, connect
from tests.deploy.binlogctl.conftest import Ctl, ctl  # noqa: F401 - a fixture
from tests.drainer.reading.archive.support import corpus
from tests.drainer.support.relay_world import items
from tests.forked import Forked
from tests.integration.support.copied_shop import COPY, SCHEMA, Shop, answers, equal
from tests.rig.workload.application import Application
from tests.waiting import PATIENCE_S
from tidb_binlog.upstream.standalone import StandaloneUpstream

pytestmark = pytest.mark.integration

PAGE: Final = (Path(__file__).resolve().parents[3] / "docs" / "verify.md").read_text()
SHELL: Final = "".join(re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S))
COMMANDS: Final = [shlex.split(line)[1:] for line in SHELL.splitlines() if " -mirror " not in line]
ROWS: Final = 2_000
ONCE: Final = ("-retries", "0")  # a difference that stays need not be waited for
DAMAGE: Final = (
    "DELETE FROM {copy}.keyed WHERE id IN (1, 1000)",
    "UPDATE {copy}.keyed SET v='X' WHERE id=2",
    "INSERT INTO {copy}.keyed VALUES (-7, NULL)",
    "INSERT INTO {copy}.plain SELECT * FROM {copy}.plain WHERE id=3",
    "DELETE FROM {copy}.plain WHERE id=4",
)


class Scene:
    def __init__(self, drainer: Forked, shop: Shop, connection: Connection, run: Ctl) -> None:
        self.drainer = drainer
        self.shop = shop
        self.connection = connection
        self._run = run
        self.out = ""

    async def ends(self, argv: list[str], code: int) -> None:
        """The command of the page; what it says is in `out`."""
        here = [word.replace("shop.*", f"{SCHEMA}.*").replace("/data/", "") for word in argv]
        done = await self._run(*here)
        assert done.code == code, (argv, done.out, done.err)
        self.out = done.out

    def damage(self) -> None:
        for statement in DAMAGE:
            self.connection.run(statement.format(copy=COPY).encode())
        self.connection.commit()

    @contextlib.asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """The program writes all the time."""

        async def write() -> None:
            while True:
                await self.shop.write()

        task = asyncio.create_task(write())
        try:
            yield
            assert not task.done(), task.exception()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def scene(
    etcd_clean: str,
    mariadb: MariaDbServer,
    free_port: Callable[[], int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ctl: Ctl,  # noqa: F811 - the fixture
) -> AsyncIterator[Scene]:
    await (await StandaloneUpstream.connect(etcd_clean)).close()
    monkeypatch.chdir(tmp_path)
    status, own = (f"127.0.0.1:{free_port()}" for _ in range(2))
    account = f'host = "127.0.0.1"\nport = {mariadb.port}\n'
    account += f'user = "{mariadb.user}"\npassword = "{mariadb.password}"\n'
    Path("drainer.toml").write_text(
        f'pd-urls = "{etcd_clean}"\naddr = "{own}"\nnode-id = "page"\ndata-dir = "{tmp_path}/drainer"\n'
        f'[syncer]\nworker-count = 2\n[syncer.from]\n{account}outcome-table = "{SCHEMA}.binlog_outcome"\n'
        f"[syncer.to]\n{account}[[syncer.table-migrate-rule]]\n"
        f'source = {{ schema = "{SCHEMA}" }}\ntarget = {{ schema = "{COPY}" }}\n'
    )
    Path("archive").symlink_to(corpus.our_archive(items("basic"), tmp_path / "recorded").uri)
    log = tmp_path / "log"
    pump = Forked("pump", [f"--pd-urls={etcd_clean}", f"--addr={status}", f"--data-dir={tmp_path}/pump"], log)
    connection = connect(Target("127.0.0.1", mariadb.port, mariadb.user, mariadb.password))
    drainer: Forked | None = None
    try:
        await answers(f"http://{status}/status", pump)
        application = Application(mariadb, SCHEMA)
        application.create()
        async with await pumpclient.open_publisher(etcd_clean, outcomes=application.outcomes) as publisher:
            shop = Shop(application, publisher, ROWS)
            await shop.begin()
            await shop.write()
            drainer = Forked("drainer", ["--load", "--config=drainer.toml"], log)
            await equal(connection, drainer)
            yield Scene(drainer, shop, connection, ctl)
    finally:
        for process in (pump, drainer):
            if process is not None:
                process.kill()
                process.wait()
        for name in (SCHEMA, COPY, "tidb_binlog"):
            connection.run(f"DROP DATABASE IF EXISTS {name}".encode())
        connection.close()


async def test_its_commands_find_and_mend_what_differs(scene: Scene, mariadb: MariaDbServer) -> None:
    first, some, archive, as_json, now, file, at_rest = COMMANDS
    async with scene.writing():
        await scene.ends(first, DONE)
        assert "apply was held for" in scene.out
        assert "downstream equals upstream: 2 tables" in scene.out.splitlines()[-1]
        await scene.ends(some, DONE)
        assert 'class="verdict good"' in Path("verify.html").read_text()
        scene.damage()
        await scene.ends([*archive, *ONCE], DIFFERS)
        assert scene.out.splitlines()[-1].startswith("6 rows differ in 2 of 2 tables")
        assert 'class="verdict bad"' in Path("verify.html").read_text()
        await scene.ends([*as_json, *ONCE], DIFFERS)
        found = json.loads(scene.out)
        assert {
            one["downstream"]: one["missing"] + one["extra"] + one["changed"] for one in found["tables"]
        } == {
            f"{COPY}.keyed": 4,
            f"{COPY}.plain": 2,
        }
        await scene.ends(now, DIFFERS)
        await scene.ends(first, DONE)
        scene.damage()
        await scene.ends([*file, *ONCE], DIFFERS)
        client = ["mariadb", f"--socket={mariadb.socket}", f"--user={mariadb.user}"]
        client += [f"--password={mariadb.password}"]
        with Path("repair.sql").open() as script:
            await asyncio.to_thread(subprocess.run, client, stdin=script, check=True, timeout=PATIENCE_S)
        await scene.ends(first, DONE)
    await equal(scene.connection, scene.drainer)
    scene.drainer.send_signal(signal.SIGTERM)
    assert scene.drainer.wait(PATIENCE_S) == 0
    await scene.ends(at_rest, DONE)


def test_what_it_says_of_exit_codes_and_limits() -> None:
    codes = {int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, re.M)}
    assert codes == {DONE, DIFFERS, NOT_COMPARABLE}
    for code in (DIFFERS, NOT_COMPARABLE):
        assert f"\n  {code}   verify:" in EXIT_CODES
    assert f"The first {LISTED_MAX} rows of a table are listed" in PAGE

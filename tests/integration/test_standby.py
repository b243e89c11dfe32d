"""Two drainers with one node id: the second waits, takes over in time, and the first can write no more."""

from __future__ import annotations

import asyncio
import bisect
import json
import re
import signal
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.mysql.connection import Target
from drainer.points.snapshot.downstream import Patience
from drainer.points.snapshot.drainer_hold import DrainerHold, locate_drainer
from tests.drainer.points.snapshot.opening import open_downstream
from tests.drainer.support.held_life import settings_of
from tests.integration.support.standby_scene import Scene
from tests.waiting import PATIENCE_S
from tidb_binlog.clock import SystemClock
from tidb_binlog.etcd.registry import connect_registry
from tidb_binlog.upstream.standalone import StandaloneUpstream

pytestmark = pytest.mark.integration

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "trace.md").read_text()


@pytest.fixture
async def scene(
    etcd_clean: str, mariadb: MariaDbServer, free_port: Callable[[], int], tmp_path: Path
) -> AsyncIterator[Scene]:
    await (await StandaloneUpstream.connect(etcd_clean)).close()
    scene = Scene(etcd_clean, mariadb, tmp_path, free_port)
    scene.start("pump", "pump", "--node-id=pair-pump")
    writing: asyncio.Task[None] | None = None
    try:
        await scene.until_ready("pump", 200, "ok")
        scene.start_drainer("first")
        await scene.until_ready("first", 200, "ok")
        writing = asyncio.create_task(scene.write())
        scene.start_drainer("second", "-standby")
        await scene.until_ready("second", 503, "is active")
        await scene.until_rows(100)
        yield scene
        scene.finished = True  # not cancelled: what is on its way to a pump may arrive, or not
        await asyncio.wait_for(writing, PATIENCE_S)
        await scene.until_rows(scene.written)
        assert scene.rows() == (scene.written, scene.written), "nothing twice, nothing lost"
    finally:
        if writing is not None:
            writing.cancel()
        for process in scene.processes.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()
        connection = mariadb.connect()
        with connection.cursor() as cursor:
            for name in ("pair", "tidb_binlog"):
                cursor.execute(f"DROP DATABASE IF EXISTS {name}")
        connection.close()


async def test_one_takes_over_from_the_other(scene: Scene) -> None:
    """First, second and so on stop gracefully, are frozen, killed, paused. The fixture counts the rows."""
    looking = asyncio.create_task(snapshots(scene))
    positions: list[int] = []
    watching = asyncio.create_task(watch(scene, positions))
    await check_standby(scene)
    await after_a_graceful_stop(scene)
    scene.start_drainer("third", "-standby", f"--trace={scene.directory / 'drainer.trace'}")
    await scene.until_ready("third", 503, "is active")
    await after_a_freeze(scene)
    scene.start_drainer("fourth", "-standby")
    await scene.until_ready("fourth", 503, "is active")
    await after_a_kill(scene)
    scene.start_drainer("fifth", "-standby")
    await scene.until_ready("fifth", 503, "is active")
    await after_an_operators_pause(scene)
    last = len(scene.commits)
    while not scene.seen or scene.seen[-1][1] <= last:
        assert not looking.done(), looking.exception()
        await asyncio.sleep(0.02)
    looking.cancel()
    watching.cancel()
    assert positions[0] < positions[-1]
    assert positions == sorted(positions), "pumps take a drainer that is below what they purged for lost"
    await scene.until_rows(scene.written + 5)
    for ts, rows in scene.seen:
        assert rows == bisect.bisect_right(scene.commits, ts), "a snapshot of what was committed up to there"


async def watch(scene: Scene, positions: list[int]) -> None:
    """Each checkpoint that the entry has had."""
    nodes = await connect_registry(scene.endpoint)
    try:
        async for view in nodes.watch():
            positions += [view.drainers["pair"].status.max_commit_ts]
    finally:
        await nodes.close()


async def snapshots(scene: Scene) -> None:
    """One after the other, of whichever drainer writes: each ends with an answer."""
    server = scene.server
    settings = settings_of(Target(server.host, server.port, server.user, server.password))
    nodes = await connect_registry(scene.endpoint)
    hold = DrainerHold(locate_drainer(nodes, "pair"), None, SystemClock())
    try:
        while True:
            snapshot = await open_downstream(settings, hold, 1, Patience(wait_s=1.0))
            with snapshot.session() as session:
                ((rows,),) = session.rows(b"SELECT COUNT(*) FROM pair.t")
            scene.seen.append((snapshot.ts, int(rows)))
            await snapshot.close()
            await asyncio.sleep(0.05)
    finally:
        await nodes.close()


@pytest.mark.parametrize("standby", [False, True])
async def test_who_cannot_reach_etcd_pushes_nobody_aside(scene: Scene, standby: bool) -> None:
    """It has a relay log, and the downstream is in its reach."""
    config = scene.directory / "drainer.toml"
    relay = f'\n[syncer.relay]\nlog-dir = "{scene.directory / "relay"}"\n'
    config.write_text('start-wait = "0s"\n' + config.read_text() + relay)
    endpoint, scene.endpoint = scene.endpoint, f"http://127.0.0.1:{scene.free_port()}"
    cut_off = scene.start(
        "cut off", "drainer", f"--config={config}", "--node-id=pair", *(["-standby"] if standby else [])
    )
    scene.endpoint = endpoint
    if standby:
        assert await asyncio.to_thread(cut_off.wait, PATIENCE_S) == 3
    else:
        await scene.until_ready("cut off", 503, "a drainer is connected to the downstream")
    await scene.until_rows(scene.written + 50)
    assert scene.processes["first"].poll() is None
    await scene.until_ready("first", 200, "ok")


async def test_a_standby_whose_downstream_has_no_checkpoint_does_not_begin_now(scene: Scene) -> None:
    """Its way leads to another server than the first one's, or the server lost what it had."""
    second = scene.processes["second"]
    second.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(second.wait, PATIENCE_S) == 0
    third = scene.start_drainer("third", "-standby", "-initial-commit-ts=-1")
    await scene.until_ready("third", 503, "is active")
    third.send_signal(signal.SIGSTOP)
    first = scene.processes["first"]
    first.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(first.wait, PATIENCE_S) == 0
    await asyncio.to_thread(move_tables, scene.server, "tidb_binlog", "pair")
    third.send_signal(signal.SIGCONT)
    assert await asyncio.to_thread(third.wait, PATIENCE_S) == 5
    assert "has nothing of cluster" in (scene.directory / "third.log").read_text()
    await asyncio.to_thread(move_tables, scene.server, "pair", "tidb_binlog")
    scene.start_drainer("fourth")
    await scene.until_ready("fourth", 200, "ok")


def move_tables(server: MariaDbServer, source: str, target: str) -> None:
    """All tables but that of the rows. Who was frozen while it looked at one has no session any more."""
    connection = server.connect()
    try:
        with connection.cursor() as cursor:
            cursor.execute(f"KILL USER {server.drainer_user}")
            cursor.execute(f"SHOW FULL TABLES FROM {source} WHERE Table_type = 'BASE TABLE'")
            for name, _ in cursor.fetchall():
                if name != "t":
                    cursor.execute(f"RENAME TABLE {source}.`{name}` TO {target}.`{name}`")
    finally:
        connection.close()


async def check_standby(scene: Scene) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:  # it looks now and then, and the first position may come after its first look
            code, text = await scene.ask("second", "/status")
            document = json.loads(text)
            assert code == 200
            if document["LastTS"] > 0:
                break
            await asyncio.sleep(0.05)
    assert list(document)[:4] == ["PumpPos", "Synced", "LastTS", "TsMap"]
    assert document["State"] == "standby"
    assert "pair at " in document["Standby"]["waits_for"]
    assert document["Standby"]["trouble"] == ""
    without = scene.start_drainer("refused")
    assert await asyncio.to_thread(without.wait, PATIENCE_S) == 5


async def state_of(scene: Scene, name: str) -> str:
    return str(json.loads((await scene.ask(name, "/status"))[1])["State"])


async def after_a_graceful_stop(scene: Scene) -> None:
    first = scene.processes["first"]
    first.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(first.wait, PATIENCE_S) == 0
    await scene.until_rows(scene.written + 1)
    assert await state_of(scene, "second") == "online"


async def after_a_freeze(scene: Scene) -> None:
    """It is frozen at work; there is no end of a process to be seen, so its lease has to run out."""
    second = scene.processes["second"]
    second.send_signal(signal.SIGSTOP)
    await scene.until_rows(scene.written + 50)
    second.send_signal(signal.SIGCONT)
    assert await asyncio.to_thread(second.wait, PATIENCE_S) == 5
    assert await state_of(scene, "third") == "online"


async def after_a_kill(scene: Scene) -> None:
    scene.processes["third"].kill()
    await scene.until_rows(scene.written + 50)
    await scene.until_ready("fourth", 200, "ok")
    check_trace(scene)


def check_trace(scene: Scene) -> None:
    """Of the one that was killed, read as docs/trace.md does: the way of a transaction, step by step."""
    (snippet,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)
    names: dict[str, Any] = {}
    exec(snippet.replace("drainer.trace", str(scene.directory / "drainer.trace")), names)
    events = names["events"]
    tracks = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    rows = "".join(re.findall(r"^\| `.*$", PAGE, re.M))
    documented = set(re.findall(r"`([^`]+)`", rows))
    for event in events:
        if event["ph"] != "M" and not event["name"].startswith("generation"):
            assert event["name"] in documented
            track = re.sub(r"^lane-\d+", "lane-N", tracks[event["tid"]]).replace("pump pair-pump", "pump ID")
            assert track in documented
    commit_ts = max(event["args"]["last_ts"] for event in events if event["name"] == "COMMIT")
    steps = ("received", "merged", "translates, dispatches", "queued", "applies a batch", "COMMIT")
    began = [
        min(event["ts"] for event in events if event["name"] == step and covers(event, commit_ts))
        for step in steps
    ]
    assert began == sorted(began)


def covers(event: dict[str, Any], commit_ts: int) -> bool:
    what = event.get("args", {})
    last_ts = what.get("last_ts", 0)
    return bool(what.get("first_ts", last_ts) <= commit_ts <= last_ts)


async def after_an_operators_pause(scene: Scene) -> None:
    """He wanted nothing to be written under this name, until somebody starts a drainer."""
    url = f"http://{scene.addresses['fourth']}/state/pair/pause"
    request = urllib.request.Request(url, method="PUT", data=b"")
    await asyncio.to_thread(lambda: urllib.request.urlopen(request, timeout=PATIENCE_S).close())
    assert await asyncio.to_thread(scene.processes["fourth"].wait, PATIENCE_S) == 0
    await scene.until_ready("fifth", 503, "told to leave")
    scene.start_drainer("sixth")
    await scene.until_ready("sixth", 200, "ok")
    await scene.until_ready("fifth", 503, "is active")

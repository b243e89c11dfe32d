"""binlogctl against processes: two pumps and a drainer are looked at, held, paused, closed and forgotten."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from binlogctl.commands import leave
from tests.deploy.binlogctl.conftest import Ctl
from tests.forked import Forked
from tests.waiting import PATIENCE_S
from tidb_binlog.clock import SystemClock
from tidb_binlog.upstream.standalone import StandaloneUpstream

pytestmark = pytest.mark.integration


@pytest.fixture
async def nodes(
    etcd_clean: str, mariadb: MariaDbServer, tmp_path: Path, free_port: Callable[[], int]
) -> AsyncIterator[dict[str, Forked]]:
    await (await StandaloneUpstream.connect(etcd_clean)).close()
    account = {
        "MYSQL_HOST": "127.0.0.1",
        "MYSQL_PORT": str(mariadb.port),
        "MYSQL_USER": mariadb.user,
        "MYSQL_PSWD": mariadb.password,
    }
    started: dict[str, Forked] = {}
    try:
        for name, program in (("pump-1", "pump"), ("pump-2", "pump"), ("drain-1", "drainer")):
            arguments = [
                *(f"--addr=127.0.0.1:{free_port()}", f"--node-id={name}", f"--pd-urls={etcd_clean}"),
                *(f"--data-dir={tmp_path / name}", f"--log-file={tmp_path / name}.log"),
            ]
            started[name] = Forked(program, arguments, **account)
        yield started
    finally:
        for process in started.values():
            process.kill()
            process.wait()


async def until_well(ctl: Ctl, endpoint: str, nodes: dict[str, Forked]) -> dict[str, object]:
    clock = SystemClock()
    end_s = clock.monotonic_s() + PATIENCE_S
    while True:
        assert not [name for name, process in nodes.items() if process.poll() is not None]
        done = await ctl("status", "-pd-urls", endpoint, "-output", "json")
        seen = json.loads(done.out) if done.out else {"nodes": []}
        ready = [one for one in seen["nodes"] if one["answers"] and one["alive"] and one["position_ts"]]
        if done.code == 0 and len(ready) == 3:
            return seen
        assert clock.monotonic_s() < end_s, done
        await asyncio.sleep(0.1)


async def ended(process: Forked) -> int:
    return await asyncio.to_thread(process.wait, PATIENCE_S)


async def test_the_life_of_a_cluster(
    nodes: dict[str, Forked], etcd: str, ctl: Ctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leave, "POLL_S", 0.05)
    monkeypatch.setattr(leave, "REPORT_S", 0.2)
    at = ("-pd-urls", etcd)

    # looking
    seen = await until_well(ctl, etcd, nodes)
    lines = {line["node_id"]: line for line in seen["nodes"]}
    assert set(lines) == {"pump-1", "pump-2", "drain-1"}
    assert set(lines["drain-1"]["stages_s"]) == {"write", "sort_wait", "pull", "queue", "apply"}
    assert lines["pump-1"]["doing"] == "0 open prewrites"
    page = await ctl("status", *at)
    assert "all is well" in page.out
    once = await ctl("top", "-once", *at)
    assert (once.code, "2 pumps" in once.out) == (0, True)
    listed = await ctl("nodes", *at)
    assert "2 pumps, 1 drainer " in listed.out
    assert listed.out.count(" yes ") == 3

    # holding a drainer
    held = await ctl("pause", "dr", "-apply", *at)
    assert (held.code, "drainer drain-1 holds applying back" in held.out) == (0, True), held.err
    status = await ctl("status", *at)
    assert status.code == 11
    assert "warning: drainer drain-1 holds applying back, because an operator said so" in status.out
    assert "`binlogctl resume drain-1`" in status.out
    assert "applies again" in (await ctl("resume", "drain", *at)).out
    assert "nothing to resume" in (await ctl("resume", "drain", *at)).out
    assert (await ctl("pause", "pump-1", "-apply", *at)).code == 2

    # pausing a pump
    refused = await ctl("forget", "pump-1", *at)
    assert (refused.code, "pump pump-1 lives" in refused.err) == (4, True)
    paused = await ctl("pause", "pump-1", *at)
    assert paused.code == 0, paused.err
    assert paused.out.startswith("pump pump-1 was asked to pause\n")
    assert paused.out.endswith("pump pump-1 is paused\n")
    assert await ended(nodes["pump-1"]) == 0
    assert "is paused already" in (await ctl("pause", "pump-1", *at)).out
    resumed = await ctl("resume", "pump-1", *at)
    assert resumed.code == 4
    assert "pump pump-1 is paused (start it on its host: `systemctl start pump`, or" in resumed.err
    closed = await ctl("close", "pump-1", *at)
    assert (closed.code, "no process that could close" in closed.err) == (4, True)
    status = await ctl("status", *at)
    assert "error: pump pump-1 is paused: drainers wait for what it holds" in status.out

    # closing the other one: the drainer cannot get on without the paused one, so it takes until that is gone
    late = await ctl("close", "pump-2", "-timeout", "1s", *at)
    assert late.code == 13
    assert "pump pump-2 waits for drainers: drain-1 is " in late.out
    assert "it goes on" in late.err
    again = await ctl("close", "pump-2", "-no-wait", *at)
    assert (again.code, again.out) == (0, "pump pump-2 is closing already\n")
    status = await ctl("status", *at)
    assert "warning: pump pump-2 is closing and waits for drainers: drain-1" in status.out
    forgotten = await ctl("forget", "pump-1", "-yes", *at)
    assert forgotten.code == 0, forgotten.err
    assert "pump pump-1 is offline now" in forgotten.out
    closed = await ctl("close", "pump-2", *at)
    assert (closed.code, closed.out.splitlines()[-1]) == (0, "pump pump-2 is offline"), closed.err
    assert await ended(nodes["pump-2"]) == 0

    # what is left
    status = await ctl("status", *at)
    assert "error: cluster no pump is online" in status.out
    closed = await ctl("close", "drain-1", *at)
    assert (closed.code, closed.out.splitlines()[-1]) == (0, "drainer drain-1 is offline"), closed.err
    assert await ended(nodes["drain-1"]) == 0
    removed = await ctl("forget", "pump-1", "-delete", *at)
    assert "pump pump-1 is removed from the registry" in removed.out
    listed = await ctl("nodes", "-show-offline-nodes", "-output", "json", *at)
    assert [pump["nodeId"] for pump in json.loads(listed.out)["pumps"]] == ["pump-2"]

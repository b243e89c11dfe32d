"""`stdout` and `http` in a real drainer: a reader that leaves, a drainer that dies, a server that fails."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from binlog_playground.scenario import Scenario
from tests.benchmarks.drainer import workloads
from tests.benchmarks.drainer.file_sink import verify
from tests.fakes.webhook import Answer, Webhook
from tests.integration.sinks.pump_scene import PumpScene, killed, status, stored, through
from tests.waiting import PATIENCE_S, until_here

pytestmark = pytest.mark.integration
TRANSACTIONS = 3000


@pytest.fixture
def scene(etcd_clean: str, free_port: Callable[[], int], tmp_path: Path) -> Iterator[PumpScene]:
    made = PumpScene(etcd_clean, tmp_path, free_port)
    yield made
    made.end()


def once(lines: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """As a reader has them who leaves out what came before: by commit_ts and number in the transaction."""
    found: dict[tuple[int, int, str], dict[str, Any]] = {}
    for line in lines:
        found.setdefault((line["_tidb"]["commitTs"], line["_tidb"].get("seq", 0), line["type"]), line)
    return list(found.values())


def check(lines: Iterable[dict[str, Any]], scenario: Scenario) -> None:
    """In order, and the rows that the scenario ends with."""
    found = once(lines)
    commits = [line["_tidb"]["commitTs"] for line in found]
    assert all(a <= b for a, b in itertools.pairwise(commits))
    tables: dict[str, dict[str, tuple[Any, ...]]] = {}
    for line in found:
        if not line["isDdl"]:
            for row in line["data"]:
                values = tuple(row.values())
                tables.setdefault(line["table"], {})[str(values[0])] = values
    verify(tables, scenario.checksums)


async def test_lines_go_through_a_pipe_and_a_reader_may_leave(
    etcd_clean: str, scene: PumpScene, tmp_path: Path, free_port: Callable[[], int]
) -> None:
    scenario = await stored(etcd_clean, tmp_path, workloads.hot(TRANSACTIONS))
    scene.start_pump()
    config = tmp_path / "drainer.toml"
    config.write_text('initial-commit-ts = 0\n[syncer]\ndb-type = "stdout"\ncheckpoint-interval = "20ms"\n')
    command = [
        sys.executable,
        "-m",
        "drainer",
        f"--config={config}",
        f"--pd-urls={etcd_clean}",
        f"--data-dir={tmp_path / 'drainer'}",
        "--node-id=a",
    ]
    seen: list[dict[str, Any]] = []
    with open(tmp_path / "errors", "wb") as errors:
        first = subprocess.Popen(
            [*command, f"--addr=127.0.0.1:{free_port()}"], stdout=subprocess.PIPE, stderr=errors
        )
        scene.processes.append(first)
        assert first.stdout is not None
        seen += map(json.loads, itertools.islice(first.stdout, 500))
        first.stdout.close()
        assert first.wait(PATIENCE_S) == 0, "the end is clean"
        second = subprocess.Popen(
            [*command, f"--addr=127.0.0.1:{free_port()}"], stdout=subprocess.PIPE, stderr=errors
        )
        scene.processes.append(second)
        assert second.stdout is not None
        for line in second.stdout:
            seen.append(json.loads(line))
            if seen[-1]["_tidb"]["commitTs"] >= scenario.last_commit_ts:
                break
        second.send_signal(signal.SIGTERM)
        second.stdout.read()
        second.stdout.close()
        assert second.wait(PATIENCE_S) == 0
    assert "nobody reads standard output any more" in (tmp_path / "errors").read_text()
    last = max(line["_tidb"]["commitTs"] for line in seen)
    changes = [line for line in seen if line["_tidb"]["commitTs"] < last]
    assert len(once(changes)) < len(changes) + 1
    inserted = {line["data"][0]["id"] for line in once(seen) if line["type"] == "INSERT"}
    assert len(inserted) >= TRANSACTIONS, "no row is missing where the first reader left"


@contextlib.contextmanager
def in_the_middle(hook: Webhook, taken: int) -> Iterator[None]:
    """Once it has taken more than so many it answers nobody: no drainer comes through before it is killed."""
    is_over = threading.Event()

    def hold() -> None:
        if len(hook.taken) > taken:
            is_over.wait(PATIENCE_S)
            raise ConnectionAbortedError

    hook.before = hold
    yield
    hook.before = lambda: None
    is_over.set()


async def test_a_webhook_gets_everything_whoever_fails(
    etcd_clean: str, scene: PumpScene, tmp_path: Path
) -> None:
    scenario = await stored(etcd_clean, tmp_path, workloads.hot(TRANSACTIONS))
    hook = Webhook()
    rng = random.Random(3)
    (tmp_path / "secret").write_text("hidden-secret\n")
    (tmp_path / "headers").write_text("Authorization: Bearer hidden-token\n")
    syncer = (
        f'db-type = "http"\n[syncer.to]\nurl = "http://127.0.0.1:{hook.port}/changes?key=hidden-key"\n'
        f'batch-rows = 50\nsecret-file = "{tmp_path / "secret"}"\nheaders-file = "{tmp_path / "headers"}"\n'
    )
    try:
        scene.start_pump()
        for number in (1, 2):
            hook.answers = [Answer(), Answer(), Answer(503), Answer(breaks=True), Answer(429)]
            with in_the_middle(hook, 8 * number):
                process, _ = scene.start_sink(syncer)
                until_here(lambda number=number: len(hook.taken) > 8 * number)  # type: ignore[misc]
                killed(process, rng)
        hook.answers = [Answer(403, text="who are you?")]
        process, url = scene.start_sink(syncer)
        until_here(lambda: "who are you?" in (status(url) or {}).get("Doing", ""))
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0, "a held drainer can be stopped"
        process, url = scene.start_sink(syncer)
        until_here(through(url, scenario))
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    finally:
        hook.close()
    check((line for request in hook.taken for line in request.lines()), scenario)
    logged = (tmp_path / "log").read_text()
    assert "answers 503" in logged
    assert "hidden-" not in logged

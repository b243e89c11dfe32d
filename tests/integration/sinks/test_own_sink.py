"""Sinks of one's own in a drainer: killed anywhere, held by an exception, with a position and without."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from binlog_playground.scenario import Scenario
from tests.benchmarks.drainer import workloads
from tests.benchmarks.drainer.file_sink import verify
from tests.integration.sinks.pump_scene import PumpScene, killed, on, status, stored, through
from tests.waiting import PATIENCE_S, until_here

pytestmark = pytest.mark.integration
TRANSACTIONS = 4000


@pytest.fixture
def scene(etcd_clean: str, free_port: Callable[[], int], tmp_path: Path) -> Iterator[PumpScene]:
    made = PumpScene(etcd_clean, tmp_path, free_port)
    yield made
    made.end()


def documents(directory: Path) -> list[dict[str, Any]]:
    """Every line, in order."""
    paths = sorted(directory.glob("changes-*.jsonl"))
    return [json.loads(line) for path in paths for line in path.read_bytes().splitlines()]


def rows_of(documents: list[dict[str, Any]]) -> dict[str, dict[str, tuple[Any, ...]]]:
    """Tables by their first column. Raises where a row comes or goes that cannot."""
    tables: dict[str, dict[str, tuple[Any, ...]]] = {}
    for one in documents:
        if "kind" not in one:
            continue
        rows = tables.setdefault(one["table"].partition(".")[2], {})
        if one["before"] is not None:
            assert rows.pop(str(next(iter(one["before"].values())))) == tuple(one["before"].values())
        if one["after"] is not None:
            key = str(next(iter(one["after"].values())))
            assert key not in rows, "nothing comes twice"
            rows[key] = tuple(one["after"].values())
    return tables


def size_of(directory: Path) -> int:
    while True:
        with contextlib.suppress(FileNotFoundError):  # one that is complete is renamed
            return sum(path.stat().st_size for path in directory.glob("changes-*"))


async def recorded(endpoint: str, directory: Path) -> Scenario:
    return await stored(endpoint, directory, workloads.hot(TRANSACTIONS))


async def test_json_lines_are_whole_and_once_whatever_is_killed(
    etcd_clean: str, scene: PumpScene, tmp_path: Path
) -> None:
    scenario = await recorded(etcd_clean, tmp_path)
    out = tmp_path / "out"
    syncer = (
        'db-type = "python:examples.json_lines_sink:JsonLines"\n'
        f'[syncer.to.options]\ndirectory = "{out}"\nfile-bytes = 300000\n'
    )
    rng = random.Random(7)
    scene.start_pump()
    for _ in range(3):
        process, url = scene.start_sink(syncer)
        until_here(on(lambda: size_of(out), url, scenario))
        killed(process, rng)
    process, url = scene.start_sink(syncer)
    until_here(through(url, scenario))
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 0
    found = documents(out)
    verify(rows_of(found), scenario.checksums)
    positions = [one["position"] for one in found if "position" in one]
    assert positions == sorted(positions)
    assert positions[-1] >= scenario.last_commit_ts
    commits = [one["commit_ts"] for one in found if "commit_ts" in one]
    assert commits == sorted(commits)
    assert len(list(out.glob("changes-*.jsonl"))) > 3, "files are begun anew"


FAILING = '''
import json, os, time
from drainer import Transaction


class Failing:
    """Lines without a position; fails while a file says so."""

    def __init__(self, options):
        self.path = options["path"]

    def write(self, items, position):
        if os.path.exists(self.path + ".fails"):
            raise LookupError("the index is read-only")
        while os.path.exists(self.path + ".hangs"):
            time.sleep(0.01)
        with open(self.path, "a") as file:
            for item in items:
                if isinstance(item, Transaction):
                    for row in item.rows:
                        values = list((row.after or row.before).values())
                        file.write(json.dumps([row.kind, values]) + chr(10))
            os.fsync(file.fileno())
'''


def put(url: str, path: str) -> None:
    request = urllib.request.Request(url.replace("/status", path), method="PUT")
    urllib.request.urlopen(request, timeout=PATIENCE_S).read()


async def test_an_exception_holds_a_drainer_and_a_hanging_sink_does_not_stop_its_heartbeat(
    etcd_clean: str, scene: PumpScene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = await recorded(etcd_clean, tmp_path)
    (tmp_path / "failing_sink.py").write_text(FAILING)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    lines = tmp_path / "lines"
    fails, hangs = tmp_path / "lines.fails", tmp_path / "lines.hangs"
    syncer = f'db-type = "python:failing_sink:Failing"\n[syncer.to.options]\npath = "{lines}"\n'
    fails.touch()
    scene.start_pump()
    process, url = scene.start_sink(syncer)
    until_here(lambda: "held by the sink" in (status(url) or {}).get("Doing", ""))
    shown = status(url) or {}
    assert "LookupError: the index is read-only" in shown["Doing"]
    assert (shown["Sink"]["held"], shown["Sink"]["error"]) == (True, "LookupError: the index is read-only")
    until_here(lambda: "the index is read-only" in (tmp_path / "log").read_text())
    assert not lines.exists()
    fails.unlink()
    hangs.touch()
    put(url, "/apply/resume")
    until_here(
        lambda: (status(url) or {}).get("Sink", {}).get("writing_s", 0) > 1.0
    )  # /status answers meanwhile
    assert process.poll() is None
    hangs.unlink()
    until_here(through(url, scenario))
    until_here(lambda: (tmp_path / "drainer" / "savepoint").exists())
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 0
    tables: dict[str, tuple[Any, ...]] = {}
    for line in lines.read_text().splitlines():
        _, values = json.loads(line)
        tables[str(values[0])] = tuple(values)
    verify({scenario.checksums[0].name: tables}, scenario.checksums)


def test_a_sink_that_cannot_be_used_is_one_line_at_the_start(scene: PumpScene, tmp_path: Path) -> None:
    process, _ = scene.start_sink('db-type = "python:examples.json_lines_sink:JsonLines"\n')
    assert process.wait(PATIENCE_S) == 1

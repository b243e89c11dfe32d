"""Every snippet and command of docs/sinks.md runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from drainer import Ddl, DdlEffect, Table
from drainer.config.options import ENV_PREFIX, DrainerConfig
from tests.integration.sinks.pump_scene import PumpScene, status
from tests.waiting import PATIENCE_S, until_here
from tidb_binlog.config import loading

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "sinks.md").read_text()
PROGRAMS = Path(sys.executable).parent

pytestmark = pytest.mark.integration


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.M | re.S)


def test_every_block_is_known_here() -> None:
    assert [line for block in blocks("sh") for line in block.splitlines()] == [
        "binlogctl config check drainer.toml",
        "drainer --config drainer.toml",
        "pytest test_prices.py",
    ]
    assert (len(blocks("python")), len(blocks("toml"))) == (2, 3)


@pytest.fixture
def prices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the files of the page."""
    sink, tests = blocks("python")
    (tmp_path / "prices.py").write_text(sink)
    (tmp_path / "test_prices.py").write_text(tests)
    (tmp_path / "drainer.toml").write_text(blocks("toml")[0])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path), str(ROOT))))
    return tmp_path


def run(directory: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=directory, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )


def test_the_sink_follows_what_ddl_does_to_rows() -> None:
    """Names that are swapped, a table that is emptied; where nobody knows the rows it ends."""
    page: dict[str, Any] = {}
    exec(blocks("python")[0], page)
    sink = page["Prices"]({"path": ":memory:"})
    sink.open()
    cursor = sink.connection.cursor()
    cursor.executemany("INSERT INTO price VALUES (?, ?, ?)", [("d.a", 1, 1), ("d.b", 2, 2)])
    one, other = (Table("d", name, (), (), 1, 1) for name in "ab")

    def prices(**effect: Any) -> list[tuple[str, int]]:
        sink.apply(cursor, Ddl(5, "ALTER", "d", effect=DdlEffect(**effect)))
        found: list[tuple[str, int]] = cursor.execute("SELECT source, id FROM price ORDER BY id").fetchall()
        return found

    assert prices(moved=((one, other), (other, one))) == [("d.b", 1), ("d.a", 2)]
    assert prices(emptied=(other,)) == [("d.a", 2)]
    for unknown in ({"everything": True}, {"reread": (one,)}):
        with pytest.raises(RuntimeError, match="load the prices anew as of 5, for ALTER"):
            prices(**unknown)
    sink.close()


def test_the_configuration_is_checked(prices: Path) -> None:
    done = run(prices, str(PROGRAMS / "binlogctl"), "config", "check", "drainer.toml")
    assert (done.returncode, done.stdout.strip()) == (0, "drainer.toml is right for a drainer")
    (prices / "drainer.toml").write_text('[syncer]\ndb-type = "python:prices:Prices"\n')
    done = run(prices, str(PROGRAMS / "binlogctl"), "config", "check", "drainer.toml")
    assert done.returncode == 1
    assert "syncer.to.options.path is missing" in done.stdout


def test_its_tests_pass(prices: Path) -> None:
    done = run(prices, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_prices.py")
    assert done.returncode == 0, done.stdout
    assert "8 passed" in done.stdout


def test_a_drainer_runs_with_it(prices: Path, etcd_clean: str, free_port: Any) -> None:
    scene = PumpScene(etcd_clean, prices, free_port)
    try:
        scene.start_pump()
        syncer = blocks("toml")[0].partition("[syncer]\n")[2]
        syncer = syncer.replace('"prices.db"', f'"{prices / "prices.db"}"')
        process, url = scene.start_sink(syncer)
        until_here(lambda: (status(url) or {}).get("Sink", {}).get("stores_position"))
        until_here(lambda: (prices / "drainer" / "savepoint").exists())
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
    finally:
        scene.end()


def test_the_entry_point_and_the_webhook_are_as_written(tmp_path: Path) -> None:
    _, entry, http = blocks("toml")
    (named,) = tomllib.loads(entry)["project"]["entry-points"].items()
    assert named == ("tidb_binlog.sinks", {"prices": "prices:Prices"})
    (tmp_path / "headers").write_text("Authorization: Bearer x\n")
    (tmp_path / "secret").write_text("x\n")
    file = tmp_path / "drainer.toml"
    for name in ("headers", "secret"):
        http = http.replace(f'"{name}"', f'"{tmp_path / name}"')
    file.write_text(http)
    settings = loading.load(DrainerConfig, [f"-config={file}"], {}, program="drainer", env_prefix=ENV_PREFIX)
    assert settings.http_server == ("https", "search.example", 8443, "/changes")
    usual = DrainerConfig()
    assert (settings.batch_rows, settings.batch_bytes) == (usual.batch_rows, usual.batch_bytes)
    assert settings.http_timeout_s == usual.http_timeout_s

"""What pages tell is there: their files load as the daemons load them, their commands are known, and what
they quote is said by the code. What takes a cluster runs in tests/integration.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from binlogctl.cli import command_line
from binlogctl.cli.command_line import Call
from drainer.config.options import DrainerConfig
from pump.config import PumpConfig
from tests.architecture.source import ROOT
from tests.benchmarks.catalog import BENCHMARKS
from tests.docs.pages import (
    COMPARISON,
    EXIT_CODES,
    OPERATE,
    PAGES,
    README,
    SECURITY,
    TIDB,
    TWO_WAY,
    UPGRADE,
    Page,
)
from tidb_binlog.config import loading

README_LINES_MAX = 200
FIRST = (README, OPERATE, SECURITY, TIDB, TWO_WAY, UPGRADE, Page("docs/troubleshooting.md"))


def test_the_readme_is_read_at_once() -> None:
    assert len(README.text.splitlines()) <= README_LINES_MAX


def drainer(text: str, directory: Path) -> DrainerConfig:
    """A drainer's file, as the drainer reads it."""
    file = directory / "drainer.toml"
    file.write_text(text)
    file.chmod(0o600)
    return loading.load(
        DrainerConfig, ["--config", str(file)], {}, program="drainer", env_prefix="BINLOG_SERVER"
    )


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file of a password, which the pages' files name in /etc."""
    file = tmp_path / "password"
    file.write_text("secret")
    file.chmod(0o600)
    return file


def own(text: str, secret: Path) -> str:
    return re.sub(r'"/etc/tidb-binlog/[\w-]*password"', f'"{secret}"', text)


def test_both_files_of_a_two_way_replication(tmp_path: Path, secret: Path) -> None:
    there, back = (drainer(own(block, secret), tmp_path) for block in TWO_WAY.blocks("toml"))
    assert there.loopback_control
    assert back.loopback_control
    assert there.channel_id == back.channel_id > 0
    assert (there.sync_ddl, back.sync_ddl) == (True, False)
    for name in ("name", "pd_urls", "advertise_addr", "data_dir", "to_host"):
        assert getattr(there, name) != getattr(back, name), name


def test_the_files_for_a_tidb(tmp_path: Path, secret: Path) -> None:
    pump, tidb, drainers = TIDB.blocks("toml")
    file = tmp_path / "pump.toml"
    file.write_text(pump)
    loaded = loading.load(PumpConfig, ["--config", str(file)], {}, program="pump", env_prefix="PUMP")
    assert loaded.advertised == "10.0.0.11:8250"
    assert tomllib.loads(tidb) == {"binlog": {"enable": True, "write-timeout": "15s", "ignore-error": False}}
    assert drainer(own(drainers, secret), tmp_path).from_port == 4000
    (enabled,) = README.blocks("toml")
    assert tomllib.loads(enabled) == {"binlog": {"enable": True}}


@pytest.mark.parametrize("page", FIRST, ids=lambda page: page.path)
def test_calls_of_binlogctl_are_understood(page: Page) -> None:
    """Also in the middle of a sentence, where what stands for a value is written in capitals."""
    lines = [line.removeprefix(".venv/bin/") for line in page.commands()]
    lines += re.findall(r"`(binlogctl [a-z][^`\n]*)`", page.text)
    lines = [line for line in lines if line.startswith("binlogctl ")]
    assert lines
    for line in lines:
        if not re.search(r"binlogctl (?:load|verify|restore|forget|encrypt|load|verify|completion)$", line):
            assert isinstance(command_line.parse(shlex.split(line)[1:], {}), Call), line


def test_what_the_doctor_is_quoted_with_is_what_it_says() -> None:
    checks = "".join(path.read_text() for path in (ROOT / "deploy/binlogctl/doctor/checks").glob("*.py"))
    (table,) = re.findall(r"^\| it says \| do \|\n\|---\|---\|\n((?:\|.*\n)+)", UPGRADE.text, re.M)
    quoted = re.findall(r"`([^`]+)`", "".join(row.split("|")[1] for row in table.splitlines()))
    assert len(quoted) >= 4
    for words in quoted:
        assert words.removesuffix("Off") in checks, words


def test_figures_name_benchmarks_that_there_are() -> None:
    lines = re.findall(r"python -m tests\.benchmarks ([^`\n]+)", README.text + COMPARISON.text)
    assert len(lines) >= 8
    for line in lines:
        names = re.sub(r"--peer PATH", "", line).split()
        assert names
        assert set(names) <= set(BENCHMARKS), line
    rows = [row for row in README.text.splitlines() if "tests.benchmarks" in row]
    for row in rows:
        for figure in re.findall(r"\d[\d,.]*", row.partition("|")[2].rpartition("|")[0].rpartition("|")[0]):
            if "." in figure or "," in figure:
                assert figure in COMPARISON.text, f"{figure} is not explained"


def test_exit_codes_of_the_units_are_those_of_the_page() -> None:
    told = re.findall(r"(?:Pump again|Drainer) after ([\d, and]+\d)", " ".join(EXIT_CODES.text.split()))
    for name, codes in zip(("pump", "drainer"), told, strict=True):
        unit = (ROOT / "deploy" / "systemd" / f"{name}.service").read_text()
        (prevented,) = re.findall(r"^RestartPreventExitStatus=(.*)$", unit, re.M)
        assert re.findall(r"\d+", codes) == prevented.split()


def test_every_page_with_commands_is_named_by_a_test() -> None:
    """A page whose shell lines no test reads is not promised to work."""
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    unread = [
        page
        for page in PAGES
        if Page(page).commands() and f'"{page}"' not in tests and f'"{Path(page).name}"' not in tests
    ]
    assert unread == []

"""docs/reparo.md: its commands, files and lines, as it says."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.mysql.connection import Target
from drainer.reparo.options import ENV_PREFIX, USAGE, ReparoConfig
from tests import forked
from tests.drainer.support.apply_life import clean, differences, run
from tests.drainer.support.relay_world import target_of
from tests.spark.support.replay_world import SOURCES
from tidb_binlog.config import loading

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "reparo.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.M | re.S)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return SOURCES["go-events"]("basic", tmp_path_factory.mktemp("page") / "archive")


@pytest.fixture
def target(mariadb: MariaDbServer) -> Iterator[Target]:
    found = target_of(mariadb)
    clean(found)
    yield found
    clean(found)


def call(line: str, archive: Path, directory: Path) -> subprocess.CompletedProcess[str]:
    program, *argv = shlex.split(line.replace("/archive", str(archive)))
    assert program == "reparo"
    with contextlib.chdir(directory):
        done = forked.run("drainer.reparo", "-L", "warn", *argv, TZ="UTC")
    done.check_returncode()
    return done


def test_it_is_looked_at(archive: Path, tmp_path: Path) -> None:
    whole, part, counted = (call(line, archive, tmp_path) for line in blocks("sh")[0].splitlines())
    shown = blocks("text")[0]
    assert shown.splitlines()[0] in whole.stdout.splitlines()
    assert shown.partition("\n")[2] in whole.stdout
    assert "credit(decimal): 11.03 => 9.53" in whole.stdout
    assert part.stdout
    assert part.stdout in whole.stdout
    assert len(part.stdout) < len(whole.stdout)
    assert "shop.customer: 29 row changes" in counted.stdout


def test_it_is_applied(archive: Path, tmp_path: Path, target: Target) -> None:
    file = blocks("toml")[0].replace("/archive", str(archive)).replace('"root"', f'"{target.user}"')
    file = file.replace('password = ""', f'password = "{target.password}"\nsocket = "{target.socket}"')
    (tmp_path / "reparo.toml").write_text(file)
    dry, first, again = blocks("sh")[1].splitlines()
    call(dry, archive, tmp_path)
    assert ("shop",) not in run(target, "SHOW DATABASES")
    assert call(first, archive, tmp_path).stdout.startswith("47 transactions, 64 row changes, 5 DDL in ")
    assert differences("basic", target) == []
    shown, found = json.loads(blocks("json")[0]), json.loads(call(again, archive, tmp_path).stdout)
    assert list(found) == list(shown)
    assert found["resumed_after_ts"] == shown["upto_ts"]
    assert (found["finished"], found["rows"]) == (True, 0)


def test_what_is_chosen_can_be_chosen(tmp_path: Path) -> None:
    file = tmp_path / "reparo.toml"
    file.write_text(blocks("toml")[1] + '\n[dest-db]\nhost = "h"\n')
    argv = ["-config", str(file), "-data-dir", "d", "-dest-type", "mysql"]
    config = loading.load(ReparoConfig, argv, {}, program="reparo", env_prefix=ENV_PREFIX)
    rules = config.rules
    assert rules.allows("crm_1", "x")
    assert rules.allows("test", "about")
    assert not rules.allows("shop", "log")
    assert not rules.allows("other", "x")
    assert rules.router.route("shop", "customer") == ("shop_restored", "customer")
    assert not rules.rows.is_empty
    assert tomllib.loads(blocks("toml")[1])["syncer"]["ddl-rule"] == list(config.ddl_rules)


def test_flags_and_codes_of_the_page_are_those_of_the_command() -> None:
    helped = loading.usage(ReparoConfig, "reparo", ENV_PREFIX)
    flags = set(re.findall(r"(?<![\w-])-([a-z][a-z-]+|c)\b", PAGE))
    assert flags
    assert {flag for flag in flags if f"  -{flag}" not in helped} == set()
    codes = set(re.findall(r"^\| (\d+) \|", PAGE, re.M))
    assert codes <= set(re.findall(r"^  (\d+) ", USAGE, re.M))

"""The shipped drainer.toml names every key with its default."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from common import config
from common.errors import ConfigError
from common.port import split_address
from drainer.config import ENV_PREFIX, DrainerConfig

SHIPPED = Path(__file__).resolve().parents[2] / "deploy" / "drainer.toml"


def load(*argv: str, **environ: str) -> DrainerConfig:
    return config.load(DrainerConfig, list(argv), environ, program="drainer", env_prefix=ENV_PREFIX)


def test_the_shipped_file_is_the_default() -> None:
    assert load(f"--config={SHIPPED}") == load()


def test_the_shipped_file_names_every_key() -> None:
    def keys(table: dict[str, object], prefix: str = "") -> set[str]:
        found = set()
        for name, value in table.items():
            found |= keys(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name}
        return found

    named = keys(tomllib.loads(SHIPPED.read_text()))
    options = config.options(DrainerConfig).values()
    known = {entry.key for entry in options if entry.key and not entry.deprecated}
    in_comments = (
        "replicate-do-table",
        "ignore-table",
        "ddl-rule",
        "table-migrate-rule",
        "binlog-filter-rule",
        "column-rule",
        "to.params",
    )
    assert known - named == {f"syncer.{key}" for key in in_comments}
    assert all(f"[syncer.{key}" in SHIPPED.read_text() for key in in_comments)
    assert named <= known


def test_go_spellings() -> None:
    settings = load(
        "-c", "3", "-dest-db-type=tidb", "--initial-commit-ts", "0", BINLOG_SERVER_PD_URLS="http://a:1"
    )
    assert (settings.worker_count, settings.db_type, settings.initial_commit_ts) == (3, "tidb", 0)
    assert settings.pd_urls == "http://a:1"


@pytest.mark.parametrize("address", ["", "host", "host:", "host:x", "host:70000"])
def test_addresses(address: str) -> None:
    with pytest.raises(ConfigError, match="addr"):
        split_address("addr", address)


@pytest.mark.parametrize(
    ("argv", "word"),
    [
        (["-c", "0"], "worker-count"),
        (["-txn-batch", "0"], "txn-batch"),
        (["-dest-db-type", "oracle"], "db-type"),
        (["-upstream", "mars"], "upstream"),
        (["-initial-commit-ts", "-2"], "initial-commit-ts"),
        (["-ignore-schemas", "a,,b"], "ignore-schemas"),
        (["-metrics-interval", "-1"], "metrics-interval"),
    ],
)
def test_impossible_values(argv: list[str], word: str) -> None:
    with pytest.raises(ConfigError, match=word) as raised:
        load(*argv)
    assert raised.value.hint

"""[syncer.from]: where the upstream's SQL is."""

from __future__ import annotations

from pathlib import Path

import pytest

from drainer.config.downstream import upstream_target_of
from drainer.config.options import ENV_PREFIX, DrainerConfig
from drainer.mysql.connection import Away, connect
from tidb_binlog.config import loading
from tidb_binlog.errors import ConfigError


def load(path: Path, text: str, **environ: str) -> DrainerConfig:
    file = path / "drainer.toml"
    file.write_text(text)
    return loading.load(DrainerConfig, [f"-config={file}"], environ, program="drainer", env_prefix=ENV_PREFIX)


def test_a_tidb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MYSQL_PSWD", "the downstream's")
    (tmp_path / "secret").write_text("s3cret\n")
    text = f'[syncer.from]\nhost = "db1"\npassword-file = "{tmp_path / "secret"}"'
    target = upstream_target_of(load(tmp_path, text))
    assert (target.host, target.port, target.user, target.password) == ("db1", 4000, "root", "s3cret")
    assert upstream_target_of(load(tmp_path, '[syncer.from]\nhost = "db1"')).password == ""


def test_a_publishers_database(tmp_path: Path) -> None:
    text = '[syncer.from]\nsocket = "/run/db.sock"\noutcome-table = "shop.binlog_outcome"'
    settings = load(tmp_path, text)
    target = upstream_target_of(settings)
    assert (target.socket, target.host, target.port) == ("/run/db.sock", "localhost", 3306)


def test_without_an_address_it_says_what_to_set(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not say where") as raised:
        upstream_target_of(load(tmp_path, ""))
    assert "[syncer.from]" in raised.value.hint


@pytest.mark.parametrize("name", ["binlog_outcome", "a.b.c", "shop.`x`"])
def test_the_outcome_table_has_its_database(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="outcome-table") as raised:
        load(tmp_path, f'[syncer.from]\nhost = "a"\noutcome-table = "{name}"')
    assert "shop.binlog_outcome" in raised.value.hint


def test_an_error_names_the_side(tmp_path: Path) -> None:
    settings = load(tmp_path, '[syncer.from]\nhost = "127.0.0.1"\nport = 1')
    with pytest.raises(Away, match=r"^upstream root@127\.0\.0\.1:1 cannot") as raised:
        connect(upstream_target_of(settings))
    assert "[syncer.from]" in raised.value.hint

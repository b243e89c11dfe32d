"""[syncer.from] and [verify]: where the upstream's SQL is, and a Drainer that compares with it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from drainer.config.downstream import upstream_target_of
from drainer.config.options import ENV_PREFIX, DrainerConfig
from drainer.config.remarks import on_lanes_keys
from drainer.mysql.connection import Away, connect
from tidb_binlog.config import loading
from tidb_binlog.errors import ConfigError
from tidb_binlog.status.codec import plain
from tidb_binlog.status.drainer import VerifyStatus


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


ROOT = Path(__file__).resolve().parents[3]
FROM = '[syncer.from]\nhost = "up"\n'


def test_it_is_off_by_default(tmp_path: Path) -> None:
    settings = load(tmp_path, "")
    assert (settings.verify_every_s, settings.verify_rows) == (0.0, 50_000)


def test_every_and_budget(tmp_path: Path) -> None:
    settings = load(tmp_path, FROM + '[verify]\nevery = "6h"\nrows-per-second = 500\n')
    assert (settings.verify_every_s, settings.verify_rows) == (21_600.0, 500)


def test_the_page_says_what_there_is(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "verify.md").read_text()
    settings = load(tmp_path, FROM + "".join(re.findall(r"^```toml\n(.*?)^```$", page, re.M | re.S)))
    assert (settings.verify_every_s, settings.verify_rows) == (21_600.0, load(tmp_path, "").verify_rows)
    section = page.partition("## All the time")[2]
    named = set(re.findall(r"`(\w+)`", section))
    assert named & set(plain(VerifyStatus())) == {
        "state", "ts", "rows", "wrong_rows", "not_compared", "progress", "next_s", "trouble"
    }  # fmt: skip
    rules = (ROOT / "deploy" / "prometheus" / "drainer-rules.yml").read_text()
    alerts = re.findall(r"`(BinlogDrainer\w+)`", section)
    assert len(alerts) == 2
    assert all(f"- alert: {alert}\n" in rules for alert in alerts)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[verify]\nevery = "6h"\n', "needs the upstream's SQL address"),
        (FROM + '[syncer]\ndb-type = "file"\n[verify]\nevery = "6h"\n', "is for db-type mysql and tidb"),
        (FROM + "[verify]\nrows-per-second = -1\n", "rows-per-second is -1"),
    ],
)
def test_what_cannot_work_is_refused_at_the_start(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(tmp_path, text)


def test_what_a_stream_of_spark_does_not_go_by_is_named(tmp_path: Path) -> None:
    text = "[syncer]\nworker-count = 5\nrate-rows = 100\nsafe-mode = true"
    (told,) = on_lanes_keys(load(tmp_path, text))
    assert told.startswith("syncer.worker-count, syncer.rate-rows are not used by a stream of Spark")
    assert on_lanes_keys(load(tmp_path, "[syncer]\nstrict = true")) == []
    assert on_lanes_keys(load(tmp_path, text.replace("\n", '\ndb-type = "file"\n', 1))) == []

"""The keys of [verify]: what a drainer is told that cannot compare."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from drainer.config.options import ENV_PREFIX, DrainerConfig
from tidb_binlog.config import loading
from tidb_binlog.errors import ConfigError
from tidb_binlog.status.codec import plain
from tidb_binlog.status.drainer import VerifyStatus

ROOT = Path(__file__).resolve().parents[3]
FROM = '[syncer.from]\nhost = "up"\n'


def load(directory: Path, text: str) -> DrainerConfig:
    path = directory / "drainer.toml"
    path.write_text(text)
    return loading.load(DrainerConfig, ["--config", str(path)], {}, program="drainer", env_prefix=ENV_PREFIX)


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

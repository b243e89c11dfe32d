"""Keys of lakes: what cannot be used is one line, and no secret is in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from drainer.config.options import ENV_PREFIX, DrainerConfig
from tidb_binlog.config import loading
from tidb_binlog.errors import ConfigError


def load(tmp_path: Path, to: str, db_type: str = "delta") -> DrainerConfig:
    file = tmp_path / "drainer.toml"
    file.write_text(f'[syncer]\ndb-type = "{db_type}"\n[syncer.to]\n{to}\n')
    return loading.load(DrainerConfig, [f"-config={file}"], {}, program="drainer", env_prefix=ENV_PREFIX)


def test_what_is_set_and_what_is_not(tmp_path: Path) -> None:
    settings = load(tmp_path, f'warehouse = "{tmp_path}"\ncommit-interval = "1m"\nretention-time = 7\n')
    assert settings.warehouse == str(tmp_path)
    assert (settings.commit_interval_s, settings.commit_bytes) == (60.0, 64 << 20)
    assert (settings.retention_days, settings.compact_interval_s) == (7, 3600.0)
    assert settings.catalog_properties == {}


@pytest.mark.parametrize(
    ("to", "words"),
    [
        ("", "syncer.to.warehouse is missing"),
        ('warehouse = "hdfs://name/lake"', "cannot be written to"),
        ('warehouse = "s3://bucket/lake?endpoint_override=h"', "cannot be written to"),
        ('warehouse = "s3://hidden:hidden@bucket/lake"', "cannot be written to"),
        ('warehouse = "gopher://lake"', "no file system"),
        ('warehouse = "/lake"\ncommit-size = 0', "commit-size is 0"),
        ('warehouse = "/lake"\n[syncer.to.catalog]\ntype = "rest"', "is for iceberg"),
    ],
)
def test_what_cannot_be(tmp_path: Path, to: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as raised:
        load(tmp_path, to)
    assert "hidden" not in str(raised.value)


CATALOG = """warehouse = "s3://bucket/lake"
[syncer.to.catalog]
type = "rest"
uri = "https://catalog.example"
"""


def test_secrets_of_a_catalog_are_named_and_never_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CATALOG_TOKEN", "hidden-token")
    (tmp_path / "key").write_text("hidden-key\n")
    named = f'token = "env:CATALOG_TOKEN"\n"s3.secret-access-key" = "file:{tmp_path / "key"}"\n'
    settings = load(tmp_path, CATALOG + named, "iceberg")
    assert settings.catalog_properties == {
        "type": "rest",
        "uri": "https://catalog.example",
        "token": "hidden-token",
        "s3.secret-access-key": "hidden-key",
    }
    assert "hidden" not in repr(settings) + str(loading.describe(settings))


@pytest.mark.parametrize(
    ("to", "words"),
    [
        ('warehouse = "s3://bucket/lake"', "needs a catalog"),
        (CATALOG + 'token = "hidden"', "syncer.to.catalog.token has a secret in it"),
        (CATALOG + '"s3.secret-access-key" = "hidden"', "has a secret in it"),
        (CATALOG + 'credential = "env:NOT_SET_HERE"', "NOT_SET_HERE is not in the environment"),
        (CATALOG + 'credential = "file:/not/there"', "cannot read syncer.to.catalog.credential"),
        (CATALOG.replace("https://", "https://hidden:hidden@"), "syncer.to.catalog.uri has a secret in it"),
    ],
)
def test_what_cannot_be_a_catalog(tmp_path: Path, to: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as raised:
        load(tmp_path, to, "iceberg")
    assert "hidden" not in str(raised.value)

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

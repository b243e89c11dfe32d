"""docs/failover.md: its file is a configuration, its figures and names are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import drainer.metrics
from drainer.config.options import ENV_PREFIX, DrainerConfig
from drainer.mysql.addresses import AFTER_S
from tidb_binlog.config import loading
from tidb_binlog.errors import Conflict
from tidb_binlog.observe import metrics

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "failover.md").read_text()


def test_the_file_is_right(tmp_path: Path) -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", PAGE, re.S)
    (tmp_path / "downstream.password").write_text("s3cret\n")
    file = tmp_path / "drainer.toml"
    file.write_text(text.replace("/etc/tidb-binlog", str(tmp_path)))
    settings = loading.load(DrainerConfig, [f"-config={file}"], {}, program="drainer", env_prefix=ENV_PREFIX)
    assert settings.downstream_places == (("db-1", 3306), ("db-2", 3306), ("db-3", 3307))


def test_figures_and_names() -> None:
    assert f"for {AFTER_S:.0f} seconds" in PAGE
    assert f"exit code {Conflict.exit_code}" in PAGE
    assert set(re.findall(r"`(binlog_\w+)`", PAGE)) <= metrics.declared()
    assert drainer.metrics.WENT_BACK is not None
    fencing = (ROOT / "drainer" / "checkpoint" / "fencing.py").read_text()
    assert "the downstream went back in time" in fencing

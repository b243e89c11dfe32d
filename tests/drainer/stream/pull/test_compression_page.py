"""docs/compression.md: its file, its benchmark and what it says of limits and status.

That each kind of pump does what its table says: tests/drainer/stream/pull/test_collector_integration.py.
"""

from __future__ import annotations

import re
from pathlib import Path

from drainer.config.options import ENV_PREFIX, DrainerConfig
from pump.config import PumpConfig
from tests.benchmarks.catalog import BENCHMARKS
from tidb_binlog import compression
from tidb_binlog.config import declaring, loading
from tidb_binlog.status.drainer import SourceStatus
from tidb_binlog.status.pump import PullerStatus

ROOT = Path(__file__).resolve().parents[4]
PAGE = (ROOT / "docs" / "compression.md").read_text()


def load(*argv: str, **environ: str) -> DrainerConfig:
    return loading.load(DrainerConfig, argv, environ, program="drainer", env_prefix=ENV_PREFIX)


def test_its_file_flag_and_variable_mean_the_same(tmp_path: Path) -> None:
    (found,) = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.M | re.S)
    (tmp_path / "drainer.toml").write_text(found)
    ways = [
        load("-config", str(tmp_path / "drainer.toml")),
        load("-compressor", "zstd"),
        load(BINLOG_SERVER_COMPRESSOR="zstd"),
    ]
    assert {one.compressor for one in ways} == {"zstd"}
    rows = re.findall(r'^\| `"(\w*)"`', PAGE, re.M)
    assert rows == ["", *compression.NAMES]
    assert [load("-compressor", name).compressor for name in rows] == rows


def test_its_benchmark_limits_and_keys_exist() -> None:
    (command,) = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S)
    assert command.split()[:-1] == ["python", "-m", "tests.benchmarks"]
    assert command.split()[-1] in BENCHMARKS
    assert f"below {compression.SMALL_BYTES} bytes" in PAGE
    keys = {one.key for cls in (DrainerConfig, PumpConfig) for one in declaring.options(cls).values()}
    assert {"compressor", "syncer.pull-queue", "door.send-queue"} <= keys
    assert hasattr(SourceStatus(), "compression")
    assert {"compression", "compressed_share"} <= set(PullerStatus.__struct_fields__)

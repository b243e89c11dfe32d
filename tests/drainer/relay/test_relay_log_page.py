"""docs/relay-log.md: its configuration, its program and its table of a record, as it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from drainer.config.options import ENV_PREFIX, DrainerConfig
from drainer.config.relay_format import PAYLOAD
from drainer.formats import relay_payload as record
from drainer.relay.relay_log import RelayLog
from tests.drainer.relay.relay_logs import transaction
from tidb_binlog.clock import SystemClock
from tidb_binlog.config import loading

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "relay-log.md").read_text()


def block(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.M | re.S)
    return str(found)


def test_its_configuration_is_the_default_but_for_the_directory(tmp_path: Path) -> None:
    (tmp_path / "drainer.toml").write_text(block("toml"))
    settings = loading.load(
        DrainerConfig, [f"-config={tmp_path}/drainer.toml"], {}, program="drainer", env_prefix=ENV_PREFIX
    )
    assert settings.relay_log_dir == "/data/relay"
    assert (settings.relay_format, settings.relay_max_file_size) == (PAYLOAD, 10 << 20)
    assert settings.relay_format == DrainerConfig().relay_format


async def test_its_program_reads_what_went_downstream(tmp_path: Path) -> None:
    log = RelayLog.open(str(tmp_path / "build" / "relay"), 0, SystemClock())
    log.append(transaction(4_600_000_001))
    await log.close()
    found = subprocess.run(
        [sys.executable, "-c", block("python")],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert re.fullmatch(r"4600000001 shop\.t insert \{'id': \d+, 'c': 'x+'\}\n", found.stdout)


def test_its_table_of_a_record_is_that_of_the_code() -> None:
    sizes = [int(size) for size in re.findall(r"^\| (\d+) \| ", PAGE, re.M)]
    assert sum(sizes) == record.HEAD.size
    assert f"`{record.MARK:#04x}`" in PAGE
    assert f"version of the format: {record.VERSION}" in PAGE
    assert f"{record.BINLOG}: binlog, {record.DDL}: DDL" in PAGE

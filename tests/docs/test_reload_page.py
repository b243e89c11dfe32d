"""docs/reload.md names exactly the options that a reload changes, the metrics and the keys of the status."""

from __future__ import annotations

import json
import re
from pathlib import Path

from drainer.config.options import DrainerConfig
from pump.config import PumpConfig
from tidb_binlog.config.declaring import options
from tidb_binlog.observe import metrics
from tidb_binlog.serving import reload
from tidb_binlog.status.codec import plain
from tidb_binlog.status.reload import ReloadStatus

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reload.md").read_text()


def named(section: str) -> set[str]:
    """Keys in the table behind a line."""
    table = PAGE.split(f"\n{section}:\n\n")[1].split("\n\n")[0]
    return {key for row in table.splitlines()[2:] for key in re.findall(r"`([^`]+)`", row.split("|")[1])}


def live(cls: type) -> set[str]:
    return {
        "door.*" if (entry.key or "").startswith("door.") else entry.key or ""
        for entry in options(cls).values()
        if entry.live
    }


def test_the_tables_have_every_live_option_and_no_other() -> None:
    both = named("Pump and Drainer")
    assert both | named("Pump") == live(PumpConfig)
    assert both | named("Drainer") == live(DrainerConfig)


def test_metrics_status_and_log_are_as_shown() -> None:
    assert reload.RELOADS is not None
    shown = set(re.findall(r"`(binlog_common_config_\w+)", PAGE))
    assert shown == {name for name in metrics.declared() if "_config_" in name}
    (document,) = re.findall(r"```json\n(.*?)```", PAGE, re.S)
    assert list(json.loads(document)) == list(plain(ReloadStatus()))
    assert "needs a restart" in (ROOT / "common" / "tidb_binlog" / "serving" / "reload.py").read_text()


def test_the_commands_are_those_of_the_units() -> None:
    """What they do: tests/integration/test_drainer_process.py, tests/common/process/test_daemon.py."""
    (commands,) = re.findall(r"```sh\n(.*?)```", PAGE, re.S)
    assert commands.splitlines() == [
        "systemctl reload drainer",
        'kill -HUP "$(systemctl show --property=MainPID --value drainer)"',
        "curl -X PUT http://127.0.0.1:8249/reload",
    ]
    for name in ("pump", "drainer"):
        unit = (ROOT / "deploy" / "systemd" / f"{name}.service").read_text()
        assert "ExecReload=/bin/kill -HUP $MAINPID" in unit
        assert "Type=notify\n" in unit
        assert f"'{name}*.service'" in PAGE, "instances, too"
        assert "LogsDirectory=tidb-binlog\n" in unit, "nothing else below /var/log can be written"

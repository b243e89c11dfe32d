"""The daemons whose files have options, and what is told of these."""

from __future__ import annotations

from drainer.config import options as drainer_options
from pump import config as pump_config
from tidb_binlog.config import declaring
from tidb_binlog.config.declaring import Option

DAEMONS = {
    "pump": (pump_config.PumpConfig, pump_config.ENV_PREFIX),
    "drainer": (drainer_options.DrainerConfig, drainer_options.ENV_PREFIX),
}


def told(program: str) -> dict[str, Option]:
    entries = declaring.options(DAEMONS[program][0])
    return {name: entry for name, entry in entries.items() if not entry.deprecated}

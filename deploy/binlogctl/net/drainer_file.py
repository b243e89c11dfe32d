"""Drainer file: a Drainer's configuration on this host.

For commands that do what a Drainer would, with its upstream, downstream and rules.
Tests  tests/deploy/binlogctl/commands/test_load.py
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tidb_binlog.errors import FlagError

if TYPE_CHECKING:
    from drainer.config.options import DrainerConfig


def read(path: str, command: str) -> DrainerConfig:
    """As the Drainer would read it, its environment included. Raises `FlagError`, `ConfigError`."""
    from drainer.config.options import ENV_PREFIX, DrainerConfig
    from tidb_binlog.config import loading

    if not path:
        raise FlagError(
            f"{command} needs -drainer-config", hint="it names the file of the Drainer that this is for"
        )
    return loading.load(
        DrainerConfig, ["-config", path], os.environ, program="drainer", env_prefix=ENV_PREFIX
    )

"""Archive survey: which files there are to apply.

In     the configuration
Out    a survey that has files; a relay log's, or those of an archive
Tests  tests/drainer/reparo/test_process.py
"""

from __future__ import annotations

from drainer.reading.archive.files.location import Location
from drainer.reading.archive.files.segments import PUMP, Survey, survey
from drainer.reparo.options import ReparoConfig
from tidb_binlog.errors import ConfigError


def surveyed(config: ReparoConfig) -> Survey:
    """Blocks. Raises `ConfigError` for a directory without an archive."""
    found = survey(Location.of(config.data_dir, {}), config.kind, config.archive_zone)
    if found.kind == PUMP:
        raise ConfigError(
            f"{config.data_dir} has value logs of a Pump, which are not in order of commit_ts",
            hint="read them with `binlog-spark replay`, or let a Drainer pull them",
        )
    if not found.segments:
        raise ConfigError(
            f"{config.data_dir} has no binlog files",
            hint="data-dir is the directory that a Drainer of db-type = file writes to",
        )
    return found

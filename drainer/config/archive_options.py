"""Archive options: the keys of `db-type = "file"`, a drainer whose downstream is a directory.

Tests  tests/drainer/config/test_options.py
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from drainer.config.database_options import DatabaseOptions
from tidb_binlog.config.declaring import option
from tidb_binlog.errors import ConfigError

COMPRESSIONS: Final = ("", "zstd")


@dataclass(frozen=True, slots=True)
class ArchiveOptions(DatabaseOptions):
    """Beside the keys of databases."""

    to_dir: str = option(
        "",
        key="syncer.to.dir",
        help="archive: its directory, for this drainer alone; empty: data-dir",
        more="With db-type file. The checkpoint is the file savepoint in data-dir.",
        starter=True,
    )
    retention_days: int = option(
        0,
        key="syncer.to.retention-time",
        kind="int",
        help="archive: age at which files are removed; 0: never",
        unit="days",
        more="By this host's clock and the upstream's, the oldest first and never the newest.",
    )
    compression: str = option(
        "",
        key="syncer.to.compression",
        help="archive: zstd compresses closed files; Kafka: none, gzip, snappy, lz4 or zstd",
        more="Go drainers and reparo cannot read compressed files.",
    )
    to_file_size: int = option(
        "512 MiB",
        key="syncer.to.file-size",
        kind="size",
        help="archive: a file ends with the record that reaches this size",
    )

    def check_archive(self) -> None:
        """Raises `ConfigError`."""
        if self.compression not in COMPRESSIONS:
            raise ConfigError(
                f"unknown compression: {self.compression}",
                hint="syncer.to.compression is zstd, or empty: none",
            )
        if self.retention_days < 0:
            raise ConfigError(f"retention-time is {self.retention_days}", hint="days; 0 keeps everything")
        if self.to_file_size < 1:
            raise ConfigError(f"file-size is {self.to_file_size}", hint="it must be at least 1")

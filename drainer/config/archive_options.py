"""Archive options: the keys of `db-type = "file"`, a drainer whose downstream is a directory.

Tests  tests/drainer/config/test_options.py
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from common.config.declaring import option
from common.errors import ConfigError
from drainer.config.go_options import FormerOptions
from drainer.config.sinks import SINKS

DATABASES: Final = ("mysql", "tidb")
COMPRESSIONS: Final = ("", "zstd")


@dataclass(frozen=True, slots=True)
class ArchiveOptions(FormerOptions):
    """`pb` is another name for `file`, as the Go drainer has it."""

    db_type: str = option(
        "mysql", key="syncer.db-type", flag="dest-db-type", help="kind of downstream: mysql, tidb, file"
    )
    checkpoint_type: str = option(
        "",
        key="syncer.to.checkpoint.type",
        help="mysql or tidb: the checkpoint row has a server of its own; file: of an archive, the only one",
    )
    relay_log_dir: str = option(
        "", key="syncer.relay.log-dir", flag="relay-log-dir", help="directory of the relay log; empty: none"
    )
    to_dir: str = option("", key="syncer.to.dir", help="directory of the archive (default: data-dir)")
    retention_days: int = option(
        0,
        key="syncer.to.retention-time",
        kind="int",
        help="days after which the archive's files are removed; 0: never",
    )
    compression: str = option(
        "",
        key="syncer.to.compression",
        help="zstd: closed files of the archive are compressed; Go drainers and reparo cannot read them then",
    )
    to_file_size: int = option(
        "512 MiB",
        key="syncer.to.file-size",
        kind="size",
        help="a file of the archive ends with the record that reaches this",
    )

    @property
    def archives(self) -> bool:
        """Whether the downstream is no database."""
        return self.db_type not in DATABASES

    def check_sink(self) -> None:
        """Raises `ConfigError`."""
        if self.db_type not in SINKS:
            raise ConfigError(
                f"unknown DestDBType: {self.db_type}", hint=f"syncer.db-type is one of {', '.join(SINKS)}"
            )
        known = ("", "file") if self.archives else ("", *DATABASES)
        if self.checkpoint_type not in known:
            raise ConfigError(
                f"unknown checkpoint type: {self.checkpoint_type}",
                hint="the checkpoint of an archive is the file savepoint in data-dir: remove the type"
                if self.archives
                else "mysql or tidb; without a type the row is stored downstream",
            )
        if self.compression not in COMPRESSIONS:
            raise ConfigError(
                f"unknown compression: {self.compression}",
                hint="syncer.to.compression is zstd, or empty: none",
            )
        if self.retention_days < 0:
            raise ConfigError(f"retention-time is {self.retention_days}", hint="days; 0 keeps everything")
        if self.to_file_size < 1:
            raise ConfigError(f"file-size is {self.to_file_size}", hint="it must be at least 1")

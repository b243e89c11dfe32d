"""Lake options: the keys of `db-type = "delta"` and `"iceberg"`, beside those of databases.

Holds  a secret of a catalog is named, `env:NAME` or `file:PATH`, and stands nowhere in the configuration
Tests  tests/drainer/config/test_lake_options.py
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, Final

from drainer.config.database_options import DatabaseOptions
from drainer.places.place import READ, Place
from tidb_binlog.config import secret_file
from tidb_binlog.config.declaring import check_limits, option
from tidb_binlog.errors import ConfigError
from tidb_binlog.late_dataclass import dataclass

ICEBERG: Final = "iceberg"
LAKES: Final = ("delta", ICEBERG)
_SECRET: Final = re.compile(r"secret|password|token|credential|access-key|signer|\bauth\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class LakeOptions(DatabaseOptions):
    """`retention-time` and `file-size` are an archive's, and have their meaning here too."""

    warehouse: str = option(
        "",
        key="syncer.to.warehouse",
        help="lake: directory, or s3:// or gs:// URI, that the tables of delta or iceberg are in",
        more="Each table has a directory DATABASE/TABLE. Credentials of an object store come from the "
        "environment or the instance's role. See [Iceberg and Delta](lake.md).",
    )
    commit_interval_s: float = option(
        "10s",
        key="syncer.to.commit-interval",
        kind="duration",
        help="lake: time between two commits of a table",
        more="A DDL, a large transaction and commit-size end it earlier.",
    )
    commit_bytes: int = option(
        "64 MiB",
        key="syncer.to.commit-size",
        kind="size",
        help="lake: encoded bytes of rows that are committed without waiting longer",
        above=0,
    )
    compact_interval_s: float = option(
        "1h",
        key="syncer.to.compact-interval",
        kind="duration",
        help="lake: time after which small files are joined and old versions expire; 0: never",
        more="Delta: files up to file-size, then vacuum by retention-time. Iceberg: snapshots older than "
        "retention-time are forgotten; its files are joined by other programs.",
    )
    catalog: Mapping[str, Any] = option(
        None,
        key="syncer.to.catalog",
        kind="table",
        secret=True,
        help="iceberg: properties of PyIceberg's catalog; empty: SQLite in the warehouse",
        more="A value env:NAME is that of an environment variable, file:PATH the line of a file: a "
        "secret has to be one of these.",
        example='[syncer.to.catalog]\ntype = "rest"\nuri = "https://catalog.example"\n'
        'token = "file:/etc/drainer/catalog-token"',
    )

    def check_lake(self, *, is_iceberg: bool) -> None:
        """Raises `ConfigError`."""
        if not self.warehouse:
            raise ConfigError("syncer.to.warehouse is missing", hint='warehouse = "/data/lake"')
        place = Place(self.warehouse).require("syncer.to.warehouse", READ)
        if place.scheme not in ("file", "s3", "gs") or "@" in self.warehouse or "?" in self.warehouse:
            raise ConfigError(
                f"syncer.to.warehouse {place.shown} cannot be written to",
                hint="a directory, or s3://BUCKET/PATH or gs://BUCKET/PATH; credentials and endpoints come"
                " from the environment (AWS_...)",
            )
        if self.catalog and not is_iceberg:
            raise ConfigError("syncer.to.catalog is for iceberg", hint="remove it: Delta needs no catalog")
        if is_iceberg and place.scheme != "file" and not self.catalog:
            raise ConfigError(
                f"syncer.to.warehouse {place.shown} needs a catalog: SQLite is for a local directory",
                hint='[syncer.to.catalog] type = "rest" and uri, or another one that PyIceberg knows',
            )
        check_limits(self, LakeOptions)
        _ = self.catalog_properties

    @property
    def catalog_properties(self) -> dict[str, str]:
        """With the values that are named. Raises `ConfigError`, which never shows a value."""
        return {key: _value(f"syncer.to.catalog.{key}", str(value)) for key, value in self.catalog.items()}


def _value(key: str, text: str) -> str:
    source, _, name = text.partition(":")
    if source == "file" and not name.startswith("//"):
        return secret_file.read(key, name, "value")
    if source == "env":
        if name not in os.environ:
            raise ConfigError(f"{key}: {name} is not in the environment", hint="set it, or use file:PATH")
        return os.environ[name]
    if _SECRET.search(key.removeprefix("syncer.to.catalog.")) or re.search(r"//[^/]*@", text):
        raise ConfigError(f"{key} has a secret in it", hint="write env:NAME or file:PATH instead")
    return text

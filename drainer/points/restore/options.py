"""Options of a restore: what a Drainer's file says of the destination, and what one restore is about.

Out    the configuration of `reparo` that does it, and its job
Holds  the same image, archive and rules are the same job, up to whichever timestamp: a later one goes on
Tests  tests/drainer/points/restore/test_restoring.py
"""

from __future__ import annotations

import os
from hashlib import blake2b

from drainer.config.options import DrainerConfig
from drainer.places.place import check_readable
from drainer.reparo.job import Job
from drainer.reparo.options import DATABASES, SCHEMA, ReparoConfig
from drainer.stream.rules.rule_set import Rules, read_rules
from tidb_binlog.errors import ConfigError
from tidb_binlog.late_dataclass import dataclass, replace
from tidb_binlog.tso import Ts

_OWNER_MAX = 200


@dataclass(frozen=True, slots=True)
class RestoreOptions:
    """`image`: a directory, "" where a backup was put into the destination, which is then as it was at
    `begin_ts`. `archive` "": nothing is to be applied after the image. `stop_ts` 0: to the archive's end."""

    settings: DrainerConfig
    image: str = ""
    begin_ts: Ts = 0
    archive: str = ""
    stop_ts: Ts = 0
    speed: int = 0
    time_zone: str = ""
    beside_drainer: bool = False

    def validate(self) -> None:
        """Raises `ConfigError`."""
        if self.settings.db_type not in DATABASES:
            raise ConfigError(
                f'the drainer\'s file has db-type = "{self.settings.db_type}": a restore needs a database',
                hint='name a file with db-type = "mysql" or "tidb" and [syncer.to]',
            )
        if bool(self.image) == bool(self.begin_ts):
            raise ConfigError(
                "a restore begins with an image, or with a database into which a backup was put",
                hint="give -image DIR, or -backup: its directory, or the time up to which it is",
            )
        if not (self.image or self.archive):
            raise ConfigError("nothing is to be done", hint="give -archive DIR")
        check_readable(("-image", self.image), ("-archive", self.archive))

    @property
    def job(self) -> Job:
        beginning = f"image {_place(self.image)}" if self.image else f"backup {self.begin_ts}"
        about = f"{beginning}, archive {_place(self.archive)}"
        number = _digest(f"restore {about} {read_rules(self.settings).text}")
        return Job(f"restore-{number:016x}", number, f"restore {number:016x} {about}"[:_OWNER_MAX])

    def application(self, *, begin_ts: Ts) -> RestoreConfig:
        """What is applied after `begin_ts`."""
        return RestoreConfig(
            data_dir=self.archive,
            start_tso=begin_ts + 1 if begin_ts else 0,
            stop_tso=self.stop_ts,
            dest_type=self.settings.db_type,
            speed=self.speed,
            time_zone=self.time_zone,
            beside_drainer=self.beside_drainer,
            settings=self.settings,
        )


@dataclass(frozen=True, slots=True)
class RestoreConfig(ReparoConfig):
    """Of `reparo`, with destination and rules of a Drainer's file."""

    settings: DrainerConfig | None = None

    @property
    def drainer(self) -> DrainerConfig:
        assert self.settings is not None
        return replace(
            self.settings,
            data_dir=self.data_dir,
            initial_commit_ts=max(self.start - 1, 0),
            checkpoint_schema=SCHEMA,
            checkpoint_type="",
            quarantine_bytes=0,
            safe_mode=False,
            loopback_control=False,
        )

    @property
    def rules(self) -> Rules:
        """Raises `ConfigError`."""
        assert self.settings is not None
        return read_rules(self.settings)


def _place(directory: str) -> str:
    return directory if not directory or "://" in directory else os.path.realpath(directory)


def _digest(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") >> 1

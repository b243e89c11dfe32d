"""Sink options: which kind of downstream there is, and what all kinds have in common.

The keys of a kind are declared in a class of their own with a `check_...`: DatabaseOptions, ArchiveOptions,
KafkaOptions, HttpOptions, each derived from the one before (slots allow one line of descent only). What is
checked for which `db-type` says `check_sink`.

Tests  tests/drainer/config/test_options.py
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from drainer.config import password, sink_class
from drainer.config.http_options import HttpOptions
from drainer.config.relay_format import FORMATS, PAYLOAD
from drainer.config.sinks import DATABASES, SINKS
from tidb_binlog.config.declaring import option
from tidb_binlog.errors import ConfigError


@dataclass(frozen=True, slots=True)
class SinkOptions(HttpOptions):
    """`pb` is another name for `file`, as the Go drainer has it."""

    db_type: str = option(
        "mysql",
        key="syncer.db-type",
        flag="dest-db-type",
        help="kind of downstream: mysql, tidb, file, kafka, stdout, http, or a sink of one's own",
        more="mysql is MariaDB too. file: an archive in the Go drainer's form (pb is the same), see "
        "dir. kafka: messages, see [Kafka](kafka.md). stdout and http: rows as lines of JSON, see "
        "[sinks](sinks.md). python:package.module:Class, or a name that an installed package "
        "brings: a sink of one's own.",
        starter=True,
    )
    checkpoint_type: str = option(
        "",
        key="syncer.to.checkpoint.type",
        help="empty: the checkpoint row is downstream; mysql or tidb: it has a server of its own",
        more="Without a type the row is in the table `checkpoint` downstream. An archive, Kafka, "
        "stdout and http keep theirs in the file savepoint in data-dir; file says the same of an "
        "archive.",
    )
    relay_log_dir: str = option(
        "",
        key="syncer.relay.log-dir",
        flag="relay-log-dir",
        help="directory of the relay log, on a disk of its own; empty: none",
        more="What goes downstream is written there before: a downstream can be brought to a "
        "consistent state with it when the upstream is lost. See [relay log](relay-log.md).",
        starter=True,
    )

    relay_format: str = option(
        PAYLOAD,
        key="syncer.relay.format",
        help="form of the relay log: payload (binlogs as pumps sent them) or obinlog (Go's)",
        more="payload has the rules and table definitions that binlogs are read by; obinlog encodes "
        "each row. Both are read, also side by side after a change.",
    )

    to_options: Mapping[str, Any] = option(
        None,
        key="syncer.to.options",
        kind="table",
        secret=True,
        help="options of a sink of one's own, which says what it knows",
        example='[syncer.to.options]\npath = "/var/lib/prices.db"',
    )

    @property
    def to_database(self) -> bool:
        """Whether the downstream is a database, with lanes and a relay log before them."""
        return self.db_type in DATABASES

    @property
    def to_stdout(self) -> bool:
        """Whether standard output is the downstream's: nothing else may be written there."""
        return self.db_type == "stdout"

    @property
    def to_kafka(self) -> bool:
        return self.db_type == "kafka"

    def check_sink(self) -> None:
        """Raises `ConfigError`."""
        if self.db_type not in SINKS:
            self._check_own()
        elif self.to_options:
            raise ConfigError(
                f"syncer.to.options is not for db-type {self.db_type}", hint="it is for sinks of one's own"
            )
        known = ("", *DATABASES) if self.to_database else ("", "file")
        if self.checkpoint_type not in known:
            raise ConfigError(
                f"unknown checkpoint type: {self.checkpoint_type}",
                hint="mysql or tidb; without a type the row is stored downstream"
                if self.to_database
                else "the checkpoint is the file savepoint in data-dir: remove the type; where a Go "
                "drainer's is in a table, give its commitTS as -initial-commit-ts to the first start",
            )
        if self.relay_format not in FORMATS:
            raise ConfigError(
                f"syncer.relay.format is {self.relay_format!r}", hint=f"it is {' or '.join(FORMATS)}"
            )
        self.check_upstream()
        self.check_verify(to_database=self.to_database)
        self.check_database()
        if self.to_kafka:
            self.check_kafka()
        elif self.db_type == "http":
            self.check_http()
        else:
            self.check_archive()

    def _check_own(self) -> None:
        found = sink_class.find(self.db_type)
        if found is None:
            known = ", ".join((*SINKS, *sink_class.names()))
            raise ConfigError(
                f"unknown DestDBType: {self.db_type}",
                hint=f"syncer.db-type is one of {known}, or {sink_class.PREFIX}package.module:Class",
            )
        sink_class.check_options(found, self.to_options)

    def remarks_on_sink(self) -> list[str]:
        """One line each, for the log."""
        said = []
        encrypted = (
            self.to_encrypted_password,
            self.from_encrypted_password,
            self.checkpoint_encrypted_password,
        )
        if any(encrypted) and not os.environ.get(password.KEY_VARIABLE):
            said.append(
                f"encrypted_password is protected by a key that everybody knows: set {password.KEY_VARIABLE}"
            )
        if self.relay_log_dir and not self.to_database:
            said.append(f"syncer.relay.log-dir is not used: it is for {' and '.join(DATABASES)}")
        return said + (self.remarks_on_kafka() if self.to_kafka else [])

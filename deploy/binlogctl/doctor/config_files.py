"""Config files: those that the operator named, read once, checked, and what they say
about the downstream.

Drives  `gather/files`, `checks/files`, `checks/storage`
Tests   tests/deploy/binlogctl/doctor/checks/test_files.py
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from binlogctl.doctor.checks.files import (
    check_certificate,
    check_drainer,
    check_mode,
    check_places,
    check_pump,
    check_unreadable,
)
from binlogctl.doctor.checks.storage import check_disk
from binlogctl.doctor.facts import DiskFacts, Replicated
from binlogctl.doctor.findings import Finding, error
from binlogctl.doctor.gather import files
from drainer.checkpoint.value import DEFAULT_TABLE
from drainer.config import downstream, remarks
from drainer.config.options import DrainerConfig
from drainer.mysql.connection import Target
from drainer.stream.rules.rule_set import read_rules
from pump.config import PumpConfig
from tidb_binlog.errors import BinlogError, ConfigError
from tidb_binlog.net.port import split_address
from tidb_binlog.net.tls import TlsConfig


@dataclass(frozen=True, slots=True)
class DownstreamPlan:
    """Where a drainer writes. `row_target`: the server of the checkpoint row, None if it is the same."""

    target: Target
    row_target: Target | None
    row_table: str
    replicated: Replicated


class ConfigFiles:
    """A pump's and a drainer's file; either may be "": not given."""

    def __init__(self, pump: str, drainer: str) -> None:
        self._pump = files.read_config(PumpConfig, pump, "pump") if pump else None
        self._drainer = files.read_config(DrainerConfig, drainer, "drainer") if drainer else None

    def check(self, now_s: float) -> list[Finding]:
        """Say what is wrong with the files."""
        findings: list[Finding] = []
        if self._pump is not None:
            findings += self._check_pump(self._pump, now_s)
        if self._drainer is not None:
            findings += self._check_drainer(self._drainer, now_s)
        return findings

    def _check_pump(self, file: files.FileFacts[PumpConfig], now_s: float) -> list[Finding]:
        if file.error is not None:
            return check_unreadable("pump", file.path, file.error)
        settings = file.settings
        assert settings is not None
        findings = check_pump(settings, file.path)
        findings += _places("pump", file.path, lambda: files.remarks_on_data_dir(settings.data_dir))
        findings += self.check_tls("[security]", settings.tls, _hosts(settings.advertised), now_s)
        if (disk := files.disk_of(settings.data_dir)) is not None:
            subject = f"data-dir {settings.data_dir} of {file.path}"
            findings += check_disk(
                subject, DiskFacts(disk.available, disk.capacity, settings.stop_write_at_bytes)
            )
        return findings

    def _check_drainer(self, file: files.FileFacts[DrainerConfig], now_s: float) -> list[Finding]:
        if file.error is not None:
            return check_unreadable("drainer", file.path, file.error)
        settings = file.settings
        assert settings is not None
        findings = check_drainer(settings, file.path)
        findings += _places("drainer", file.path, lambda: remarks.on_mounts(settings))
        secret = bool(
            settings.to_password
            or settings.to_encrypted_password
            or settings.checkpoint_password
            or settings.checkpoint_encrypted_password
        )
        findings += check_mode("drainer", file.path, file.mode, has_secret=secret)
        try:
            read_rules(settings)
        except BinlogError as failure:
            findings += error(
                "drainer.config",
                file.path,
                failure.message,
                "the drainer does not start with this file",
                failure.hint or f"correct {file.path}",
            )
        findings += self.check_tls("[security]", settings.tls, _hosts(settings.advertised), now_s)
        findings += self.check_tls("[syncer.to.security]", settings.downstream_tls, (), now_s)
        findings += self.check_tls("[syncer.to.checkpoint.security]", settings.checkpoint_tls, (), now_s)
        return findings

    def pd_urls(self) -> list[tuple[str, str, str]]:
        """Kind of node, path and pd-urls of each file that can be used."""
        urls = []
        if self._pump is not None and self._pump.settings is not None:
            urls.append(("pump", self._pump.path, self._pump.settings.pd_urls))
        if self._drainer is not None and self._drainer.settings is not None:
            urls.append(("drainer", self._drainer.path, self._drainer.settings.pd_urls))
        return urls

    @staticmethod
    def check_tls(option: str, tls: TlsConfig | None, hosts: Sequence[str], now_s: float) -> list[Finding]:
        """Say what is wrong with a set of TLS files."""
        if tls is None:
            return []
        seen = files.read_certificates(option, tls, hosts)
        return [finding for certificate in seen for finding in check_certificate(certificate, now_s)]

    def downstreams(self) -> list[DownstreamPlan]:
        """One for each server; none if the drainer's file is not given or cannot be used, or is about an
        archive. Raises `ConfigError`."""
        settings = self._drainer.settings if self._drainer is not None else None
        if settings is None or not settings.to_database:
            return []
        return [self._plan(place) for place in downstream.each_place(settings)]

    @staticmethod
    def _plan(settings: DrainerConfig) -> DownstreamPlan:
        target = downstream.target_of(settings)
        return DownstreamPlan(
            target,
            downstream.row_target_of(settings, target),
            settings.checkpoint_table if settings.checkpoint_type else DEFAULT_TABLE,
            Replicated(
                _databases(settings),
                settings.checkpoint_schema,
                1 if settings.dispatches_whole else settings.worker_count,
                settings.node_id,
                settings.advertised,
            ),
        )


def _places(kind: str, path: str, look: Callable[[], list[str]]) -> list[Finding]:
    try:
        return check_places(kind, path, None, look())
    except ConfigError as refused:
        return check_places(kind, path, refused, [])


def _hosts(address: str) -> tuple[str, ...]:
    return (split_address("advertise-addr", address)[0],)


def _databases(settings: DrainerConfig) -> tuple[str, ...] | None:
    """Names of what is written downstream; None where only the upstream knows them."""
    names = [
        *settings.replicate_do_db,
        *(str(rule.get("db-name", "")) for rule in settings.replicate_do_table),
    ]
    if not names or settings.table_migrate_rule or any(name.startswith("~") for name in names):
        return None
    return tuple(dict.fromkeys(names))

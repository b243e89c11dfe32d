"""Files examined: the configuration files that the operator named, read once, judged, and what they say about
the downstream.

Drives  `look_files`, `judge_files`
Tests   tests/deploy/ctl/doctor/checks/test_files.py
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from common.errors import BinlogError
from common.net.port import split_address
from common.net.tls import TlsConfig
from deploy.ctl.doctor.checks import files as judge_files
from deploy.ctl.doctor.checks import storage as judge_storage
from deploy.ctl.doctor.facts import DiskSeen, Replicated
from deploy.ctl.doctor.findings import Finding, error
from deploy.ctl.doctor.gather import files as look_files
from drainer.checkpoint.value import DEFAULT_TABLE
from drainer.config import downstream
from drainer.config.options import DrainerConfig
from drainer.rules.rule_set import read_rules
from drainer.sink.mysql.connection import Target
from pump.config import PumpConfig


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
        self._pump = look_files.read_config(PumpConfig, pump, "pump") if pump else None
        self._drainer = look_files.read_config(DrainerConfig, drainer, "drainer") if drainer else None

    def judge(self, now_s: float) -> list[Finding]:
        findings: list[Finding] = []
        if self._pump is not None:
            findings += self._judge_pump(self._pump, now_s)
        if self._drainer is not None:
            findings += self._judge_drainer(self._drainer, now_s)
        return findings

    def _judge_pump(self, file: look_files.FileSeen[PumpConfig], now_s: float) -> list[Finding]:
        if file.error is not None:
            return [judge_files.judge_unreadable("pump", file.path, file.error)]
        settings = file.settings
        assert settings is not None
        found = judge_files.judge_pump(settings, file.path)
        found += self.judge_tls("[security]", settings.tls, _hosts(settings.advertised), now_s)
        if (disk := look_files.disk_of(settings.data_dir)) is not None:
            subject = f"data-dir {settings.data_dir} of {file.path}"
            found += judge_storage.judge_disk(
                subject, DiskSeen(disk.available, disk.capacity, settings.stop_write_at_bytes)
            )
        return found

    def _judge_drainer(self, file: look_files.FileSeen[DrainerConfig], now_s: float) -> list[Finding]:
        if file.error is not None:
            return [judge_files.judge_unreadable("drainer", file.path, file.error)]
        settings = file.settings
        assert settings is not None
        found = judge_files.judge_drainer(settings, file.path)
        secret = bool(
            settings.to_password
            or settings.to_encrypted_password
            or settings.checkpoint_password
            or settings.checkpoint_encrypted_password
        )
        found += judge_files.judge_mode("drainer", file.path, file.mode, has_secret=secret)
        try:
            read_rules(settings)
        except BinlogError as failure:
            found.append(
                error(
                    "drainer.config",
                    file.path,
                    failure.message,
                    "the drainer does not start with this file",
                    failure.hint or f"correct {file.path}",
                )
            )
        found += self.judge_tls("[security]", settings.tls, _hosts(settings.advertised), now_s)
        found += self.judge_tls("[syncer.to.security]", settings.downstream_tls, (), now_s)
        found += self.judge_tls("[syncer.to.checkpoint.security]", settings.checkpoint_tls, (), now_s)
        return found

    def pd_urls(self) -> list[tuple[str, str, str]]:
        """Kind of node, path and pd-urls of each file that can be used."""
        found = []
        if self._pump is not None and self._pump.settings is not None:
            found.append(("pump", self._pump.path, self._pump.settings.pd_urls))
        if self._drainer is not None and self._drainer.settings is not None:
            found.append(("drainer", self._drainer.path, self._drainer.settings.pd_urls))
        return found

    @staticmethod
    def judge_tls(option: str, tls: TlsConfig | None, hosts: Sequence[str], now_s: float) -> list[Finding]:
        if tls is None:
            return []
        seen = look_files.read_certificates(option, tls, hosts)
        return [finding for one in seen for finding in judge_files.judge_certificate(one, now_s)]

    def downstream(self) -> DownstreamPlan | None:
        """None if the drainer's file is not given or cannot be used, or is about an archive.

        Raises `ConfigError`.
        """
        settings = self._drainer.settings if self._drainer is not None else None
        if settings is None or settings.archives:
            return None
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


def _hosts(address: str) -> tuple[str, ...]:
    return (split_address("advertise-addr", address)[0],)


def _databases(settings: DrainerConfig) -> tuple[str, ...] | None:
    """Names of what is written downstream; None where only the upstream knows them."""
    names = [*settings.replicate_do_db, *(str(one.get("db-name", "")) for one in settings.replicate_do_table)]
    if not names or settings.table_migrate_rule or any(name.startswith("~") for name in names):
        return None
    return tuple(dict.fromkeys(names))

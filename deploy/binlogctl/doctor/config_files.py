"""Config files: those that the operator named, read once, checked, and what they say about the downstream.

Out     settings as the daemons would read them, or the error that a daemon would end with
Never   shows what a key or a password file holds
Tests   tests/deploy/binlogctl/doctor/checks/test_files.py
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.x509.oid import NameOID

from binlogctl.doctor.checks.files import (
    check_certificate,
    check_drainer,
    check_mode,
    check_places,
    check_pump,
    check_unreadable,
)
from binlogctl.doctor.checks.storage import check_disk
from binlogctl.doctor.facts import CertificateFacts, Replicated
from binlogctl.doctor.findings import Check, Finding
from drainer.checkpoint.value import DEFAULT_TABLE
from drainer.config import downstream, remarks
from drainer.config.options import DrainerConfig
from drainer.mysql.connection import Target
from drainer.stream.rules.rule_set import read_rules
from pump.config import PumpConfig
from tidb_binlog import mount
from tidb_binlog.config import loading
from tidb_binlog.errors import BinlogError, ConfigError
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.net.port import split_address
from tidb_binlog.net.tls import TlsConfig
from tidb_binlog.status.pump import DiskStatus

C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class _FileFacts(Generic[C]):
    """A configuration file: its settings, or why it cannot be used."""

    path: str
    settings: C | None = None
    error: ConfigError | None = None
    mode: int = 0


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
        self._pump = _read_config(PumpConfig, pump, "pump") if pump else None
        self._drainer = _read_config(DrainerConfig, drainer, "drainer") if drainer else None

    def check(self, now_s: float) -> list[Finding]:
        """Say what is wrong with the files."""
        findings: list[Finding] = []
        if self._pump is not None:
            findings += self._check_pump(self._pump, now_s)
        if self._drainer is not None:
            findings += self._check_drainer(self._drainer, now_s)
        return findings

    def _check_pump(self, file: _FileFacts[PumpConfig], now_s: float) -> list[Finding]:
        if file.error is not None:
            return check_unreadable("pump", file.path, file.error)
        settings = file.settings
        assert settings is not None
        findings = check_pump(settings, file.path)
        findings += _places(
            "pump",
            file.path,
            lambda: mount.check_local("data-dir", settings.data_dir, mount.on_path(settings.data_dir)),
        )
        findings += self.check_tls("[security]", settings.tls, _hosts(settings.advertised), now_s)
        if (disk := _disk_of(settings.data_dir)) is not None:
            subject = f"data-dir {settings.data_dir} of {file.path}"
            free = DiskStatus(available=disk.f_bavail * disk.f_frsize, floor=settings.stop_write_at_bytes)
            findings += check_disk(subject, free, disk.f_blocks * disk.f_frsize)
        return findings

    def _check_drainer(self, file: _FileFacts[DrainerConfig], now_s: float) -> list[Finding]:
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
            findings += Check("drainer.config", file.path).error(
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
        seen = _read_certificates(option, tls, hosts)
        return [finding for certificate in seen for finding in check_certificate(certificate, now_s)]

    @property
    def other_sink(self) -> str:
        """The `db-type` of a drainer that writes to no database; "" otherwise."""
        settings = self._drainer.settings if self._drainer is not None else None
        return settings.db_type if settings is not None and not settings.to_database else ""

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


def _read_config(cls: type[C], path: str, program: str) -> _FileFacts[C]:
    """The file alone: no environment, no flags."""
    try:
        mode = stat.S_IMODE(os.stat(path).st_mode)
        return _FileFacts(
            path, loading.load(cls, ["-config", path], {}, program=program, env_prefix=""), mode=mode
        )
    except ConfigError as error:
        return _FileFacts(path, error=error)
    except OSError as error:
        failure = ConfigError(f"cannot read the config file {path}: {error.strerror}", hint="check the path")
        return _FileFacts(path, error=failure)


def _disk_of(data_dir: str) -> os.statvfs_result | None:
    """The file system of a pump's data directory, if that pump has worked on this host."""
    if not os.path.isabs(data_dir) or not os.path.isdir(os.path.join(data_dir, "value")):
        return None
    try:
        return os.statvfs(data_dir)
    except OSError:
        return None


def _read_certificates(option: str, tls: TlsConfig, hosts: Sequence[str] = ()) -> list[CertificateFacts]:
    """The authority and, if there is one, the certificate of a set of TLS files."""
    try:
        tls.client_context()
        authorities = _load(tls.ca)
        chain = _load(tls.cert) if tls.cert else []
    except ConfigError as error:
        return [CertificateFacts(option, tls.cert or tls.ca, error=error.message)]
    except (OSError, ValueError) as error:
        return [CertificateFacts(option, tls.cert or tls.ca, error=f"it cannot be read: {error}")]
    seen = [_seen(f"{option}.ssl-ca", tls.ca, authority, trusted=None) for authority in authorities]
    if chain:
        trusted = _is_trusted(chain, authorities)
        seen.append(_seen(f"{option}.ssl-cert", tls.cert, chain[0], trusted=trusted, hosts=hosts))
    return seen


def _load(path: str) -> list[x509.Certificate]:
    with open(path, "rb") as file:
        return x509.load_pem_x509_certificates(file.read())


def _seen(
    option: str, path: str, certificate: x509.Certificate, *, trusted: bool | None, hosts: Sequence[str] = ()
) -> CertificateFacts:
    names: list[str] = []
    try:
        alternative = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names += [str(name.value) for name in alternative if isinstance(name, x509.DNSName | x509.IPAddress)]
    except x509.ExtensionNotFound:
        pass
    common = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return CertificateFacts(
        option,
        path,
        common_name=str(common[0].value) if common else "",
        names=tuple(names),
        not_before_s=certificate.not_valid_before_utc.timestamp(),
        not_after_s=certificate.not_valid_after_utc.timestamp(),
        trusted=trusted,
        hosts=tuple(hosts),
    )


def _is_trusted(chain: Sequence[x509.Certificate], authorities: Sequence[x509.Certificate]) -> bool:
    """Whether a path of signatures leads from the first of the chain to an authority."""
    current = chain[0]
    for _ in range(len(chain) + 1):
        if any(_issued(current, authority) for authority in authorities):
            return True
        following = next(
            (other for other in chain[1:] if other is not current and _issued(current, other)), None
        )
        if following is None:
            return False
        current = following
    return False


def _issued(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True

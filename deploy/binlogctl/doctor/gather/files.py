"""Files: configuration files as the daemons would read them, and TLS files; on the operator's host.

Out    settings, or the error that the daemon would end with; `CertificateFacts` of each certificate
Never  shows what a key or a password file holds
Tests  tests/deploy/binlogctl/doctor/checks/test_files.py
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.x509.oid import NameOID

from binlogctl.doctor.facts import CertificateFacts, DiskFacts
from tidb_binlog import mount
from tidb_binlog.config import loading
from tidb_binlog.errors import ConfigError
from tidb_binlog.net.tls import TlsConfig

C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class FileFacts(Generic[C]):
    """A configuration file: its settings, or why it cannot be used."""

    path: str
    settings: C | None = None
    error: ConfigError | None = None
    mode: int = 0


def read_config(cls: type[C], path: str, program: str) -> FileFacts[C]:
    """The file alone: no environment, no flags."""
    try:
        mode = stat.S_IMODE(os.stat(path).st_mode)
        return FileFacts(
            path, loading.load(cls, ["-config", path], {}, program=program, env_prefix=""), mode=mode
        )
    except ConfigError as error:
        return FileFacts(path, error=error)
    except OSError as error:
        failure = ConfigError(f"cannot read the config file {path}: {error.strerror}", hint="check the path")
        return FileFacts(path, error=failure)


def disk_of(data_dir: str) -> DiskFacts | None:
    """The file system of a pump's data directory, if that pump has worked on this host."""
    if not os.path.isabs(data_dir) or not os.path.isdir(os.path.join(data_dir, "value")):
        return None
    try:
        disk = os.statvfs(data_dir)
    except OSError:
        return None
    return DiskFacts(disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize)


def remarks_on_data_dir(data_dir: str) -> list[str]:
    """On the file system of a pump's data directory. Raises `ConfigError` where a pump does not start."""
    return mount.check_local("data-dir", data_dir, mount.found(data_dir))


def read_certificates(option: str, tls: TlsConfig, hosts: Sequence[str] = ()) -> list[CertificateFacts]:
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

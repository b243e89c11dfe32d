"""Makes certificates for tests: authorities, leaves of any name, time and purpose. P-256, so it is quick."""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

from tidb_binlog.net.tls import TlsConfig

CLIENT = ExtendedKeyUsageOID.CLIENT_AUTH
SERVER = ExtendedKeyUsageOID.SERVER_AUTH
SANS = ("localhost", "127.0.0.1")
_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Pair:
    """A certificate and its key. `chain` is what goes after it into a certificate file."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    chain: bytes = b""

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        return self.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )


def authority(cn: str = "authority", *, issuer: Pair | None = None) -> Pair:
    """An authority: of its own, or one in between that `issuer` vouches for."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        _builder([cn], key, issuer, None, None)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_key_usage(certificates=True), critical=True)
    )
    certificate = _signed(builder, key, issuer)
    chain = certificate.public_bytes(serialization.Encoding.PEM) + issuer.chain if issuer else b""
    return Pair(certificate, key, chain)


def leaf(
    cn: str | Sequence[str],
    *,
    ca: Pair | None,
    sans: Sequence[str] = SANS,
    not_before: datetime.datetime | None = None,
    not_after: datetime.datetime | None = None,
    eku: Sequence[ObjectIdentifier] = (CLIENT, SERVER),
) -> Pair:
    """A certificate of a node, valid from yesterday until tomorrow; self-signed without `ca`."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        _builder([cn] if isinstance(cn, str) else cn, key, ca, not_before, not_after)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(certificates=False), critical=True)
    )
    if sans:
        builder = builder.add_extension(x509.SubjectAlternativeName([_general(name) for name in sans]), False)
    if eku:
        builder = builder.add_extension(x509.ExtendedKeyUsage(eku), critical=False)
    return Pair(_signed(builder, key, ca), key, ca.chain if ca else b"")


def expired_leaf(cn: str, *, ca: Pair) -> Pair:
    """A leaf that was good until yesterday."""
    now = datetime.datetime.now(datetime.UTC)
    return leaf(cn, ca=ca, not_before=now - 2 * _DAY, not_after=now - _DAY)


def write(
    directory: Path, *, ca: Sequence[Pair], node: Pair | None, allowed_cn: Sequence[str] = ()
) -> TlsConfig:
    """Put the files of one node in place, each at once (by rename), and name them. Again: a rotation."""
    directory.mkdir(parents=True, exist_ok=True)
    contents = {"ca.pem": b"".join(pair.pem for pair in ca)}
    if node is not None:
        contents |= {"node.key": node.key_pem, "node.pem": node.pem + node.chain}
    for name, content in contents.items():
        fresh = directory / f"{name}.new"
        fresh.write_bytes(content)
        os.replace(fresh, directory / name)
    own = (str(directory / "node.pem"), str(directory / "node.key")) if node is not None else ("", "")
    return TlsConfig(str(directory / "ca.pem"), *own, allowed_cn=tuple(allowed_cn))


def _builder(
    cns: Sequence[str],
    key: ec.EllipticCurvePrivateKey,
    issuer: Pair | None,
    not_before: datetime.datetime | None,
    not_after: datetime.datetime | None,
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, cn) for cn in cns])
    issuer_key = issuer.key if issuer else key
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer.certificate.subject if issuer else name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(not_before or now - _DAY)
        .not_valid_after(not_after or now + _DAY)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False
        )
    )


def _signed(
    builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey, issuer: Pair | None
) -> x509.Certificate:
    return builder.sign(issuer.key if issuer else key, hashes.SHA256())


def _key_usage(*, certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=certificates,
        crl_sign=certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)

"""TLS material of one node, by file name.

A certificate authority means mutual TLS: servers ask clients for a certificate of that authority, clients
check the server's. Without one there is no TLS at all, as the Go nodes have it.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass

import grpc

from common.errors import ConfigError


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """Paths of PEM files: the authority, our certificate and our private key."""

    ca: str
    cert: str = ""
    key: str = ""

    @classmethod
    def from_paths(cls, ca: str, cert: str, key: str) -> TlsConfig | None:
        """None without an authority: TLS is off then, whatever else is set."""
        if not ca:
            return None
        if bool(cert) != bool(key):
            raise ConfigError("ssl-cert and ssl-key belong together", hint="set both or none")
        return cls(ca, cert, key)

    def server_credentials(self) -> grpc.ServerCredentials:
        """Credentials of a listener; clients must show a certificate. Raises `ConfigError`."""
        if not self.cert:
            raise ConfigError("a TLS listener needs a certificate", hint="set ssl-cert and ssl-key")
        pair = (_read(self.key, "ssl-key"), _read(self.cert, "ssl-cert"))
        authority = _read(self.ca, "ssl-ca")
        self.client_context()
        return grpc.ssl_server_credentials([pair], root_certificates=authority, require_client_auth=True)

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """Credentials of a client. Raises `ConfigError`."""
        authority = _read(self.ca, "ssl-ca")
        key = _read(self.key, "ssl-key") if self.key else None
        chain = _read(self.cert, "ssl-cert") if self.cert else None
        self.client_context()
        return grpc.ssl_channel_credentials(authority, key, chain)

    def server_context(self) -> ssl.SSLContext:
        """For listeners that are not gRPC; clients must show a certificate. Raises `ConfigError`."""
        if not self.cert:
            raise ConfigError("a TLS listener needs a certificate", hint="set ssl-cert and ssl-key")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = ssl.CERT_REQUIRED
        self._load(context)
        return context

    def client_context(self) -> ssl.SSLContext:
        """For clients that are not gRPC. Raises `ConfigError` when the files are unusable."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._load(context)
        return context

    def _load(self, context: ssl.SSLContext) -> None:
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_verify_locations(cafile=self.ca)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"ssl-ca {self.ca} is unusable: {error}", hint="check the file") from None
        if self.cert:
            try:
                context.load_cert_chain(self.cert, self.key, password=_no_passphrase)
            except (OSError, ssl.SSLError, ValueError) as error:
                raise ConfigError(
                    f"ssl-cert {self.cert} with ssl-key {self.key} is unusable: {error}",
                    hint="check that the pair belongs together and has no passphrase",
                ) from None


def _no_passphrase() -> str:
    # Without this, OpenSSL would ask on the terminal.
    raise ValueError("the key has a passphrase")


def _read(path: str, option: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise ConfigError(
            f"could not read {option} {path}: {error.strerror}", hint="check the path"
        ) from None

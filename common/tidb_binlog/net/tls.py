"""TLS material of one node, by file name, read again when the files change.

A certificate authority means mutual TLS: servers ask clients for a certificate of that authority, clients
check the server's. Without one there is no TLS at all, as the Go nodes have it.

In: paths of PEM files and the names that may call (`cert-allowed-cn`). Out: contexts.
Why: certificates live for days, nodes for months; a new one must serve the next handshake without a restart.
Never: a handshake with half-written files (the last usable ones stay), a connection cut by a rotation.
"""

from __future__ import annotations

import json
import os
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

from tidb_binlog.clock import Clock, SystemClock
from tidb_binlog.errors import ConfigError
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.net.permission import Permission
from tidb_binlog.observe import log

ALPN: Final = ("h2", "http/1.1")
RETRY_S: Final = 1.0
LOG_AGAIN_S: Final = 60.0
_NAME_CHARACTERS_SHOWN: Final = 64  # ub-common-name of X.509: longer ones are not honest
_NAMES_SHOWN: Final = 3
_Built = TypeVar("_Built")
_Mark = tuple[int, ...]
_logger = log.get("tls")


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """Paths of PEM files: the authority, our certificate and our private key; and who may call us.

    `allowed_cn` is for listeners, and for servers that are no nodes (`ClientTls`). A node that we call is
    known by the name in its certificate, so clients do not check the list (Go nodes do, and need PD
    and Drainer to carry a listed CN).
    """

    ca: str
    cert: str = ""
    key: str = ""
    allowed_cn: tuple[str, ...] = ()

    @classmethod
    def from_paths(
        cls, ca: str, cert: str, key: str, allowed_cn: Sequence[str] = (), *, section: str = ""
    ) -> TlsConfig | None:
        """None if nothing is set: TLS is off then. Raises `ConfigError`, also where the authority is missing.

        `section`: where the four are set, for errors.
        """
        where = f"[{section}] " if section else ""
        if not ca:
            if cert or key or allowed_cn:
                lone = "ssl-cert" if cert else "ssl-key" if key else "cert-allowed-cn"
                raise ConfigError(
                    f"{where}{lone} without ssl-ca: everything would go over the network in clear",
                    hint="set ssl-ca too, or remove what is there",
                )
            return None
        if bool(cert) != bool(key):
            raise ConfigError(f"{where}ssl-cert and ssl-key belong together", hint="set both or none")
        return cls(ca, cert, key, tuple(allowed_cn))

    def server_tls(self, *, clock: Clock | None = None) -> ServerTls:
        """For listeners that shake hands by themselves. Raises `ConfigError`."""
        return ServerTls(self, clock=clock)

    def server_context(self) -> ssl.SSLContext:
        """For listeners; clients must show a certificate. Raises `ConfigError`."""
        self._require_certificate()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = ssl.CERT_REQUIRED
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
        self._load(context)
        return context

    def client_context(self) -> ssl.SSLContext:
        """For clients. Raises `ConfigError` when the files are unusable."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._load(context)
        return context

    def marks(self) -> tuple[_Mark, ...]:
        """What shows a changed file without reading it."""
        return tuple(_mark(path) for path in (self.ca, self.cert, self.key) if path)

    def _require_certificate(self) -> None:
        if not self.cert:
            raise ConfigError("a TLS listener needs a certificate", hint="set ssl-cert and ssl-key")

    def _load(self, context: ssl.SSLContext) -> None:
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        _load_authority(context, "ssl-ca", self.ca)
        if not self.cert:
            return
        try:
            context.load_cert_chain(self.cert, self.key, password=_no_passphrase)
        except (OSError, ssl.SSLError, ValueError) as error:
            # OpenSSL does not say which of the two it means.
            _read(self.key, "ssl-key")
            _load_authority(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), "ssl-cert", self.cert)
            raise ConfigError(
                f"ssl-cert {self.cert} with ssl-key {self.key} is unusable: {error}",
                hint="check that the pair belongs together and the key is whole and has no passphrase",
            ) from None


class Reread(Generic[_Built]):
    """What is built from the files of a `TlsConfig`: built again when one of them changed."""

    __slots__ = (
        "_build",
        "_built",
        "_checked_s",
        "_clock",
        "_config",
        "_every_s",
        "_failed",
        "_failed_s",
        "_logged_s",
        "_logged_text",
        "_marks",
        "_use",
    )  # fmt: skip

    def __init__(
        self,
        config: TlsConfig,
        build: Callable[[], _Built],
        *,
        use: str,
        every_s: float = 0.0,
        clock: Clock | None = None,
    ) -> None:
        """Looks at the files at most each `every_s`; `use` is for log lines. Raises what `build` raises."""
        self._config = config
        self._build = build
        self._use = use
        self._every_s = every_s
        self._clock = clock or SystemClock()
        self._checked_s = self._clock.monotonic_s()
        # Marks first: a file that changes while it is read is read once more.
        self._marks = config.marks()
        self._built = build()
        self._failed: tuple[_Mark, ...] | None = None
        self._failed_s = 0.0
        self._logged_text = ""
        self._logged_s = 0.0

    def current(self) -> _Built:
        """The same object until the files change to something usable. Never raises `ConfigError`."""
        now_s = self._clock.monotonic_s()
        if now_s - self._checked_s < self._every_s:
            return self._built
        self._checked_s = now_s
        marks = self._config.marks()
        if marks == self._marks:
            return self._built
        if marks == self._failed and now_s - self._failed_s < RETRY_S:
            return self._built
        try:
            built = self._build()
        except ConfigError as error:
            # Tried again after a while even if nothing changes: it may be us, out of descriptors.
            self._failed, self._failed_s = marks, now_s
            self._log(str(error), now_s)
            return self._built
        self._built, self._marks = built, marks
        self._failed, self._logged_text = None, ""
        _logger.info("TLS files changed and are in use", use=self._use, ssl_cert=self._config.cert)
        return built

    def _log(self, text: str, now_s: float) -> None:
        if text != self._logged_text or now_s - self._logged_s >= LOG_AGAIN_S:
            self._logged_text, self._logged_s = text, now_s
            _logger.warning(
                "TLS files changed but are unusable, the old ones stay", use=self._use, error=text
            )


def check_names(allowed_cn: Sequence[str], key: str = "cert-allowed-cn") -> frozenset[str]:
    """Raises `ConfigError` for a list of names without a name."""
    names = frozenset(name.strip() for name in allowed_cn) - {""}
    if allowed_cn and not names:
        # Taken for an empty list it would let everybody in.
        raise ConfigError(f"{key} holds no name", hint="name some, or remove it to allow everybody of ssl-ca")
    return names


class _Names:
    """Common names that a peer's certificate may have; without any, all of the authority's may come."""

    __slots__ = ("_allowed",)

    def __init__(self, allowed_cn: Sequence[str]) -> None:
        """Raises `ConfigError` for a list of names without a name."""
        self._allowed = check_names(allowed_cn)

    def allow(self, allowed_cn: Sequence[str]) -> None:
        """These from the next handshake on. Raises `ConfigError` as at first."""
        self._allowed = check_names(allowed_cn)

    def refusal(self, peer_certificate: Mapping[str, Any] | None) -> str | None:
        """Why this peer is not wanted; None if it is. Takes what `getpeercert` gives: the leaf alone.

        A name of the authority or of one in between must not count: an issuer is not the caller.
        """
        if not peer_certificate:
            return "no certificate was shown"
        if not self._allowed:
            return None
        names = list(_common_names(peer_certificate))
        if any(name in self._allowed for name in names):
            return None
        if not names:
            return "certificate without CN is not in cert-allowed-cn"
        shown = ", ".join(_shown(name) for name in names[:_NAMES_SHOWN])
        more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
        return f"certificate of CN {shown}{more} is not in cert-allowed-cn"


class ServerTls(_Names):
    """TLS of a listener that shakes hands by itself: a context for each handshake, and who may call."""

    __slots__ = ("_files", "_permissions")

    def __init__(self, config: TlsConfig, *, clock: Clock | None = None) -> None:
        """Raises `ConfigError` for unusable files and for a list of names without a name."""
        super().__init__(config.allowed_cn)
        self._permissions: Mapping[Permission, frozenset[str]] = {}

        def build() -> ssl.SSLContext:
            context = config.server_context()
            # Offered, not insisted on: Go pumps' clients of old send none.
            context.set_alpn_protocols(list(ALPN))
            return context

        self._files = Reread(config, build, use="listener", clock=clock)

    def restrict(self, permissions: Mapping[Permission, frozenset[str]]) -> None:
        """Who may do what, from the next handshake on; a permission without names is everybody's."""
        self._permissions = permissions

    def denied(self, peer_certificate: Mapping[str, Any] | None) -> frozenset[Permission]:
        """What this peer may not do."""
        names = frozenset(_common_names(peer_certificate or {}))
        return frozenset(
            permission for permission, allowed in self._permissions.items() if allowed and not allowed & names
        )

    def context(self) -> ssl.SSLContext:
        """The context of the next handshake. Costs three `stat` while the files stay the same."""
        return self._files.current()


class ClientTls(_Names):
    """TLS to one server that is no node of ours: a context for each connection, and who may answer. Safe to
    use from several threads."""

    __slots__ = ("_files", "_lock")

    def __init__(self, config: TlsConfig, *, use: str, clock: Clock | None = None) -> None:
        """`use` is for log lines. Raises `ConfigError` as `ServerTls`."""
        super().__init__(config.allowed_cn)
        self._files = Reread(config, config.client_context, use=use, clock=clock)
        self._lock = threading.Lock()

    def context(self) -> ssl.SSLContext:
        """The context of the next connection, from the files as they are now."""
        with self._lock:
            return self._files.current()


def _common_names(certificate: Mapping[str, Any]) -> Iterator[str]:
    for attributes in certificate.get("subject", ()):
        for kind, value in attributes:
            if kind == "commonName":
                yield value


def _shown(name: str) -> str:
    cut = name[:_NAME_CHARACTERS_SHOWN]
    return json.dumps(cut) + ("..." if len(name) > len(cut) else "")


def _mark(path: str) -> _Mark:
    try:
        stat = os.stat(path)
    except OSError as error:
        return (error.errno or 0,)
    # The change time too: a `chmod` that makes a file readable alters nothing else.
    return (stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino, stat.st_dev)


def _load_authority(context: ssl.SSLContext, option: str, path: str) -> None:
    _read(path, option)
    try:
        context.load_verify_locations(cafile=path)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"{option} {path} is unusable: {error}", hint="check the file") from None


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

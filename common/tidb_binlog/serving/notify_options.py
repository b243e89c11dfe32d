"""Notify options: where both daemons post events to, and how they sign them.

Tests  tests/common/serving/test_notify_options.py
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from typing import Final
from urllib.parse import unquote, urlsplit

from tidb_binlog.clock import SystemClock
from tidb_binlog.config import secret_file
from tidb_binlog.config.declaring import option
from tidb_binlog.door.limits import Limits
from tidb_binlog.errors import ConfigError
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.net import webhook
from tidb_binlog.net.tls import TlsConfig
from tidb_binlog.notify.events import Condition
from tidb_binlog.notify.notifier import Endpoint, Notifier
from tidb_binlog.process.daemon import Daemon


def notifying(settings: NotifyOptions, kind: str, node_id: str, process: Daemon) -> Notifier | None:
    """Posts from now on, and the end; None where nobody is to be told. Raises `ConfigError`."""
    endpoint = settings.notify_endpoint
    if endpoint is None:
        return None
    notifier = Notifier(endpoint, kind, node_id, SystemClock())
    process.task("notify", notifier.run())
    process.on_end(notifier.finish)
    return notifier


def tell_of(notifier: Notifier | None, node_id: str, look: Callable[[], Iterable[Condition] | None]) -> None:
    """Whatever `look` finds, under the node's name; nothing where nobody is to be told."""
    if notifier is not None:
        notifier.known_as(node_id)
        notifier.look = look


SECRET_VARIABLE: Final = "BINLOG_NOTIFY_SECRET"
_HINT: Final = 'notify-url = "https://hooks.example/binlog"'


@dataclass(frozen=True, slots=True)
class NotifyOptions(Limits):
    """The URL may hold a token, so it comes from the file alone and is shown nowhere."""

    notify_url: str = option(
        "",
        key="notify-url",
        secret=True,
        help="URL that gets a JSON document at events that need an operator; empty: none",
        more="docs/notify.md has the events and how a receiver checks the signature.",
        example='notify-url = "https://hooks.example/binlog"',
    )
    notify_secret_file: str = option(
        "",
        key="notify-secret-file",
        kind="path",
        help="file with the secret that events are signed with",
        more=f"The environment variable {SECRET_VARIABLE} does as well.",
    )
    notify_ssl_ca: str = option(
        "",
        key="notify-ssl-ca",
        kind="path",
        help="authority of the receiver's certificate; empty: those of this host",
    )

    def check_notify(self) -> None:
        """Raises `ConfigError`."""
        _ = self.notify_endpoint

    @property
    def notify_endpoint(self) -> Endpoint | None:
        """None for nowhere. Raises `ConfigError`, which never shows the URL."""
        if not self.notify_url:
            for key, value in (
                ("notify-secret-file", self.notify_secret_file),
                ("notify-ssl-ca", self.notify_ssl_ca),
            ):
                if value:
                    raise ConfigError(f"{key} is set without notify-url", hint=_HINT)
            return None
        try:
            url = urlsplit(self.notify_url)
            host, port = url.hostname or "", url.port
        except ValueError:
            host, port, url = "", None, urlsplit("")
        if not host or url.scheme not in ("http", "https") or re.search(r"[^\x21-\x7e]", self.notify_url):
            raise ConfigError("notify-url is no URL of http or https", hint=_HINT)
        if url.scheme == "http" and self.notify_ssl_ca:
            raise ConfigError("notify-url is http://, but notify-ssl-ca is set", hint="write https://")
        port = port or (443 if url.scheme == "https" else 80)
        user = f"{unquote(url.username or '')}:{unquote(url.password or '')}" if url.username else ""
        return Endpoint(
            url.scheme,
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
            f"{url.path or '/'}{'?' if url.query else ''}{url.query}",
            user,
            self._notify_secret(),
            TlsConfig.from_paths(self.notify_ssl_ca, "", "") if self.notify_ssl_ca else None,
        )

    def _notify_secret(self) -> bytes:
        """b"" for none."""
        given = os.environ.get(SECRET_VARIABLE, "")
        if self.notify_secret_file and given:
            raise ConfigError(
                f"the secret of notify-url is given twice: notify-secret-file and {SECRET_VARIABLE}",
                hint="remove one of them",
            )
        if self.notify_secret_file:
            text = secret_file.read("notify-secret-file", self.notify_secret_file, "secret")
            return webhook.secret_of(text, f"notify-secret-file {self.notify_secret_file}")
        return webhook.secret_of(given, SECRET_VARIABLE) if given else b""

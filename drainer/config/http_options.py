"""HTTP options: the keys of `db-type = "http"`, rows as JSON that are posted to a URL.

Tests  tests/drainer/config/test_http_options.py
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from drainer.config.kafka_options import KafkaOptions
from tidb_binlog.config import secret_file
from tidb_binlog.config.declaring import option
from tidb_binlog.errors import ConfigError
from tidb_binlog.net import webhook

HEADERS_BYTES_MAX: Final = 64 << 10
_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", re.ASCII)
_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_OWN: Final = ("host", "content-", "connection", "transfer-encoding", "webhook-", "idempotency-key")


@dataclass(frozen=True, slots=True)
class HttpOptions(KafkaOptions):
    """Beside the keys of Kafka. The URL may hold a token: it is shown nowhere."""

    to_url: str = option(
        "",
        key="syncer.to.url",
        secret=True,
        help="HTTP: URL that rows are posted to, as lines of JSON",
        more="It may hold a token, and is shown nowhere.",
    )
    batch_rows: int = option(
        1000, key="syncer.to.batch-rows", kind="int", help="HTTP: rows of a request at most"
    )
    batch_bytes: int = option(
        "1 MiB",
        key="syncer.to.batch-size",
        kind="size",
        help="HTTP: a body ends with the row that reaches this size",
    )
    http_timeout_s: float = option(
        "30s",
        key="syncer.to.timeout",
        kind="duration",
        help="HTTP: silence of the server that is a failure",
        more="The request is sent again then.",
    )
    headers_file: str = option(
        "",
        key="syncer.to.headers-file",
        help="HTTP: file with headers of every request, a line each",
        more="As Authorization: Bearer ...",
    )
    secret_file: str = option(
        "",
        key="syncer.to.secret-file",
        help="HTTP: file with the secret that requests are signed with",
        more="As Standard Webhooks has it.",
    )

    def check_http(self) -> None:
        """Raises `ConfigError`."""
        _ = self.http_server, self.http_headers, self.http_secret
        for key, value in (("batch-rows", self.batch_rows), ("batch-size", self.batch_bytes)):
            if value < 1:
                raise ConfigError(f"syncer.to.{key} is {value}", hint="it must be at least 1")
        if self.http_timeout_s <= 0:
            raise ConfigError(f"syncer.to.timeout is {self.http_timeout_s:g}", hint='like "30s"')
        if self.to_ssl_ca and self.http_server[0] == "http":
            raise ConfigError(
                "syncer.to.url is http://, but [syncer.to.security] has ssl-ca: it would go in clear",
                hint="write https://, or remove ssl-ca",
            )

    @property
    def http_server(self) -> tuple[str, str, int, str]:
        """scheme, host, port and what to ask for. Raises `ConfigError`."""
        hint = 'url = "https://search.example:8443/changes"'
        if not self.to_url:
            raise ConfigError("syncer.to.url is missing", hint=hint)
        try:
            found = urlsplit(self.to_url)
            host, port = found.hostname or "", found.port
        except ValueError:
            host, port = "", None
        if not host or found.scheme not in ("http", "https") or re.search(r"[^\x21-\x7e]", self.to_url):
            raise ConfigError("syncer.to.url is no URL of http or https", hint=hint)
        if "@" in found.netloc:
            raise ConfigError(
                "syncer.to.url holds a user", hint="put an Authorization header into syncer.to.headers-file"
            )
        target = f"{found.path or '/'}{'?' if found.query else ''}{found.query}"
        return found.scheme, host, port or (443 if found.scheme == "https" else 80), target

    @property
    def http_headers(self) -> dict[str, str]:
        """Of the file. Raises `ConfigError`, which names a header and never shows its value."""
        if not self.headers_file:
            return {}
        where = f"syncer.to.headers-file {self.headers_file}"
        try:
            with open(self.headers_file, encoding="latin-1") as file:
                text = file.read(HEADERS_BYTES_MAX + 1)
        except OSError as error:
            raise ConfigError(
                f"cannot read {where}: {error.strerror}", hint="check the path and who may read it"
            ) from None
        if len(text) > HEADERS_BYTES_MAX:
            raise ConfigError(f"{where} is larger than 64 KiB", hint="it holds headers and nothing else")
        found: dict[str, str] = {}
        for number, line in enumerate(text.splitlines(), 1):
            name, colon, value = line.partition(":")
            if not line.strip() or line.startswith("#"):
                continue
            if not colon or not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value):
                raise ConfigError(f"{where} line {number} is no header", hint="write Name: value")
            if name.lower().startswith(_OWN):
                raise ConfigError(f"{where} line {number}: {name} is set by the drainer", hint="remove it")
            found[name] = value.strip()
        return found

    @property
    def http_secret(self) -> bytes:
        """b"" for none. Raises `ConfigError`."""
        if not self.secret_file:
            return b""
        text = secret_file.read("syncer.to.secret-file", self.secret_file, "secret")
        return webhook.secret_of(text, f"syncer.to.secret-file {self.secret_file}")

"""Schema registry: Confluent's REST interface, as far as a writer of Avro needs it.

In     the registry's URL, with user and password percent-encoded in it where it asks for them
Out    the id of a schema under a subject, asked once and then known
Never  shows the password; follows a redirect or uses a proxy of the environment
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import urllib.parse
from typing import Any, Final

from tidb_binlog.errors import ConfigError, Rejected, Unavailable
from tidb_binlog.net.tls import TlsConfig

TIMEOUT_S: Final = 10.0
_ANSWER_MAX: Final = 1 << 20
_CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"


class SchemaRegistry:
    """Asks over a connection for each question. Not for several threads at once."""

    def __init__(self, url: str, tls: TlsConfig | None = None, timeout_s: float = TIMEOUT_S) -> None:
        """Raises `ConfigError` for what is no URL of a registry."""
        parts = urllib.parse.urlsplit(url)
        try:
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if parts.scheme not in ("http", "https") or not host:
            hint = "use http://HOST:PORT or https://USER:PASSWORD@HOST:PORT"
            raise ConfigError("schema-registry is no URL", hint=hint)
        self._secure = parts.scheme == "https"
        self._host, self._port = host, port or (443 if self._secure else 80)
        self._path = parts.path.rstrip("/")
        self._tls, self._timeout_s = tls, timeout_s
        self._headers = {"Content-Type": _CONTENT_TYPE, "Accept": _CONTENT_TYPE}
        if parts.username is not None:
            words = (urllib.parse.unquote(word or "") for word in (parts.username, parts.password))
            self._headers["Authorization"] = f"Basic {base64.b64encode(':'.join(words).encode()).decode()}"
        self._ids: dict[tuple[str, str], int] = {}
        self._name = f"schema registry {parts.scheme}://{host}:{self._port}"

    def register(self, subject: str, schema: str) -> int:
        """The id of a schema under a subject. Raises `Unavailable`; `Rejected` when the registry says no."""
        schema_id = self._ids.get((subject, schema))
        if schema_id is None:
            schema_id = self._ids[subject, schema] = self._register(subject, schema)
        return schema_id

    def _register(self, subject: str, schema: str) -> int:
        path = f"{self._path}/subjects/{urllib.parse.quote(subject, safe='')}/versions"
        status, answer = self._ask(path, json.dumps({"schema": schema}).encode())
        if status == http.HTTPStatus.OK and isinstance(answer.get("id"), int):
            return int(answer["id"])
        said = str(answer.get("message") or f"status {status}").partition("\n")[0][:300]
        if status >= http.HTTPStatus.INTERNAL_SERVER_ERROR or status == http.HTTPStatus.TOO_MANY_REQUESTS:
            raise Unavailable(f"{self._name} does not answer for subject {subject}: {said}")
        hints = {
            http.HTTPStatus.CONFLICT: "set the subject's compatibility to NONE, or send its table elsewhere",
            http.HTTPStatus.UNAUTHORIZED: "set user and password in schema-registry",
            http.HTTPStatus.FORBIDDEN: "grant this user the right to register schemas",
            http.HTTPStatus.NOT_FOUND: "is schema-registry the URL of Confluent's REST interface?",
        }
        hint = hints.get(http.HTTPStatus(status), "") if status in set(http.HTTPStatus) else ""
        raise Rejected(f"{self._name} refuses the schema of subject {subject}: {said}", hint=hint)

    def _ask(self, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        connection = self._connection()
        try:
            connection.request("POST", path, body, self._headers)
            response = connection.getresponse()
            data = response.read(_ANSWER_MAX)
        except ssl.SSLCertVerificationError as error:
            raise Unavailable(f"{self._name}: {error.verify_message}") from None
        except (OSError, http.client.HTTPException) as error:
            why = str(error) or type(error).__name__
            raise Unavailable(f"{self._name} cannot be reached: {why}") from None
        finally:
            connection.close()
        try:
            answer = json.loads(data)
        except ValueError:
            answer = {}
        return response.status, answer if isinstance(answer, dict) else {}

    def _connection(self) -> http.client.HTTPConnection:
        if not self._secure:
            return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        context = self._tls.client_context() if self._tls else ssl.create_default_context()
        return http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout_s, context=context)

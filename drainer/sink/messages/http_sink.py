"""HTTP sink: changes as lines of JSON, posted to a URL.

    POST <url>
    Content-Type: application/x-ndjson
    Idempotency-Key, webhook-id     <cluster>-<commit_ts>.<seq>-<commit_ts>.<seq> of the first and last line
    webhook-timestamp               seconds since 1970
    webhook-signature               v1,<base64 of HMAC-SHA256 over id.timestamp.body>, with a secret

In     messages; Out  requests, one at a time, over one connection that is kept
Holds  what is answered with 2xx is taken. A request that fails is sent again with the same key and body;
       where a start cuts batches in another way, `_tidb` in each line (commitTs, seq) tells what came before
Never  follows a redirect, uses a proxy of the environment, shows a header, a secret or the URL's path

    2xx                                     taken
    408, 425, 429, 5xx, no answer           tried again; Retry-After counts
    anything else                           holds the Drainer, with what the server says
"""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Iterable, Sequence
from typing import Final

from drainer.formats.messages.message import Message
from drainer.sink.batch.protocol import Retry
from tidb_binlog.clock import Clock
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.net import webhook
from tidb_binlog.net.tls import ClientTls
from tidb_binlog.observe.printable import one_line

RETRY_AFTER_MAX_S: Final = 300
ANSWER_BYTES_MAX: Final = 64 << 10
SHOWN_CHARACTERS: Final = 200


class Refused(Exception):
    """The server answered no: an operator has to look."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`target` is path and query; `tls` is None for http, and where the system's authorities count."""

    scheme: str
    host: str
    port: int
    target: str = field(repr=False)
    timeout_s: float
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    secret: bytes = field(default=b"", repr=False)
    tls: ClientTls | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def _number(message: Message) -> str:
    return f"{message.commit_ts}.{message.seq}"


class Body:
    """Lines of one request, and what tells it from any other."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.rows = 0
        self._first = self._last = ""

    def ends_before(self, message: Message) -> bool:
        """Both halves of a row whose key changes have one number, and two bodies of that one key."""
        return self._last != _number(message)

    def add(self, message: Message) -> None:
        self.data += message.value or b"null"
        self.data += b"\n"
        self.rows += 1
        self._last = _number(message)
        self._first = self._first or self._last

    def key(self, cluster_id: int) -> str:
        return f"{cluster_id}-{self._first}-{self._last}"


class HttpSink:
    """Stores no position: it is the savepoint's."""

    def __init__(
        self, endpoint: Endpoint, clock: Clock, *, cluster_id: int, batch_rows: int, batch_bytes: int
    ) -> None:
        self.batch_rows = batch_rows
        self.batch_bytes = batch_bytes
        self._endpoint = endpoint
        self._clock = clock
        self._cluster_id = cluster_id
        self._connection: http.client.HTTPConnection | None = None

    def write(self, items: Sequence[Iterable[Message]], position: int) -> None:
        """Raises `Retry`, `Refused`."""
        body = Body()
        for item in items:
            for message in item:
                is_full = len(body.data) >= self.batch_bytes or body.rows >= self.batch_rows
                if is_full and body.ends_before(message):
                    self._post(body)
                    body = Body()
                body.add(message)
        if body.rows:
            self._post(body)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _post(self, body: Body) -> None:
        headers = self._headers(bytes(body.data), body.key(self._cluster_id))
        is_kept = self._connection is not None
        try:
            status, retry_after, text = self._exchange(body.data, headers)
        except (http.client.HTTPException, OSError) as error:
            self.close()
            if is_kept and isinstance(error, ConnectionError):  # the server had ended it meanwhile
                self._post(body)
                return
            if isinstance(error, ssl.SSLCertVerificationError):
                raise Refused(f"{self._endpoint} is not trusted: {error.verify_message}") from None
            raise Retry(f"{self._endpoint} cannot be reached: {_words(error)}") from None
        if 200 <= status < 300:
            return
        said = f"{self._endpoint} answers {status} {http.client.responses.get(status, '')}".rstrip()
        shown = one_line(text.decode("utf-8", "replace"))[:SHOWN_CHARACTERS].strip()
        said += f": {shown}" if shown else ""
        if webhook.is_worth_a_retry(status):
            raise Retry(said, after=_seconds(retry_after))
        if 300 <= status < 400:
            said += "; redirects are not followed: correct syncer.to.url"
        raise Refused(said)

    def _exchange(self, data: bytearray, headers: dict[str, str]) -> tuple[int, str | None, bytes]:
        connection = self._connection or self._connected()
        self._connection = connection
        connection.request("POST", self._endpoint.target, bytes(data), headers)
        response = connection.getresponse()
        text = response.read(ANSWER_BYTES_MAX + 1)
        if len(text) > ANSWER_BYTES_MAX or response.will_close:
            self.close()
        return response.status, response.getheader("Retry-After"), text

    def _connected(self) -> http.client.HTTPConnection:
        end = self._endpoint
        if end.scheme == "http":
            return http.client.HTTPConnection(end.host, end.port, timeout=end.timeout_s)
        context = end.tls.context() if end.tls is not None else ssl.create_default_context()
        connection = http.client.HTTPSConnection(end.host, end.port, timeout=end.timeout_s, context=context)
        connection.connect()
        if end.tls is not None and (why := end.tls.refusal(connection.sock.getpeercert())) is not None:
            connection.close()
            raise Refused(f"{end} is not trusted: {why}")
        return connection

    def _headers(self, data: bytes, key: str) -> dict[str, str]:
        return {
            **self._endpoint.headers,
            "Content-Type": "application/x-ndjson",
            "Idempotency-Key": key,
            **webhook.headers(key, self._clock.wall_s(), data, self._endpoint.secret),
        }


def _seconds(retry_after: str | None) -> float | None:
    """Dates are passed over, and so is 0: pauses grow then."""
    if retry_after is None or not (retry_after.isascii() and retry_after.isdigit()):
        return None
    return min(int(retry_after[:6]), RETRY_AFTER_MAX_S) or None


def _words(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "it does not answer in time"
    if isinstance(error, ConnectionRefusedError):
        return "the connection is refused: nobody listens there"
    if isinstance(error, ConnectionError):
        return "it breaks the connection off"
    if isinstance(error, http.client.HTTPException):
        return f"it does not speak HTTP ({type(error).__name__})"
    return getattr(error, "strerror", None) or type(error).__name__

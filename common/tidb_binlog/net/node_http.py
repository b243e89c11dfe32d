"""Node HTTP: one request to a pump or drainer, and what its answer means.

In     the address as the registry has it; TLS: https with our certificate, and the node's name checked
Holds  an answer within the deadline, or `Unavailable`
Why    the Go nodes answer 200 whatever happened and put a code into the body, ours answer with a status. Both
       are read: what is no success in either is a refusal, in the node's own words
Tests  tests/deploy/binlogctl/commands/test_go_compat.py
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from tidb_binlog.clock import SystemClock
from tidb_binlog.errors import BinlogError, Rejected, Unavailable
from tidb_binlog.foreign_document import json_object
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.net.http_client import BYTES_MAX, HttpClient
from tidb_binlog.net.tls import TlsConfig

DEADLINE_S: Final = 10.0
_CODE_OK: Final = 200


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. `document`: the body, if it is a JSON object."""

    status: int
    body: bytes
    document: dict[str, Any] | None

    @property
    def said(self) -> str:
        """The message of the body, in one line."""
        if self.document is not None and self.document.get("message"):
            return str(self.document["message"]).strip()
        text = self.body[:500].decode("utf-8", "replace")
        return " ".join(text.split()) or f"HTTP status {self.status}"

    @property
    def is_success(self) -> bool:
        """Say whether status and code of the body are those of success."""
        code = _CODE_OK if self.document is None else self.document.get("code", _CODE_OK)
        return self.status == 200 and code == _CODE_OK

    def refusal(self, who: str) -> BinlogError:
        """The error of an answer that is no success."""
        assert not self.is_success
        if self.status == 403:
            return Rejected(
                f"{who} takes this from its own host, over mutual TLS and from admin-from only: {self.said}",
                hint="run this on the node's host or with -ssl-ca, or add this host to the node's admin-from",
            )
        if self.status >= 500:
            return Unavailable(f"{who}: {self.said}", hint="see its log")
        return Rejected(f"{who} refused: {self.said}")


async def ask(
    who: str,
    address: str,
    method: str,
    path: str,
    tls: TlsConfig | None,
    *,
    body: bytes = b"",
    deadline_s: float | None = None,
    bytes_max: int = BYTES_MAX,
) -> Answer:
    """One request to `who` (its name in errors). Raises `Unavailable`, `ConfigError` for TLS files."""
    deadline_s = deadline_s or DEADLINE_S
    client = HttpClient(SystemClock(), tls, deadline_s, bytes_max)
    try:
        async with asyncio.timeout(deadline_s):
            page = await client.ask(method, address, path, body or None)
    except (Unavailable, TimeoutError) as error:
        why = (
            error.message if isinstance(error, Unavailable) else f"nothing was heard within {deadline_s:g} s"
        )
        over = "" if tls is None else " over TLS"
        raise Unavailable(
            f"{who} at {address} does not answer{over}: {why}", hint="is it running? see its log"
        ) from None
    return Answer(page.status, page.body, json_object(page.body))

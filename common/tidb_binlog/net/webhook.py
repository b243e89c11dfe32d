"""Webhook: the headers by which a receiver knows who posted a body, and when (standard-webhooks).

    webhook-id          the same for each try of one message
    webhook-timestamp   seconds since 1970
    webhook-signature   v1,<base64 of HMAC-SHA256 over id.timestamp.body>, with a secret

Tests  tests/common/net/test_webhook.py, tests/drainer/sink/messages/test_http_sink.py
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Final

from tidb_binlog.errors import ConfigError

PREFIX: Final = "whsec_"
"""A secret that begins so is base64 behind it."""
AGAIN: Final = frozenset({408, 425, 429})


def secret_of(text: str, where: str) -> bytes:
    """`text` as it was given; `where`: for the error. Raises `ConfigError`."""
    if not text:
        raise ConfigError(f"{where} is empty", hint="write a secret into it")
    if not text.startswith(PREFIX):
        return text.encode()
    try:
        return base64.b64decode(text.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise ConfigError(
            f"{where}: what follows {PREFIX} is not base64",
            hint="write the secret as it was given, or another one without that prefix",
        ) from None


def headers(key: str, now_s: float, body: bytes, secret: bytes) -> dict[str, str]:
    """Without a secret nothing is signed."""
    stamp = str(int(now_s))
    fields = {"webhook-id": key, "webhook-timestamp": stamp}
    if secret:
        digest = hmac.new(secret, f"{key}.{stamp}.".encode() + body, hashlib.sha256).digest()
        fields["webhook-signature"] = f"v1,{base64.b64encode(digest).decode()}"
    return fields


def is_worth_a_retry(status: int) -> bool:
    """Whether the same request may be taken later."""
    return status in AGAIN or status >= 500

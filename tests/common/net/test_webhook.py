"""What a receiver checks: by the scheme's own words, and by its published example."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from tidb_binlog.errors import ConfigError
from tidb_binlog.net import webhook

SECRET = "whsec_" + base64.b64encode(bytes(range(24))).decode()


def test_the_signature_is_over_id_time_and_body() -> None:
    found = webhook.headers("m-1", 1700000000.9, b'{"a": 1}', webhook.secret_of(SECRET, "file"))
    assert (found["webhook-id"], found["webhook-timestamp"]) == ("m-1", "1700000000")
    digest = hmac.new(bytes(range(24)), b'm-1.1700000000.{"a": 1}', hashlib.sha256).digest()
    assert found["webhook-signature"] == "v1," + base64.b64encode(digest).decode()


def test_without_a_secret_nothing_is_signed() -> None:
    assert set(webhook.headers("m", 1.0, b"", b"")) == {"webhook-id", "webhook-timestamp"}


@pytest.mark.parametrize("text", ["", "whsec_not base64"])
def test_a_secret_that_is_none_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        webhook.secret_of(text, "notify-secret-file /f")
    assert "notify-secret-file /f" in str(refused.value)
    assert "not base64" not in str(refused.value).replace("is not base64", "")


@pytest.mark.parametrize(
    ("status", "again"), [(408, True), (429, True), (503, True), (400, False), (301, False)]
)
def test_what_may_be_taken_later(status: int, again: bool) -> None:
    assert webhook.is_worth_a_retry(status) is again

"""The webhook sink against a real server: what is sent, sent again, held, and never shown."""

from __future__ import annotations

import base64
import hashlib
import hmac
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drainer import Retry
from drainer.formats.messages.message import Message
from drainer.sink.messages.http_sink import Endpoint, HttpSink, Refused
from tests import certificates
from tests.fakes.webhook import Answer, Webhook
from tests.waiting import PATIENCE_S
from tidb_binlog.clock import ManualClock
from tidb_binlog.net.tls import ClientTls, TlsConfig

SECRET = b"s3cret"
TOKEN = "Bearer t0ken"


@pytest.fixture
def hook() -> Iterator[Webhook]:
    made = Webhook()
    yield made
    made.close()


def sink_of(hook: Webhook, **options: Any) -> HttpSink:
    given = {"headers": {"Authorization": TOKEN}, "secret": SECRET, "timeout_s": 5.0} | options
    rows, size = given.pop("batch_rows", 100), given.pop("batch_bytes", 1 << 20)
    endpoint = Endpoint("http", "127.0.0.1", hook.port, "/changes?token=hidden", **given)
    return HttpSink(endpoint, ManualClock(), cluster_id=7, batch_rows=rows, batch_bytes=size)


def message(ts: int, seq: int = 0, value: bytes | None = b'{"a":1}') -> Message:
    return Message("d", "t", None, value, ts, seq, "insert")


def test_a_batch_is_one_signed_request(hook: Webhook) -> None:
    sink = sink_of(hook)
    sink.write([[message(10, 0), message(10, 1)], [message(20)]], 25)
    (request,) = hook.taken
    assert request.path == "/changes?token=hidden"
    assert request.lines() == [{"a": 1}] * 3
    headers = {name.lower(): value for name, value in request.headers.items()}
    assert headers["content-type"] == "application/x-ndjson"
    assert headers["authorization"] == TOKEN
    assert headers["idempotency-key"] == headers["webhook-id"] == "7-10.0-20.0"
    signed = f"7-10.0-20.0.{headers['webhook-timestamp']}.".encode() + request.body
    wanted = base64.b64encode(hmac.new(SECRET, signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{wanted}"
    sink.close()


def test_without_a_secret_nothing_is_signed_and_nothing_is_posted_for_a_mere_position(hook: Webhook) -> None:
    sink = sink_of(hook, secret=b"")
    sink.write([], 25)
    assert hook.seen == []
    sink.write([[message(10)]], 25)
    assert "webhook-signature" not in {name.lower() for name in hook.taken[0].headers}
    sink.close()


def test_one_connection_is_kept_and_made_again_when_the_server_ended_it(hook: Webhook) -> None:
    sink = sink_of(hook)
    for ts in (10, 20):
        sink.write([[message(ts)]], ts)
    assert len({request.connection for request in hook.seen}) == 1
    hook.answers = [Answer(breaks=True, takes=False)]
    sink.write([[message(30)]], 30)
    assert [request.headers["webhook-id"] for request in hook.taken] == [
        f"7-{ts}.0-{ts}.0" for ts in (10, 20, 30)
    ]
    assert len({request.connection for request in hook.taken}) == 2
    sink.close()


def test_rows_and_bytes_bound_a_request_of_a_large_transaction_too(hook: Webhook) -> None:
    sink = sink_of(hook, batch_rows=3, batch_bytes=40)
    sink.write([(message(10, seq) for seq in range(8))], 10)  # type: ignore[list-item]
    sink.write([[message(20, seq, b"x" * 30) for seq in range(3)]], 20)
    assert [request.body.count(b"\n") for request in hook.taken] == [3, 3, 2, 2, 1]
    assert hook.taken[1].headers["webhook-id"] == "7-10.3-10.5"
    sink.close()


@pytest.mark.parametrize(("rows", "size"), [(1, 1 << 20), (2, 1 << 20), (100, 20)])
def test_no_two_requests_have_one_key(hook: Webhook, rows: int, size: int) -> None:
    """A change of a row's key is two lines of one number."""
    sink = sink_of(hook, batch_rows=rows, batch_bytes=size)
    halves = [message(10, seq, half + b"-" * 30) for seq in range(3) for half in (b"delete", b"insert")]
    sink.write([halves, [message(20)]], 20)
    keys = [request.headers["webhook-id"] for request in hook.taken]
    assert keys == ["7-10.0-10.0", "7-10.1-10.1", "7-10.2-10.2", "7-20.0-20.0"]
    assert [request.body.count(b"\n") for request in hook.taken] == [2, 2, 2, 1]
    sink.close()


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 599])
def test_what_may_pass_by_itself_is_tried_again(hook: Webhook, status: int) -> None:
    sink = sink_of(hook)
    hook.answers = [Answer(status, text="busy\nnow")]
    with pytest.raises(Retry, match=rf"http://127.0.0.1:{hook.port} answers {status}.*: busy now") as raised:
        sink.write([[message(10)]], 10)
    assert raised.value.after is None
    sink.write([[message(10)]], 10)
    assert hook.seen[0].headers["webhook-id"] == hook.seen[1].headers["webhook-id"]
    assert hook.seen[0].body == hook.seen[1].body
    sink.close()


@pytest.mark.parametrize(
    ("text", "after"),
    [("7", 7), ("999999", 300), ("Wed, 21 Oct 2026 07:28:00 GMT", None), ("-3", None), ("0", None)],
)
def test_the_server_says_when(hook: Webhook, text: str, after: float | None) -> None:
    sink = sink_of(hook)
    hook.answers = [Answer(429, (("Retry-After", text),))]
    with pytest.raises(Retry) as raised:
        sink.write([[message(10)]], 10)
    assert raised.value.after == after
    sink.close()


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
def test_a_refusal_holds_with_the_server_s_text(hook: Webhook, status: int) -> None:
    sink = sink_of(hook)
    hook.answers = [Answer(status, text='{"error":\n "no such index"}' + "x" * 1000)]
    with pytest.raises(Refused, match='"no such index"') as raised:
        sink.write([[message(10)]], 10)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 300
    sink.close()


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(hook: Webhook, status: int) -> None:
    other = Webhook()
    sink = sink_of(hook)
    hook.answers = [Answer(status, (("Location", f"http://127.0.0.1:{other.port}/"),))]
    with pytest.raises(Refused, match="redirects are not followed"):
        sink.write([[message(10)]], 10)
    assert other.seen == []
    sink.close()
    other.close()


def test_a_server_that_is_not_there_is_tried_again(free_port: Any) -> None:
    endpoint = Endpoint("http", "127.0.0.1", free_port(), "/", 5.0)
    sink = HttpSink(endpoint, ManualClock(), cluster_id=7, batch_rows=1, batch_bytes=1)
    with pytest.raises(Retry, match="nobody listens there"):
        sink.write([[message(10)]], 10)


def test_a_server_that_does_not_answer_is_left(hook: Webhook) -> None:
    free = threading.Event()
    hook.before = lambda: free.wait(PATIENCE_S)
    sink = sink_of(hook, timeout_s=0.05)
    with pytest.raises(Retry, match="does not answer in time"):
        sink.write([[message(10)]], 10)
    free.set()
    sink.close()


def test_no_secret_is_in_an_error_or_a_repr(hook: Webhook) -> None:
    sink = sink_of(hook)
    shown = [repr(sink._endpoint), str(sink._endpoint)]
    for answer in (Answer(500), Answer(400), Answer(302)):
        hook.answers = [answer]
        with pytest.raises((Retry, Refused)) as raised:
            sink.write([[message(10)]], 10)
        shown += [str(raised.value), repr(raised.value)]
    assert not [text for text in shown if "t0ken" in text or "s3cret" in text or "hidden" in text]
    sink.close()


# -- TLS ---------------------------------------------------------------------------------------------------

CA = certificates.authority()
OTHER_CA = certificates.authority("another authority")


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[Webhook]:
    node = certificates.leaf("hook", ca=CA, sans=["127.0.0.1"])
    files = certificates.write(tmp_path / "hook", ca=[CA], node=node)
    made = Webhook(tls=files.server_context())
    yield made
    made.close()


def secure_sink(hook: Webhook, files: TlsConfig) -> HttpSink:
    endpoint = Endpoint("https", "127.0.0.1", hook.port, "/", 5.0, tls=ClientTls(files, use="downstream"))
    return HttpSink(endpoint, ManualClock(), cluster_id=7, batch_rows=1, batch_bytes=1)


def test_both_sides_show_certificates(secure: Webhook, tmp_path: Path) -> None:
    own = certificates.leaf("drainer", ca=CA)
    sink = secure_sink(secure, certificates.write(tmp_path / "own", ca=[CA], node=own, allowed_cn=["hook"]))
    sink.write([[message(10)]], 10)
    assert [request.headers["webhook-id"] for request in secure.taken] == ["7-10.0-10.0"]
    sink.close()


@pytest.mark.parametrize(("ca", "allowed"), [(OTHER_CA, ()), (CA, ("somebody",))])
def test_another_server_gets_nothing(
    secure: Webhook, tmp_path: Path, ca: certificates.Pair, allowed: tuple[str, ...]
) -> None:
    own = certificates.leaf("drainer", ca=CA)
    sink = secure_sink(secure, certificates.write(tmp_path / "own", ca=[ca], node=own, allowed_cn=allowed))
    with pytest.raises(Refused, match="is not trusted"):
        sink.write([[message(10)]], 10)
    assert secure.seen == []
    sink.close()


def test_without_an_authority_those_of_the_system_count(secure: Webhook) -> None:
    endpoint = Endpoint("https", "127.0.0.1", secure.port, "/", 5.0)
    sink = HttpSink(endpoint, ManualClock(), cluster_id=7, batch_rows=1, batch_bytes=1)
    with pytest.raises(Refused, match="is not trusted: "):
        sink.write([[message(10)]], 10)
    assert secure.seen == []

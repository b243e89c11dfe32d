"""Events arrive signed, are tried again, and hold up neither the node nor its end."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
import random
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import certificates
from tests.common.notify.receiver import Receiver, listening
from tests.waiting import PATIENCE_S, until
from tidb_binlog.backoff import Backoff
from tidb_binlog.clock import SystemClock
from tidb_binlog.net.tls import TlsConfig
from tidb_binlog.notify import notifier as notifying
from tidb_binlog.notify.events import Condition, Event, Events, Origin, Type
from tidb_binlog.notify.notifier import Endpoint, Notifier, Outbox
from tidb_binlog.observe.metrics import REGISTRY

WAITS = Condition(Type.DDL_WAITS, "7", "a DDL waits")


def total(result: str) -> float:
    return REGISTRY.get_sample_value("binlog_common_notify_events_total", {"result": result}) or 0.0


def endpoint(receiver: Receiver, **more: Any) -> Endpoint:
    return Endpoint("http", f"127.0.0.1:{receiver.port}", "/hook?token=hidden", **more)


@asynccontextmanager
async def running(end: Endpoint) -> AsyncIterator[Notifier]:
    notifier = Notifier(end, "drainer", "d1", SystemClock())
    notifier._outbox = Outbox(backoff=Backoff(0.01, 0.02))
    task = asyncio.create_task(notifier.run())
    try:
        yield notifier
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_it_arrives_signed_with_what_the_url_has() -> None:
    async with listening(Receiver()) as receiver:
        async with running(endpoint(receiver, user="me:pa ss", secret=b"key")) as notifier:
            notifier.happened(WAITS)
            await receiver.until(1)
        line, headers, body = receiver.came[0]
        assert line == "POST /hook?token=hidden HTTP/1.1"
        assert json.loads(body)["node"] == {"kind": "drainer", "id": "d1"}
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        digest = base64.b64encode(hmac.new(b"key", signed, hashlib.sha256).digest()).decode()
        assert headers["webhook-signature"] == f"v1,{digest}"
        assert headers["authorization"] == "Basic " + base64.b64encode(b"me:pa ss").decode()
        assert headers["content-type"] == "application/json"


async def test_a_failure_is_tried_again_with_the_same_id_and_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    async with (
        listening(Receiver(503, 429, 500, 204)) as receiver,
        running(endpoint(receiver)) as notifier,
        asyncio.timeout(PATIENCE_S),
    ):
        notifier.happened(WAITS)
        notifier.happened(Condition(Type.ENDED, "d1", "second"))
        await receiver.until(5)
        await until(lambda: not notifier._outbox)
    ids = [headers["webhook-id"] for _, headers, _ in receiver.came]
    assert ids[0] == ids[1] == ids[2] == ids[3] != ids[4]
    assert len({body for _, _, body in receiver.came[:4]}) == 1
    messages = [record.message for record in caplog.records]
    assert messages == ["an event cannot be delivered, it is tried again", "events are delivered again"]
    assert "hidden" not in caplog.text


async def test_what_is_refused_is_logged_and_holds_up_no_other(caplog: pytest.LogCaptureFixture) -> None:
    before = total("refused")
    async with listening(Receiver(302, 204)) as receiver, running(endpoint(receiver)) as notifier:
        notifier.happened(WAITS)
        notifier.happened(WAITS)
        await receiver.until(2)
    assert total("refused") == before + 1
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert record.fields["answer"] == "302 said"  # type: ignore[attr-defined]
    assert "hidden" not in str(record.fields)  # type: ignore[attr-defined]


async def test_what_holds_is_told_when_it_begins_and_when_it_ends_but_not_while_unknown() -> None:
    async with listening(Receiver()) as receiver:
        notifier = Notifier(endpoint(receiver), "drainer", "d1", SystemClock())
        seen: list[list[Condition] | None] = [None, [WAITS], [WAITS], None, []]
        for found in seen:
            notifier.look = lambda found=found: found  # type: ignore[misc]
            notifier.note()
        await notifier.finish(0, None)
    states = [(json.loads(body)["type"], json.loads(body)["state"]) for _, _, body in receiver.came]
    assert states == [("ddl_waits", "firing"), ("ddl_waits", "resolved"), ("ended", "happened")]


async def test_the_end_says_code_and_reason() -> None:
    async with listening(Receiver()) as receiver:
        notifier = Notifier(endpoint(receiver), "pump", "p1", SystemClock())
        notifier.known_as("p2")
        await notifier.finish(6, ValueError("the log\nis damaged"))
    document = json.loads(receiver.came[0][2])
    assert document["details"] == {"exit_code": 6, "reason": "the log is damaged"}
    assert document["node"]["id"] == document["subject"] == "p2"


async def test_a_receiver_that_does_not_answer_holds_up_the_end_no_longer_than_it_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(notifying, "END_S", 0.05)
    before = total("dropped")
    async with listening(Receiver(0)) as receiver:
        notifier = Notifier(endpoint(receiver), "pump", "p1", SystemClock())
        notifier.happened(WAITS)
        async with asyncio.timeout(PATIENCE_S):
            await notifier.finish(0, None)
    assert total("dropped") == before + 2


async def test_one_that_is_away_is_not_waited_for_at_the_end() -> None:
    before = total("dropped")
    notifier = Notifier(Endpoint("http", "127.0.0.1:1", "/"), "pump", "p1", SystemClock())
    await notifier.finish(0, None)
    assert total("dropped") == before + 1


async def test_a_look_that_fails_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> list[Condition]:
        raise ValueError("an error of the program")

    async with listening(Receiver()) as receiver, running(endpoint(receiver)) as notifier:
        notifier.look = broken
        notifier._wake.set()
        await asyncio.sleep(0)
        notifier.happened(WAITS)
        await receiver.until(1)


@pytest.mark.parametrize("known", [True, False])
async def test_https_with_an_authority_of_ones_own(tmp_path: Path, known: bool) -> None:
    ours, others = certificates.authority(), certificates.authority("other")
    files = certificates.write(tmp_path / "r", ca=[ours], node=certificates.leaf("receiver", ca=ours))
    trusted = certificates.write(tmp_path / "n", ca=[ours if known else others], node=None)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.cert, files.key)
    async with listening(Receiver(), context) as receiver:
        end = Endpoint("https", f"localhost:{receiver.port}", "/", tls=TlsConfig(trusted.ca))
        await Notifier(end, "pump", "p1", SystemClock()).finish(0, None)
        assert len(receiver.came) == known


EVENTS = Events(Origin("pump", "p", "r"))


def event(subject: str) -> Event:
    return EVENTS.happened(Condition(Type.ENDED, subject, ""), 0.0)


def test_of_too_many_the_oldest_goes_and_is_counted() -> None:
    box = Outbox(size_max=2)
    one, two, three = event("1"), event("2"), event("3")
    assert (box.put(one), box.put(two), box.put(three)) == (None, None, one)
    assert (box.dropped, len(box), box.first) == (1, 2, two)
    box.taken(one)  # it was under way when it went
    assert (box.sent, box.first) == (1, two)
    box.taken(two)
    assert box.first is three


def test_pauses_grow_until_one_is_taken_and_one_that_is_refused_holds_up_no_other() -> None:
    box = Outbox(backoff=Backoff(1.0, 8.0, random.Random(1)))
    assert box.wait_s(0.0) is None
    one, two = event("1"), event("2")
    box.put(one)
    box.put(two)
    assert box.wait_s(0.0) == 0.0
    now_s, pauses = 0.0, []
    for _ in range(5):
        pauses.append(box.retry(now_s))
        assert box.wait_s(now_s) == pytest.approx(pauses[-1])
        now_s += pauses[-1] + 1e-6
        assert (box.wait_s(now_s), box.first) == (0.0, one)
    assert 0.5 <= pauses[0] <= 1.0
    assert 4.0 <= pauses[-1] <= 8.0
    box.refuse(one)
    assert (box.wait_s(now_s), box.first, box.refused) == (0.0, two, 1)
    assert box.retry(now_s) <= 1.0, "pauses begin anew"

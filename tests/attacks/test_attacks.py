"""A door bears every attack: it ends those that cost, with a reason, and serves others afterwards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.attacks import frames
from tests.attacks.catalog import ATTACKS, CLEAR_ONLY, TLS_ONLY
from tests.attacks.session import Outcome, Session, Target
from tests.benchmarks.door.children import Server, server
from tests.benchmarks.door.server import DOOR
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.integration

FRAMES_MAX = 200_000
HELD_SECONDS = 0.3
TIMED_SECONDS = (2.0, 20.0, 200.0)

HELD = {
    "zero_window",
    "window_of_one",
    "deaf_puller",
    "pages_unread",
    "pages_unread_http1",
    "slow_preface",
    "silence",
    "slow_header_block",
    "slow_frame",
    "slow_body",
    "gzip_bomb",
    "empty_messages",
    "claims",
    "connections",
}
"""Within half a second; what ends them later is a matter of clocks, tested without waiting."""
EITHER = {"filled_claims"}
"""It depends on what comes first: more streams than there may be, or the end of its time."""
TIMED = {*EITHER, "half_open_tls", "handshakes"}
"""They go on for all of their time, which is longer where the server needs longer."""
CLOSED = {"clear_on_tls", "tls_on_clear", "garbage", "http1_endless", "half_open_tls", "handshakes"}
"""There is no HTTP/2 on which a GOAWAY could be sent."""
OTHER_CODES = {"huge_table": 9, "garbage_frames": 6}
GROWN_MIB_MAX = {"gzip_bomb": 1100, "filled_claims": 400, "broken_gzip": 100}
GROWN_MIB = 64


@pytest.fixture(scope="module")
def clear() -> Iterator[Server]:
    with server(DOOR) as one:
        yield one


@pytest.fixture(scope="module")
def secret() -> Iterator[Server]:
    with server(DOOR, tls=True) as one:
        yield one


def answers(target: Target) -> bool:
    """A call on a new connection gets its reply."""
    with Session(target, PATIENCE_S, 1 << 20) as session:
        block = target.block(target.empty)
        body = frames.message(b"")
        session.send(frames.frame(frames.HEADERS, frames.END_HEADERS, 1, block))
        session.send(frames.frame(frames.DATA, frames.END_STREAM, 1, body))
        session.until_replied()
        return session.outcome().replies > 0


def carried_out(name: str, target: Target) -> Outcome:
    if name not in TIMED:
        return ATTACKS[name](target, HELD_SECONDS if name in HELD else PATIENCE_S, FRAMES_MAX)
    for seconds in TIMED_SECONDS:
        outcome = ATTACKS[name](target, seconds, FRAMES_MAX)
        if outcome.ended or name in EITHER:
            break
    return outcome


@pytest.mark.parametrize("name", ATTACKS)
def test_attack(name: str, request: pytest.FixtureRequest) -> None:
    one: Server = request.getfixturevalue("secret" if name in TLS_ONLY else "clear")
    before_mib = one.rss_mib()
    outcome = carried_out(name, one.target)
    grown_mib = one.rss_mib() - before_mib
    assert answers(one.target)
    assert grown_mib < GROWN_MIB_MAX.get(name, GROWN_MIB)
    if name in HELD:
        assert not outcome.ended, outcome
    elif name not in EITHER:
        assert outcome.ended, outcome
    if outcome.ended and name not in CLOSED:
        assert outcome.code == OTHER_CODES.get(name, frames.ENHANCE_YOUR_CALM), outcome
        assert outcome.debug


def test_every_name_is_an_attack() -> None:
    assert set(ATTACKS) >= HELD | EITHER | CLOSED | TLS_ONLY | CLEAR_ONLY | set(OTHER_CODES) | set(
        GROWN_MIB_MAX
    )

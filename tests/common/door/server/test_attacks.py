"""Every attack of `tests.attacks` on a door, a polite client beside it.

Each is ended with its code or held within its limits; no polite call fails; memory stays bounded; nothing is
left when the attacker is gone.
"""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import os
from typing import Final

import pytest

from tests import certificates
from tests.attacks import messages
from tests.attacks.catalog import ATTACKS, FRAMES_MAX, TLS_ONLY
from tests.common.door.support.peers import House, house, polite
from tests.waiting import PATIENCE_S
from tidb_binlog.door.limits import Limits
from tidb_binlog.door.server.stats import STATS
from tidb_binlog.net.tls import TlsConfig

pytestmark = pytest.mark.integration
LOOPS = ("uvloop",)

ATTACK_S: Final = 0.5
ENDED_S: Final = PATIENCE_S
"""Ended by the server long before, however busy this machine is."""
GROWN_MIB_MAX: Final = 96.0  # with what the attacker itself takes, and what malloc keeps for threads
SLACK_BYTES: Final = 2 << 20  # a step or a message beyond a limit is how it is noticed
MANY: Final = {"connections": 150, "half_open_tls": 150, "handshakes": 150}

FRAME_SIZE_ERROR: Final = 6
COMPRESSION_ERROR: Final = 9
CALM: Final = 11

HONEST_S: Final = 1.0
"""Longer than a busy machine needs for what the polite caller does."""
LIMITS: Final = Limits(
    glitches_burst=200,
    streams_max=256,
    stream_send_bytes_max=1 << 18,
    connection_send_bytes_max=1 << 20,
    send_bytes_max=1 << 22,
    connection_receive_bytes_max=1 << 22,
    receive_bytes_max=1 << 23,
    handshake_s=HONEST_S,
    header_block_s=HONEST_S,
    silent_body_s=HONEST_S,
    stuck_reply_s=HONEST_S,
    connections_max=200,
    connections_per_address_max=100,
    handshakes_max=20,
    http_idle_s=HONEST_S,
)

ENDINGS: Final[dict[str, int | str]] = {
    "rapid_reset": CALM,
    "rapid_reset_with_message": CALM,
    "reset_by_zero_window_update": CALM,
    "reset_by_window_overflow": CALM,
    "reset_by_data_after_end": CALM,
    "reset_by_headers_after_end": CALM,
    "reset_by_bad_trailers": CALM,
    "reset_by_content_length": CALM,
    "reset_by_bad_field": CALM,
    "reset_by_priority_length": CALM,
    "continuation_endless": CALM,
    "continuation_empty": CALM,
    "hpack_bomb": CALM,
    "table_churn": CALM,
    "huge_literal": CALM,
    "huge_table": COMPRESSION_ERROR,
    "ping": CALM,
    "ping_deaf": CALM,
    "settings_empty": CALM,
    "settings_deaf": CALM,
    "settings_full": CALM,
    "empty_data": CALM,
    "one_byte_data": CALM,
    "padding_only": CALM,
    "priority": CALM,
    "priority_new_streams": CALM,
    "unknown": CALM,
    "window_updates": CALM,
    "window_drips": CALM,
    "garbage_frames": FRAME_SIZE_ERROR,
    "unfinished_streams": CALM,
    "many_requests": CALM,
    "slow_body": CALM,
    "claims": CALM,
    "broken_gzip": "either",  # each is answered; how soon decides whether too many are open
    "slow_header_block": CALM,
    "slow_preface": "closed",
    "silence": "closed",
    "connections": "closed",
    "tls_on_clear": "closed",
    "garbage": "closed",
    "http1_endless": "closed",
    "half_open_tls": "closed",
    "handshakes": "closed",
    "clear_on_tls": "closed",
    # These cost what the limits allow, for as long as the peer answers PINGs.
    "zero_window": "held",
    "window_of_one": "held",
    "deaf_puller": "held",
    "pages_unread": "either",  # each but a few is refused; how soon decides whether too many are open
    "pages_unread_http1": "closed",
    "slow_frame": "held",
    "gzip_bomb": "held",
    "empty_messages": "held",
    "filled_claims": "either",  # refused claims, and DATA still under way to them
}
"""The code of the GOAWAY, or what else becomes of it."""

BUFFER_FULL: Final = {"many_requests": ("resets", "unsent_answers")}
"""These read nothing while they send. Where replies fill an attacker's own buffer before a limit is reached,
no GOAWAY can get in any more: it was one of these limits of the door that ended it."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> TlsConfig:
    ca = certificates.authority()
    return certificates.write(tmp_path_factory.mktemp("tls"), ca=[ca], node=certificates.leaf("node", ca=ca))


def resident_mib() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


async def peaks(here: House) -> None:
    """Memory that is counted stays within the limits all the while."""
    budget = here.server.budget
    while True:
        assert budget.receive_held <= LIMITS.receive_bytes_max + SLACK_BYTES
        assert budget.send_queued <= LIMITS.send_bytes_max + SLACK_BYTES
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("name", ATTACKS)
async def test_attack(name: str, node: TlsConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "BOMB_BYTES", 64 << 20)
    if name == "gzip_bomb":
        messages.gzipped_zeros(64 << 20)
    tls = node if name in TLS_ONLY else None
    wanted = ENDINGS[name]
    most_s = ATTACK_S if wanted in ("held", "either") else ENDED_S
    async with house(LIMITS, tls=tls.server_tls() if tls else None) as here:
        target = here.target
        if tls:
            target = dataclasses.replace(target, tls=(tls.ca, tls.cert, tls.key))
        gc.collect()
        before_mib, refused = resident_mib(), dict(STATS.refused)
        async with polite(here.port, tls) as caller:
            watch = asyncio.create_task(peaks(here))
            outcome = await asyncio.to_thread(ATTACKS[name], target, most_s, MANY.get(name, FRAMES_MAX))
            watch.cancel()
            grown_mib = resident_mib() - before_mib
            seen = caller.calls
        assert caller.calls > seen
        if isinstance(wanted, int) and outcome.code is None and name in BUFFER_FULL:
            assert outcome.ended, outcome
            assert outcome.replies, outcome
            ended_by = [
                limit for limit in BUFFER_FULL[name] if STATS.refused.get(limit) != refused.get(limit)
            ]
            assert len(ended_by) == 1, (outcome, refused, STATS.refused)
        elif isinstance(wanted, int):
            assert outcome.code == wanted, outcome
        elif wanted != "either":
            assert (outcome.code, outcome.ended) == (None, wanted == "closed"), outcome
        with pytest.raises(asyncio.CancelledError):
            await watch
        assert grown_mib < GROWN_MIB_MAX
        await here.at_rest()

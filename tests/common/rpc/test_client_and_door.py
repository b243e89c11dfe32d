"""A client's connection and the door's, back to back, from the first octet on: neither waits for the other's
settings, octets are cut anywhere, windows are small. What each call sends comes back, and nothing is reset.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.cases import case
from tests.common.door.support.model import Door, frames_of
from tests.common.rpc.support.replies import Heard
from tidb_binlog import rpc
from tidb_binlog.door.limits import Limits
from tidb_binlog.http2 import frames
from tidb_binlog.rpc.connection import Call, Connection

SIZES = (0, 1, 4, 100, 3000, 16_384, 33_000, 65_530, 65_531, 70_000, 200_000)


@dataclass
class Talk:
    """A call of the client: `left` are the messages that it has not sent yet."""

    call: Call
    heard: Heard
    messages: list[bytes]
    left: list[bytes]


class Pair:
    """Both cores and what is under way between them."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.door = Door(
            Limits(
                stream_window_bytes=rng.choice((1 << 14, 1 << 15, 60_000, 65_535, 1 << 17)),
                frame_bytes_max=rng.choice((1 << 14, 1 << 16)),
                header_table_bytes=rng.choice((0, 100, 4096, 1 << 16)),
            )
        )
        self.door.produces = False
        self.client = Connection("t:1", secure=False)
        greeting = bytes(self.client.out.pop())
        self.client.out.append(greeting.removeprefix(frames.PREFACE))  # which decides on the protocol
        self.up, self.down, self.said = bytearray(), bytearray(), bytearray()
        self.talks: list[Talk] = []

    def begin(self) -> None:
        rng = self.rng
        heard, method = Heard(), rng.choice(("Echo", "Chat", "Chat"))
        messages = [
            rng.randbytes(rng.choice(SIZES)) for _ in range(1 if method == "Echo" else rng.randrange(5))
        ]
        call = self.client.begin(heard, f"/test.Door/{method}", rng.choice((None, 5.0)))
        self.talks.append(Talk(call, heard, messages, list(messages)))

    def step(self) -> bool:
        """Something happens; False if nothing is left to."""
        rng = self.rng
        for talk in self.talks:
            if talk.left and rng.random() < 0.5:
                self.client.send(talk.call, talk.left.pop(0))
            if not talk.left and not talk.call.closes and rng.random() < 0.5:
                self.client.end_requests(talk.call)
            while talk.heard.sizes and rng.random() < 0.5:
                self.client.taken(talk.call, talk.heard.sizes.pop())
        self.client.produce(rng.choice((1, 5000, 1 << 18)))
        self.up += b"".join(self.client.out)
        self.client.out.clear()
        self.door.connection.produce(rng.choice((1, 5000, 1 << 18)))
        self.door.settle()
        self.down += self.door.sent
        self.said += self.door.sent
        self.door.sent.clear()
        if rng.random() < 0.6:
            size = rng.choice((1, 9, 100, 20_000, 1 << 20))
            self.door.receive(bytes(self.up[:size]))
            del self.up[:size]
        if rng.random() < 0.4:  # the way back may be the slower one
            size = rng.choice((1, 9, 100, 20_000, 1 << 20))
            self.client.receive(bytes(self.down[:size]))
            del self.down[:size]
        idle = not (self.up or self.down or self.client.out or self.door.sent or self.client.can_produce)
        return not idle or any(talk.left or talk.heard.sizes or not talk.call.closes for talk in self.talks)


def test_what_is_sent_comes_back_whoever_reads_first() -> None:
    early = 0
    for seed in range(400):
        with case(seed):
            pair = Pair(random.Random(seed))
            for _ in range(pair.rng.randrange(1, 5)):
                pair.begin()
                while pair.rng.random() < 0.5:
                    pair.step()
            early += not pair.client.is_greeted
            while pair.step() or pair.door.connection.outbound.can_produce:
                pass
            for talk in pair.talks:
                assert (talk.heard.messages, talk.heard.ends) == (talk.messages, [(rpc.OK, "", True)])
            assert (pair.client.fault, pair.door.fault) == ("", None)
            assert not [frame for frame in frames_of(bytes(pair.said)) if frame.kind == frames.RST_STREAM]
            pair.door.check_empty()
    assert early > 50, "some have sent before they knew the door's settings"

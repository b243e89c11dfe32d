"""What a server sends to a client, and what a call of it hears."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidb_binlog.http2 import frames, hpack
from tidb_binlog.rpc.message_framing import PREFIX


def framed(message: bytes, flag: int = 0) -> bytes:
    return PREFIX.pack(flag, len(message)) + message


@dataclass
class Heard:
    """A call's `Reply`."""

    messages: list[bytes] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    ends: list[tuple[int, str, bool]] = field(default_factory=list)
    sent: int = 0

    def on_message(self, message: bytes, size: int) -> None:
        assert not self.ends
        self.messages.append(message)
        self.sizes.append(size)

    def on_sent(self) -> None:
        self.sent += 1

    def on_end(self, code: int, text: str, is_processed: bool) -> None:
        self.ends.append((code, text, is_processed))


def reply(stream_id: int, *fields: tuple[bytes, bytes], flags: int = frames.END_HEADERS) -> bytes:
    block = b"".join(hpack.literal(*one) for one in fields)
    return frames.frame(frames.HEADERS, flags, stream_id, block)


GOOD_HEAD = reply(1, (b":status", b"200"), (b"content-type", b"application/grpc"))
END = frames.END_HEADERS | frames.END_STREAM

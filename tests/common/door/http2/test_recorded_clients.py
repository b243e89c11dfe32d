"""Recorded clients: what real ones sent, cut everywhere, and the same calls arrive each time.

The recordings are those of `tests/golden/door`: grpcio, grpc-go (of now and of 2019), grpc-java, grpc-js,
curl, nghttp and h2load with a door. Handlers either never answer, which keeps all streams open, or at once.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tidb_binlog import rpc
from tidb_binlog.door.calls.grpc_calls import NEVER, UnaryCall
from tidb_binlog.door.calls.http_calls import HttpCall
from tidb_binlog.door.calls.methods import methods_of
from tidb_binlog.door.calls.session import Session
from tidb_binlog.door.calls.stream_calls import StreamCall
from tidb_binlog.door.http.routes import Response
from tidb_binlog.door.http2.connection import Connection
from tidb_binlog.door.http2.lifetime import Lifetime
from tidb_binlog.door.limits import Budget, Limits
from tidb_binlog.door.protocol_detection import WireProtocol, detect
from tidb_binlog.http2 import frames
from tidb_binlog.http2.frames import PREFACE
from tidb_binlog.rpc import service as codes
from tidb_binlog.rpc.message_framing import Inflater

GOLDEN = Path(__file__).parents[3] / "golden" / "door"
RECORDINGS = {entry["file"]: entry for entry in json.loads((GOLDEN / "index.json").read_text())["recordings"]}
EVERY_SPLIT_BYTES_MAX = 700  # of longer ones, every so many octets one split is tried
SPLITS_MAX = 60
NOW_S = 1000.0
FROM_CLIENT = 0

Seen = dict[int, dict[str, Any]]


def unused(_: Any) -> Any:
    """The recorder is the handler of every method."""


METHODS = methods_of(
    [
        rpc.Service(
            name="test.Bench",
            inline={"Empty": unused, "Echo": unused},
            unary={"Sleep": unused, "Stop": unused},
            server_streams={"Make": unused},
            client_streams={"Collect": unused},
            bidi_streams={"Chat": unused},
        )
    ]
)


class Recorder:
    """Writes down what handlers would be given."""

    def __init__(self, *, answers: bool) -> None:
        self.seen: Seen = {}
        self._answers = answers

    def now_s(self) -> float:
        return NOW_S

    def flush(self) -> None:
        pass

    def _entry(self, call: UnaryCall | StreamCall) -> dict[str, Any]:
        return self.seen.setdefault(
            call.stream.id,
            {
                "path": call.plan.method.path,
                "messages": [],
                "gzip": call.plan.gzip,
                "deadline": call.deadline_s < NEVER,
                "stream": call.stream.id,
                "reset": False,
            },
        )

    def _message(self, call: UnaryCall | StreamCall, flag: int, body: bytes | memoryview) -> None:
        if flag:
            inflater = Inflater(body, 1 << 20, 1000)
            while not inflater.step():
                pass
            body = inflater.result()
        self._entry(call)["messages"].append([len(body), zlib.crc32(body)])

    def unary(self, call: UnaryCall, message: bytes | memoryview, flag: int = 0) -> None:
        self._message(call, flag, message)
        call.work = self
        if self._answers:
            call.succeed(b"")

    def inflate(self, call: UnaryCall, packed: bytes | memoryview) -> None:
        self.unary(call, packed, 1)

    def stream(self, call: StreamCall) -> None:
        call.work = self
        self._entry(call)

    def wake(self, call: StreamCall) -> None:
        while (message := call.take()) is not None:
            self._message(call, *message)
        if self._answers and call.requests_ended and call.work is not None:
            call.send(b"answer")
            call.complete()

    def plain(self, call: HttpCall) -> None:
        path, method = call.head.path.decode(), call.head.method.decode()
        self.seen[call.stream.id] = {"path": path, "http": method, "stream": call.stream.id}
        call.work = self
        if self._answers:
            call.answer(Response(200, b"hello\n"))

    def cancel(self, call: Any) -> None:
        self.seen[call.stream.id]["reset"] = True
        call.fail(codes.CANCELLED, "the call was cancelled")


@cache
def chunks(file: str) -> tuple[tuple[int, bytes], ...]:
    """As they were read: who sent it, and what."""
    octets = (GOLDEN / file).read_bytes()
    found, at = [], 0
    while at < len(octets):
        direction, size = struct.unpack_from(">BL", octets, at)
        found.append((direction, octets[at + 5 : at + 5 + size]))
        at += 5 + size
    assert at == len(octets)
    return tuple(found)


def sent(file: str) -> bytes:
    """All that the client sent after its preface."""
    octets = b"".join(octets for direction, octets in chunks(file) if direction == FROM_CLIENT)
    assert octets.startswith(PREFACE)
    return octets[len(PREFACE) :]


class Replay:
    def __init__(self, file: str, *, answers: bool) -> None:
        self.recorder = Recorder(answers=answers)
        limits = Limits(frame_bytes_max=RECORDINGS[file]["frame_bytes_max"])
        budget = Budget()

        def above(connection: Connection) -> Session:
            return Session(connection, METHODS, self.recorder, budget)

        self.connection = Connection(above, limits, budget, NOW_S)

    def feed(self, parts: Iterable[bytes]) -> Replay:
        connection = self.connection
        out = connection.outbound.out
        for part in parts:
            connection.receive(part, NOW_S)
            connection.produce(1 << 20)
            out.clear()
        return self


def expected(file: str, *, answers: bool) -> list[dict[str, Any]]:
    sees: list[dict[str, Any]] = RECORDINGS[file]["sees"]
    if not answers:
        return sees
    # A call that is answered at once is over before its client gives it up.
    return [entry | {"reset": False} if "reset" in entry else entry for entry in sees]


def check(file: str, parts: Iterable[bytes], *, answers: bool) -> Replay:
    replay = Replay(file, answers=answers).feed(parts)
    connection = replay.connection
    assert connection.fault is None, connection.fault.reason
    assert (connection.abuse.refusals or []) == RECORDINGS[file]["refused"]
    assert list(replay.recorder.seen.values()) == expected(file, answers=answers)
    assert connection.lingering == 0
    if answers:
        assert not connection.streams
    return replay


@pytest.fixture(params=sorted(RECORDINGS))
def file(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[False, True], ids=["silent", "answers"])
def answers(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def test_whole(file: str, answers: bool) -> None:
    check(file, [sent(file)], answers=answers)


def test_as_it_was_read(file: str, answers: bool) -> None:
    parts = [octets for direction, octets in chunks(file) if direction == FROM_CLIENT]
    assert detect(parts[0]) in (WireProtocol.HTTP2, WireProtocol.NEED_MORE)
    at = 0
    while at < len(PREFACE):  # some write it by itself
        taken = min(len(PREFACE) - at, len(parts[0]))
        at += taken
        parts = [parts[0][taken:], *parts[1:]] if taken < len(parts[0]) else parts[1:]
    check(file, parts, answers=answers)


def test_octet_by_octet(file: str, answers: bool) -> None:
    octets = sent(file)
    check(file, (octets[at : at + 1] for at in range(len(octets))), answers=answers)


def test_split_in_two(file: str) -> None:
    octets = sent(file)
    step = 1 if len(octets) <= EVERY_SPLIT_BYTES_MAX else len(octets) // SPLITS_MAX + 1
    for at in range(1, len(octets), step):
        check(file, [octets[:at], octets[at:]], answers=True)


GOAWAYS = [file for file, entry in RECORDINGS.items() if entry["case"] == "goaway" and ".2." not in file]


@pytest.mark.parametrize("file", GOAWAYS)
def test_drain(file: str) -> None:
    """What clients say to the two steps of a GOAWAY ends the connection in good order."""
    replay = Replay(file, answers=True)
    connection = replay.connection
    lifetime = Lifetime(connection, 1.0)
    octets = b""
    for direction, part in chunks(file):
        if direction == FROM_CLIENT:
            replay.feed([part.removeprefix(PREFACE)])
            if lifetime.draining:
                lifetime.step(NOW_S)
        else:
            octets += part
            if _says_goaway(octets) and not lifetime.draining:
                lifetime.drain(NOW_S)
    assert connection.fault is None
    assert list(replay.recorder.seen.values()) == expected(file, answers=True)
    assert lifetime.draining
    assert lifetime.over, "the client answered the PING of the first step"


def _says_goaway(octets: bytes) -> bool:
    at = 0
    while at + frames.HEAD_BYTES <= len(octets):
        head = frames.HEAD.unpack_from(octets, at)[0]
        if head & 0xFF == frames.GOAWAY:
            return True
        at += frames.HEAD_BYTES + (head >> 8)
    return False

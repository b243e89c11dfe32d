"""The door's cores against h2's client, back to back: any order of calls, windows, settings, resets, time.

h2 is the model of streams and windows: it raises when the door sends what its own windows, frame size or
header table forbid, and once nothing is under way both sides must agree on every window.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.settings
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.cases import case
from tests.common.door.support.model import GRPC, NOW_S, Door, asking, frames_of, prefixed, pseudo
from tidb_binlog.door.calls.stream_calls import StreamCall
from tidb_binlog.door.limits import Limits
from tidb_binlog.http2 import frames
from tidb_binlog.http2.frames import PREFACE
from tidb_binlog.rpc import service as codes

NEVER_S = 1e9
SMALL_REPLY = 4096
LIMITS = Limits(
    header_table_bytes=200,
    streams_max=6,
    stream_window_bytes=1000,
    connection_window_bytes=70_000,
    stream_send_bytes_max=4_000,
    connection_send_bytes_max=8_000,
    resets_burst=10**9,
    glitches_burst=10**9,
    settings_burst=10**9,
    ping_strikes_max=10**9,
    handshake_s=NEVER_S,
    silent_body_s=NEVER_S,
    stuck_reply_s=NEVER_S,
    keepalive_s=NEVER_S,
)
SIZES = st.sampled_from([0, 1, 4, 5, 95, 494, 495, 994, 995, 996, 3000, 16_379, 16_384, 40_000, 70_000])
WINDOWS = st.sampled_from([0, 1, 4, 5, 100, 16_384, 65_535, 1 << 20, 1 << 20])
PICKS = st.integers(0, 999)
Settings = h2.settings.SettingCodes


def picked(choices: Sequence[Any], pick: int) -> Any:
    return choices[pick % len(choices)]


class Call:
    """What the client knows of one call."""

    def __init__(self, method: str, timeout: bool) -> None:
        self.method = method
        self.timeout = timeout
        self.to_send = b""
        self.asked: list[bytes] = []
        self.request_ends = False
        self.request_ended = False
        self.expected: list[bytes] = []
        self.body = b""
        self.statuses: list[int] = []
        self.failed = False
        self.ended = False
        self.reset: int | None = None
        self.cancelled = False
        self.discarded = False

    @property
    def done(self) -> bool:
        return self.ended or self.cancelled or self.discarded or self.reset is not None

    @property
    def messages(self) -> list[bytes]:
        found, at = [], 0
        while at < len(self.body):
            flag, size = struct.unpack_from(">BL", self.body, at)
            assert flag == 0
            assert at + 5 + size <= len(self.body) or not self.ended
            found.append(self.body[at + 5 : at + 5 + size])
            at += 5 + size
        return found

    def check(self) -> None:
        """After all is said."""
        if self.cancelled or self.discarded:
            return
        if self.reset is not None and not self.ended:
            assert self.reset == frames.REFUSED_STREAM
            assert not self.statuses
            return
        assert self.ended
        assert len(self.statuses) == 1, "a call's status arrives exactly once"
        if self.method == "Up":
            self.expected = [b"%d" % len(self.asked)]
        if self.statuses[0] == codes.OK:
            assert self.messages == self.expected
            return
        assert self.messages == self.expected[: len(self.messages)]
        if self.method in ("Echo", "Park") and self.statuses[0] == codes.RESOURCE_EXHAUSTED:
            assert sum(map(len, self.expected)) > SMALL_REPLY, "no room for replies is left"
            return
        assert self.statuses[0] == codes.DEADLINE_EXCEEDED if self.timeout and not self.failed else True
        assert self.failed or self.timeout


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.door = Door(LIMITS)
        self.door.produces = False
        self.calls: dict[int, Call] = {}
        self.up = b""  # under way to the door
        self.down = bytes(self.door.sent)  # and to the client
        self.door.sent.clear()
        self.goaways: list[int] = []
        self.greeted = False
        self.early: set[int] = set()  # streams of a client that may not know the door's settings
        self.settings_out = 0
        self.settings: dict[Any, int] = {
            Settings.INITIAL_WINDOW_SIZE: 65_535,
            Settings.MAX_FRAME_SIZE: 16_384,
            Settings.HEADER_TABLE_SIZE: 4096,
        }
        self.client = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=True, header_encoding=None)
        )

    @initialize(knows=st.booleans())
    def greet(self, knows: bool) -> None:
        """`knows`: the client has the door's settings before its first call (it need not wait for them)."""
        self.client.initiate_connection()
        greeting = self.client.data_to_send()
        assert greeting.startswith(PREFACE)
        self.up = greeting[len(PREFACE) :]
        self.settings_out = 1
        if knows:
            self.quiesce()

    # -- the wires -------------------------------------------------------------------------------

    def from_client(self) -> None:
        self.up += self.client.data_to_send()

    def from_door(self) -> None:
        self.door.settle()
        self.down += bytes(self.door.sent)
        self.door.sent.clear()

    def to_door(self, size: int) -> None:
        part, self.up = self.up[:size], self.up[size:]
        self.door.receive(part)
        self.from_door()

    def to_client(self, size: int) -> None:
        """Frames of about `size` octets, one by one: h2 looks at its frame limit once for each piece.

        GOAWAY goes around h2, which takes it for the very end."""
        taken = 0
        while self.down and taken < size:
            length = 9 + int.from_bytes(self.down[:3], "big")
            frame, self.down = self.down[:length], self.down[length:]
            taken += length
            if frame[3] == frames.GOAWAY:
                self.goaway(frames_of(frame)[0].word)
            else:
                self.client_events(self.client.receive_data(frame))
        self.from_client()

    def goaway(self, last: int) -> None:
        self.goaways.append(last)
        for stream_id, call in self.calls.items():
            if stream_id > last and not call.done:
                call.discarded = True
                self.client.reset_stream(stream_id, frames.CANCEL)

    def client_events(self, events: list[Any]) -> None:
        for event in events:
            if isinstance(event, h2.events.RemoteSettingsChanged | h2.events.PingAckReceived):
                continue
            if isinstance(event, h2.events.SettingsAcknowledged):
                self.settings_out -= 1
                self.greeted = True
                continue
            call = self.calls.get(getattr(event, "stream_id", 0) or 0)
            if call is None or call.cancelled or call.discarded:
                continue
            self.client_event(call, event)

    def client_event(self, call: Call, event: Any) -> None:
        assert not call.ended or isinstance(event, h2.events.StreamReset), "nothing comes after the end"
        if isinstance(event, h2.events.ResponseReceived | h2.events.TrailersReceived):
            fields = dict(event.headers)
            if b"grpc-status" in fields:
                call.statuses.append(int(fields[b"grpc-status"]))
        elif isinstance(event, h2.events.DataReceived):
            assert not call.statuses
            call.body += event.data
        elif isinstance(event, h2.events.StreamEnded):
            call.ended = True
        elif isinstance(event, h2.events.StreamReset):
            assert call.reset is None
            call.reset = int(event.error_code)
            assert call.reset == (frames.NO_ERROR if call.ended else frames.REFUSED_STREAM)

    @rule(size=st.sampled_from([1, 9, 30, 200, 5000, 1 << 20]))
    def deliver_up(self, size: int) -> None:
        self.to_door(size)

    @rule(size=st.sampled_from([1, 200, 5000, 1 << 20]))
    def deliver_down(self, size: int) -> None:
        self.to_client(size)

    @rule(size=st.sampled_from([1, 1000, 1 << 16, 1 << 20]))
    def produce(self, size: int) -> None:
        self.door.connection.produce(size)
        self.from_door()

    # -- the client ------------------------------------------------------------------------------

    def writable(self, *methods: str) -> list[int]:
        return [
            stream
            for stream, call in self.calls.items()
            if not call.done and not call.request_ends and (not methods or call.method in methods)
        ]

    @precondition(lambda self: not self.goaways and self.client.open_outbound_streams < LIMITS.streams_max)
    @rule(
        method=st.sampled_from(["Echo", "Park", "Fail", "Down", "Up", "Chat", "Hold"]),
        size=SIZES,
        count=st.integers(0, 5),
        timeout=st.integers(0, 9).map(lambda value: value == 0),
    )
    def start(self, method: str, size: int, count: int, timeout: bool) -> None:
        stream = self.client.get_next_available_stream_id()
        call = self.calls[stream] = Call(method, timeout)
        if not self.door.connection.settings_acked:
            self.early.add(stream)
        fields = [*pseudo(f"/test.Door/{method}".encode()), *GRPC]
        if timeout:
            fields.append((b"grpc-timeout", b"3S"))
        self.client.send_headers(stream, fields)
        if method in ("Echo", "Park", "Fail"):
            self.say(call, bytes(size), end=True)
            if method == "Echo":
                call.expected = [bytes(size)]
            call.failed = method == "Fail"
        elif method == "Down":
            self.say(call, asking(count, size), end=True)
            call.expected = [bytes(size)] * count
        self.from_client()

    def say(self, call: Call, message: bytes, *, end: bool = False) -> None:
        call.asked.append(message)
        call.to_send += prefixed(message)
        call.request_ends = end

    @precondition(lambda self: self.writable("Up", "Chat"))
    @rule(pick=PICKS, size=SIZES)
    def stream_message(self, pick: int, size: int) -> None:
        call = self.calls[picked(self.writable("Up", "Chat"), pick)]
        self.say(call, bytes(size))
        if call.method == "Chat":
            call.expected.append(bytes(size))

    @precondition(lambda self: self.writable())
    @rule(pick=PICKS)
    def end_request(self, pick: int) -> None:
        self.calls[picked(self.writable(), pick)].request_ends = True

    @rule(size=st.sampled_from([1, 3, 5, 500, 1 << 20]), padding=st.sampled_from([None, 0, 9]))
    def send_bodies(self, size: int, padding: int | None) -> None:
        for stream, call in self.calls.items():
            if not call.done and not call.request_ended:
                self.send_body(stream, call, size, padding)
        self.from_client()

    def send_body(self, stream: int, call: Call, size: int, padding: int | None) -> None:
        more = 0 if padding is None else padding + 1
        window = self.client.local_flow_control_window(stream) - more
        size = min(size, window, self.client.max_outbound_frame_size - more, len(call.to_send))
        if size > 0:
            part, call.to_send = call.to_send[:size], call.to_send[size:]
            self.client.send_data(stream, part, pad_length=padding)
        if call.request_ends and not call.to_send:
            call.request_ended = True
            self.client.end_stream(stream)

    @precondition(lambda self: any(not call.done for call in self.calls.values()))
    @rule(pick=PICKS, code=st.sampled_from([0, 2, 8]))
    def cancel(self, pick: int, code: int) -> None:
        stream = picked([id_ for id_, call in self.calls.items() if not call.done], pick)
        self.calls[stream].cancelled = True
        self.client.reset_stream(stream, code)
        self.from_client()

    @rule(window=WINDOWS)
    def initial_window(self, window: int) -> None:
        self.change({Settings.INITIAL_WINDOW_SIZE: window})

    @rule(size=st.sampled_from([16_384, 16_385, 40_000, (1 << 24) - 1]))
    def frame_size(self, size: int) -> None:
        self.change({Settings.MAX_FRAME_SIZE: size})

    @rule(sizes=st.lists(st.sampled_from([0, 60, 103, 104, 4096, 1 << 16]), min_size=1, max_size=3))
    def table_size(self, sizes: list[int]) -> None:
        for size in sizes:
            self.change({Settings.HEADER_TABLE_SIZE: size})

    def change(self, values: dict[Any, int]) -> None:
        # All of them each time: an acknowledgement makes h2 apply the oldest pending value of each setting.
        # And none before the first one of the greeting: that would apply them, too.
        if not self.greeted:
            return
        self.settings |= values
        self.client.update_settings(self.settings)
        self.settings_out += 1
        self.from_client()

    @rule(pick=PICKS, increment=st.sampled_from([1, 4, 5, 1000, 1024, 100_000, 100_000]))
    def open_window(self, pick: int, increment: int) -> None:
        streams = [stream for stream, call in self.calls.items() if not call.done]
        stream = picked([None, *streams], pick)
        self.client.increment_flow_control_window(increment, stream)
        self.from_client()

    @rule()
    def ping(self) -> None:
        self.client.ping(b"machine!")
        self.from_client()

    # -- the service and time --------------------------------------------------------------------

    @precondition(lambda self: self.door.runner.parked)
    @rule(pick=PICKS, size=SIZES, good=st.integers(0, 4).map(bool))
    def finish_parked(self, pick: int, size: int, good: bool) -> None:
        parked = self.door.runner.parked
        call = parked.pop(pick % len(parked))
        known = self.calls[call.stream.id]
        if good:
            known.expected = [bytes(size)]
            call.succeed(bytes(size))
        else:
            known.failed = True
            call.fail(codes.FAILED_PRECONDITION, "no")
        self.from_door()

    @precondition(lambda self: self.door.runner.held)
    @rule(pick=PICKS, size=SIZES)
    def send_held(self, pick: int, size: int) -> None:
        call = picked(self.door.runner.held, pick)
        if not call.over:
            self.calls[call.stream.id].expected.append(bytes(size))
        call.send(bytes(size))
        self.from_door()

    @precondition(lambda self: self.door.runner.held)
    @rule(pick=PICKS, good=st.booleans())
    def finish_held(self, pick: int, good: bool) -> None:
        held = self.door.runner.held
        call = held.pop(pick % len(held))
        if good:
            call.complete()
        else:
            self.calls[call.stream.id].failed = True
            call.fail(codes.DATA_LOSS, "lost")
        self.from_door()

    @rule(seconds=st.sampled_from([0.1, 1.0, 3.0]))
    def time(self, seconds: float) -> None:
        self.door.tick(self.door.now_s + seconds)
        self.from_door()

    @rule(stubborn=st.booleans())
    def handlers(self, stubborn: bool) -> None:
        """Whether they heed that they are cancelled."""
        self.door.runner.stubborn = stubborn

    @precondition(lambda self: len(self.calls) > 4)
    @rule()
    def drain(self) -> None:
        self.door.lifetime.drain(self.door.now_s)
        self.from_door()

    # -- what always holds -----------------------------------------------------------------------

    @invariant()
    def counted(self) -> None:
        door = self.door
        connection, outbound = door.connection, door.connection.outbound
        assert door.fault is None
        streams = connection.streams.values()
        assert outbound.queued == sum(stream.queued for stream in streams) == door.budget.send_queued
        for stream in streams:
            assert stream.queued == sum(map(len, stream.queue or ()))
        held = sum(stream.call.held for stream in streams)
        assert door.session.held == door.budget.receive_held >= held
        assert connection.lingering >= 0
        if not connection.lingering:
            assert door.session.held == held
        assert len(streams) <= LIMITS.streams_max
        assert all(call.stream.id in connection.streams for call in door.session.waiting)

    def quiesce(self) -> None:
        while self.up or self.down or self.door.connection.outbound.can_produce:
            self.to_door(1 << 20)
            self.produce(1 << 20)
            self.to_client(1 << 20)

    @rule()
    def windows_agree(self) -> None:
        """Nothing is under way: both sides know the same."""
        self.quiesce()
        assert self.settings_out == 0
        connection, client = self.door.connection, self.client
        assert connection._window == client.outbound_flow_control_window
        assert connection.outbound._window == client._inbound_flow_control_window_manager.current_window_size
        for stream_id, stream in connection.streams.items():
            theirs = client.streams[stream_id]
            assert stream.send_window == theirs._inbound_window_manager.current_window_size
            assert stream.receive_window == theirs.outbound_flow_control_window
            if isinstance(stream.call, StreamCall) and stream.remote_open:  # what is taken in is given back
                known = stream.receive_window + stream.owed
                reader = stream.call._reader
                left = min(reader.left if reader else 0, stream.call.ahead_bytes_max)
                top = frames.DEFAULT_WINDOW if stream_id in self.early else LIMITS.stream_window_bytes
                assert known <= max(left, top)
                if not stream.call._inbox and left <= LIMITS.stream_window_bytes:
                    assert LIMITS.stream_window_bytes <= known <= top
            if stream.queue:
                assert (
                    stream.send_window <= 0
                    or connection.outbound._window <= 0
                    or (stream.send_window < 1024 and stream.queued > 1 << 16)
                )
        for stream_id, call in self.calls.items():
            if call.done:
                assert stream_id not in connection.streams

    def teardown(self) -> None:
        self.door.runner.stubborn = False
        self.quiesce()
        self.change({Settings.INITIAL_WINDOW_SIZE: 1 << 24, Settings.MAX_FRAME_SIZE: 16_384})
        self.client.increment_flow_control_window(1 << 29)
        for call in self.calls.values():
            call.request_ends = True
        self.from_client()
        for _ in range(2000):
            self.send_bodies(1 << 20, None)
            self.quiesce()
            for parked in self.door.runner.parked:
                self.calls[parked.stream.id].expected = [b"end"]
                parked.succeed(b"end")
            for held in self.door.runner.held:
                held.complete()
            self.door.runner.parked.clear()
            self.door.runner.held.clear()
            self.from_door()
            self.quiesce()
            if all(call.done for call in self.calls.values()):
                break
        for call in self.calls.values():
            call.check()
        assert self.client.open_outbound_streams == 0
        self.drain()
        self.quiesce()
        assert self.door.lifetime.over
        assert len(self.goaways) == 2
        self.door.check_empty()
        assert self.door.now_s >= NOW_S


Machine.TestCase.settings = settings(
    max_examples=100,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestDoorAgainstH2 = Machine.TestCase


# -- the same, longer and without shrinking --------------------------------------------------------------


def step(machine: Machine, rng: random.Random) -> None:
    """One of the rules, those that bring calls forward more often."""
    pick = rng.randrange(1000)
    size = rng.choice([0, 1, 4, 5, 95, 494, 495, 994, 995, 996, 3000, 16_379, 16_384, 40_000])
    runner = machine.door.runner
    match rng.choices(range(18), weights=(8, 8, 8, 8, 5, 4, 4, 1, 2, 1, 1, 4, 1, 6, 4, 3, 3, 1))[0]:
        case 0:
            if not machine.goaways and machine.client.open_outbound_streams < LIMITS.streams_max:
                method = rng.choice(["Echo", "Park", "Fail", "Down", "Up", "Chat", "Hold"])
                machine.start(method=method, size=size, count=pick % 6, timeout=pick < 50)
        case 1:
            machine.deliver_up(size=rng.choice([1, 9, 200, 5000, 1 << 20]))
        case 2:
            machine.deliver_down(size=rng.choice([1, 200, 5000, 1 << 20]))
        case 3:
            machine.send_bodies(size=rng.choice([1, 5, 500, 1 << 20]), padding=rng.choice([None, None, 0, 9]))
        case 4:
            machine.produce(size=rng.choice([1, 1000, 1 << 20]))
        case 5:
            if machine.writable("Up", "Chat"):
                machine.stream_message(pick=pick, size=size)
        case 6:
            if machine.writable():
                machine.end_request(pick=pick)
        case 7:
            if any(not call.done for call in machine.calls.values()):
                machine.cancel(pick=pick, code=8)
        case 8:
            machine.initial_window(window=rng.choice([0, 1, 5, 100, 16_384, 65_535, 1 << 20]))
        case 9:
            machine.frame_size(size=rng.choice([16_384, 16_385, 40_000, (1 << 24) - 1]))
        case 10:
            machine.table_size(sizes=rng.choices([0, 60, 103, 104, 4096, 1 << 16], k=2))
        case 11:
            machine.open_window(pick=pick, increment=rng.choice([1, 5, 1000, 100_000]))
        case 12:
            machine.ping()
        case 13:
            if runner.parked:
                machine.finish_parked(pick=pick, size=size, good=pick > 200)
        case 14:
            if runner.held:
                machine.send_held(pick=pick, size=size)
        case 15:
            if runner.held and pick < 300:
                machine.finish_held(pick=pick, good=pick > 100)
        case 16:
            if pick < 300:
                machine.windows_agree()
        case 17:
            machine.time(seconds=0.1) if pick < 700 else machine.handlers(stubborn=pick < 850)


def walk(seed: int, steps: int) -> Machine:
    rng = random.Random(seed)
    machine = Machine()
    machine.greet(knows=bool(seed % 2))
    for _ in range(steps):
        step(machine, rng)
        machine.counted()
        if not rng.randrange(3 * steps):
            machine.drain()
            if rng.random() < 0.7:
                machine.time(seconds=6.0)  # the second step without an answer: calls under way are left out
    machine.teardown()
    return machine


def test_long_walks() -> None:
    for seed in range(60):
        with case(seed):
            walk(seed, 1000)


def test_walks_lead_somewhere() -> None:
    calls = [call for seed in range(5) for call in walk(seed, 1000).calls.values()]
    assert len(calls) > 100
    assert any(call.discarded for seed in range(60, 90) for call in walk(seed, 300).calls.values())
    for method in ("Echo", "Park", "Fail", "Down", "Up", "Chat", "Hold"):
        statuses = {status for call in calls if call.method == method for status in call.statuses}
        assert codes.FAILED_PRECONDITION in statuses if method == "Fail" else codes.OK in statuses

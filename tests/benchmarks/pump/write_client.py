"""Writes binlogs through one `WriteBinlogs` stream as fast as they are answered, as a process of its own.

    python -m tests.benchmarks.pump.write_client ADDRESS CLUSTER_ID FIRST_TS PAYLOAD_BYTES
        [--pairs N] [--in-flight M] [--seconds S]

A message holds N prewrites and the commits of N that were answered before, M messages are in flight. Every
answer must cover a whole number of messages and name no failure. Says as JSON when the measured time begins
and what was seen; latencies are those of a message, `client_cpu_us` is this process's own CPU per binlog.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import deque
from typing import Final

import uvloop

from tests.attacks.frames import frame_head, message
from tests.benchmarks.door.h2_load import say
from tests.benchmarks.door.raw import RawConnection, connect, headers_frame
from tests.benchmarks.door.requests import PlainBlocks, Writes
from tests.benchmarks.measure import percentile
from tidb_binlog.errors import BinlogError, Unavailable
from tidb_binlog.wire import pump_pb2

PATH: Final = "/binlog.PumpBatch/WriteBinlogs"
WARM_UP_S: Final = 0.5
ANSWER_S: Final = 10
PREFIX_BYTES: Final = 5
_Started = list[tuple[int, bytes]]
"""Start timestamps of prewrites and their varints."""


class Messages:
    """Makes the messages: a prewrite is one field of the request, and so is a commit."""

    def __init__(self, cluster_id: int, first_ts: int, payload_bytes: int, pairs: int) -> None:
        self.pairs = pairs
        self._cluster = pump_pb2.WriteBinlogsReq(cluster_id=cluster_id).SerializeToString()
        self._writes = Writes(0, first_ts, payload_bytes)
        # A request to another method with one payload, and no cluster: what stands behind its prefix is the
        # field that a request of this one repeats.
        self._prewrite = self._writes.prewrite[PREFIX_BYTES:]
        self._commit = self._writes.commit[PREFIX_BYTES:]

    def next(self, answered: _Started) -> tuple[bytes, _Started, int]:
        """A message that commits what is answered and starts more; what it started; how many binlogs."""
        writes, prewrite, commit = self._writes, self._prewrite, self._commit
        timestamp, varint = writes.timestamp, writes.varint
        fields = [commit % (started, varint(timestamp()), start_ts) for start_ts, started in answered]
        begun = []
        for _ in range(self.pairs):
            start_ts = timestamp()
            started = varint(start_ts)
            begun.append((start_ts, started))
            fields.append(prewrite % (started, start_ts))
        return message(self._cluster + b"".join(fields)), begun, len(fields)


class BatchLoad(RawConnection):
    """Keeps `in_flight` messages on one stream until `stop`. `answers`: binlogs and seconds of each."""

    wants_content = True

    def __init__(self, authority: str, messages: Messages, in_flight: int) -> None:
        super().__init__()
        self.answers: list[tuple[int, float]] = []
        self._head = headers_frame(1, PlainBlocks(PATH, authority, "http").first)
        self._messages = messages
        self._in_flight = in_flight
        self._open: deque[tuple[int, float, _Started]] = (
            deque()
        )  # all binlogs up to its last one, since, begun
        self._sent = 0
        self._answered_to = 0
        self._stopped = False
        self._window = 0
        self._queue: deque[memoryview] = deque()
        self._reply = b""

    # RawConnection's hooks

    def ready(self) -> None:
        self._window += self.stream_window
        self.transport.write(self._head)
        for _ in range(self._in_flight):
            self._send([])

    def window_opened(self, stream: int, octets: int) -> None:
        if stream:
            self._window += octets
        if self._is_ready:
            self._pump()

    def content(self, stream: int, data: bytes) -> None:
        self._reply += data
        while len(self._reply) >= PREFIX_BYTES:
            end = PREFIX_BYTES + int.from_bytes(self._reply[1:PREFIX_BYTES], "big")
            if len(self._reply) < end:
                break
            answer = pump_pb2.WriteBinlogsResp.FromString(self._reply[PREFIX_BYTES:end])
            self._reply = self._reply[end:]
            self._answered(answer)

    def _answered(self, answer: pump_pb2.WriteBinlogsResp) -> None:
        if answer.failures:
            self.failed(f"not stored: {answer.failures[0]}")
            return
        now_s = time.perf_counter()
        while self._open and self._open[0][0] <= answer.answered:
            upto, since_s, begun = self._open.popleft()
            self.answers.append((upto - self._answered_to, now_s - since_s))
            self._answered_to = upto
            if not self._stopped:
                self._send(begun)
        if self._answered_to != answer.answered:
            self.failed(f"an answer ends inside a message: {answer.answered}")
        elif self._stopped and not self._open and not self.ended.done():
            self.ended.set_result(None)

    def replied(self, stream: int) -> None:
        self.failed("the server ended the stream")

    def _send(self, answered: _Started) -> None:
        octets, begun, count = self._messages.next(answered)
        self._sent += count
        self._open.append((self._sent, time.perf_counter(), begun))
        self._queue.append(memoryview(octets))
        self._pump()

    def _pump(self) -> None:
        """Send what windows allow."""
        out: list[bytes | memoryview] = []
        while self._queue:
            octets = min(self.frame_bytes_max, len(self._queue[0]), self._window, self.window)
            if octets <= 0:
                break
            out += (frame_head(octets << 8, 0, 1), self._queue[0][:octets])
            self._window -= octets
            self.window -= octets
            rest = self._queue[0][octets:]
            if rest:
                self._queue[0] = rest
            else:
                self._queue.popleft()
        if out:
            self.transport.write(b"".join(out))

    async def stop(self) -> None:
        """Send nothing more, wait for the answers."""
        self._stopped = True
        await self.ended
        self.transport.abort()


async def measure(load: BatchLoad, seconds: float) -> None:
    await _wait(load, WARM_UP_S)
    load.answers.clear()
    say(event="begin")
    spent_s, began_s = time.process_time(), time.monotonic()
    await _wait(load, seconds)
    for _ in range(ANSWER_S):  # the first may take longer than was asked for
        if not load.answers:
            await _wait(load, 1.0)
    took_s, spent_s = time.monotonic() - began_s, time.process_time() - spent_s
    seen = load.answers[:]
    if not seen:
        raise Unavailable("no message was answered")
    binlogs = sum(count for count, _ in seen)
    latencies = [latency for _, latency in seen]
    say(
        event="end",
        binlogs=binlogs,
        messages=len(seen),
        seconds=took_s,
        p50_ms=percentile(latencies, 0.5) * 1000,
        p99_ms=percentile(latencies, 0.99) * 1000,
        client_cpu_us=spent_s / binlogs * 1e6,
    )
    await load.stop()


async def _wait(load: BatchLoad, seconds: float) -> None:
    done, _ = await asyncio.wait({load.ended}, timeout=seconds)
    if done:
        load.ended.result()


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.benchmarks.pump.write_client", allow_abbrev=False)
    parser.add_argument("address")
    parser.add_argument("cluster_id", type=int)
    parser.add_argument("first_ts", type=int)
    parser.add_argument("payload_bytes", type=int)
    parser.add_argument("--pairs", type=int, default=128)
    parser.add_argument("--in-flight", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=2.0)
    return parser.parse_args(arguments)


async def run(chosen: argparse.Namespace) -> None:
    messages = Messages(chosen.cluster_id, chosen.first_ts, chosen.payload_bytes, chosen.pairs)
    load = BatchLoad(chosen.address, messages, chosen.in_flight)
    await connect(load, chosen.address, None)
    await measure(load, chosen.seconds)


if __name__ == "__main__":
    try:
        uvloop.run(run(parse(sys.argv[1:])))
    except (BinlogError, OSError) as error:
        sys.exit(f"write client: {error}")

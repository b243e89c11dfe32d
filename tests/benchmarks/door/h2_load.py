"""Calls one method as fast as the server answers, over one raw HTTP/2 connection, as a process of its own.

    python -m tests.benchmarks.door.h2_load ADDRESS [--in-flight N] [--seconds S] [--deadlines usual|new]
        [--tls CA CERT KEY] [--path PATH | --write CLUSTER_ID FIRST_TS PAYLOAD_BYTES]

`--write` sends prewrites and their commits, as `load_generator` does; otherwise empty messages go to PATH.
`--deadlines` gives each call a grpc-timeout, as grpc-go does. Every reply is checked: one message
(of no bytes), trailers that say status 0. Says as JSON when the measured time begins and what was seen;
`client_cpu_us` is this process's own CPU per call; `commits`, said when everything is answered, how many
commits were written at all.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections import deque
from typing import Final

import uvloop

from tests.attacks.frames import END_HEADERS, END_STREAM, HEADERS, frame, frame_head, message, u32
from tests.benchmarks.door.raw import RawConnection, TlsFiles, connect
from tests.benchmarks.door.requests import NEW, USUAL, WRITE_PATH, DeadlineBlocks, PlainBlocks, Writes
from tests.benchmarks.measure import percentile
from tidb_binlog.errors import BinlogError, Unavailable

WARM_UP_S: Final = 0.5
ANSWER_S: Final = 10
EMPTY_REPLY_BYTES: Final = 5
_Slot = tuple[int, bytes] | None
"""A call slot's prewrite that is stored and waits for its commit: start timestamp, its varint."""


class Load(RawConnection):
    """Keeps `in_flight` calls running until `stop`."""

    def __init__(self, blocks: PlainBlocks | DeadlineBlocks, in_flight: int, writes: Writes | None) -> None:
        super().__init__()
        self.latencies_s: list[float] = []
        self.commits = 0
        self._in_flight = in_flight
        self._stopped = False
        self._open: dict[int, tuple[float, _Slot]] = {}
        self._free: list[_Slot] = []
        self._held: deque[_Slot] = deque()
        self._reply_bytes = 0
        self._replies = 0
        self._clock = time.perf_counter
        self._now_s = 0.0
        self._writes = writes
        self._plain = blocks if isinstance(blocks, PlainBlocks) else None
        self._blocks = iter(blocks) if isinstance(blocks, DeadlineBlocks) else None
        # From the frame head of DATA on; and the frame before it where its block is always the same.
        self._empty, self._empty_bytes = self._make(message(b""))
        if writes is not None:
            self._prewrite, self._prewrite_bytes = self._make(writes.prewrite, writes)
            self._commit, self._commit_bytes = self._make(writes.commit, writes)

    def _make(self, template: bytes, writes: Writes | None = None) -> tuple[bytes, int]:
        """A template of the whole call, and how many octets of DATA it is."""
        octets = writes.length(template) if writes is not None else len(template)
        data = frame_head(octets << 8, END_STREAM, 0)[:5] + b"%b" + template
        if self._plain is None:
            return b"%b" + data, octets
        block = self._plain.later
        head = frame_head(len(block) << 8 | HEADERS, END_HEADERS, 0)[:5]
        return head + b"%b" + block + data, octets

    # RawConnection's hooks

    def ready(self) -> None:
        if self.streams_max < self._in_flight:
            self.failed(f"the server allows {self.streams_max} calls at once")
            return
        self._now_s = self._clock()
        # The first call alone: what it puts into the table has to be there for the others.
        free: list[_Slot] = [None] * self._in_flight
        if self._plain is not None:
            self._open[1] = (self._now_s, None)
            self.next_id = 3
            payload = message(b"")
            if self._writes is not None:
                start_ts = self._writes.timestamp()
                varint = self._writes.varint(start_ts)
                payload = self._writes.prewrite % (varint, start_ts)
                self._open[1] = (self._now_s, (start_ts, varint))
            self.window -= len(payload)
            self._to_send.append(
                frame(HEADERS, END_HEADERS, 1, self._plain.first) + frame(0, END_STREAM, 1, payload)
            )
            free.pop()
        self._free.extend(free)

    def replied(self, stream: int) -> None:
        began_s, slot = self._open.pop(stream)
        self.commits += slot is None
        if not self._now_s:
            self._now_s = self._clock()
        self.latencies_s.append(self._now_s - began_s)
        self._replies += 1
        self._free.append(slot)

    def received(self, stream: int, octets: int) -> None:
        self._reply_bytes += octets

    def window_opened(self, stream: int, octets: int) -> None:
        if self._held and stream == 0:
            self._free.extend(self._held)
            self._held.clear()

    def flush(self) -> None:
        free = self._free
        if not free:
            return
        if self._reply_bytes != EMPTY_REPLY_BYTES * self._replies and not self._open:
            self.failed(f"{self._replies} replies have {self._reply_bytes} octets: they are not empty")
            return
        self._free = []
        if not self._stopped:
            now_s = self._clock()
            self.transport.write(b"".join(self._calls(free, now_s)))
        elif not self._open and not self.ended.done():
            self.ended.set_result(None)
        self._now_s = 0.0

    def _calls(self, slots: list[_Slot], now_s: float) -> list[bytes]:
        """The frames of one more call for each slot, as far as the connection's window goes."""
        out = []
        next_id, window, opened = self.next_id, self.window, self._open
        writes, blocks = self._writes, self._blocks
        plain = blocks is None
        for slot in slots:
            if window < 16_384:
                self._held.append(slot)
                continue
            stream = u32(next_id)
            front: tuple[bytes, ...] = (stream, stream)
            if not plain:
                block = next(blocks)  # type: ignore[arg-type]
                front = (frame_head(len(block) << 8 | HEADERS, END_HEADERS, next_id) + block, stream)
            if writes is None:
                out.append(self._empty % front)
                window -= self._empty_bytes
            elif slot is None:
                start_ts = writes.timestamp()
                varint = writes.varint(start_ts)
                slot_now = (start_ts, varint)
                out.append(self._prewrite % (*front, varint, start_ts))
                window -= self._prewrite_bytes
                opened[next_id] = (now_s, slot_now)
                next_id += 2
                continue
            else:
                start_ts, varint = slot
                out.append(self._commit % (*front, varint, writes.varint(writes.timestamp()), start_ts))
                window -= self._commit_bytes
            opened[next_id] = (now_s, None)
            next_id += 2
        self.next_id, self.window = next_id, window
        return out

    async def stop(self) -> None:
        """Send nothing more, wait for what is open."""
        self._stopped = True
        await self.ended
        self.transport.abort()


def say(**fields: object) -> None:
    print(json.dumps(fields), flush=True)


async def measure(load: Load, seconds: float) -> None:
    await _wait(load, WARM_UP_S)
    load.latencies_s.clear()
    say(event="begin")
    spent_s = time.process_time()
    began_s = time.monotonic()
    await _wait(load, seconds)
    for _ in range(ANSWER_S):  # the first may take longer than was asked for
        if not load.latencies_s:
            await _wait(load, 1.0)
    took_s = time.monotonic() - began_s
    spent_s = time.process_time() - spent_s
    seen = load.latencies_s[:]
    if not seen:
        raise Unavailable("no call was answered")
    say(
        event="end",
        requests=len(seen),
        seconds=took_s,
        p50_ms=percentile(seen, 0.5) * 1000,
        p99_ms=percentile(seen, 0.99) * 1000,
        client_cpu_us=spent_s / len(seen) * 1e6,
    )
    await load.stop()
    say(event="stopped", commits=load.commits)


async def _wait(load: Load, seconds: float) -> None:
    done, _ = await asyncio.wait({load.ended}, timeout=seconds)
    if done:
        load.ended.result()


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.benchmarks.door.h2_load", allow_abbrev=False)
    parser.add_argument("address")
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--deadlines", choices=(USUAL, NEW))
    parser.add_argument("--tls", nargs=3, metavar=("CA", "CERT", "KEY"))
    parser.add_argument("--path", default="/test.Bench/Empty")
    parser.add_argument("--write", nargs=3, type=int, metavar=("CLUSTER_ID", "FIRST_TS", "PAYLOAD_BYTES"))
    return parser.parse_args(arguments)


async def run(chosen: argparse.Namespace) -> None:
    path = WRITE_PATH if chosen.write else chosen.path
    scheme = "https" if chosen.tls else "http"
    blocks: PlainBlocks | DeadlineBlocks = PlainBlocks(path, chosen.address, scheme)
    if chosen.deadlines:
        blocks = DeadlineBlocks(path, chosen.address, scheme, chosen.deadlines)
    writes = Writes(*chosen.write) if chosen.write else None
    load = Load(blocks, chosen.in_flight, writes)
    await connect(load, chosen.address, TlsFiles(*chosen.tls) if chosen.tls else None)
    await measure(load, chosen.seconds)


if __name__ == "__main__":
    try:
        uvloop.run(run(parse(sys.argv[1:])))
    except (BinlogError, OSError) as error:
        sys.exit(f"load client: {error}")

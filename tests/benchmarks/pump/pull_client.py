"""Pulls from a pump as fast as it sends, over one raw HTTP/2 connection, as a process of its own.

    python -m tests.benchmarks.pump.pull_client ADDRESS CLUSTER_ID AFTER_TS TRANSACTIONS [--old | --every]
        [--credit BYTES] [--takes zstd|gzip]

Reads frames and counts payloads, nothing more: what a drainer does with them is not the pump's cost. The
first and the last payload of what one read brought are checked to come in the order of their commit
timestamps. Says as JSON when it asks, and what it saw when TRANSACTIONS had come: `first_ms` is from
connecting to the first entity.
"""

from __future__ import annotations

import argparse
import json
import socket
import struct
import sys
import time
from collections.abc import Iterator
from typing import Final

from tests.attacks.frames import message
from tests.benchmarks.door.requests import PlainBlocks
from tidb_binlog.compression import decompress
from tidb_binlog.errors import BinlogError, Corruption, Unavailable
from tidb_binlog.http2 import frames
from tidb_binlog.wire import binlog_pb2, pump_pb2

BATCHES_PATH: Final = "/binlog.PumpBatch/PullBatches"
OLD_PATH: Final = "/binlog.Pump/PullBinlogs"
CREDIT_BYTES: Final = 16 << 20
TIMEOUT_S: Final = 20.0
_READ_BYTES: Final = 1 << 20
_MESSAGE_HEAD: Final = 5
_head = struct.Struct(">LBL").unpack_from
_length = struct.Struct(">xL").unpack_from


class PullStream:
    """One connection with one pull stream. Blocks."""

    def __init__(
        self, address: str, cluster_id: int, after_ts: int, *, old: bool, credit_bytes: int, takes: str = ""
    ) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = bytearray()
        if old:
            position = pump_pb2.Pos(offset=after_ts)
            asked = pump_pb2.PullBinlogReq(clusterID=cluster_id, startFrom=position).SerializeToString()
        else:
            asked = pump_pb2.PullBatchesReq(
                cluster_id=cluster_id,
                after_ts=after_ts,
                credit_bytes=credit_bytes,
                takes_compression=[takes] if takes else [],
            ).SerializeToString()
        block = PlainBlocks(OLD_PATH if old else BATCHES_PATH, address, "http").first
        self._socket.sendall(
            frames.PREFACE
            + frames.settings({frames.INITIAL_WINDOW_SIZE: frames.WINDOW_MAX})
            + frames.window_update(0, frames.WINDOW_MAX - frames.DEFAULT_WINDOW)
            + frames.frame(frames.HEADERS, frames.END_HEADERS, 1, block)
            + frames.frame(frames.DATA, frames.END_STREAM if old else 0, 1, message(asked))
        )

    def more_credit(self, credit_bytes: int) -> None:
        request = pump_pb2.PullBatchesReq(credit_bytes=credit_bytes).SerializeToString()
        self._socket.sendall(frames.frame(frames.DATA, 0, 1, message(request)))

    def messages(self) -> Iterator[list[bytes]]:
        """The messages of the stream, as many together as one read completed."""
        body = bytearray()
        while True:
            data = self._socket.recv(_READ_BYTES)
            if not data:
                raise Unavailable("the pump closed the connection")
            self._frames(data, body)
            found, at = [], 0
            while at + _MESSAGE_HEAD <= len(body):
                stop = at + _MESSAGE_HEAD + _length(body, at)[0]
                if stop > len(body):
                    break
                found.append(bytes(body[at + _MESSAGE_HEAD : stop]))
                at = stop
            if found:
                del body[:at]
                yield found

    def _frames(self, data: bytes, body: bytearray) -> None:
        """Add what DATA frames hold to `body`; answer what has to be answered."""
        rest = self._rest
        rest += data
        at = 0
        while len(rest) - at >= 9:
            length, flags, stream = _head(rest, at)
            kind, after = length & 255, at + 9 + (length >> 8)
            if after > len(rest):
                break
            if kind == frames.DATA:
                body += memoryview(rest)[at + 9 : after]
            elif kind == frames.HEADERS and flags & frames.END_STREAM:
                raise Unavailable(f"the pump ended the stream: {bytes(rest[at + 9 : after])!r}")
            elif kind == frames.SETTINGS and not flags & frames.ACK:
                self._socket.sendall(frames.SETTINGS_ACK)
            elif kind == frames.PING and not flags & frames.ACK:
                self._socket.sendall(frames.frame(frames.PING, frames.ACK, 0, bytes(rest[at + 9 : after])))
            elif kind in (frames.GOAWAY, frames.RST_STREAM):
                raise Unavailable(f"frame of type {kind} on stream {stream}: {bytes(rest[at + 9 : after])!r}")
            at = after
        del rest[:at]

    def close(self) -> None:
        self._socket.close()


class Seen:
    """Counts what comes; commit timestamps may only rise."""

    def __init__(self, after_ts: int, *, old: bool, every: bool) -> None:
        self.transactions = 0
        self.payload_bytes = 0
        self.wire_bytes = 0
        self._last_ts = after_ts
        self._old = old
        self._every = every

    def take(self, messages: list[bytes]) -> None:
        self.wire_bytes += sum(map(len, messages))
        if self._old:
            # One entity a message: reading each would cost more than sending it.
            self.transactions += len(messages)
            self.payload_bytes += sum(map(len, messages))
            for one in messages[:: max(len(messages) - 1, 1)]:
                self._look(pump_pb2.PullBinlogResp.FromString(one).entity.payload)
            return
        for one in messages:
            batch = pump_pb2.PullBatchesResp.FromString(one)
            if batch.HasField("compressed"):
                frame = batch.compressed
                unpacked = decompress(frame.compression, frame.data, frame.size)
                batch = pump_pb2.PullBatchesResp.FromString(unpacked)
            payloads = batch.payloads
            self.transactions += len(payloads)
            self.payload_bytes += sum(map(len, payloads))
            step = 1 if self._every else max(len(payloads) - 1, 1)
            for payload in payloads[::step]:
                self._look(payload)

    def _look(self, payload: bytes) -> None:
        commit_ts = binlog_pb2.Binlog.FromString(payload).commit_ts
        if commit_ts <= self._last_ts:
            raise Corruption(f"commit_ts {commit_ts} came behind {self._last_ts}")
        self._last_ts = commit_ts


def pull(chosen: argparse.Namespace) -> None:
    _say(event="begin")
    began_s = time.perf_counter()
    spent_s = time.process_time()
    stream = PullStream(
        chosen.address,
        chosen.cluster_id,
        chosen.after_ts,
        old=chosen.old,
        credit_bytes=chosen.credit,
        takes=chosen.takes,
    )
    seen = Seen(chosen.after_ts, old=chosen.old, every=chosen.every)
    first_s, given = 0.0, 0
    for messages in stream.messages():
        seen.take(messages)
        if not first_s and seen.transactions:
            first_s = time.perf_counter() - began_s
        if seen.transactions >= chosen.transactions:
            break
        if not chosen.old and (seen.payload_bytes - given) * 8 >= chosen.credit:
            stream.more_credit(seen.payload_bytes - given)
            given = seen.payload_bytes
    took_s = time.perf_counter() - began_s
    stream.close()
    _say(
        event="end",
        transactions=seen.transactions,
        seconds=took_s,
        first_ms=first_s * 1000,
        payload_bytes=seen.payload_bytes,
        wire_bytes=seen.wire_bytes,
        client_cpu_us=(time.process_time() - spent_s) / seen.transactions * 1e6,
    )


def _say(**fields: object) -> None:
    print(json.dumps(fields), flush=True)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.benchmarks.pump.pull_client", allow_abbrev=False)
    parser.add_argument("address")
    parser.add_argument("cluster_id", type=int)
    parser.add_argument("after_ts", type=int)
    parser.add_argument("transactions", type=int)
    parser.add_argument("--old", action="store_true", help="the protocol of old drainers")
    parser.add_argument("--every", action="store_true", help="look at the order of all payloads")
    parser.add_argument("--takes", default="", help="compression that it asks for")
    parser.add_argument("--credit", type=int, default=CREDIT_BYTES)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    try:
        pull(parse(sys.argv[1:]))
    except (BinlogError, OSError) as error:
        sys.exit(f"pull client: {error}")

"""The load client's bytes mean what they should: header blocks by `hpack`, writes by protobuf."""

from __future__ import annotations

import os
from itertools import islice

import pytest
from hpack import Decoder

from tests.attacks.frames import message
from tests.benchmarks.door.requests import NEW, USUAL, DeadlineBlocks, PlainBlocks, Writes
from tidb_binlog import binlog, tso
from tidb_binlog.wire import pump_pb2

PATH = "/binlog.Pump/WriteBinlog"
FIRST_TS = tso.compose(1_767_225_600_000)


def test_a_plain_block_is_eight_octets_after_the_first() -> None:
    blocks = PlainBlocks(PATH, "localhost:1", "http")
    decoder = Decoder()
    first = decoder.decode(blocks.first)
    assert dict(first)[":path"] == PATH
    assert len(blocks.later) == 8
    assert decoder.decode(blocks.later) == first


def test_every_deadline_is_another_one_and_the_rest_stays() -> None:
    decoder = Decoder()
    blocks = DeadlineBlocks(PATH, "a:1", "https", NEW)
    calls = [dict(decoder.decode(block)) for block in islice(blocks, 500)]
    timeouts = [call.pop("grpc-timeout") for call in calls]
    assert len(set(timeouts)) == 500
    assert all(call == calls[0] for call in calls)
    assert calls[0][":path"] == PATH


def test_usual_deadlines_come_again_as_those_of_grpc_go() -> None:
    decoder = Decoder()
    blocks = list(islice(DeadlineBlocks(PATH, "a:1", "https", USUAL), 3000))
    calls = [dict(decoder.decode(block)) for block in blocks]
    assert len({call.pop("grpc-timeout") for call in calls}) > 100
    assert all(call == calls[0] for call in calls)
    assert 9.0 < sum(map(len, blocks)) / len(blocks) < 10.5


@pytest.mark.parametrize("drawn", [os.urandom(300), b"%b%d%%b%" * 37 + b"%b%d"], ids=("random", "percent"))
def test_writes_are_those_of_the_other_load_generator(drawn: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "urandom", lambda _: drawn)
    writes = Writes(7_100_000_000_000_000_002, FIRST_TS, len(drawn))
    for start_ts in (FIRST_TS, FIRST_TS + (1 << 14) - 1, FIRST_TS + (1 << 40)):
        varint, key = writes.varint(start_ts), b"t%020d" % start_ts
        prewrite = writes.prewrite % (varint, start_ts)
        request = pump_pb2.WriteBinlogReq.FromString(prewrite[5:])
        value = binlog.parse(request.payload).prewrite_value
        assert len(value) == 300
        assert request.payload == binlog.prewrite(start_ts, key, value)
        assert prewrite == message(request.SerializeToString())
        assert writes.length(writes.prewrite) == len(prewrite)
        commit = writes.commit % (varint, writes.varint(start_ts + 1), start_ts)
        request = pump_pb2.WriteBinlogReq.FromString(commit[5:])
        assert request.clusterID == 7_100_000_000_000_000_002
        assert request.payload == binlog.commit(start_ts, start_ts + 1, key)
        assert writes.length(writes.commit) == len(commit)

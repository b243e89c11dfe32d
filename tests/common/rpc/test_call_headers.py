from __future__ import annotations

import hpack as oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidb_binlog import rpc
from tidb_binlog.http2.hpack import TABLE_BYTES
from tidb_binlog.rpc.call_headers import Fields, RequestBlocks, not_grpc, outcome

PATHS = st.sampled_from([f"/binlog.Pump/Method{number}" for number in range(40)] + ["/x/" + "y" * 5000])
CALLS = st.tuples(
    PATHS,
    st.one_of(st.none(), st.sampled_from([5.0, 30.0, 0.0001]), st.floats(0.001, 1e9)),
    st.booleans(),
    st.sampled_from([(), ((b"hasleader", b"true"),)]),
)
STEPS = st.lists(st.one_of(CALLS, st.sampled_from([0, 100, 300, 4096, 65536])), max_size=60)


@given(STEPS, st.booleans())
def test_what_the_peer_decodes_is_what_was_meant(
    steps: list[tuple[str, float | None, bool, Fields] | int], secure: bool
) -> None:
    blocks, decoder = RequestBlocks("pump:8250", secure=secure), oracle.Decoder()
    decoder.max_header_list_size = 1 << 20
    for step in steps:
        if isinstance(step, int):
            decoder.max_allowed_table_size = step
            blocks.resize(step)
            continue
        path, timeout_s, gzip, more = step
        fields = list(decoder.decode(blocks.block(path, timeout_s, gzip=gzip, more=more), raw=True))
        values = dict(fields)
        assert [name for name, _ in fields[:4]] == [b":method", b":scheme", b":path", b":authority"]
        assert (values[b":method"], values[b":path"]) == (b"POST", path.encode())
        assert (values[b":scheme"], values[b":authority"]) == (b"https" if secure else b"http", b"pump:8250")
        assert (values[b"te"], values[b"content-type"]) == (b"trailers", b"application/grpc")
        assert (b"grpc-encoding" in values) == gzip
        assert all(values[name] == value for name, value in more)
        assert (b"grpc-timeout" in values) == (timeout_s is not None)
        if timeout_s is not None:
            said = values[b"grpc-timeout"]
            assert len(said) <= 9
            assert int(said[:-1]) / {b"m": 1000, b"S": 1}[said[-1:]] >= min(timeout_s, 99_999_999)


def test_a_call_that_came_before_is_a_few_octets() -> None:
    blocks = RequestBlocks("pump:8250", secure=False)
    first = blocks.block("/binlog.Pump/WriteBinlog", 5.0)
    again = blocks.block("/binlog.Pump/WriteBinlog", 5.0)
    assert (len(first) > 100, len(again) < 12) == (True, True)
    assert blocks.block("/binlog.Pump/WriteBinlog", 5.0) is again
    for number in range(1000):  # what does not fit is literal, and the table stays as it is
        blocks.block(f"/binlog.Pump/{number}", float(number))
    assert len(blocks.block("/binlog.Pump/WriteBinlog", 5.0)) < 20
    blocks.resize(TABLE_BYTES)
    assert len(blocks.block("/binlog.Pump/WriteBinlog", 5.0)) < 20
    blocks.resize(0)
    assert len(blocks.block("/binlog.Pump/WriteBinlog", 5.0)) > 100


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ({b"grpc-status": b"0"}, rpc.OK, ""),
        ({b"grpc-status": b"14", b"grpc-message": b"gone %E2%98%83 100%"}, 14, "gone \N{SNOWMAN} 100%"),
        ({b"grpc-status": b"9", b"grpc-message": b"%ff"}, 9, "\N{REPLACEMENT CHARACTER}"),
        ({b"grpc-status": b"123"}, 123, ""),
        ({b"grpc-status": b"-1"}, rpc.UNKNOWN, "ended without a status: grpc-status is '-1'"),
        ({b"grpc-status": b"1000"}, rpc.UNKNOWN, "ended without a status: grpc-status is '1000'"),
        ({}, rpc.UNKNOWN, "ended without a status: grpc-status is ''"),
    ],
)
def test_what_ends_a_call(fields: dict[bytes, bytes], code: int, text: str) -> None:
    assert outcome(fields) == (code, text)


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (b"200", b"application/grpc+proto", None),
        (b"200", b"text/html", rpc.UNKNOWN),
        (b"404", b"text/plain", rpc.UNIMPLEMENTED),
        (b"503", b"text/plain", rpc.UNAVAILABLE),
        (b"418", b"application/grpc", rpc.UNKNOWN),
        (b"", b"application/grpc", rpc.UNKNOWN),
    ],
)
def test_who_does_not_speak_grpc_is_told_by_its_head(status: bytes, kind: bytes, code: int | None) -> None:
    found = not_grpc({b":status": status, b"content-type": kind})
    assert (found and found[0]) == code
    assert found is None or status.decode() in found[1]


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.0001, b"1m"),
        (0.0011, b"2m"),
        (1.0, b"1000m"),
        (99_999.999, b"99999999m"),
        (100_000.5, b"100001S"),
        (1e12, b"99999999S"),
    ],
)
def test_a_timeout_is_never_said_shorter(seconds: float, said: bytes) -> None:
    block = RequestBlocks("a", secure=False).block("/b", seconds)
    assert dict(oracle.Decoder().decode(block, raw=True))[b"grpc-timeout"] == said


def test_the_peers_table_is_filled_to_the_last_octet() -> None:
    fields = oracle.Decoder().decode(RequestBlocks("a", secure=False).block("/b", None), raw=True)
    needed = sum(len(name) + len(value) + 32 for name, value in fields[2:])  # the first two are static
    sizes = []
    for room in (needed - 1, needed):
        blocks = RequestBlocks("a", secure=False)
        blocks.resize(room)
        blocks.block("/b", None)
        sizes.append(len(blocks.block("/b", None)))
    assert sizes[1] == 2 + len(fields[2:]) < sizes[0]
    path = "/" + "p" * (TABLE_BYTES - needed - len(":path") - 32 - 1)
    blocks = RequestBlocks("a", secure=False)
    blocks.block("/b", None)
    blocks.block(path, None)
    assert len(blocks.block(path, None)) == sizes[1]


def test_blocks_that_are_kept_are_few() -> None:
    blocks = RequestBlocks("a", secure=False)
    kept = [blocks.block("/b", None)]
    for number in range(600):
        blocks.block("/b", 1.0 + number)
        kept.append(blocks.block("/b", None))
    assert 2 <= len({id(block) for block in kept[300:]}) <= 5  # made anew now and then

"""Payloads: byte-equal to what TiDB and the Go pump write, whoever made them, and joined by slicing alone."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidb_binlog import binlog
from tidb_binlog.errors import Corruption, Rejected
from tidb_binlog.wire import binlog_pb2

CORPUS = Path(__file__).resolve().parents[1] / "golden" / "corpus"
SCENARIOS = sorted(path.name for path in CORPUS.iterdir() if path.is_dir())


def payloads(path: Path) -> list[bytes]:
    with gzip.open(path) as lines:
        return [base64.b64decode(json.loads(line)["payload"]) for line in lines]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_recorded_payloads_are_canonical(scenario: str) -> None:
    for path in [*(CORPUS / scenario).glob("written*.gz"), *(CORPUS / scenario).glob("pulled*.gz")]:
        for payload in payloads(path):
            assert binlog.canonical(binlog.parse(payload)) == payload
            assert binlog.canonical_header(payload) == binlog.header(binlog.parse(payload))


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_joining_gives_what_the_go_pump_served(scenario: str) -> None:
    for written in (CORPUS / scenario).glob("written*.gz"):
        served = payloads(written.with_name(written.name.replace("written", "pulled")))
        prewrites, commits = {}, {}
        for payload in payloads(written):
            head = binlog.header(binlog.parse(payload))
            if head.tp == binlog.PREWRITE:
                prewrites[head.start_ts] = payload
            elif head.tp == binlog.COMMIT:
                commits[head.commit_ts] = binlog.join(prewrites[head.start_ts], payload)
        assert served == [commits[binlog.parse(payload).commit_ts] for payload in served]


def test_built_payloads_equal_recorded_ones() -> None:
    built = 0
    for payload in payloads(CORPUS / "basic" / "written.jsonl.gz"):
        message = binlog.parse(payload)
        key = message.prewrite_key
        if message.ddl_job_id and message.tp == binlog.PREWRITE:
            again = binlog.prewrite_ddl(
                message.start_ts,
                key,
                message.ddl_query.decode(),
                message.ddl_job_id,
                message.ddl_schema_state,
            )
        elif message.tp == binlog.PREWRITE:
            again = binlog.prewrite(message.start_ts, key, message.prewrite_value)
        elif not message.ddl_job_id:
            again = binlog.commit(message.start_ts, message.commit_ts, key)
        else:
            continue
        assert again == payload
        built += 1
    assert built > 100


def test_time_mark_bytes() -> None:
    assert binlog.fake(42) == bytes.fromhex("0802102a182a38004000")
    assert binlog.header(binlog.parse(binlog.fake(42))).is_fake
    assert not binlog.header(binlog.parse(binlog.rollback(42))).is_fake


def test_a_sparse_payload_becomes_canonical() -> None:
    sparse = binlog_pb2.Binlog(start_ts=42, commit_ts=42, tp=binlog_pb2.Rollback).SerializeToString()
    assert sparse != binlog.fake(42)
    assert binlog.canonical(binlog.parse(sparse)) == binlog.fake(42)


@pytest.mark.parametrize("payload", [b"invalid", b"\x08", b"\x22\x7f"])
def test_what_is_no_binlog_is_refused(payload: bytes) -> None:
    with pytest.raises(Rejected, match="is not a Binlog"):
        binlog.parse(payload)


@pytest.mark.parametrize("payload", [b"\x08\x02\x22\x05ab", b"\x21" + b"\0" * 8, b"\x22\x80"])
def test_torn_payloads_are_not_joined(payload: bytes) -> None:
    with pytest.raises(Corruption):
        binlog.join(payload, payload)


_BINLOGS = st.builds(
    binlog_pb2.Binlog,
    tp=st.one_of(st.none(), st.sampled_from([0, 1, 2, 3, 4])),
    start_ts=st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.integers(0, 300)),
    commit_ts=st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.just(0)),
    prewrite_key=st.one_of(st.none(), st.binary(max_size=300)),
    prewrite_value=st.one_of(st.none(), st.binary(max_size=20), st.just(bytes(20_000))),
    ddl_query=st.one_of(st.none(), st.binary(max_size=20)),
    ddl_job_id=st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.just(0)),
    ddl_schema_state=st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1), st.just(5)),
)


@given(_BINLOGS, st.data())
def test_what_counts_as_canonical_is(message: binlog_pb2.Binlog, data: st.DataObject) -> None:
    """As the parser and serializer have it; also with octets changed, lost or added anywhere."""
    payload = message.SerializeToString()
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(payload)))
        until = data.draw(st.integers(at, min(at + 3, len(payload))))
        payload = payload[:at] + data.draw(st.binary(max_size=3)) + payload[until:]
    found = binlog.canonical_header(payload)
    if found is not None:
        parsed = binlog.parse(payload)
        assert found == binlog.header(parsed)
        assert binlog.canonical(parsed) == payload


@pytest.mark.parametrize(
    "payload",
    [
        binlog.prewrite(1 << 58, b"key", b"v" * 300),
        binlog.prewrite(5, b"", b"v" * 3_000_000),
        binlog.commit(1 << 58, (1 << 58) + 1, b"key"),
        binlog.commit(3, 4),
        binlog.rollback(7, b"k"),
        binlog.fake(9),
        binlog.prewrite_ddl(1 << 58, b"k", "CREATE TABLE t (a int)", 1 << 40),
    ],
)
def test_what_writers_send_is_canonical(payload: bytes) -> None:
    assert binlog.canonical_header(payload) == binlog.header(binlog.parse(payload))
    assert binlog.canonical_header(payload[:-1]) is None
    assert binlog.canonical_header(payload + b"\x4a\x00") is None


@given(
    st.integers(binlog.NINE_OCTETS, 2**63 - 2),
    st.integers(1, 1 << 20),
    st.one_of(st.binary(max_size=40), st.binary(min_size=120, max_size=300)),
    st.one_of(st.binary(max_size=40), st.sampled_from([bytes(70_000)])),
    st.booleans(),
)
def test_halves_of_usual_payloads_meet_where_the_fields_say(
    start_ts: int, passed: int, key: bytes, value: bytes, with_key: bool
) -> None:
    commit_ts = min(start_ts + passed, 2**63 - 1)
    prewrite = binlog.prewrite(start_ts, key, value)
    commit = binlog.commit(start_ts, commit_ts, key if with_key else b"")
    quick = binlog.halves(prewrite, commit, nine_octets=True)
    assert quick == binlog.halves(prewrite, commit)
    joined = binlog.parse(b"".join(quick))
    assert (joined.tp, joined.start_ts, joined.commit_ts) == (binlog.COMMIT, start_ts, commit_ts)
    assert joined.prewrite_value == value

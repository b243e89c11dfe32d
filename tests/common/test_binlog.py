"""Payloads: byte-equal to what TiDB and the Go pump write, whoever made them, and joined by slicing alone."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path

import pytest

from common import binlog
from common.errors import Corruption, Rejected
from common.wire import binlog_pb2

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

"""Recorded scenarios (`tests/golden/corpus`), as the translator's tests need them."""

from __future__ import annotations

import base64
import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

from drainer.stream.pull.merged import Merged
from tidb_binlog import ddl_job
from tidb_binlog.wire import binlog_pb2

ROOT = Path(__file__).parents[2] / "golden" / "corpus"
SCENARIOS = sorted(path.parent.name for path in ROOT.glob("*/meta.json"))
"""Every scenario that has a pulled stream."""
VARIED = [name for name in SCENARIOS if name not in ("multi-pump", "orphans", "txn")]
"""All but three that have nine tenths of the rows, of nine tables with a few types: for what is of a row."""


def lines(path: Path) -> list[Any]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def document(path: Path) -> Any:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return json.load(file)


def jobs(scenario: str) -> list[bytes]:
    return list(_jobs(scenario))


@cache
def _jobs(scenario: str) -> tuple[bytes, ...]:
    return tuple(base64.b64decode(line["raw"]) for line in lines(ROOT / scenario / "ddl_jobs.jsonl.gz"))


def pulled(scenario: str, number: str = "") -> list[Merged]:
    """What one pump served, without jobs."""
    path = ROOT / scenario / f"pulled{number}.jsonl.gz"
    return [Merged(line["commit_ts"], base64.b64decode(line["payload"])) for line in lines(path)]


def merged(scenario: str) -> list[Merged]:
    """The scenario's stream as the collector hands it on: merged, jobs attached, sequence values dropped."""
    return list(_merged(scenario))


@cache
def _merged(scenario: str) -> tuple[Merged, ...]:
    found: list[Merged] = []
    for path in sorted((ROOT / scenario).glob("pulled*.jsonl.gz")):
        found += pulled(scenario, path.name.removeprefix("pulled").removesuffix(".jsonl.gz"))
    found.sort()
    by_id = {job["id"]: job for job in map(ddl_job.decode, jobs(scenario))}
    out = []
    for entry in found:
        message = binlog_pb2.Binlog.FromString(entry.payload)
        if message.ddl_query.lower().startswith(b"select setval"):
            continue
        final = message.ddl_job_id and message.ddl_schema_state != 1
        out.append(entry._replace(job=by_id[message.ddl_job_id]) if final else entry)
    return tuple(out)


def events(scenario: str) -> list[Any]:
    """What the Go drainer decoded: one object a binlog."""
    return lines(ROOT / scenario / "events" / "events.jsonl.gz")


def expected(scenario: str) -> Any:
    """Final contents upstream, by database."""
    return document(ROOT / scenario / "expected.json.gz")["tidb"]

"""The recorded scenarios: row events in commit order, with the table definitions they were written under."""

from __future__ import annotations

import base64
import gzip
import json
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from tidb_binlog.table_info import TableInfo
from tidb_binlog.wire import binlog_pb2

CORPUS = Path(__file__).resolve().parents[2] / "golden" / "corpus"
FEW_TYPES = {"multi-pump", "orphans", "txn"}
"""They have nine tenths of the rows, of nine tables."""
SCENARIOS = sorted(path.name for path in CORPUS.iterdir() if path.is_dir() and path.name not in FEW_TYPES)
INSERT, UPDATE, DELETE = 0, 1, 4
EXCHANGE_PARTITION = 42


@dataclass(frozen=True)
class Event:
    """One row event. `kind` is INSERT, UPDATE or DELETE."""

    commit_ts: int
    schema_version: int
    table_id: int
    kind: int
    row: bytes


@dataclass
class History:
    """Table definitions by id and schema version, and which database and name each id had last."""

    versions: dict[int, list[tuple[int, TableInfo]]] = field(default_factory=dict)
    names: dict[int, tuple[str, str]] = field(default_factory=dict)
    system: set[int] = field(default_factory=set)

    def at(self, table_id: int, schema_version: int) -> TableInfo:
        versions = self.versions[table_id]
        place = bisect_right([version for version, _ in versions], schema_version)
        return versions[max(place - 1, 0)][1]

    def last(self, table_id: int) -> TableInfo:
        return self.versions[table_id][-1][1]


def lines(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path) as file:
        for line in file:
            yield json.loads(line)


@cache
def history(scenario: str) -> History:
    found = History()
    partitions: dict[int, set[int]] = {}
    jobs = [
        json.loads(base64.b64decode(line["raw"])) for line in lines(CORPUS / scenario / "ddl_jobs.jsonl.gz")
    ]
    for job in sorted(jobs, key=lambda job: job["binlog"]["SchemaVersion"]):
        binlog = job["binlog"]
        documents = binlog.get("MultipleTableInfos") or [binlog["TableInfo"]]
        for document in documents:
            if not document:
                continue
            info = TableInfo.from_json(document)
            found.versions.setdefault(info.id, []).append((binlog["SchemaVersion"], info))
            found.names[info.id] = (job["schema_name"], info.name)
            if job["schema_name"] == "mysql":
                found.system.add(info.id)
            now = {entry["id"] for entry in (document.get("partition") or {}).get("definitions") or ()}
            if job["type"] == EXCHANGE_PARTITION:
                (gone,) = partitions[info.id] - now
                (come,) = now - partitions[info.id]
                moved = replace(found.last(come), id=gone)
                found.versions.setdefault(gone, []).append((binlog["SchemaVersion"], moved))
            partitions[info.id] = now
    return found


def events(scenario: str) -> Iterator[Event]:
    """All committed row events in commit order, system tables too."""
    payloads = [
        (line["commit_ts"], line["payload"])
        for path in sorted((CORPUS / scenario).glob("pulled*.jsonl.gz"))
        for line in lines(path)
    ]
    for commit_ts, payload in sorted(payloads):
        message = binlog_pb2.Binlog.FromString(base64.b64decode(payload))
        if not message.prewrite_value:
            continue
        value = binlog_pb2.PrewriteValue.FromString(message.prewrite_value)
        for mutation in value.mutations:
            rows = {
                INSERT: iter(mutation.inserted_rows),
                UPDATE: iter(mutation.updated_rows),
                DELETE: iter(mutation.deleted_rows),
            }
            for kind in mutation.sequence:
                yield Event(commit_ts, value.schema_version, mutation.table_id, kind, next(rows[kind]))


def expected(scenario: str) -> dict[tuple[str, str], dict[str, Any]]:
    """(database, table) -> columns, key and rows as recorded from TiDB."""
    with gzip.open(CORPUS / scenario / "expected.json.gz") as file:
        databases = json.load(file)["tidb"]
    return {
        (database, table): entry
        for database, content in databases.items()
        for table, entry in content["tables"].items()
        if entry["kind"] == "BASE TABLE"
    }


def shown(value: Any, shape: str) -> Any:
    """A decoded value by the `repr` rules of the recording."""
    if value is None:
        return None
    if isinstance(value, bytes):
        return value.hex() if shape == "hex" else {"hex": value.hex()}
    return repr(value) if shape == "double" else str(value)

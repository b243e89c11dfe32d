"""Scenario: a recorded one: payloads, DDL history, outcomes of open prewrites, and the contents expected.

A scenario is a directory of files as described in `recorded/README.md`. Reading checks form only; what the
payloads mean is the Pumps' and the Drainer's business.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from binlog_playground.arrival import Record
from binlog_playground.check.verify import Canonical, ColumnForm, ExpectedChecksum, ExpectedTable, Raw
from tidb_binlog.binlog import COMMIT, PREWRITE, ROLLBACK
from tidb_binlog.errors import ConfigError
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.tso import Ts

TYPES: Final = {"P": PREWRITE, "C": COMMIT, "R": ROLLBACK}
HINT: Final = "give a directory with meta.json, written*.jsonl.gz, ddl_jobs.jsonl.gz and expected.json.gz"


@dataclass(frozen=True, slots=True)
class Scenario:
    """A whole recording. `files` has one list of records per Pump, each in arrival order."""

    name: str
    cluster_id: int
    files: list[list[Record]]
    jobs: list[tuple[int, bytes]]
    outcomes: dict[int, int | None]
    expected: list[ExpectedTable]
    checksums: list[ExpectedChecksum] = field(default_factory=list)
    not_compared: list[str] = field(default_factory=list)  # views and sequences

    @property
    def last_commit_ts(self) -> Ts:
        """Largest commit timestamp of any transaction, those without a commit record included."""
        recorded = [r.commit_ts for records in self.files for r in records]
        return max([0, *recorded, *(ts for ts in self.outcomes.values() if ts is not None)])

    @property
    def statements(self) -> list[tuple[str, str]]:
        """(schema, text) of every DDL job."""
        documents = [json.loads(raw) for _, raw in self.jobs]
        return [(str(job.get("schema_name", "")), str(job.get("query", ""))) for job in documents]

    @property
    def first_ts(self) -> Ts:
        """Find the smallest timestamp of a record."""
        return min(record.start_ts for records in self.files for record in records)


def load(directory: Path) -> Scenario:
    """Read a scenario; `ConfigError` names the file that is missing or wrong."""
    written = sorted(directory.glob("written*.jsonl.gz"))
    if not written:
        raise ConfigError(f"{directory} has no written*.jsonl.gz", hint=HINT)
    meta = _json(directory / "meta.json")
    outcomes = directory / "outcomes.json"
    expected, checksums, not_compared = _expected(directory)
    return Scenario(
        name=str(meta.get("scenario", directory.name)),
        cluster_id=int(meta["cluster_id"]),
        files=[[_record(line) for line in _lines(path)] for path in written],
        jobs=[
            (line["id"], base64.b64decode(line["raw"])) for line in _lines(directory / "ddl_jobs.jsonl.gz")
        ],
        outcomes=_outcomes(_json(outcomes)["outcomes"]) if outcomes.exists() else {},
        expected=expected,
        checksums=checksums,
        not_compared=not_compared,
    )


def _record(line: dict[str, Any]) -> Record:
    return Record(TYPES[line["tp"]], line["start_ts"], line["commit_ts"], base64.b64decode(line["payload"]))


def _outcomes(document: dict[str, str | None]) -> dict[int, int | None]:
    return {int(start): None if commit is None else int(commit) for start, commit in document.items()}


def _expected(directory: Path) -> tuple[list[ExpectedTable], list[ExpectedChecksum], list[str]]:
    contents = directory / "expected.json.gz"
    if contents.exists():
        tables, not_compared = _contents(_json(contents)["tidb"])
        return tables, [], not_compared
    sums = _json(directory / "expected_checksum.json")
    return [], [_checksum(name, table) for name, table in sums["tables"].items()], []


def _contents(databases: dict[str, Any]) -> tuple[list[ExpectedTable], list[str]]:
    tables, not_compared = [], []
    for schema, database in databases.items():
        for name, table in database["tables"].items():
            if table["kind"] != "BASE TABLE":
                not_compared.append(f"{schema}.{name} ({table['kind'].lower()})")
                continue
            columns = tuple(
                ColumnForm(c["name"], c["repr"], c.get("type", ""), c.get("charset") or "")
                for c in table["columns"]
            )
            rows = [tuple(map(_value, row, columns)) for row in table["rows"]]
            tables.append(ExpectedTable(schema, name, columns, tuple(table["key"]), rows))
    return tables, not_compared


def _value(value: Any, column: ColumnForm) -> Canonical:
    if isinstance(value, dict):
        return Raw(value["hex"])
    text: str | None = value
    return text.lower() if text and column.repr == "hex" else text


def _checksum(full_name: str, table: dict[str, Any]) -> ExpectedChecksum:
    schema, _, name = full_name.partition(".")
    return ExpectedChecksum(schema, name, tuple(table["columns"]), table["rows"], table["sha256"])


def _json(path: Path) -> dict[str, Any]:
    try:
        if path.suffix == ".gz":
            with gzip.open(path, "rt", encoding="utf-8") as file:
                document = json.load(file)
        else:
            document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, EOFError) as error:
        raise ConfigError(f"{path} cannot be read: {error}", hint=HINT) from None
    if not isinstance(document, dict):
        raise ConfigError(f"{path} is not a JSON object", hint=HINT)
    return document


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                try:
                    yield json.loads(line)
                except ValueError as error:
                    raise ConfigError(f"{path} line {number} is not JSON: {error}", hint=HINT) from None
    except (OSError, EOFError) as error:
        raise ConfigError(f"{path} cannot be read: {error}", hint=HINT) from None

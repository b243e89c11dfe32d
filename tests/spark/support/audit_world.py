"""What tests of the audit have in common: archives of recorded scenarios, and faults planted in them."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from drainer.formats.binlog_file import SYNCED
from drainer.reading.archive.decode.definitions import of_archive
from drainer.reading.archive.decode.images import Images
from drainer.reading.archive.decode.records import Changes, Record, SchemaChange
from drainer.reading.archive.files import segments
from drainer.reading.archive.read_options import ReadOptions
from drainer.spark.audit.auditing import Audit, Outcome
from drainer.spark.audit.checks.chain_rule import Link, judge
from drainer.spark.audit.checks.findings import COVERAGE, Findings
from drainer.spark.audit.rows.lineage import Lineages, Statement
from drainer.spark.audit.rows.projection import Projections
from drainer.spark.audit.rows.row_steps import RowStep, RowSteps
from drainer.spark.engine import Here
from drainer.txn import Ddl, TableVersion
from tests.drainer.support import archive_life
from tests.drainer.support.relay_world import items
from tidb_binlog.record import decode_file, encode_file
from tidb_binlog.wire import pb_binlog_pb2 as pb

INDEX = "index"


def write_archive(
    directory: Path, scenarios: str | Sequence[str], file_size: int = archive_life.FILE_SIZE
) -> Path:
    """The archive that a drainer writes of a scenario, or of several at once, in files of about that size."""
    names = [scenarios] if isinstance(scenarios, str) else scenarios
    found = sorted((item for name in names for item in items(name)), key=lambda item: item.commit_ts)

    async def live() -> None:
        source = archive_life.Ready(found)
        await archive_life.Life(directory, source, max_file_size=file_size).whole()

    asyncio.run(live())
    return directory


@dataclass
class FileRecord:
    """One record of a file as it is written."""

    payload: bytes

    @property
    def message(self) -> pb.Binlog:
        return pb.Binlog.FromString(self.payload)


def files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if path.name.startswith("binlog-"))


def records(file: Path) -> list[FileRecord]:
    data, at, found = file.read_bytes(), 0, []
    while at < len(data):
        payload, at = decode_file(data, at)
        found.append(FileRecord(payload))
    return found


def rewrite(file: Path, change: Callable[[list[FileRecord]], list[FileRecord]]) -> None:
    """The file with other records, framed and with checksums as if they had been written so."""
    file.write_bytes(b"".join(encode_file(one.payload) for one in change(records(file))))


def without_indexes(directory: Path) -> None:
    """As a Go drainer leaves it, but with the tables' definitions."""
    for path in (directory / INDEX).glob("*.json"):
        path.unlink()
    (directory / SYNCED).unlink(missing_ok=True)


def rows_of(record: FileRecord, kind: int) -> list[pb.Event]:
    """Events of one kind of a record's transaction."""
    return [event for event in record.message.dml_data.events if event.tp == kind]


@dataclass
class Walk:
    """A scenario's steps in order, and what links them, by dictionaries instead of Spark."""

    steps: list[RowStep]
    lineages: Lineages
    versions: dict[int, TableVersion]
    statements: list[Statement]

    def wrong(self) -> list[tuple[RowStep, str]]:
        projections, found = Projections(), []
        last: dict[tuple[int, int, bytes], tuple[bytes | None, int]] = {}
        keys = defaultdict(set)
        places = [
            self.lineages.lineage_at(self.versions[one.definition].downstream, one.commit_ts)
            for one in self.steps
        ]
        for one, lineage in zip(self.steps, places, strict=True):
            keys[lineage.number].add(one.key_id)
        for one, lineage in zip(self.steps, places, strict=True):
            if not one.key_id:
                continue
            row = (lineage.number, one.key_id, one.key)
            known = row in last or (lineage.born_ts is not None and len(keys[lineage.number]) == 1)
            left, definition = last.get(row, (None, one.definition))
            link = Link(known, one.before, one.definition, left, definition)
            wrong = judge(link, self.versions.__getitem__, projections)
            if wrong is not None:
                found.append((one, wrong[0]))
            last[row] = (one.after, one.definition)
        return found


def walk(scenario: str) -> Walk:
    """Of what the translator makes of a scenario."""
    images = Images()
    found: list[Record] = []
    for item in items(scenario):
        if isinstance(item, Ddl):
            found.append(SchemaChange(item, "file", 0))
            continue
        found += [
            Changes(item.commit_ts, 0, "file", 0, events.first_ordinal, images.rows(events))
            for events in item.tables
        ]
    return walk_records(found)


def walk_records(found: Iterable[Record]) -> Walk:
    """Of the records of an archive."""
    numbers: dict[TableVersion, int] = {}
    steps: list[RowStep] = []
    statements = []
    makes = RowSteps(lambda version: numbers.setdefault(version, len(numbers)))
    for one in found:
        if isinstance(one, Changes):
            steps += makes.of(one)
        else:
            ddl = one.ddl
            statements.append(Statement(ddl.commit_ts, ddl.schema, ddl.query, ddl.tables, ddl.action))
    steps.sort(key=lambda one: (one.commit_ts, one.order))
    versions = {number: version for version, number in numbers.items()}
    return Walk(steps, Lineages.of(statements), versions, statements)


def coverage(directory: Path) -> Findings:
    return outcome(directory).findings[COVERAGE]


def outcome(directory: Path) -> Outcome:
    wanted = ReadOptions.of({"path": str(directory), "damage": "report"})
    survey = segments.survey(wanted.location, wanted.kind)
    definitions = of_archive(survey.location, survey)
    return Audit(Here(), wanted, survey, definitions, 8).coverage()

"""Recorded scenarios as archives of every kind, and what their rows are, as the translator has them."""

from __future__ import annotations

import gzip
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from drainer.config.relay_format import PAYLOAD
from drainer.ddl.derive.derive import same_names
from drainer.formats import binlog_file, segment_index
from drainer.formats.obinlog.writer import commit_ts_of
from drainer.formats.record_groups import PayloadRecords, RecordGroups, RelayRecords
from drainer.formats.segment_index import SegmentIndex
from drainer.places.place import Place
from drainer.reading.archive.decode import definitions, reading
from drainer.reading.archive.decode.definitions import Definitions
from drainer.reading.archive.decode.records import Changes, Record, SchemaChange
from drainer.reading.archive.files.segments import Survey, survey
from drainer.reading.archive.files.selection import Selection
from drainer.sink.ddl_text import ddl_texts
from drainer.sink.file import table_definitions
from drainer.sink.file.records import ArchiveRecords
from drainer.txn import DELETE, INSERT, Ddl, Item, TableVersion, Transaction
from tests.drainer.support import recorded
from tests.pump.support.corpus import SAFE
from tidb_binlog.record import decode_file
from tidb_binlog.rowcodec.plan import TablePlan

CLUSTER_ID = 7
EVERYTHING = Selection()


class Change(NamedTuple):
    """A row of a transaction with its values by column name."""

    commit_ts: int
    seq: int
    name: tuple[str, str]
    kind: int
    before: dict[str, Any] | None
    after: dict[str, Any] | None


def unpacked(scenario: str, kind: str, directory: Path) -> Place:
    """`events` or `relay` of a scenario as the Go drainer left it."""
    directory.mkdir(parents=True, exist_ok=True)
    for path in (recorded.ROOT / scenario / kind).glob("binlog-*.gz"):
        (directory / path.name.removesuffix(".gz")).write_bytes(gzip.decompress(path.read_bytes()))
    return Place(str(directory))


def our_relay(stream: Iterable[Item], directory: Path, max_file_size: int, form: str = PAYLOAD) -> Place:
    """The records that this drainer writes into its relay log."""
    records = PayloadRecords if form == PAYLOAD else RelayRecords
    made: RecordGroups = records(0, 0, {}, max_file_size, lambda size: None)
    directory.mkdir(parents=True, exist_ok=True)
    for item in stream:
        if isinstance(item, Ddl):
            made.ddl(item, item.query)
        elif item.tables:
            made.transaction(item)
    for group in made.take():
        with (directory / binlog_file.file_name(group.index, "20261122000000")).open("ab") as file:
            file.writelines(group.parts)
    return Place(str(directory))


def our_archive(stream: Iterable[Item], directory: Path, max_file_size: int = 32 << 10) -> Place:
    """The file archive that this drainer writes, with what lies beside it. An index has a place for every
    record: a stride would need megabytes."""
    made = ArchiveRecords(0, SegmentIndex(CLUSTER_ID), max_file_size, lambda size: None)
    (directory / segment_index.DIRECTORY).mkdir(parents=True, exist_ok=True)
    names: dict[int, str] = {}

    def put() -> None:
        for group in made.take():
            names[group.index] = binlog_file.file_name(group.index, "20261122000000")
            with (directory / names[group.index]).open("ab") as file:
                file.writelines(group.parts)

    for item in stream:
        if isinstance(item, Ddl):
            made.ddl(item, *ddl_texts(item, None, same_names))
        elif item.tables:
            made.transaction(item)
    put()
    for index, described in made.indexes().items():
        described.places = places(directory / names[index])
        path = directory / segment_index.DIRECTORY / segment_index.file_name(names[index])
        path.write_bytes(described.to_json())
    for index, lines in made.take_tables().items():
        path = directory / segment_index.DIRECTORY / table_definitions.file_name(names[index])
        path.write_bytes(b"".join(lines))
    return Place(str(directory))


def places(path: Path) -> list[tuple[int, int]]:
    data, at, found = path.read_bytes(), 0, []
    while at < len(data):
        payload, end = decode_file(data, at)
        found.append((commit_ts_of(payload), at))
        at = end
    return found


def pumps(scenario: str, directory: Path) -> list[Place]:
    """The data directories of a scenario's pumps."""
    found = []
    for path in sorted((recorded.ROOT / scenario).glob("pump-data*.tar.gz")):
        if "killed" in path.name:
            continue
        with tarfile.open(path) as archive:
            archive.extractall(directory / path.name, **SAFE)
        (value,) = (directory / path.name).rglob("value")
        found.append(Place(str(value.parent)))
    return found


def of_history(scenario: str) -> Definitions:
    """The definitions that the upstream's DDL history has."""
    seen = Survey(Place("."), "pump")
    return definitions.of_archive(Place("."), seen, ddl_history=recorded.jobs(scenario))


def records(
    location: Place, known: Definitions | None = None, selection: Selection = EVERYTHING, **options: Any
) -> list[Record]:
    """Everything in an archive, a slice after the other."""
    target_bytes = options.pop("target_bytes", 1 << 20)
    seen = survey(location)
    known = known if known is not None else definitions.of_archive(location, seen)
    found: list[Record] = []
    for part in seen.plan(selection, target_bytes, skip_damage=options.get("damage") == reading.REPORT):
        found += reading.read(seen.location, part, selection, known, **options)
    return found


class Values:
    """Values of images and rows, by column name."""

    def __init__(self) -> None:
        self._plans: dict[TableVersion, TablePlan] = {}

    def plan(self, version: TableVersion) -> TablePlan:
        plan = self._plans.get(version)
        if plan is None:
            plan = self._plans[version] = TablePlan(version.info)
        return plan

    def image(self, version: TableVersion, image: bytes | None) -> dict[str, Any] | None:
        if image is None:
            return None
        plan = self.plan(version)
        return self._named(plan, plan.decode_delete(image))

    def _named(self, plan: TablePlan, values: Iterable[Any]) -> dict[str, Any]:
        return {column.name: value for column, value in zip(plan.columns, values, strict=True)}

    def of_records(self, found: Iterable[Record]) -> Iterator[Change]:
        for record in found:
            if isinstance(record, Changes):
                for seq, (version, kind, before, after) in enumerate(record.rows, record.first_seq):
                    pair = self.image(version, before), self.image(version, after)
                    yield Change(record.commit_ts, seq, version.downstream, kind, *pair)

    def of_items(self, items: Iterable[Item]) -> Iterator[Change]:
        for item in items:
            for events in item.tables if isinstance(item, Transaction) else ():
                version = events.table
                plan = self.plan(version)
                for seq, kind, row in zip(
                    range(events.first_ordinal, 1 << 62), events.kinds, events.rows, strict=False
                ):
                    before = after = None
                    if kind == INSERT:
                        after = self._named(plan, plan.decode_insert(row))
                    elif kind == DELETE:
                        before = self._named(plan, plan.decode_delete(row))
                    else:
                        before, after = (self._named(plan, half) for half in plan.decode_update(row))
                    yield Change(item.commit_ts, seq, version.downstream, kind, before, after)


def ddls(found: Iterable[Record]) -> list[Ddl]:
    return [record.ddl for record in found if isinstance(record, SchemaChange)]


# Rows that Go writes under a wrong name: of a table renamed with others, or in a renamed database.
WRONG_NAMES = {"ddl-swap": 2, "ddl-rename-db": 2}


# It took a dropped column away while writers still filled it; of updates a relay log then has two forms.
LACKING_COLUMNS = {"ddl": 10}


# Rows between the commit of an ALTER and the end of its job, which is what the history says: DECIMAL with the
# former number of digits.
BETWEEN = {"ddl": 2}

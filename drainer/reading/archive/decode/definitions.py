"""Definitions: of which tables the rows of an archive are, and numbers that name them in data frames.

Out    a `TableVersion` by number, or by name, commit_ts and columns
Holds  equal definitions are one object with one number, in every process: the number is a hash of the
       definition. It is put together on the driver and sent to the tasks
Why    an archive of a Go drainer has no definitions: then they come from the database it is applied to, or
       they are guessed from the events, which is enough to show rows but not to know their keys
"""

from __future__ import annotations

import bisect
import concurrent.futures
import functools
import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from drainer.formats import segment_index
from drainer.formats.obinlog import reader
from drainer.formats.obinlog.writer import definition_json
from drainer.formats.relay_payload import in_memory, is_payload_record, record_head
from drainer.mysql.literal.plan import compile_sql
from drainer.places.place import Place
from drainer.reading.archive.decode.pb_walk import Shape, ShapeColumn, fits
from drainer.reading.archive.files.framing import file_records
from drainer.reading.archive.files.payload import PB, RELAY
from drainer.reading.archive.files.segments import Survey
from drainer.relay.table_definitions import BINARY_TYPES
from drainer.sink.file import table_definitions
from drainer.sink.file.table_definitions import ArchivedTable
from drainer.stream.rules.rule_set import Rules
from drainer.stream.schema.tracker import SchemaTracker, is_system_schema
from drainer.txn import TableVersion
from tidb_binlog import ddl_job
from tidb_binlog import table_info as ti
from tidb_binlog.errors import ConfigError, Corruption, DownstreamError
from tidb_binlog.record import RecordError
from tidb_binlog.table_info import Column, FieldType, TableInfo
from tidb_binlog.tso import TS_MAX, Ts

_AT_ONCE: Final = 16
_SECOND_DIGITS: Final = 6
_GUESSED_ID: Final = 1 << 40
"""Ids from there on are of columns that no definition has."""
_HINT: Final = "give the definitions that the archive was read with"


def number_of(version: TableVersion) -> int:
    """A hash of all that the version is, in 63 bits."""
    digest = hashlib.blake2b(definition_json(version), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


class Definitions:
    """Definitions by number and by archived name. `history`: DDL jobs, for value logs."""

    def __init__(self, tables: Iterable[ArchivedTable] = (), history: Sequence[bytes] = ()) -> None:
        self.history = tuple(history)
        self._by_number: dict[int, TableVersion] = {}  # one object for each definition
        self._numbers: dict[TableVersion, int] = {}
        self._by_id: dict[tuple[int, int], TableVersion] = {}  # by table and schema version
        self._by_name: dict[tuple[str, str], list[ArchivedTable]] = {}  # by `first_ts`, which rises
        self._guessed: dict[tuple[str, str, Shape], TableVersion] = {}
        self._turns: list[int] = []  # where one of `_by_name` begins, in order
        self._text = ""  # of `to_json`, "" until it is asked for again
        for table in sorted(tables, key=lambda table: table.first_ts):
            self.add(*table)

    def add(self, first_ts: Ts, schema: str, table: str, version: TableVersion) -> TableVersion:
        """A definition, valid from `first_ts` on; the object that stands for it from now on."""
        version = self.intern(archived(version))
        versions = self._by_name.setdefault((schema, table), [])
        place = bisect.bisect_right(versions, first_ts, key=lambda entry: entry.first_ts)
        if not place or versions[place - 1].version is not version:
            versions.insert(place, ArchivedTable(first_ts, schema, table, version))
            bisect.insort(self._turns, first_ts)
            self._by_id[version.id, version.version] = version
            self._text = ""
        return version

    def intern(self, version: TableVersion) -> TableVersion:
        """The object that stands for a definition."""
        if version in self._numbers:
            return version
        number = number_of(version)
        first = self._by_number.setdefault(number, version)
        self._numbers[version] = self._numbers[first] = number
        return first

    def of_upstream(self, version: TableVersion) -> TableVersion:
        """The object for a version as a translator has it, which may have other defaults for old rows."""
        return self._by_id.get((version.id, version.version)) or self.intern(version)

    def number_of(self, version: TableVersion) -> int:
        """Of a version that is known here or becomes so."""
        number = self._numbers.get(version)
        return self._numbers[self.intern(version)] if number is None else number

    def version(self, number: int) -> TableVersion:
        """Raises `ConfigError` for a number that is not known."""
        version = self._by_number.get(number)
        if version is None:
            raise ConfigError(f"there is no definition with the number {number}", hint=_HINT)
        return version

    def __iter__(self) -> Iterator[ArchivedTable]:
        """By archived name, oldest first."""
        return itertools.chain.from_iterable(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_number)

    # -- by name ---------------------------------------------------------------------------------

    def find(
        self,
        schema: str,
        table: str,
        commit_ts: Ts,
        column_names: Sequence[str],
        fits: Callable[[TableVersion], bool] = lambda version: True,
    ) -> TableVersion | None:
        """The definition that rows of these columns were written under: the last one before them that fits,
        else the first one after them, since a row may be older than its definition's first."""
        versions = self._by_name.get((schema, table), ())
        names = frozenset(column_names)
        place = bisect.bisect_right(versions, commit_ts, key=lambda entry: entry.first_ts)
        for entry in itertools.chain(reversed(versions[:place]), versions[place:]):
            if _has(entry.version, names) and fits(entry.version):
                return entry.version
        return None

    def valid(self, commit_ts: Ts) -> tuple[int, int]:
        """The first and the last commit_ts around this one for which `find` says the same."""
        place = bisect.bisect_right(self._turns, commit_ts)
        first = self._turns[place - 1] if place else 0
        return first, self._turns[place] - 1 if place < len(self._turns) else TS_MAX

    def is_one(self, schema: str, table: str, first_ts: Ts, last_ts: Ts) -> bool:
        """Whether `find` says the same of this table from the one timestamp to the other."""
        versions = self._by_name.get((schema, table), ())
        return not any(first_ts < entry.first_ts <= last_ts for entry in versions[1:])

    def guess(self, schema: str, table: str, shape: Shape) -> TableVersion:
        """What the events of a table say of it: no key but one that is given (`first_ts` 0), elements of
        ENUM and SET as numbers; what may be NULL and how many digits a column has are unknown."""
        key = (schema, table, shape)
        version = self._guessed.get(key)
        if version is None:
            version = self.intern(TableVersion(self._guessed_info(schema, table, shape), schema, table, 0))
            self._guessed[key] = version
        return version

    def _guessed_info(self, schema: str, table: str, shape: Shape) -> TableInfo:
        """With the columns and the key that a database or an image has of the table now, where they are the
        same: what was added or dropped since is another shape of it."""
        columns = [_guessed(element, place) for place, element in enumerate(shape)]
        given = [entry.version.info for entry in self._by_name.get((schema, table), ()) if not entry.first_ts]
        if not given:
            return TableInfo(0, table, tuple(columns))
        now = {column.name: column for column in given[-1].columns}
        for place, column in enumerate(columns):
            same = now.get(column.name)
            if same is not None and fits(same.type, shape[place].tp):
                columns[place] = replace(same, offset=place)
            else:
                columns[place] = replace(column, id=_GUESSED_ID + place)
        if not {column.id for column in compile_sql(given[-1]).key_columns} <= {
            column.id for column in columns
        }:
            return TableInfo(0, table, tuple(columns))
        places = {column.name: column.offset for column in columns}
        indexes = [
            replace(index, columns=tuple(replace(part, offset=places[part.name]) for part in index.columns))
            for index in given[-1].indexes
            if all(part.name in places for part in index.columns)
        ]
        return replace(given[-1], columns=tuple(columns), indexes=tuple(indexes))

    # -- as text ---------------------------------------------------------------------------------

    def to_json(self) -> str:
        """Write all of them as text, for `from_json`."""
        if not self._text:
            lines = [table_definitions.line(entry.first_ts, entry.version).decode() for entry in self]
            self._text = json.dumps({"tables": lines, "history": [job.decode() for job in self.history]})
        return self._text

    @classmethod
    def from_json(cls, text: str) -> Definitions:
        """Raises `ConfigError`."""
        try:
            document: dict[str, Any] = json.loads(text)
            tables = [table for line in document["tables"] for table in table_definitions.read(line.encode())]
            return cls(tables, [job.encode() for job in document["history"]])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"definitions cannot be read: {error}", hint=_HINT) from None

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (self.to_json(),)


@functools.lru_cache(2)
def _unpickled(text: str) -> Definitions:
    """A worker gets the same ones with each of its tasks."""
    return Definitions.from_json(text)


def archived(version: TableVersion) -> TableVersion:
    """As an archive has it: under its archived name, without the columns that are left out."""
    if version.target is None and not version.left_out:
        return version
    columns = tuple(column for column in version.info.columns if column.id not in version.left_out)
    schema, name = version.downstream
    return TableVersion(replace(version.info, columns=columns), schema, name, version.version)


def _has(version: TableVersion, names: frozenset[str]) -> bool:
    """Rows have all columns that a statement may name, and no other ones than the table's."""
    columns = version.info.columns
    return names.issubset(column.name for column in columns) and names.issuperset(
        column.name for column in columns if column.is_writable
    )


def _guessed(column: ShapeColumn, place: int) -> Column:
    binary = column.mysql_type in BINARY_TYPES
    enumerated = column.tp in (ti.ENUM, ti.SET)
    kind = FieldType(
        ti.LONGLONG if enumerated else column.tp,
        ti.FLAG_UNSIGNED if column.unsigned or enumerated else 0,
        decimal=_SECOND_DIGITS if column.tp in ti.TIME_TYPES or column.tp == ti.TIME else -1,
        charset="binary" if binary else "utf8mb4",
        collate="binary" if binary else "utf8mb4_bin",
    )
    return Column(place + 1, column.name, place, kind)


class KnownTables:
    """`definitions` as they are now. What was guessed from events has no keys: it is not one of them."""

    def __init__(self, definitions: Definitions) -> None:
        self._definitions = definitions
        self._checked: set[TableVersion] = set()

    def number_of(self, version: TableVersion) -> int:
        """Raises `DownstreamError` for a table without a definition."""
        if version not in self._checked:
            self._check(version)
            self._checked.add(version)
        return self._definitions.number_of(version)

    @staticmethod
    def _check(version: TableVersion) -> None:
        if not version.id:  # of a guess
            columns = ", ".join(column.name for column in version.info.columns)
            raise DownstreamError(
                f"the archive has rows of {'.'.join(version.downstream)} ({columns}) and no definition, and"
                " there is no such table with these columns downstream",
                hint="create it there as it was upstream, or leave it out with --tables",
            )


# -- of an archive ---------------------------------------------------------------------------------------


def of_archive(location: Place, survey: Survey, *, ddl_history: Sequence[bytes] = ()) -> Definitions:
    """The definitions that an archive brings: what lies beside a file archive, or is in a relay log."""
    if survey.kind == PB:
        return Definitions(_beside(location, survey))
    if survey.kind == RELAY:
        return Definitions(_inside(location, survey))
    return Definitions(_of_history(ddl_history), ddl_history)


def _beside(location: Place, survey: Survey) -> Iterator[ArchivedTable]:
    with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
        texts = pool.map(lambda segment: _definitions_of(location, segment.plain_name), survey.segments)
        for text in texts:
            yield from table_definitions.read(text or b"")


def _definitions_of(location: Place, name: str) -> bytes | None:
    return location.content(f"{segment_index.DIRECTORY}/{table_definitions.file_name(name)}")


def _inside(location: Place, survey: Survey) -> Iterator[ArchivedTable]:
    for segment in survey.segments:
        with location.open(segment.name) as file:
            try:
                for _, payload in file_records(file.read):
                    commit_ts, versions = _noted(payload)
                    for version in versions:
                        yield ArchivedTable(commit_ts, *version.downstream, version)
            except (RecordError, Corruption):
                continue  # reading the rows raises it


def _noted(payload: bytes) -> tuple[int, list[TableVersion]]:
    """commit_ts of a record of a relay log, and what it defines."""
    read, size = in_memory(payload), len(payload)
    if is_payload_record(payload):
        head = record_head(read, size)
        return head.commit_ts, [version for _, version in head.tables]
    obinlog = reader.head(read, size)
    return obinlog.commit_ts, [reader.definition(document) for document in obinlog.definitions.values()]


def of_schema(tracker: SchemaTracker, rules: Rules) -> list[ArchivedTable]:
    """All that replicate, as the tracker has them now."""
    names = (name for name in tracker.names() if not is_system_schema(name[0]) and rules.allows(*name))
    versions = (tracker.table_named(*name) for name in names)
    placed = (rules.placed(version) for version in versions if version is not None)
    return [ArchivedTable(0, *version.downstream, version) for version in placed]


def _of_history(jobs: Sequence[bytes]) -> Iterator[ArchivedTable]:
    """Every version of every table, in the order in which jobs changed the schema."""
    tracker = SchemaTracker()
    took_effect = [job for job in map(ddl_job.parse, jobs) if job.took_effect]
    for job in sorted(took_effect, key=lambda job: (job.schema_version, job.id)):
        for after in tracker.apply(job).after:
            version = tracker.table_named(after.schema, after.name)
            if version is not None:
                yield ArchivedTable(job.finished_ts, after.schema, after.name, version)

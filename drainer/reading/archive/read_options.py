"""Read options: what `spark.read.format("binlog")` is given, checked before anything is read.

    path                 directory or URI of the archive
    kind                 auto, pb, relay or pump
    view                 changes, transactions, ddl, files, definitions
    start, stop          commit_ts or time in UTC, both inclusive
    tables               patterns of tables, divided by commas
    ops                  insert, update, delete
    table                one table, "db.t": its columns are typed instead of JSON (view changes)
    verify               true: the view files reads files that have an index too
    damage               fail, or report: what cannot be read is left out, and shown by the view files
    partition-bytes      about how much of a segment a task reads
    ddl-history          file of DDL jobs, which a pump's value logs need
    definitions          JSON of `Definitions`, instead of those that the archive has
    time-zone            IANA name: in which a Go drainer wrote TIMESTAMPs, which it does not say (UTC)
    fs.*                 options of the file system
    maxBytesPerTrigger, maxRowsPerTrigger, failOnDataLoss   of `readStream`, see `stream_reader`

Holds  an option that is not known is refused, for a misspelt bound would read everything
Tests  tests/spark/source/test_source.py
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Final

from drainer.formats.segment_index import UTC
from drainer.places.place import OPTION_PREFIX, Place
from drainer.reading.archive.decode import reading
from drainer.reading.archive.decode.definitions import Definitions
from drainer.reading.archive.decode.reading import DAMAGE, FAIL
from drainer.reading.archive.decode.records import Changes, SchemaChange
from drainer.reading.archive.files.payload import PB
from drainer.reading.archive.files.segments import AUTO, SLICE_BYTES, Survey
from drainer.reading.archive.files.selection import Selection
from drainer.reading.errors import NoSuchTable
from drainer.txn import TableVersion
from tidb_binlog.errors import ConfigError
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.time_text import named_zone

STREAM: Final = frozenset({"failondataloss", "maxrowspertrigger", "maxbytespertrigger"})
KNOWN: Final = frozenset(
    {
        "path",
        "kind",
        "view",
        "start",
        "stop",
        "tables",
        "ops",
        "table",
        "damage",
        "verify",
        "partition-bytes",
        "ddl-history",
        "definitions",
        "time-zone",
    }
)
CHANGES: Final = "changes"


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """`table`: schema and name, ("", "") for none. `definitions`: text, "" for those of the archive."""

    location: Place
    kind: str
    view: str
    selection: Selection
    table: tuple[str, str] = ("", "")
    damage: str = FAIL
    verify: bool = False
    partition_bytes: int = SLICE_BYTES
    ddl_history: str = ""
    definitions: str = field(default="", repr=False)
    time_zone: str = UTC

    @classmethod
    def of(cls, given: Mapping[str, str]) -> ReadOptions:
        """Raises `ConfigError`."""
        options = {key.lower(): value for key, value in given.items()}
        _refuse_unknown(options)
        if not options.get("path"):
            raise ConfigError(
                "no archive is named", hint='.load("DIRECTORY") or .option("path", "DIRECTORY")'
            )
        damage = options.get("damage", FAIL)
        if damage not in DAMAGE:
            raise ConfigError(f"damage={damage!r}", hint=f"choose from {', '.join(DAMAGE)}")
        view, table = options.get("view", CHANGES), _table(options.get("table", ""))
        tables = options.get("tables", "")
        if table[0] and view != CHANGES:
            raise ConfigError(f"the view {view} has no typed columns", hint="leave out the option table")
        if table[0] and tables:
            raise ConfigError("both table and tables are given", hint="table alone selects its rows")
        selection = Selection.of(
            options.get("start", ""),
            options.get("stop", ""),
            tables or ".".join(filter(None, table)),
            options.get("ops", ""),
        )
        return cls(
            location=Place.of(options["path"], options),
            kind=options.get("kind", AUTO),
            view=view,
            selection=selection,
            table=table,
            damage=damage,
            verify=_flag("verify", options.get("verify", "")),
            partition_bytes=_bytes(options.get("partition-bytes", "")),
            ddl_history=options.get("ddl-history", ""),
            definitions=options.get("definitions", ""),
            time_zone=time_zone(options.get("time-zone", "")),
        )


def _refuse_unknown(options: Mapping[str, str]) -> None:
    for key in options:
        if key not in KNOWN and key not in STREAM and not key.startswith(OPTION_PREFIX):
            raise ConfigError(
                f"there is no option {key!r}", hint=f"known are {', '.join(sorted(KNOWN))}, {OPTION_PREFIX}*"
            )


def _table(text: str) -> tuple[str, str]:
    schema, dot, name = text.partition(".")
    if text and not (schema and dot and name):
        raise ConfigError(f"table={text!r} names no table", hint='write "database.table"')
    return schema, name


def time_zone(text: str) -> str:
    """The name of a time zone, UTC for none. Raises `ConfigError`."""
    if text and named_zone(text) is None:
        raise ConfigError(
            f"time-zone={text!r} is not known here", hint="a name such as Europe/Berlin or Asia/Shanghai"
        )
    return text or UTC


def _flag(name: str, text: str) -> bool:
    if text.lower() not in ("", "true", "false"):
        raise ConfigError(f"{name}={text!r}", hint="true or false")
    return text.lower() == "true"


def _bytes(text: str) -> int:
    if not text:
        return SLICE_BYTES
    if not text.isdecimal() or not int(text):
        raise ConfigError(f"partition-bytes={text!r} is no number of bytes", hint="for example 134217728")
    return int(text)


def version_of(options: ReadOptions, survey: Survey, definitions: Definitions) -> TableVersion:
    """The newest definition of the table in the range, or what its first row says. Raises `ConfigError`."""
    version = newest(options, definitions)
    if version is not None:
        return version
    selection = options.selection
    skip_damage = options.damage == reading.REPORT
    for part in survey.plan(selection, options.partition_bytes, skip_damage=skip_damage):
        for record in reading.read(survey.location, part, selection, definitions, damage=options.damage):
            if isinstance(record, Changes):
                return record.rows[0][0]
    names = table_names(survey, definitions)
    raise ConfigError(
        f"{survey.location.shown} has no definition and no row of {'.'.join(options.table)}",
        hint=_examples(names) if names else "`binlog-spark stats` shows the tables that it has",
    )


def table_names(survey: Survey, definitions: Definitions) -> set[tuple[str, str]]:
    """Of all tables; none where that is not known before all is read, as of a Go archive."""
    names = {(table.schema, table.table) for table in definitions}
    if survey.kind == PB:
        described = [segment.described for segment in survey.segments]
        if None in described[:-1]:
            return set()
        names |= {name for index in described if index for name in index.rows}
    return names


def ddl_names(survey: Survey, definitions: Definitions, selection: Selection) -> set[tuple[str, str]]:
    """What DDL touches: tables that never had a row are in no other place, nor are databases and views."""
    return {
        name
        for part in survey.plan(selection, skip_damage=True)
        for record in reading.read(survey.location, part, selection, definitions, damage=reading.REPORT)
        if isinstance(record, SchemaChange)
        for name in record.ddl.tables
    }


def check_tables(
    shown: str,
    names: set[tuple[str, str]],
    selection: Selection,
    others: Callable[[Selection], set[tuple[str, str]]],
) -> None:
    """A pattern that fits no table is misspelt. `others`: what more there is, for one that fits none of
    `names`. Raises `NoSuchTable`."""
    for pattern in selection.tables if names else ():
        alone = Selection(tables=(pattern,))
        fits = itertools.starmap(alone.wants_table, names)
        if not any(fits) and not any(itertools.starmap(alone.wants_table, others(alone))):
            raise NoSuchTable(f"{shown} has no table {pattern}", hint=_examples(names))


def _examples(names: set[tuple[str, str]]) -> str:
    shown = ", ".join(".".join(name) for name in sorted(names)[:5])
    return f"it has {shown}{', ...' if len(names) > 5 else ''}"


def newest(options: ReadOptions, definitions: Definitions) -> TableVersion | None:
    """The newest definition of the table in the range."""
    stop = options.selection.stop
    versions = [
        entry.version
        for entry in definitions
        if _same((entry.schema, entry.table), options.table) and (not stop or entry.first_ts <= stop)
    ]
    return versions[-1] if versions else None


def _same(name_pair: tuple[str, str], other: tuple[str, str]) -> bool:
    return [name.lower() for name in name_pair] == [name.lower() for name in other]

"""Restoring: an image goes into a database, then the archive up to the timestamp; then all is compared.

Drives  the engine of `reparo` twice, under one job; `check`
Out     `Outcome`: what was done and compared, in words or as one JSON object
Order   what is wrong with image, archive and destination is said before anything is written. The archive
        begins where the image ends, and only after the image was compared
Holds   killed anywhere and started again, it goes on: its position is stored with the rows
Never   writes over tables that have rows, unless they are this job's own

Tests   tests/drainer/points/restore/test_restoring.py
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from typing import Any

from drainer.changes import canonical
from drainer.config.downstream import target_of
from drainer.mysql.connection import Connection, Target, connect
from drainer.mysql.errors import SessionError, safe_text
from drainer.mysql.literal.quoting import qualified, quote_name
from drainer.mysql.rows.column_match import DownstreamTable
from drainer.mysql.table_reader import read_table
from drainer.points.image.manifest import Manifest
from drainer.points.restore.image_source import ImageSource
from drainer.points.restore.options import RestoreOptions
from drainer.points.restore.row_sums import Name, RowSums, TableSum, packed
from drainer.reading.archive.decode.definitions import of_archive
from drainer.reading.archive.files.payload import PB
from drainer.reading.archive.files.segments import Survey
from drainer.reading.archive.files.selection import Selection
from drainer.reparo.applying import Application, Stream, Watch, summary_of
from drainer.reparo.archive_source import ArchivedTables, ArchiveSource
from drainer.reparo.job import check_no_drainer, inspected
from drainer.reparo.ordered_records import surveyed
from drainer.reparo.summary import Summary
from drainer.reparo.viewing import Viewer
from drainer.stream.rules.rule_set import Rules
from drainer.txn import Ddl, Item, TableVersion
from tidb_binlog.clock import SystemClock
from tidb_binlog.errors import ConfigError, Conflict, Corruption, DownstreamError, Rejected
from tidb_binlog.late_dataclass import asdict, dataclass, field, replace
from tidb_binlog.rowcodec.row_error import RowError
from tidb_binlog.time_text import utc
from tidb_binlog.tso import Ts


@dataclass(slots=True)
class Outcome:
    """`rows` of the image that this run took up, `changes` of the archive; lanes pass over those that they
    have applied. `upto_ts`: the destination has all up to it. `compared`: rows of the destination that were
    compared; `not_compared`: tables and columns that were not, at last. Of all runs: `drift`, rows that the
    archive changes and that were not there as they should be, by table, but for tables that were compared
    since; `texts`, values that a column's character set does not have; `missing`, what the destination lacks
    of DDL."""

    job: str
    begin_ts: Ts
    stop_ts: Ts
    tables: int = 0
    rows: int = 0
    changes: int = 0
    ddl: int = 0
    upto_ts: Ts = 0
    finished: bool = False
    seconds: float = 0.0
    compared: int = 0
    not_compared: list[str] = field(default_factory=list)
    different: list[str] = field(default_factory=list)
    drift: dict[str, int] = field(default_factory=dict)
    texts: dict[str, int] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def is_equal(self) -> bool:
        return not (self.different or self.drift)

    def to_json(self) -> str:
        document: dict[str, Any] = asdict(self)
        document["upto_time"] = utc(self.upto_ts) if self.upto_ts else ""
        return json.dumps(document, ensure_ascii=False)

    def planned(self) -> list[str]:
        """Of what would be done."""
        upto = f" up to commit_ts {self.upto_ts} ({utc(self.upto_ts)})" if self.upto_ts else ""
        return [
            *self.notes,
            f"{self.rows:,} rows of {self.tables:,} tables, then {self.changes:,} row changes and"
            f" {self.ddl:,} DDL{upto}. Nothing was written.",
        ]

    def lines(self) -> list[str]:
        lines = [
            f"{self.rows:,} rows of {self.tables:,} tables from the image, {self.changes:,} row changes and"
            f" {self.ddl:,} DDL from the archive in {self.seconds:.1f} s"
        ]
        if self.compared:
            lines.append(f"{self.compared:,} rows of the image were compared with the destination")
        lines += [f"different: {line}" for line in self.different]
        lines += [
            f"different: {count:,} rows of {name} were not there as the archive says"
            for name, count in sorted(self.drift.items())
        ]
        lines += [f"not compared: {line}" for line in self.not_compared]
        lines += [
            f"{name}: {count:,} values are not in its character set"
            for name, count in sorted(self.texts.items())
        ]
        lines += [f"missing at the destination {line}" for line in self.missing]
        lines += self.notes
        if self.finished:
            state = "equal to what image and archive come to"
            if not self.is_equal:
                state = f"NOT {state}"
            elif not self.compared:
                state = "no row was compared"
            elif self.not_compared:
                state += ", as far as compared"
            lines.append(f"restored up to commit_ts {self.upto_ts} ({utc(self.upto_ts)}), {state}")
        else:
            lines.append("stopped before the end: the same command goes on from here")
        return lines


_CLOCK = SystemClock()
Say = Callable[[str], None]


def _unseen(seen: object, rows: Callable[[], int]) -> None:
    pass


@dataclass
class Restoration:
    """One run. `say` gets a line for each step; `watch` what is read, for who shows progress."""

    options: RestoreOptions
    stop: asyncio.Event
    say: Say = lambda line: None
    watch: Watch = _unseen

    def __post_init__(self) -> None:
        options = self.options
        options.validate()
        self._manifest = Manifest.load(options.image) if options.image else None
        self._survey: Survey | None = None
        self._unsure = ""  # whether the archive has all after the image
        if options.stop_ts and options.stop_ts < self.begin_ts:
            raise ConfigError(
                f"the restore is to end at {options.stop_ts}, before its image or backup of {self.begin_ts}",
                hint="take an earlier image",
            )
        if options.archive and options.stop_ts != self.begin_ts:
            self._survey = surveyed(options.application(begin_ts=self.begin_ts))
            self._check_reach(self._survey)
        self._rules = options.application(begin_ts=self.begin_ts).rules
        self._target = target_of(options.settings)

    @property
    def begin_ts(self) -> Ts:
        return self._manifest.commit_ts if self._manifest is not None else self.options.begin_ts

    def _check_reach(self, survey: Survey) -> None:
        """Raises `Rejected` where the archive does not have all from the image to the end."""
        if survey.kind != PB:
            raise Rejected(
                f"{self.options.archive} is a relay log, whose older files are gone",
                hint="name the directory of a Drainer with db-type = file",
            )
        first, stop = survey.segments[0], self.options.stop_ts
        if first.index and (first.first_ts is None or first.first_ts > self.begin_ts + 1):
            raise Rejected(
                f"the archive begins with {first.name}, at commit_ts {first.first_ts}: what was committed"
                f" before and after {self.begin_ts} is not there",
                hint="take a later image, or bring the older files back",
            )
        if first.first_ts is None or first.first_ts > self.begin_ts + 1:
            self._unsure = (
                f"the archive begins at commit_ts {first.first_ts or 'unknown'}, after {self.begin_ts}: right"
                " only if its Drainer began there or earlier. What was committed between them is not there"
            )
        survey.plan(Selection(self.begin_ts + 1, stop))  # before anything is written
        if stop and (last_ts := survey.last_ts()) < stop:
            raise Rejected(
                f"the archive ends at commit_ts {last_ts} ({utc(last_ts)}), before that time",
                hint="wait until its Drainer has come there, or leave -until away: up to the archive's end",
            )

    # -- what would be done ----------------------------------------------------------------------

    def plan(self) -> Outcome:
        """Counts, and changes nothing. Blocks."""
        began_s, outcome = _CLOCK.monotonic_s(), self._outcome()
        if self._manifest is not None:
            allowed = [
                image for image in self._manifest.tables if self._rules.allows(image.schema, image.table)
            ]
            outcome.tables, outcome.rows = len(allowed), sum(image.rows for image in allowed)
            outcome.notes += [f"image: {image.rows:,} rows of {image.shown}" for image in allowed]
        if self._survey is not None:
            config = self.options.application(begin_ts=self.begin_ts)
            summary = Viewer(config, self._survey, self.stop.is_set).count_all()
            outcome.changes, outcome.ddl = summary.rows, summary.ddl
            outcome.upto_ts = self.options.stop_ts or summary.upto_ts or self.begin_ts
            outcome.notes += [
                f"archive: {rows:,} row changes of {name}" for name, rows in summary.rows_by_table.items()
            ]
        outcome.seconds = round(_CLOCK.monotonic_s() - began_s, 3)
        return outcome

    def _outcome(self) -> Outcome:
        notes = [self._unsure] if self._unsure else []
        return Outcome(self.options.job.name, self.begin_ts, self.options.stop_ts, notes=notes)

    # -- doing it --------------------------------------------------------------------------------

    async def run(self) -> Outcome:
        """Raises what `reparo` does, and `Rejected` for a destination that has other rows."""
        began_s, outcome = _CLOCK.monotonic_s(), self._outcome()
        if not self.options.beside_drainer:
            await asyncio.to_thread(check_no_drainer, self._target)
        done_ts = await self._done_ts()
        self._took(await asyncio.to_thread(summary_of, self._target, self.options.job), outcome)
        whole = True
        if self._manifest is not None and done_ts <= self.begin_ts:
            whole = await self._image(done_ts, outcome)
        if whole and outcome.is_equal and self._survey is not None:
            whole = await self._changes(outcome)
        if whole and not outcome.different and self._survey is not None:
            await self._compare(outcome, self._all_items, "destination")
        outcome.finished = whole and not self.stop.is_set()
        outcome.seconds = round(_CLOCK.monotonic_s() - began_s, 3)
        return outcome

    async def _done_ts(self) -> Ts:
        """Up to where earlier runs came; 0 for none. Numbers of the image lie below every commit_ts."""
        job = self.options.job
        stored = (await inspected(self._target, job, _CLOCK)).stored
        if stored.state is None:
            if self._manifest is not None:
                await asyncio.to_thread(self._check_empty)
            return 0
        checkpoint = stored.state.checkpoint
        done_ts = checkpoint.commit_ts if checkpoint is not None else 0
        highest = max([done_ts, *(lane.commit_ts for lane in stored.lanes)])
        if self.options.stop_ts and highest > self.options.stop_ts:
            raise Conflict(
                f"an earlier run of this restore went on to commit_ts {highest} already",
                hint="there is no way back: drop the tables and the database tidb_binlog_reparo, begin anew",
            )
        if done_ts >= self.begin_ts and not await asyncio.to_thread(self._has_table):
            raise Conflict(
                f"an earlier run of this restore came to commit_ts {done_ts}, and none of its tables is at"
                " the destination any more",
                hint="drop the database tidb_binlog_reparo too, and begin anew",
            )
        return done_ts

    def _image_source(self) -> ImageSource:
        assert self._manifest is not None
        return ImageSource(self.options.image, self._manifest, self._rules)

    def _check_empty(self) -> None:
        with closing(connect(self._target)) as connection:
            for name in self._image_source().targets():
                if read_table(connection, *name) is None:
                    continue
                if connection.rows(b"SELECT 1 FROM %b LIMIT 1" % qualified(*name)):
                    raise Rejected(
                        f"{'.'.join(name)} has rows at the destination already",
                        hint="drop it, leave it out with a filter, or restore into another server",
                    )

    def _has_table(self) -> bool:
        if self._manifest is None:
            return True
        targets = self._image_source().targets()
        with closing(connect(self._target)) as connection:
            return not targets or any(read_table(connection, *name) is not None for name in targets)

    async def _image(self, done_ts: Ts, outcome: Outcome) -> bool:
        """Whether it is there as a whole."""
        assert self._manifest is not None
        outcome.tables = len(self._image_source().targets())
        if done_ts < self.begin_ts:
            self.say(f"the image of {utc(self.begin_ts)} goes into {self._target!r}")
            config = replace(self.options.application(begin_ts=0), stop_tso=0)

            def opened(target: Target, rules: Rules, ends: ExitStack) -> Stream:
                return self._image_source()

            application = Application(config, None, self.stop, self.options.job, opened)
            summary = await application.run(self.watch)
            outcome.rows, outcome.upto_ts = summary.rows, summary.upto_ts
            if not self._took(summary, outcome):
                return False
        outcome.upto_ts = self.begin_ts
        await self._compare(outcome, self._image_items, "image")
        return True

    def _took(self, summary: Summary, outcome: Outcome) -> bool:
        outcome.drift, outcome.texts, outcome.missing = summary.drift, summary.texts, summary.missing
        return summary.finished

    async def _changes(self, outcome: Outcome) -> bool:
        self.say(f"the changes after {utc(self.begin_ts)} are applied")
        config = self.options.application(begin_ts=self.begin_ts)
        application = Application(config, self._survey, self.stop, self.options.job)
        summary = await application.run(self.watch)
        outcome.changes, outcome.ddl = summary.rows, summary.ddl
        outcome.upto_ts = max(summary.upto_ts, self.begin_ts)
        return self._took(summary, outcome)

    # -- comparing -------------------------------------------------------------------------------

    async def _compare(
        self, outcome: Outcome, items: Callable[[ExitStack], Iterator[Item]], what: str
    ) -> None:
        if self._manifest is None:
            outcome.notes.append(
                "what the backup has is not known here: it was not compared; `binlogctl verify` compares the"
                " destination with an upstream"
            )
            return
        self.say(f"the {what} is compared")
        checked = await asyncio.to_thread(self._checked, items)
        outcome.compared += checked.rows
        outcome.different += checked.different
        outcome.not_compared = checked.not_compared
        outcome.drift = {
            name: rows for name, rows in outcome.drift.items() if name.lower() not in checked.equal
        }

    def _checked(self, items: Callable[[ExitStack], Iterator[Item]]) -> Checked:
        with ExitStack() as ends:
            return check(self._target, self._image_source().versions(), items(ends))

    def _image_items(self, ends: ExitStack) -> Iterator[Item]:
        yield from self._image_source().rows()

    def _all_items(self, ends: ExitStack) -> Iterator[Item]:
        """The image, and the changes of the archive, as they were applied."""
        yield from self._image_source().rows()
        survey, target, rules = self._survey, self._target, self._rules
        assert survey is not None
        tables = ArchivedTables(of_archive(survey.location, survey), target, rules.router.route)
        ends.callback(tables.close)
        selection = Selection(self.begin_ts + 1, self.options.stop_ts)
        yield from ArchiveSource(survey, selection, tables, rules).whole_items()


# Checking: whether a database holds what an image and the changes after it come to.
# Holds   memory does not grow with tables. Nothing may write to the destination meanwhile
# Blocks.


@dataclass(slots=True)
class Checked:
    """`rows`: that were compared and are equal, or not. `equal`: tables that are, as a whole, in lower case.
    Lines name the table."""

    rows: int = 0
    equal: set[str] = field(default_factory=set)
    different: list[str] = field(default_factory=list)
    not_compared: list[str] = field(default_factory=list)


def check(target: Target, tables: Iterable[TableVersion], items: Iterable[Item]) -> Checked:
    """`tables`: those that are to be there, perhaps without rows. Raises `DownstreamError`, `Corruption`."""
    connection = connect(replace(target, read_timeout_s=None))
    try:
        tables_there = _There(connection)
        sums = RowSums(tables_there.columns)
        for version in tables:
            sums.know(version)
        for item in items:
            if isinstance(item, Ddl):
                sums.pass_ddl(item)
            else:
                sums.take(item)
        checked = Checked()
        for name, expected in sorted(sums.tables.items()):
            _compare(tables_there, name, expected, checked)
        return checked
    except RowError as error:
        raise Corruption(f"a row of the image or archive cannot be read: {error.message}") from None
    except SessionError as error:
        raise DownstreamError(
            f"the destination cannot be compared: {safe_text(error)}",
            hint="the account needs SELECT on every table that is restored",
        ) from None
    finally:
        connection.close()


def _compare(tables: _There, name: Name, expected: TableSum, checked: Checked) -> None:
    label = ".".join(name)
    if expected.unknown:
        checked.not_compared.append(f"{label}: {expected.unknown}")
        return
    if tables.table(name) is None:
        checked.different.append(f"{label}: there is no such table")
        return
    if not expected.columns:
        checked.not_compared.append(f"{label}: it has no column that can be compared")
        return
    if expected.lacking:
        columns = ", ".join(sorted(expected.lacking))
        checked.not_compared.append(f"{label}: {columns}: the destination computes or lacks that")
    actual = tables.sum(name, expected)
    checked.rows += actual.rows
    if why := expected.differs_from(actual):
        checked.different.append(f"{label}: {why}")
    elif not expected.lacking:
        checked.equal.add(label)


class _There:
    """Tables of the destination."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._tables: dict[Name, DownstreamTable | None] = {}

    def table(self, name: Name) -> DownstreamTable | None:
        if name not in self._tables:
            self._tables[name] = read_table(self._connection, *name)
        return self._tables[name]

    def columns(self, name: Name) -> frozenset[str] | None:
        table = self.table(name)
        if table is None:
            return None
        return frozenset(column.name.lower() for column in table.columns if not column.generated)

    def sum(self, name: Name, expected: TableSum) -> TableSum:
        table = self.table(name)
        assert table is not None
        actual = TableSum(expected.columns)
        columns = sorted(expected.columns.items())
        shown = b",".join(canonical.expression(quote_name(column), form) for column, form in columns)
        query = b"SELECT %b FROM %b" % (shown, qualified(table.schema, table.name))
        for row in self._connection.stream_printed(query):
            values = (
                (column, canonical.of_server(value, form))
                for (column, form), value in zip(columns, row, strict=True)
            )
            actual.add(packed(values))
        self._connection.rollback()
        return actual

"""Live verification: the upstream and the downstream of a running Drainer, at moments that it holds for us.

Drives  `open_moment` of `drainer.points.snapshot` on the event loop, `Verifying` on a thread of its own;
        `GET /status` of the Drainer, to whose lag the pace gives way
Holds   tables, names, columns and rows are those that a Drainer with these settings writes: the tracked
        schema at the first moment of each look says which there are. A table of which a rule leaves out
        changes is no copy of upstream's: it is named and not compared
Stops   a cancelled run gives its moment back and leaves its state file, from which the next one goes on
Tests   tests/drainer/compare/verify/test_live.py, tests/drainer/compare/verify/test_drainer_lag.py
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from drainer.compare.verify.chunk_comparison import Part
from drainer.compare.verify.compared_table import ComparedTable
from drainer.compare.verify.result import Name, OnDifference, Verification
from drainer.compare.verify.row_source import Edited, Side, Sides, seen_at, sides_at_rest
from drainer.compare.verify.table_work import Request, TableWork, is_selected
from drainer.compare.verify.verifying import Pace, Progress, Stopped, Verifying
from drainer.config.downstream import target_of, upstream_target_of
from drainer.config.options import DrainerConfig
from drainer.mysql.chunks.chunk import Chunk
from drainer.mysql.connection import connect
from drainer.mysql.errors import SessionError, TransientError, safe_text
from drainer.mysql.literal.quoting import string_literal
from drainer.points.load import upstream_schema
from drainer.points.load.contents import Contents, Source, contents_of
from drainer.points.snapshot.drainer_hold import DrainerHold
from drainer.points.snapshot.moment import Moment, open_moment
from drainer.reading.subscribe.table_choice import TablePattern
from drainer.stream.rules.rule_set import Rules, read_rules
from tidb_binlog import checked, time_text, tso
from tidb_binlog.clock import Clock, SystemClock
from tidb_binlog.errors import BinlogError, ConfigError, Corruption, DownstreamError, Unavailable
from tidb_binlog.filesystem import replace_file
from tidb_binlog.foreign_document import UNREADABLE
from tidb_binlog.late_dataclass import dataclass, field, replace
from tidb_binlog.net.http_client import HttpClient, Page
from tidb_binlog.net.tls import TlsConfig
from tidb_binlog.status.codec import read
from tidb_binlog.status.drainer import DrainerDocument
from tidb_binlog.table_info import SchemaState
from tidb_binlog.tso import Ts
from tidb_binlog.upstream_port import Upstream

STATE: Final = "verify-state.jsonl"
_NAMED: Final = 10
_TABLES: Final = (
    b"SELECT TABLE_SCHEMA,TABLE_NAME FROM information_schema.TABLES WHERE TABLE_TYPE='BASE TABLE'"
    b" AND LOWER(TABLE_SCHEMA) IN (%b) ORDER BY 1,2"
)
T = TypeVar("T")


@dataclass
class LiveVerification:
    """`hold` None: nothing writes, both sides are compared as they are. `selected`: as of `listing`.
    `state`: where progress is kept, None for nowhere. `lag`: of the Drainer that the pace gives way to."""

    settings: DrainerConfig
    upstream: Upstream
    hold: DrainerHold | None
    pace: Pace = field(default_factory=Pace)
    selected: Sequence[TablePattern] = ()
    state: Path | None = None
    on_difference: OnDifference | None = None
    on_progress: Callable[[Progress], None] | None = None
    lag: Lag | None = None
    clock: Clock = field(default_factory=SystemClock)
    compared: dict[Name, ComparedTable] = field(default_factory=dict)
    """How each table was compared, when it is done."""

    def __post_init__(self) -> None:
        if not self.settings.to_database:
            raise ConfigError(
                f"db-type is {self.settings.db_type!r}: verify compares databases",
                hint="an archive is audited with binlog-spark audit",
            )
        self._rules = read_rules(self.settings)
        self._source = upstream_target_of(self.settings)
        self._target = target_of(self.settings)
        self._of_tidb = not self.settings.from_outcome_table
        self._schema_version = 0
        self._stop = threading.Event()
        self._awaited: Future[Any] | None = None

    async def run(self) -> Verification:
        """Raises `Unavailable`, `Rejected`, `DownstreamError`, `ConfigError`, `Corruption`."""
        self._loop = asyncio.get_running_loop()
        thread = asyncio.create_task(asyncio.to_thread(self._run))
        try:
            return await asyncio.shield(thread)
        except asyncio.CancelledError:
            self._stop.set()
            if self._awaited is not None:
                self._awaited.cancel()
            await asyncio.gather(thread, return_exceptions=True)
            raise

    def _run(self) -> Verification:
        notes = notes_of(self._rules)
        with self._journal() as journal, own_errors():
            verifying = Verifying(
                self._moment,
                self._listing,
                pace=self.pace,
                on_difference=self.on_difference,
                on_progress=self.on_progress,
                journal=journal,
                behind=self._behind if self.lag is not None else None,
                clock=self.clock,
                stop=self._stop,
            )
            result = verifying.run(repr(self._source), repr(self._target), notes)
            self.compared = verifying.compared()
            if not self.selected:
                result = replace(result, notes=(*result.notes, *self._others(result)))
            if journal is not None and journal.resumed:
                since = time_text.utc(tso.from_wall_s(journal.began_s))
                said = f"{journal.resumed} chunks were found equal by runs of this comparison since {since}"
                result = replace(result, notes=(*result.notes, said))
        return result

    def _behind(self) -> float | None:
        assert self.lag is not None
        return self._on_loop(self.lag.seconds())

    @contextmanager
    def _journal(self) -> Iterator[StateFile | None]:
        if self.state is None:
            yield None
            return
        of = repr((self._source, self._target, self._rules.text, [pattern.text for pattern in self.selected]))
        journal = StateFile(self.state, of, self.clock.wall_s())
        is_done = False
        try:
            yield journal
            is_done = True
        finally:
            journal.close(finished=is_done)

    def _others(self, result: Verification) -> list[str]:
        """Tables of the same databases that nothing of upstream goes to."""
        compared = {
            (schema.lower(), name.lower()) for schema, name in (table.downstream for table in result.tables)
        }
        if not compared:
            return []
        schemas = b",".join(string_literal(schema) for schema in sorted({schema for schema, _ in compared}))
        with closing(connect(self._target)) as connection:
            rows = connection.rows(_TABLES % schemas)
        names = [
            f"{schema}.{name}" for schema, name in rows if (schema.lower(), name.lower()) not in compared
        ]
        if not names:
            return []
        more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
        return [f"the downstream has {', '.join(names[:_NAMED])}{more} besides: not compared"]

    # -- moments --------------------------------------------------------------------------------------

    def _moment(self) -> Sides:
        return self._on_loop(self._open())

    async def _open(self) -> Sides:
        if not self._of_tidb:
            # Jobs that programs publish do not say when they were finished: what was there before is.
            self._schema_version = await upstream_schema.newest_version(self.upstream.history)
        sessions = self.pace.workers + 1
        if self.hold is None:
            ts = await self.upstream.oracle.timestamp()
            return await asyncio.to_thread(sides_at_rest, ts, self._source, self._target, sessions)
        moment = await open_moment(self.settings, self.upstream, self.hold, sessions)
        return sides_of(self.settings, moment, self._loop)

    def _listing(self, sides: Sides) -> list[Request]:
        requests = self._on_loop(self._listed(sides.ts))
        if self.on_progress is None:
            return requests
        with closing(sides.upstream.describe()) as tables:
            return [
                replace(request, rows_expected=sum(tables.rows(*name) for name in request.upstream))
                for request in requests
            ]

    async def _listed(self, ts: Ts) -> list[Request]:
        tracker = await upstream_schema.schema_at(self.upstream.history, ts, self._schema_version)
        contents = contents_of(tracker, self._rules)
        return requests_of(contents, self._rules, self.selected)

    def _on_loop(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The value of a coroutine, for the thread that compares. Raises `Stopped`."""
        self._awaited = awaited = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        if self._stop.is_set():
            awaited.cancel()
        try:
            return awaited.result()
        except CancelledError:
            raise Stopped from None
        finally:
            self._awaited = None


def sides_of(settings: DrainerConfig, moment: Moment, loop: asyncio.AbstractEventLoop) -> Sides:
    """A moment as another thread reads it. `loop`: on which it was opened, and is closed."""
    source = upstream_target_of(settings)
    if not settings.from_outcome_table:
        source = seen_at(source, moment.ts)
    return Sides(
        moment.ts,
        Side(source, moment.upstream.session),
        Side(target_of(settings), moment.downstream.session),
        close=lambda: asyncio.run_coroutine_threadsafe(moment.close(), loop).result(),
        downstream_ts=moment.downstream.downstream_ts,
        held_ms=moment.downstream.held_ms,
        waiting=frozenset(moment.downstream.waiting),
    )


@contextmanager
def own_errors() -> Iterator[None]:
    try:
        yield
    except TransientError as error:
        raise Unavailable(f"a session was lost: {safe_text(error)}", hint="run the command again") from None
    except SessionError as error:
        raise DownstreamError(
            f"a server refused to be compared: {safe_text(error)}",
            hint="the users of [syncer.from] and [syncer.to] need SELECT on every table",
        ) from None


TIMEOUT_S: Final = 2.0


class Lag(Protocol):
    async def seconds(self) -> float | None:
        """How far the Drainer is behind now; None where that is not known."""
        ...


class DrainerLag:
    """`locate` gives the address, host:port, of the drainer that runs now."""

    def __init__(
        self, locate: Callable[[], Awaitable[str]], tls: TlsConfig | None, clock: Clock | None = None
    ) -> None:
        self._locate = locate
        self._client = HttpClient(clock or SystemClock(), tls, TIMEOUT_S)

    async def seconds(self) -> float | None:
        try:
            page = await self._page(await self._locate())
            said = read(json.loads(page.body), DrainerDocument).lag_seconds
        except (BinlogError, *UNREADABLE):
            return None
        return float(said) if isinstance(said, int | float) else None

    async def _page(self, address: str) -> Page:
        return await self._client.ask("GET", address, "/status")


def requests_of(contents: Contents, rules: Rules, selected: Sequence[TablePattern] = ()) -> list[Request]:
    """`selected`: patterns of names upstream; of what goes to one table all or nothing is compared.

    Raises `ConfigError` for a pattern that fits no table."""
    by_target: dict[Name, list[Source]] = {}
    for source in contents.tables:
        schema, table = source.target
        by_target.setdefault((schema.lower(), table.lower()), []).append(source)
    for pattern in selected:
        if not pattern.takes_out and not any(pattern.fits(*source.name) for source in contents.tables):
            raise ConfigError(f"{pattern.text} fits no table of the upstream", hint="see the names there")
    return [
        _wanted(sources, rules)
        for _, sources in sorted(by_target.items())
        if is_selected([source.name for source in sources], selected)
    ]


def notes_of(rules: Rules) -> list[str]:
    """What is to be said of any comparison under these rules."""
    if not rules.passed_over:
        return []
    return ["ignore-txn-commit-ts passes over transactions: their rows differ, or follow from later changes"]


def _wanted(sources: Iterable[Source], rules: Rules) -> Request:
    sources = list(sources)
    edited: tuple[Edited, ...] = ()
    if any(source.edit is not None for source in sources):
        edited = tuple(
            Edited(source.version, source.edit, rules.rows.of_table(*source.name)) for source in sources
        )
    return Request(
        tuple(source.name for source in sources),
        sources[0].target,
        frozenset(name for source in sources for name in _left_out(source)),
        next((why for source in sources if (why := _why_not(source, rules))), ""),
        edited=edited,
        published=tuple(_published(source) for source in sources),
    )


def _published(source: Source) -> frozenset[str]:
    columns = source.version.info.columns
    shown = (column for column in columns if column.state == SchemaState.PUBLIC and not column.hidden)
    return frozenset(column.name.lower() for column in shown)


def _left_out(source: Source) -> Iterable[str]:
    ids = source.version.left_out
    return [column.name.lower() for column in source.version.info.columns if column.id in ids]


def _why_not(source: Source, rules: Rules) -> str:
    if rules.events.ignored_rows(*source.name):
        return f"a binlog-filter-rule leaves out changes of {source.label}"
    return ""


# State file: what a comparison found equal, so that the next run goes on from there.
#     {"verify": 1, "of": "...", "began_s": 1763868000}   a comparison, what it belongs to, when it began
#     {"table": "shop.a", "how": "...", "chunk": "...", "rows": [10, 10]}       a chunk that is equal
# Holds  a line is whole and fits its checksum, or neither it nor what follows counts: it is compared again. A
#        chunk counts for a table only as long as it is compared in the same way. A finished comparison leaves
#        no file; one that began more than `KEPT_S` ago is begun anew, for what was equal then says little
#        today
# Never  has values of rows, but for those of key columns, by which tables are cut

KEPT_S: Final = 24 * 3600.0
_VERSION: Final = 2
_MODE: Final = 0o600


class StateFile:
    """`of`: which sides are compared under which rules; a file of others is begun anew. `began_s`: when what
    it has began, by the wall clock. Raises `ConfigError` for a file that cannot be read or written."""

    def __init__(self, path: Path, of: str, now_s: float) -> None:
        self._path = path
        self._of = _digest(of)
        self.began_s = now_s
        self._known: dict[tuple[str, str], list[tuple[Chunk, Part]]] = {}
        self.resumed = 0
        try:
            lines = self._read()
            replace_file(os.fspath(path), b"".join(lines), _MODE)
            self._file = path.open("ab", 0)
        except OSError as error:
            raise ConfigError(
                f"{path} cannot be used for the state of the comparison: {error.strerror}",
                hint="-state names another file",
            ) from None

    def kept(self, work: TableWork, how: ComparedTable) -> Iterable[tuple[Chunk, Part]]:
        parts = self._known.pop((work.request.label, _digest(how.identity)), [])
        self.resumed += len(parts)
        return parts

    def keep(self, work: TableWork, chunk: Chunk, part: Part) -> None:
        self._write(
            {
                "table": work.request.label,
                "how": _digest(work.how.identity if work.how is not None else ""),
                "chunk": chunk.stored(),
                "rows": [part.rows, part.downstream_rows],
                "read": part.is_read,
            }
        )

    def close(self, *, finished: bool) -> None:
        self._file.close()
        if finished:
            self._path.unlink(missing_ok=True)

    def _write(self, line: dict[str, object]) -> None:
        self._file.write(checked.document(line) + b"\n")

    def _read(self) -> list[bytes]:
        """The lines that count, and what they say into `_known`; of another comparison's file none."""
        try:
            first, *lines = self._path.read_bytes().splitlines(keepends=True)
        except (FileNotFoundError, ValueError):
            return [self._head()]
        if not self._goes_on(first):
            return [self._head()]
        kept = [first]
        for line in lines:
            try:
                document = checked.read_document(line.rstrip(b"\n"))
                rows, downstream_rows = document["rows"]
                entry = Chunk.of_stored(document["chunk"]), _part(rows, downstream_rows, document["read"])
                self._known.setdefault((document["table"], document["how"]), []).append(entry)
            except (ValueError, KeyError, TypeError, Corruption):
                break
            kept.append(line)
        return kept

    def _head(self) -> bytes:
        return checked.document({"verify": _VERSION, "of": self._of, "began_s": self.began_s}) + b"\n"

    def _goes_on(self, head: bytes) -> bool:
        try:
            document = checked.read_document(head.rstrip(b"\n"))
            began_s = float(document["began_s"])
            is_ours = (document["verify"], document["of"]) == (_VERSION, self._of)
        except (ValueError, KeyError, TypeError):
            return False
        if not is_ours or not self.began_s - KEPT_S <= began_s <= self.began_s:
            return False
        self.began_s = began_s
        return True


def _part(rows: int, downstream_rows: int, is_read: bool) -> Part:
    return Part(int(rows), int(downstream_rows), is_read=bool(is_read))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]

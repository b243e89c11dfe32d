"""DDL on the downstream: run each once, whatever happens in between.

Drives  one connection without read time-out; `drainer.ddl.derive` (core) for the statements
Holds   statements are derived from the tracked definitions before and after: a text says things that the
        upstream ignored, or that mean something else to another server. The text itself runs only where no
        definition says what it did, or where an operator or a filter gave another one
        Afterwards what the definitions say is compared with what is there
        The shape of the tables before the statement is stored by the caller before it runs. After a crash
        or a lost connection the shape decides whether it had run. Error codes decide nothing
Never   edits a statement's text; loses in silence what the downstream cannot have: `Ran.missing`

What leaves the shape as it was, or only a part of it undone, runs again without harm: a second run changes
nothing differently (it runs at a barrier, so no later row can be in the table). Renames and exchanges are one
statement each, and do not run again where the shape says that they have run.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from drainer.changes.ddl_effect import TABLE, EffectKind, columns_apart, effect, sub_actions
from drainer.checkpoint.value import Intent
from drainer.ddl.convert import columns
from drainer.ddl.derive import derive
from drainer.ddl.derive.derive import Change
from drainer.ddl.derive.render import NotDerivable, Server
from drainer.ddl.derive.values import Derived, Route, Step
from drainer.ddl.run import downstream_schema, fingerprint, ran_before, recycle_bin
from drainer.ddl.run.connection import DdlConnection, Guard, TrackedSchema, run_ddl
from drainer.ddl.run.progress import progress_of, wait_for
from drainer.ddl.run.recycle_bin import KeepDropped
from drainer.ddl.run.session_settings import ANY_VALUE, Session, session_of
from drainer.mysql.connection import Connection, Target
from drainer.mysql.errors import SessionError, StatementRefused, safe_text
from drainer.mysql.literal.quoting import qualified, quote_name
from drainer.txn import Ddl, Tracked
from tidb_binlog import ddl_job
from tidb_binlog.errors import DownstreamError
from tidb_binlog.observe import log
from tidb_binlog.tso import Ts

logger = log.get("drainer.ddl_apply")
T = TypeVar("T")

_NEVER_AS_TEXT: Final = frozenset({EffectKind.RESTORE, EffectKind.REWIND})
_MOVES: Final = frozenset({EffectKind.RENAME, EffectKind.EXCHANGE})
_BODIES: Final = frozenset({EffectKind.CREATE, EffectKind.ALTER})
_MISSING_KEPT: Final = 200
_COPY_HINT: Final = "run an equivalent statement downstream and skip this one, or copy the table anew"


@dataclass(frozen=True, slots=True)
class Ran:
    """What was executed, and what the downstream lacks nevertheless: one line each."""

    statements: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


class Refused(DownstreamError):
    """The downstream refused a DDL, and no other statement reaches the same columns and keys.

    `code` is the downstream's error code, 0 if it was not asked.
    """

    def __init__(self, ddl: Ddl, reason: str, *, code: int = 0) -> None:
        tables = ", ".join(".".join(name) if name[1] else name[0] for name in ddl.tables)
        kind = ddl_job.action_name(ddl.action)
        super().__init__(
            f"DDL job {ddl.job_id} ({kind}) at commit_ts {ddl.commit_ts} on {tables or 'no table'} was"
            f" refused: {reason}; statement in `{ddl.schema}`: {ddl.query}",
            hint=_COPY_HINT,
        )
        self.code = code
        self.kind = kind
        self.job_id = ddl.job_id
        self.commit_ts = ddl.commit_ts
        self.tables = ddl.tables


def is_of_database(ddl: Ddl) -> bool:
    """CREATE, DROP or ALTER DATABASE: must not run inside the database it is about."""
    return any(not table for _, table in ddl.tables)


def statement_of(ddl: Ddl) -> bytes:
    """What to run: the statement as it was, except where one statement became several jobs.

    `DROP TABLE a, b` is one job (and one binlog) for each table, all with the same text; each job drops its
    own table, or rows of `b` that come between the two would find no table.
    """
    done = effect(ddl.action)
    if done.kind is EffectKind.DROP and len(ddl.tables) == 1:
        return f"DROP {done.object.upper()} IF EXISTS ".encode() + qualified(*ddl.tables[0])
    return ddl.query.encode("utf-8", "surrogateescape")


class DdlRunner:
    """Runs DDL on one session of its own; PyMySQL errors come through for the caller to classify.

    A call that failed with a passing error is to be repeated: it finds out how far the last one came. One
    call at a time; only `progress` may come from another thread. `missing` has what the downstream lacks of
    the last DDL that it could not have as a whole: commit_ts, job_id, tables and lines of each.
    """

    def __init__(
        self,
        target: Target,
        schema: TrackedSchema,
        route: Route = derive.same_names,
        guard: Guard | None = None,
        keep: KeepDropped | None = None,
        conversions: str = columns.CONVERT,
    ) -> None:
        """`guard`: of every new session, see `DdlConnection`. `keep`: where dropped tables are kept.
        `conversions`: what happens to values that the server would convert otherwise (`ddl-conversions`)."""
        self._session = DdlConnection(target, schema, guard)
        self._route = route
        self._keep = keep
        self._conversions = conversions
        self._before: tuple[int, fingerprint.Shape] | None = None  # commit_ts and shape of the DDL at hand
        self._refused = 0  # commit_ts of the DDL that was refused last
        self.missing: deque[dict[str, Any]] = deque(maxlen=_MISSING_KEPT)
        self._under_way = 0  # commit_ts of the DDL whose statement was sent, until its end is known

    def close(self) -> None:
        self._session.close()

    def on_session(self, work: Callable[[Connection, Server], T]) -> T:
        """`work` with the session and what the server is, for DDL that the stream does not bring."""
        with self._session.session() as connection:
            return work(connection, self._session.server)

    # -- what the caller asks -------------------------------------------------------------------------

    def before(self, ddl: Ddl) -> dict[str, str | None]:
        """The shape of what the statement touches, as it is now."""
        with self._session.session() as connection:
            found = self._shape(connection, ddl)
            self._before = ddl.commit_ts, found
            return found

    def had_run(self, intent: Intent, ddl: Ddl, text: str | None) -> bool:
        """Whether the statement of a stored intent took effect; then what it left undone is done now.

        `text`: what was to run in its place; nothing of it is left undone. False after `run` refused it, and
        where the rest of it is refused: a part of what was derived may be there, but not all.
        """
        if self._refused == ddl.commit_ts:
            return False
        with self._session.session() as connection:
            self._wait(connection, ddl, text)
            self._before = ddl.commit_ts, intent.before
            if not ran_before.has_run(intent.before, self._shape(connection, ddl)):
                return False
            with contextlib.suppress(Refused):  # `run` comes upon it again, and says it
                self._run(connection, ddl, text, ran_already=True)
                return True
            return False

    def already_done(self, ddl: Ddl) -> bool:
        """Whether the DDL shows in columns, keys or names, and the downstream has them as they are after it.

        Asked before running where another program may have run the statement without recording it. False for
        what leaves no trace (TRUNCATE, EXCHANGE PARTITION): it is run.
        """
        with self._session.session() as connection:
            change = self._change(connection, ddl)
            has_database = change.database is not None and self._session.has_database(
                connection, self._route(change.database[0], "")[0]
            )
            return ran_before.is_seen(change, has_database=has_database)

    def converts_at_length(self, ddl: Ddl) -> str:
        """The columns of large tables whose values `run` would convert, one chunk after the other; or ""."""
        modifies = effect(ddl.action, sub_actions(ddl.job)).modifies_columns
        if self._conversions != columns.CONVERT or not modifies or self._texts(ddl):
            return ""
        with self._session.session() as connection, contextlib.suppress(NotDerivable):
            plans = columns.plans(self._change(connection, ddl))
            return "; ".join(str(plan) for plan in plans if plan.is_large(connection))
        return ""

    def progress(self, ddl: Ddl) -> str:
        """How far the statement under way has come, in words of the downstream; "" if it does not say.

        May be called from another thread while `run` works. Never raises: it is for the status only.
        """
        number = self._session.thread_id if self._under_way == ddl.commit_ts else 0
        return progress_of(self._session.target, number) if number else ""

    def run(self, ddl: Ddl, text: str | None = None) -> Ran:
        """Reach what the statement did upstream, or execute `text` in its place.

        Raises `Refused` when nothing that can be derived is accepted. A `text` that was given is run as it
        is, and nothing is derived from it.
        """
        with self._session.session() as connection:
            again = self._under_way == ddl.commit_ts
            if again:
                self._wait(connection, ddl, text)
            if self._before is None or self._before[0] != ddl.commit_ts:
                self._before = ddl.commit_ts, self._shape(connection, ddl)
            self._under_way = ddl.commit_ts
            try:
                ran_already = again and ran_before.has_run(self._before[1], self._shape(connection, ddl))
                if ran_already:
                    logger.info("DDL had run before the connection was lost", job_id=ddl.job_id)
                ran = self._run(connection, ddl, text, ran_already=ran_already)
            except DownstreamError:
                self._under_way, self._refused = 0, ddl.commit_ts
                raise
            self._under_way = self._refused = 0
            return ran

    def _record(self, ddl: Ddl, ran: Ran) -> None:
        """For the log and for the status, what the downstream lacks from now on."""
        if not ran.missing:
            return
        lines = list(ran.missing)
        names = [".".join(name).rstrip(".") for name in ddl.tables]
        self.missing.append(
            {"commit_ts": ddl.commit_ts, "job_id": ddl.job_id, "tables": names, "missing": lines}
        )
        logger.warning(
            "downstream lacks a part of a DDL", job_id=ddl.job_id, commit_ts=ddl.commit_ts, missing=lines
        )

    # -- running --------------------------------------------------------------------------------------

    def _run(self, connection: Connection, ddl: Ddl, text: str | None, *, ran_already: bool) -> Ran:
        """`ran_already`: the shape says that it has run, or begun; what is left of it is done."""
        try:
            ran = self._reach(connection, ddl, text, session_of(ddl.job), ran_already=ran_already)
        except (NotDerivable, StatementRefused) as error:
            code = error.number if isinstance(error, StatementRefused) else 0
            reason = safe_text(error) if isinstance(error, StatementRefused) else str(error)
            raise Refused(ddl, reason, code=code) from None
        logger.info("DDL ran", job_id=ddl.job_id, text=ddl.query, statements=ran.statements)
        self._record(ddl, ran)
        return ran

    def _reach(
        self, connection: Connection, ddl: Ddl, text: str | None, settings: Session, *, ran_already: bool
    ) -> Ran:
        if text is not None:
            if not ran_already:
                self._run_texts(connection, ddl, settings, [text])
            return Ran((text,))
        back = self._recycle(connection, ddl, settings, self._keep) if self._keep is not None else Ran()
        if back.statements and not recycle_bin.brings_back(effect(ddl.action)):
            return back
        if texts := self._texts(ddl):
            if not ran_already or (ddl.instead and effect(ddl.action).kind not in _MOVES):
                self._run_texts(connection, ddl, settings, texts)
            return self._finished(connection, ddl, Ran(tuple(texts)))
        ran = self._derive(connection, ddl, settings, ran_already=ran_already)
        return self._finished(connection, ddl, Ran(back.statements + ran.statements, ran.missing))

    def _wait(self, connection: Connection, ddl: Ddl, text: str | None) -> None:
        """Until nothing of the DDL runs any more in a session that was lost."""
        texts = self._texts(ddl) if text is None else [text]
        if not texts:
            with contextlib.suppress(NotDerivable):
                change = self._change(connection, ddl)
                texts = [text for plan in columns.plans(change) for text in plan.statements]
                texts += _statements(derive.derive(change).steps)
        wait_for(connection, texts)

    def _texts(self, ddl: Ddl) -> list[str]:
        """Texts that run in place of derived statements: what a filter made of it, or the upstream's own
        where no definition says what it did."""
        if ddl.instead:
            return list(ddl.instead)
        defined = derive.database_of(ddl.job) if is_of_database(ddl) else ddl.before or ddl.after
        if defined or effect(ddl.action).kind in _NEVER_AS_TEXT or self._is_routed(ddl):
            return []
        return [statement_of(ddl).decode("utf-8", "surrogateescape")] if ddl.query.strip() else []

    def _run_texts(self, connection: Connection, ddl: Ddl, settings: Session, texts: list[str]) -> None:
        self._session.settings(connection, settings, zone=settings.time_zone)
        self._session.defaults(connection, ddl.tables[0][0] if ddl.tables else ddl.schema, settings)
        if ddl.schema and not is_of_database(ddl):
            schema = self._route(ddl.schema, "")[0]
            self._session.make_database(connection, schema, ddl.schema)
            connection.run(b"USE " + quote_name(schema))
        for text in texts:
            run_ddl(connection, text.encode("utf-8", "surrogateescape"))

    def _recycle(self, connection: Connection, ddl: Ddl, settings: Session, keep: KeepDropped) -> Ran:
        """Move tables away that are dropped, or back that are recovered: then the rest is derived. Nothing
        ran: it is a DDL as any other. After a cut between two steps this does those that are left."""
        back_again = recycle_bin.brings_back(effect(ddl.action))
        if ddl.instead or not (back_again or recycle_bin.takes_away(effect(ddl.action))):
            return Ran()
        change = self._change(connection, ddl)
        known = recycle_bin.kept(keep, downstream_schema.tables_in(connection, keep.schema))
        if back_again:
            back = recycle_bin.bring_back(change, known)
            if back is None:
                return Ran()
            for one in change.after:
                self._session.make_database(connection, change.at(one)[0], one.schema)
            return self._execute(connection, back, settings)
        movable = frozenset(
            name for one in change.before if downstream_schema.is_movable(connection, name := change.at(one))
        )
        away = recycle_bin.take_away(change, keep, ddl.commit_ts, movable, known)
        return Ran() if away is None else self._execute(connection, away, settings)

    def purge(self, commit_ts: Ts) -> None:
        """Drop for good what was put away too long before that time of the stream. Cheap when nothing was; to
        be called now and then."""
        if self._keep is None:
            return
        with self._session.session() as connection:
            tables = downstream_schema.tables_in(connection, self._keep.schema)
            for name in recycle_bin.outdated(self._keep, tables, commit_ts):
                connection.run(b"DROP TABLE IF EXISTS " + qualified(*name))

    def _derive(self, connection: Connection, ddl: Ddl, settings: Session, *, ran_already: bool) -> Ran:
        for one in ddl.after:  # routes may lead where nothing is yet
            self._session.make_database(connection, self._route(one.schema, one.name)[0], one.schema)
        if self._is_body(ddl) and not ran_already:
            with contextlib.suppress(StatementRefused):
                self._run_texts(connection, ddl, settings, [ddl.query])
                return Ran((ddl.query,))
        change = replace(self._change(connection, ddl), ran=ran_already)
        converted = self._convert(connection, ddl, change, settings)
        if converted.statements:
            change = replace(self._change(connection, ddl), ran=ran_already)
        ran = self._execute(connection, derive.derive(change), settings)
        ran = Ran(converted.statements + ran.statements, converted.missing + ran.missing)
        if ran.statements or ran_already or ddl.action in ddl_job.ACTION_NAMES or self._is_routed(ddl):
            return ran
        try:  # a kind of DDL that is not known may do what these definitions do not say
            self._run_texts(connection, ddl, settings, [ddl.query])
        except StatementRefused as error:
            kind = ddl_job.action_name(ddl.action)
            return replace(ran, missing=(*ran.missing, f"what {kind} did ({safe_text(error)}): {ddl.query}"))
        return Ran((ddl.query,), ran.missing)

    def _is_body(self, ddl: Ddl) -> bool:
        """A view or a sequence: what it is, is a text."""
        done = effect(ddl.action)
        return done.object != TABLE and done.kind in _BODIES and bool(ddl.query) and not self._is_routed(ddl)

    def _convert(self, connection: Connection, ddl: Ddl, change: Change, settings: Session) -> Ran:
        """Columns whose values the server would convert otherwise than the upstream get their new type."""
        if not columns.plans(change):
            return Ran()
        job = columns.job_of(ddl.job, ddl.commit_ts, settings.time_zone, settings.offset)
        self._session.settings(connection, replace(settings, sql_mode=ANY_VALUE), zone="+00:00")
        done = columns.convert(
            connection, change, self._conversions, job, lambda text: run_ddl(connection, text.encode())
        )
        return Ran(tuple(done[0]), tuple(done[1]))

    def _is_routed(self, ddl: Ddl) -> bool:
        return any(self._route(*name) != name for name in ddl.tables)

    def _finished(self, connection: Connection, ddl: Ddl, ran: Ran) -> Ran:
        """With what the definitions say of what the DDL changed, and the downstream does not have."""
        lacking = derive.lacking(self._change(connection, ddl), ran.missing)
        return replace(ran, missing=tuple(dict.fromkeys((*ran.missing, *lacking))))

    def _execute(self, connection: Connection, derived: Derived, settings: Session) -> Ran:
        statements: list[str] = []
        missing = list(derived.missing)
        self._session.settings(connection, settings, zone="+00:00")
        for one in derived.steps:
            if one.local:
                self._session.settings(connection, settings, zone=settings.time_zone)
            self._step(connection, one, statements, missing)
            if one.local:
                self._session.settings(connection, settings, zone="+00:00")
        return Ran(tuple(statements), tuple(dict.fromkeys(missing)))

    def _step(self, connection: Connection, one: Step, statements: list[str], missing: list[str]) -> None:
        try:
            _run_together(connection, one.statements)
            statements += one.statements
        except StatementRefused as error:
            if one.lacks:
                missing.append(f"{one.lacks} ({safe_text(error)})")
            elif not one.instead:
                raise
            for other in one.instead:
                self._step(connection, other, statements, missing)

    # -- what is known --------------------------------------------------------------------------------

    def _change(self, connection: Connection, ddl: Ddl) -> Change:
        """The DDL with what the downstream has now."""
        change = self._intended(ddl)
        present = downstream_schema.read_all(connection, derive.names(change), self._session.server)
        return replace(change, present=present)

    def _intended(self, ddl: Ddl) -> Change:
        """The DDL as it was; tables that the filter took away are left out."""
        kept = set(ddl.tables)

        def wanted(tracked: tuple[Tracked, ...]) -> tuple[Tracked, ...]:
            return tuple(one for one in tracked if {(one.schema, one.name), (one.schema, "")} & kept)

        return Change(
            action=ddl.action,
            before=wanted(ddl.before),
            after=wanted(ddl.after),
            database=derive.database_of(ddl.job),
            sub_actions=sub_actions(ddl.job),
            server=self._session.server,
            route=self._route,
            apart=columns_apart(ddl.job),
        )

    def _shape(self, connection: Connection, ddl: Ddl) -> fingerprint.Shape:
        names = tuple(dict.fromkeys(self._route(*name) for name in ddl.tables))
        kind = effect(ddl.action).kind
        return fingerprint.read(
            connection,
            names,
            self._session.server,
            moves=kind in _MOVES,
            contents=kind is EffectKind.EXCHANGE,
        )


def _statements(steps: Iterable[Step]) -> Iterator[str]:
    for one in steps:
        yield from one.statements
        yield from _statements(one.instead)


def _run_together(connection: Connection, statements: tuple[str, ...]) -> None:
    if len(statements) == 1:
        run_ddl(connection, statements[0].encode())
        return
    connection.begin()
    try:
        for statement in statements:
            connection.run(statement.encode())
        connection.commit()
    except BaseException:
        with contextlib.suppress(SessionError):
            connection.rollback()
        raise

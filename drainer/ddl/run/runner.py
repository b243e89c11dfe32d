"""DDL on the downstream: run each once, whatever happens in between.

Drives  one connection without read time-out; `ddl_derive` (core) for what the downstream refuses
Holds   the upstream's statement is run as it was, in its own settings; where the downstream refuses it, or
        tables are routed elsewhere, statements derived from the tracked schema reach the same columns and
        keys. Afterwards the columns and keys are compared, and what the statement left out is added
        The shape of the tables before the statement is stored by the caller before it runs. After a crash
        or a lost connection the shape decides whether it had run. Error codes decide nothing
Never   edits the statement's text; loses in silence what the downstream cannot have: `Ran.missing`

A statement that leaves the shape as it was can be run again without harm: it changed nothing that a second
run would change differently (TRUNCATE runs at a barrier, so no later row can be in the table).
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from common import ddl_job
from common.errors import DownstreamError
from common.observe import log
from drainer.checkpoint.value import Intent
from drainer.ddl.derive import derive
from drainer.ddl.derive.derive import Change
from drainer.ddl.derive.render import NotDerivable, Server
from drainer.ddl.derive.values import Derived, Route, Step
from drainer.ddl.run import downstream_schema, fingerprint, ran_before, recycle_bin
from drainer.ddl.run.connection import DdlConnection, Guard, TrackedSchema, run_ddl
from drainer.ddl.run.progress import progress_of, wait_for
from drainer.ddl.run.recycle_bin import KeepDropped
from drainer.ddl.run.session_settings import Session, session_of
from drainer.schema import sql_tokens
from drainer.schema.ddl_effect import EffectKind, effect, sub_actions
from drainer.sink.mysql.connection import Connection, Target
from drainer.sink.mysql.errors import SessionError, StatementRefused, safe_text
from drainer.sink.mysql.sql_literal.quoting import qualified, quote_name
from drainer.txn import Ddl, Tracked

logger = log.get("drainer.ddl_apply")
T = TypeVar("T")

_NEVER_AS_TEXT: Final = frozenset({EffectKind.RESTORE, EffectKind.REWIND})
_MOVES: Final = frozenset({EffectKind.RENAME, EffectKind.EXCHANGE})
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


def touches_database(query: str) -> bool:
    """CREATE, DROP or ALTER DATABASE: must not run inside the database it is about."""
    return any(event.endswith(" database") for event in sql_tokens.events_of(query))


def statement_of(ddl: Ddl) -> bytes:
    """What to run: the statement as it was, except where one statement became several jobs.

    `DROP TABLE a, b` is one job (and one binlog) for each table, all with the same text; each job drops its
    own table, or rows of `b` that come between the two would find no table.
    """
    done = effect(ddl.action)
    if done.kind is not EffectKind.DROP or len(ddl.tables) != 1 or "," not in sql_tokens.tokens(ddl.query):
        return ddl.query.encode("utf-8", "surrogateescape")
    return f"DROP {done.object.upper()} IF EXISTS ".encode() + qualified(*ddl.tables[0])


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
    ) -> None:
        """`guard`: of every new session, see `DdlConnection`. `keep`: where dropped tables are kept."""
        self._session = DdlConnection(target, schema, guard)
        self._route = route
        self._keep = keep
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

        `text`: what was to run in its place; nothing of it is left undone. False after `run` refused it: a
        part of what was derived may be there, but not all.
        """
        if self._refused == ddl.commit_ts:
            return False
        with self._session.session() as connection:
            wait_for(connection, self._texts(ddl) if text is None else [text])
            self._before = ddl.commit_ts, intent.before
            if not ran_before.has_run(intent.before, self._shape(connection, ddl)):
                return False
            self._rest(connection, ddl, text)
            return True

    def _rest(self, connection: Connection, ddl: Ddl, text: str | None) -> Ran:
        """What is left to do of a statement that has run: nothing where `text` ran in its place."""
        ran = Ran() if text is not None else self._finish(connection, ddl, ())
        self._record(ddl, ran)
        return ran

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

    def progress(self, ddl: Ddl) -> str:
        """How far the statement under way has come, in words of the downstream; "" if it does not say.

        May be called from another thread while `run` works. Never raises: it is for the status only.
        """
        number = self._session.thread_id if self._under_way == ddl.commit_ts else 0
        return progress_of(self._session.target, number) if number else ""

    def run(self, ddl: Ddl, text: str | None = None) -> Ran:
        """Execute the statement, or `text` in its place; what the downstream refuses is derived.

        Raises `Refused` when nothing that can be derived is accepted. A `text` that was given is run as it
        is, and nothing is derived from it.
        """
        with self._session.session() as connection:
            again = self._under_way == ddl.commit_ts
            if again:
                wait_for(connection, self._texts(ddl) if text is None else [text])
            if self._before is None or self._before[0] != ddl.commit_ts:
                self._before = ddl.commit_ts, self._shape(connection, ddl)
            self._under_way = ddl.commit_ts
            try:
                if again and ran_before.has_run(self._before[1], self._shape(connection, ddl)):
                    logger.info("DDL had run before the connection was lost", job_id=ddl.job_id)
                    ran = self._rest(connection, ddl, text)
                else:
                    ran = self._run(connection, ddl, text)
                    self._record(ddl, ran)
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

    def _run(self, connection: Connection, ddl: Ddl, text: str | None) -> Ran:
        settings = session_of(ddl.job)
        if text is not None:
            try:
                self._run_texts(connection, ddl, settings, [text])
            except StatementRefused as error:
                raise Refused(ddl, safe_text(error), code=error.number) from None
            return Ran((text,))
        if self._keep is not None and (ran := self._recycle(connection, ddl, settings, self._keep)):
            return ran
        refusal: StatementRefused | None = None
        texts = self._texts(ddl)
        if texts and (ddl.instead or self._text_will_do(ddl, settings)):
            try:
                self._run_texts(connection, ddl, settings, texts)
                return self._finish(connection, ddl, tuple(texts))
            except StatementRefused as error:
                refusal = error
        return self._derive(connection, ddl, settings, refusal)

    def _texts(self, ddl: Ddl) -> list[str]:
        """The upstream's statement, or what filters and routes left of it; nothing where it must not run."""
        if ddl.instead:
            return list(ddl.instead)
        routed = any(self._route(*name) != name for name in ddl.tables)
        if routed or effect(ddl.action).kind in _NEVER_AS_TEXT or not ddl.query.strip():
            return []
        return [statement_of(ddl).decode("utf-8", "surrogateescape")]

    def _text_will_do(self, ddl: Ddl, settings: Session) -> bool:
        return derive.text_says_all(self._intended(ddl), ddl.query, zone_known=settings.zone_known)

    def _run_texts(self, connection: Connection, ddl: Ddl, settings: Session, texts: list[str]) -> None:
        self._session.settings(connection, settings, zone=settings.time_zone)
        self._session.defaults(connection, ddl.tables[0][0] if ddl.tables else ddl.schema, settings)
        if ddl.schema and not touches_database(ddl.query):
            schema = self._route(ddl.schema, "")[0]
            self._session.make_database(connection, schema, ddl.schema)
            connection.run(b"USE " + quote_name(schema))
        for text in texts:
            run_ddl(connection, text.encode("utf-8", "surrogateescape"))

    def _recycle(self, connection: Connection, ddl: Ddl, settings: Session, keep: KeepDropped) -> Ran | None:
        """Move tables away that are dropped, or back that are recovered; None: run the DDL as any other."""
        back_again = recycle_bin.brings_back(effect(ddl.action))
        if ddl.instead or not (back_again or recycle_bin.takes_away(effect(ddl.action))):
            return None
        self.purge(ddl.commit_ts)
        change = self._change(connection, ddl)
        known = recycle_bin.kept(keep, downstream_schema.tables_in(connection, keep.schema))
        self._session.settings(connection, settings, zone="+00:00")
        if back_again:
            back = recycle_bin.bring_back(change, known)
            if back is None:
                return None
            for one in change.after:
                self._session.make_database(connection, change.at(one)[0], one.schema)
            moved = self._execute(connection, back, essential=True)
            rest = self._derive(connection, ddl, settings, None)
            return Ran(moved.statements + rest.statements, rest.missing)
        movable = frozenset(
            name for one in change.before if downstream_schema.is_movable(connection, name := change.at(one))
        )
        away = recycle_bin.take_away(change, keep, ddl.commit_ts, movable, known)
        return None if away is None else self._execute(connection, away, essential=True)

    def purge(self, commit_ts: int) -> None:
        """Drop for good what was put away too long before that time of the stream. Cheap when nothing was.

        Called with every DDL that takes tables away or brings them back; to be called now and then besides.
        """
        if self._keep is None:
            return
        with self._session.session() as connection:
            tables = downstream_schema.tables_in(connection, self._keep.schema)
            for name in recycle_bin.outdated(self._keep, tables, commit_ts):
                connection.run(b"DROP TABLE IF EXISTS " + qualified(*name))

    def _derive(
        self,
        connection: Connection,
        ddl: Ddl,
        settings: Session,
        refusal: StatementRefused | None,
    ) -> Ran:
        reason = "" if refusal is None else f"{safe_text(refusal)}; "
        code = 0 if refusal is None else refusal.number
        if refusal is not None and not (ddl.before or ddl.after or ddl.job):
            raise Refused(ddl, safe_text(refusal), code=code)
        try:
            for one in ddl.after:  # routes may lead where nothing is yet
                schema = self._route(one.schema, one.name)[0]
                self._session.make_database(connection, schema, one.schema)
            derived = derive.derive(self._change(connection, ddl))
            self._session.settings(connection, settings, zone="+00:00")
            return self._execute(connection, derived, essential=True)
        except NotDerivable as error:
            raise Refused(ddl, f"{reason}{error}", code=code) from None
        except StatementRefused as error:
            code = code or error.number
            raise Refused(ddl, f"{reason}derived statement: {safe_text(error)}", code=code) from None

    def _finish(self, connection: Connection, ddl: Ddl, statements: tuple[str, ...]) -> Ran:
        """What the statement that has run left out: collations, columns, keys. Nothing is refused here."""
        change = replace(self._change(connection, ddl), ran=True)
        try:
            derived = derive.derive(change)
        except NotDerivable:
            return Ran(statements)
        if derived.steps:
            self._session.settings(connection, session_of(ddl.job), zone="+00:00")
        ran = self._execute(connection, derived, essential=False)
        return Ran(statements + ran.statements, ran.missing)

    def _execute(self, connection: Connection, derived: Derived, *, essential: bool) -> Ran:
        statements: list[str] = []
        missing = list(derived.missing)
        for one in derived.steps:
            self._step(connection, one, statements, missing, essential=essential)
        return Ran(tuple(statements), tuple(dict.fromkeys(missing)))

    def _step(
        self,
        connection: Connection,
        one: Step,
        statements: list[str],
        missing: list[str],
        *,
        essential: bool,
    ) -> None:
        try:
            _run_together(connection, one.statements)
            statements += one.statements
        except StatementRefused as error:
            reason = safe_text(error)
            if one.lacks:
                missing.append(f"{one.lacks} ({reason})")
            elif not one.instead:
                if essential:
                    raise
                missing.append(f"{one.statements[0].partition('(')[0].strip()} ({reason})")
            for other in one.instead:
                self._step(connection, other, statements, missing, essential=essential)

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

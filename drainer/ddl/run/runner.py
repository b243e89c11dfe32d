"""Runner: DDL on the downstream, each once, whatever happens in between.

Drives  one connection without read time-out: `facts` asks, `plan` (a core) says how, `execution` runs it
Owns    what it remembers of the DDL at hand: its shape before, whether it runs, whether it was refused
Holds   the shape of the tables before the statement is stored by the caller before it runs. After a crash
        or a lost connection the shape decides whether it had run (`ran_before`). Error codes decide nothing

What leaves the shape as it was, or only a part of it undone, runs again without harm: a second run changes
nothing differently (it runs at a barrier, so no later row can be in the table). Renames and exchanges are one
statement each, and do not run again where the shape says that they have run.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from typing import Final, TypeVar

from drainer.checkpoint.value import Intent
from drainer.ddl.convert import columns
from drainer.ddl.derive import derive
from drainer.ddl.derive.render import NotDerivable, Server
from drainer.ddl.derive.values import Route
from drainer.ddl.run import fingerprint, ran_before
from drainer.ddl.run.connection import DdlConnection, Guard, TrackedSchema
from drainer.ddl.run.execution import DdlExecution, Ran
from drainer.ddl.run.facts import DdlFacts
from drainer.ddl.run.plan import plan_of
from drainer.ddl.run.progress import progress_of
from drainer.ddl.run.recycle_bin import KeepDropped
from drainer.ddl.run.session_settings import session_of
from drainer.ddl.run.takes_long import Beside, why_long
from drainer.mysql.connection import Connection, Target
from drainer.mysql.errors import StatementRefused, safe_text
from drainer.mysql.literal.quoting import qualified
from drainer.txn import Ddl
from tidb_binlog import ddl_job
from tidb_binlog.errors import DownstreamError
from tidb_binlog.observe import log
from tidb_binlog.status.drainer import LackStatus
from tidb_binlog.tso import Ts

logger = log.get("drainer.ddl_apply")
T = TypeVar("T")

_COPY_HINT: Final = "run an equivalent statement downstream and skip this one, or copy the table anew"


class Refused(DownstreamError):
    """The downstream refused a DDL, and no other statement reaches the same columns and keys.

    `code` is the downstream's error code, 0 if it was not asked.
    """

    def __init__(self, ddl: Ddl, reason: str, *, code: int = 0) -> None:
        tables = ", ".join(".".join(name) if name[1] else name[0] for name in ddl.tables)
        kind = ddl_job.action_name(ddl.action)
        super().__init__(
            f"DDL job {ddl.job_id} ({kind}) at commit_ts {ddl.commit_ts} on {tables or 'no table'} was"
            f" refused: {reason}; {ddl.statement}",
            hint=_COPY_HINT,
        )
        self.code = code
        self.kind = kind
        self.job_id = ddl.job_id
        self.commit_ts = ddl.commit_ts
        self.tables = ddl.tables


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
        missing: deque[LackStatus] | None = None,
    ) -> None:
        """`guard`: of every new session, see `DdlConnection`. `keep`: where dropped tables are kept.
        `conversions`: what happens to values that the server would convert otherwise (`ddl-conversions`)."""
        self._session = DdlConnection(target, schema, guard)
        self._route = route
        self._keep = keep
        self._conversions = conversions
        self._before: tuple[int, fingerprint.Shape] | None = None  # commit_ts and shape of the DDL at hand
        self._refused = 0  # commit_ts of the DDL that was refused last
        self.missing = deque() if missing is None else missing
        self._under_way = 0  # commit_ts of the DDL whose statement was sent, until its end is known

    def close(self) -> None:
        self._session.close()

    def on_session(self, work: Callable[[Connection, Server], T]) -> T:
        """`work` with the session and what the server is, for DDL that the stream does not bring."""
        with self._session.session() as connection:
            return work(connection, self._session.server)

    def _facts(self, connection: Connection) -> DdlFacts:
        return DdlFacts(connection, self._session.server, self._route)

    # -- what the caller asks -------------------------------------------------------------------------

    def before(self, ddl: Ddl) -> dict[str, str | None]:
        """The shape of what the statement touches, as it is now."""
        with self._session.session() as connection:
            shape = self._facts(connection).shape(ddl)
            self._before = ddl.commit_ts, shape
            return shape

    def had_run(self, intent: Intent, ddl: Ddl, text: str | None) -> bool:
        """Whether the statement of a stored intent took effect; then what it left undone is done now.

        `text`: what was to run in its place; nothing of it is left undone. False after `run` refused it, and
        where the rest of it is refused: a part of what was derived may be there, but not all.
        """
        if self._refused == ddl.commit_ts:
            return False
        with self._session.session() as connection:
            facts = self._facts(connection)
            facts.wait_for_end(ddl, plan_of(ddl, text, self._route))
            self._before = ddl.commit_ts, intent.before
            if not ran_before.has_run(intent.before, facts.shape(ddl)):
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
            return self._facts(connection).shows(ddl)

    def takes_long(self, ddl: Ddl, beside: Beside) -> str:
        """Why `run` would take longer than other tables should wait; "" where it would not."""
        with self._session.session() as connection:
            self._session.settings(connection, session_of(ddl.job), zone="+00:00")
            plan = plan_of(ddl, None, self._route)
            return why_long(self._facts(connection), ddl, plan, self._conversions, beside)

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
            facts = self._facts(connection)
            again = self._under_way == ddl.commit_ts
            if again:
                facts.wait_for_end(ddl, plan_of(ddl, text, self._route))
            if self._before is None or self._before[0] != ddl.commit_ts:
                self._before = ddl.commit_ts, facts.shape(ddl)
            self._under_way = ddl.commit_ts
            try:
                ran_already = again and ran_before.has_run(self._before[1], facts.shape(ddl))
                if ran_already:
                    logger.info("DDL had run before the connection was lost", job_id=ddl.job_id)
                ran = self._run(connection, ddl, text, ran_already=ran_already)
            except DownstreamError:
                self._under_way, self._refused = 0, ddl.commit_ts
                raise
            self._under_way = self._refused = 0
            return ran

    def purge(self, commit_ts: Ts) -> None:
        """Drop for good what was put away too long before that time of the stream. Cheap when nothing was; to
        be called now and then."""
        if self._keep is None:
            return
        with self._session.session() as connection:
            for name in self._facts(connection).outdated(self._keep, commit_ts):
                connection.run(b"DROP TABLE IF EXISTS " + qualified(*name))

    # -- running --------------------------------------------------------------------------------------

    def _run(self, connection: Connection, ddl: Ddl, text: str | None, *, ran_already: bool) -> Ran:
        """`ran_already`: the shape says that it has run, or begun; what is left of it is done."""
        execution = DdlExecution(
            self._session,
            self._facts(connection),
            ddl,
            plan_of(ddl, text, self._route),
            session_of(ddl.job),
            self._keep,
            self._conversions,
        )
        try:
            ran = execution.carry_out(ran_already=ran_already)
        except NotDerivable as error:
            raise Refused(ddl, str(error)) from None
        except StatementRefused as error:
            raise Refused(ddl, safe_text(error), code=error.number) from None
        logger.info("DDL ran", job_id=ddl.job_id, text=ddl.query, statements=ran.statements)
        self._record(ddl, ran)
        return ran

    def _record(self, ddl: Ddl, ran: Ran) -> None:
        """For the log and for the status, what the downstream lacks from now on."""
        lines = list(ran.missing)
        if not lines:
            return
        names = [".".join(name).rstrip(".") for name in ddl.tables]
        self.missing.append(
            LackStatus(job_id=ddl.job_id, commit_ts=ddl.commit_ts, tables=names, missing=lines)
        )
        logger.warning(
            "downstream lacks a part of a DDL", job_id=ddl.job_id, commit_ts=ddl.commit_ts, missing=lines
        )

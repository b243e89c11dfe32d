"""Execution: one DDL carried out on the downstream as its plan says.

Drives  the DDL session; `plan` and `drainer.ddl.derive` (cores) for what to run, `facts` for what is there
Holds   statements are derived from the tracked definitions before and after: a text says things that the
        upstream ignored, or that mean something else to another server. The text itself runs only where no
        definition says what it did, or where an operator or a filter gave another one
        Afterwards what the definitions say is compared with what is there
Never   edits a statement's text; loses in silence what the downstream cannot have: `Ran.missing`

Tests   tests/drainer/ddl/run/test_meaning.py, tests/drainer/ddl/run/test_runner_recorded.py
"""

from __future__ import annotations

import contextlib

from drainer.ddl.convert import columns
from drainer.ddl.derive import derive
from drainer.ddl.derive.derive import Change
from drainer.ddl.derive.values import Derived, Step
from drainer.ddl.run.connection import DdlConnection, run_ddl
from drainer.ddl.run.facts import DdlFacts
from drainer.ddl.run.plan import Plan, is_of_database
from drainer.ddl.run.recycle_bin import KeepDropped
from drainer.ddl.run.session_settings import ANY_VALUE, Session
from drainer.mysql.connection import Connection
from drainer.mysql.errors import SessionError, StatementRefused, safe_text
from drainer.mysql.literal.quoting import quote_name
from drainer.txn import Ddl
from tidb_binlog import ddl_job
from tidb_binlog.late_dataclass import dataclass, replace


@dataclass(frozen=True, slots=True)
class Ran:
    """What was executed, and what the downstream lacks nevertheless: one line each."""

    statements: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    def __add__(self, other: Ran) -> Ran:
        return Ran(self.statements + other.statements, self.missing + other.missing)


@dataclass(frozen=True, slots=True)
class DdlExecution:
    """`settings`: of the upstream's session. `keep`: where dropped tables are kept. `conversions`: what
    happens to values that the server would convert otherwise."""

    session: DdlConnection
    facts: DdlFacts
    ddl: Ddl
    plan: Plan
    settings: Session
    keep: KeepDropped | None
    conversions: str

    @property
    def _connection(self) -> Connection:
        return self.facts.connection

    def carry_out(self, *, ran_already: bool) -> Ran:
        """`ran_already`: the shape says that it has run, or begun; what is left of it is done.

        Raises `NotDerivable`, `StatementRefused` and what the session raises.
        """
        plan = self.plan
        recycled = self._recycle(self.keep) if self.keep is not None else Ran()
        if recycled.statements and plan.takes_away:
            return recycled
        if plan.texts:
            if plan.repeats or not ran_already:
                self._run_texts(plan.texts)
            ran = Ran(plan.texts)
        else:
            ran = Ran(recycled.statements) + self._derive(ran_already=ran_already)
        if not plan.compares:
            return ran
        lacking = derive.lacking(self.facts.change(self.ddl), ran.missing)
        return replace(ran, missing=tuple(dict.fromkeys((*ran.missing, *lacking))))

    def _run_texts(self, texts: tuple[str, ...]) -> None:
        session, connection, ddl = self.session, self._connection, self.ddl
        session.settings(connection, self.settings, zone=self.settings.time_zone)
        session.defaults(connection, ddl.tables[0][0] if ddl.tables else ddl.schema, self.settings)
        if ddl.schema and not is_of_database(ddl):
            schema = self.facts.route(ddl.schema, "")[0]
            session.make_database(connection, schema, ddl.schema)
            connection.run(b"USE " + quote_name(schema))
        for text in texts:
            run_ddl(connection, text.encode("utf-8", "surrogateescape"))

    def _recycle(self, keep: KeepDropped) -> Ran:
        """Move tables away that are dropped, or back that are recovered: then the rest is derived. Nothing
        ran: it is a DDL as any other. After a cut between two steps this does those that are left."""
        plan = self.plan
        if not (plan.takes_away or plan.brings_back):
            return Ran()
        change = self.facts.change(self.ddl)
        steps = self.facts.recycling(change, plan, keep, self.ddl.commit_ts)
        if steps is None:
            return Ran()
        if plan.brings_back:
            for table in change.after:
                self.session.make_database(self._connection, change.at(table)[0], table.schema)
        return self._execute(steps)

    def _derive(self, *, ran_already: bool) -> Ran:
        ddl, plan = self.ddl, self.plan
        for table in ddl.after:  # routes may lead where nothing is yet
            database = self.facts.route(table.schema, table.name)[0]
            self.session.make_database(self._connection, database, table.schema)
        if plan.body_first and not ran_already:
            with contextlib.suppress(StatementRefused):
                self._run_texts((ddl.query,))
                return Ran((ddl.query,))
        change = self.facts.change(ddl, ran=ran_already)
        converted = self._convert(change)
        if converted.statements:
            change = self.facts.change(ddl, ran=ran_already)
        ran = converted + self._execute(derive.derive(change))
        if ran.statements or ran_already or not plan.text_last:
            return ran
        try:
            self._run_texts((ddl.query,))
        except StatementRefused as error:
            kind = ddl_job.action_name(ddl.action)
            return replace(ran, missing=(*ran.missing, f"what {kind} did ({safe_text(error)}): {ddl.query}"))
        return Ran((ddl.query,), ran.missing)

    def _convert(self, change: Change) -> Ran:
        """Columns whose values the server would convert otherwise than the upstream get their new type."""
        if not columns.plans(change):
            return Ran()
        settings, connection = self.settings, self._connection
        job = columns.job_of(self.ddl.job, self.ddl.commit_ts, settings.time_zone, settings.offset)
        self.session.settings(connection, replace(settings, sql_mode=ANY_VALUE), zone="+00:00")
        statements, missing = columns.convert(
            connection, change, self.conversions, job, lambda text: run_ddl(connection, text.encode())
        )
        return Ran(tuple(statements), tuple(missing))

    def _execute(self, derived: Derived) -> Ran:
        statements: list[str] = []
        missing = list(derived.missing)
        self._in_zone("+00:00")
        for step in derived.steps:
            if step.local:
                self._in_zone(self.settings.time_zone)
            self._step(step, statements, missing)
            if step.local:
                self._in_zone("+00:00")
        return Ran(tuple(statements), tuple(dict.fromkeys(missing)))

    def _in_zone(self, zone: str) -> None:
        self.session.settings(self._connection, self.settings, zone=zone)

    def _step(self, step: Step, statements: list[str], missing: list[str]) -> None:
        try:
            _run_together(self._connection, step.statements)
            statements += step.statements
        except StatementRefused as error:
            if step.lacks:
                missing.append(f"{step.lacks} ({safe_text(error)})")
            elif not step.instead:
                raise
            for other in step.instead:
                self._step(other, statements, missing)


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

"""Definitions: databases, tables, views and sequences downstream, made as a Drainer's derived DDL makes them.

Drives  the DDL runner on its one session
In      what is to be there, of the tracked schema at the load's timestamp
Out     `missing`: what the downstream cannot have, one line each
Holds   a table is made whole: one that a load made and did not get ready is dropped and made again
        Views come last, in whatever order they let themselves be made: one may be made of another
Tests   tests/drainer/points/load/test_load.py
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from drainer.changes import ddl_effect
from drainer.ddl.derive.render import Server
from drainer.ddl.run.runner import DdlRunner, Ran, Refused
from drainer.mysql.connection import Connection
from drainer.mysql.errors import SessionError, final_error
from drainer.mysql.literal.quoting import qualified, string_literal
from drainer.points.load.contents import Source
from drainer.points.load.reconcile import There
from drainer.txn import Ddl
from tidb_binlog.ddl_job import ActionType
from tidb_binlog.errors import DownstreamError
from tidb_binlog.observe import log

logger = log.get("load")

Name = tuple[str, str]
_KINDS: Final[Mapping[str, str]] = {"VIEW": ddl_effect.VIEW, "SEQUENCE": ddl_effect.SEQUENCE}
_WORDS: Final[Mapping[str, str]] = {
    ddl_effect.TABLE: "TABLE",
    ddl_effect.VIEW: "VIEW",
    ddl_effect.SEQUENCE: "SEQUENCE",
}
_HINT: Final = "create it there by hand, or leave it out (ignore-table), and run the same command again"


class Definitions:
    """Blocks. Raises `DownstreamError` for what the downstream does not have any form of."""

    def __init__(self, runner: DdlRunner, schema_version: int) -> None:
        self._runner = runner
        self._version = schema_version
        self._numbers = itertools.count(1)  # the runner tells statements apart by their commit_ts
        self.missing: list[str] = []

    def make_database(self, name: str, charset: str, collate: str) -> None:
        """`name` as upstream calls it; nothing where it is there."""
        info = {"db_name": {"O": name, "L": name.lower()}, "charset": charset, "collate": collate}
        self._run(ActionType.CREATE_SCHEMA, name, (name, ""), job={"binlog": {"DBInfo": info}})

    def make(self, source: Source) -> None:
        """What is there under its name, of whatever kind, is dropped first."""
        self.drop(source.target)
        self._note(source, self._create(source))

    def make_views(self, views: Sequence[Source]) -> None:
        waiting = list(views)
        for source in waiting:
            self.drop(source.target)
        while waiting:
            failed = [(source, ran) for source in waiting if (ran := self._create(source)).missing]
            if len(failed) == len(waiting):
                for source, ran in failed:
                    self._note(source, ran)
                return
            waiting = [source for source, _ in failed]

    def drop(self, target: Name) -> None:
        """Whatever has that name."""

        def work(connection: Connection, _: Server) -> None:
            there = present(connection, [target]).get(target)
            if there is not None:
                word = _WORDS[there.kind].encode()
                connection.run(b"DROP %b IF EXISTS %b" % (word, qualified(*target)))

        self._runner.on_session(work)

    def empty(self, target: Name) -> None:
        """A table."""
        self._runner.on_session(lambda connection, _: connection.run(b"TRUNCATE TABLE " + qualified(*target)))

    def _create(self, source: Source) -> Ran:
        tracked = source.tracked
        return self._run(source.action, tracked.schema, source.name, source=source)

    def _run(
        self,
        action: int,
        schema: str,
        name: Name,
        *,
        source: Source | None = None,
        job: dict[str, Any] | None = None,
    ) -> Ran:
        ddl = Ddl(
            commit_ts=next(self._numbers),
            job_id=0,
            action=action,
            schema=schema,
            query="",
            tables=(name,),
            schema_version=self._version,
            job=job,
            after=() if source is None else (source.tracked,),
        )
        what = ".".join(part for part in name if part)
        try:
            return self._runner.run(ddl)
        except Refused as error:
            reason = error.message.partition("was refused: ")[2].partition("; statement in")[0]
            raise DownstreamError(f"{what} cannot be made downstream: {reason}", hint=_HINT) from None
        except SessionError as error:
            raise final_error(error, f"making {what}") from None

    def _note(self, source: Source, ran: Ran) -> None:
        for line in ran.missing:
            self.missing.append(f"{source.label}: {line}")
            logger.warning("the downstream lacks something of a table", table=source.label, missing=line)


def present(connection: Connection, names: Iterable[Name]) -> dict[Name, There]:
    """Those of the names that are there, and whether tables have rows."""
    found: dict[Name, There] = {}
    wanted = list(names)
    schemas = sorted({schema for schema, _ in wanted})
    ((folds,),) = connection.rows(b"SELECT @@lower_case_table_names")
    fold = str.lower if int(folds) else str  # to such a server Orders and orders are one table
    listed = {}
    for schema in schemas:
        rows = connection.rows(
            b"SELECT TABLE_NAME, TABLE_TYPE FROM information_schema.TABLES WHERE TABLE_SCHEMA="
            + string_literal(schema)
        )
        listed.update({(schema, fold(str(name))): str(kind).upper() for name, kind in rows})
    for name in wanted:
        kind = listed.get((name[0], fold(name[1])))
        if kind is None:
            continue
        of_kind = _KINDS.get(kind.replace("SYSTEM ", ""), ddl_effect.TABLE)
        has_rows = of_kind == ddl_effect.TABLE and bool(
            connection.rows(b"SELECT 1 FROM " + qualified(*name) + b" LIMIT 1")
        )
        found[name] = There(of_kind, has_rows)
    return found

"""DDL text: what archives and messages say of a schema change.

Out    whether it is said at all, and its statements, each with the database that it runs in
Holds  the Go drainer's text where names stay as they are. Where they do not, statements are derived for what
       makes, drops, empties or renames whole tables and databases; anything else raises `NotDerivable`, since
       its text has names that the rows after it do not have

Tests  tests/drainer/sink/file/test_archive.py, tests/drainer/changes/test_ddl_effect.py
"""

from __future__ import annotations

from typing import Final, NamedTuple

from drainer.changes.ddl_effect import EffectKind, effect_kind
from drainer.ddl.derive import definition, derive
from drainer.ddl.derive.compare import SEQUENCE, TABLE, VIEW, Present
from drainer.ddl.derive.derive import Change
from drainer.ddl.derive.render import NotDerivable, Server
from drainer.ddl.derive.values import Route
from drainer.ddl.policy import Policy, Ruling
from drainer.ddl.rules import APPLY, GROUPS, REWRITE, STOP
from drainer.mysql import sql_tokens
from drainer.mysql.rows.dialect import Dialect
from drainer.txn import Ddl, Tracked
from tidb_binlog import ddl_job
from tidb_binlog.errors import DownstreamError

# Groups of kinds. Placement, attributes and locks are not in Go's archives.
_ARCHIVED: Final = GROUPS["tiflash"] | GROUPS["cache"] | GROUPS["ttl"]
_DERIVED: Final = frozenset(
    {
        EffectKind.CREATE_DATABASE,
        EffectKind.DROP_DATABASE,
        EffectKind.CREATE,
        EffectKind.RESTORE,
        EffectKind.RECOVER,
        EffectKind.DROP,
        EffectKind.TRUNCATE,
        EffectKind.RENAME,
    }
)
_SERVER: Final = Server(Dialect.TIDB, invisible="INVISIBLE", functional_keys=True)


def ruling_of(policy: Policy, ddl: Ddl) -> Ruling:
    """What becomes of a DDL. Without a rule what Go's file sink has is archived, with a downstream or not."""
    ruling = policy.rule(ddl)
    if not (ddl.skip or ruling.rule) and ddl.action in _ARCHIVED:
        return Ruling(APPLY, "part of an archive, whatever a downstream makes of it")
    return ruling


def statements_of(ddl: Ddl, policy: Policy, route: Route) -> tuple[tuple[Statement, ...], str]:
    """What is said of a DDL, and why nothing where that is nothing. Raises `DownstreamError` where an
    operator has to decide."""
    ruling = ruling_of(policy, ddl)
    if ruling.action == STOP or (ddl.refused and ruling.action == APPLY):
        raise stopped(ddl, ddl.refused or ruling.reason)
    if ruling.action not in (APPLY, REWRITE):
        return (), ruling.reason
    try:
        return ddl_statements(ddl, ruling.text or None, route), ""
    except NotDerivable as error:
        raise stopped(ddl, str(error)) from None


def stopped(ddl: Ddl, reason: str) -> DownstreamError:
    """An operator has to decide about a DDL before the stream can continue."""
    return DownstreamError(
        f"DDL job {ddl.job_id} at commit_ts {ddl.commit_ts} stops the drainer: {reason}; {ddl.statement}",
        hint="change or write a rule for it (syncer.ddl-rule) and start again; the checkpoint is before the"
        " statement",
    )


def ddl_texts(ddl: Ddl, text: str | None, route: Route) -> tuple[str, ...]:
    """What an archive says of a DDL, `text` if not its own. Raises `NotDerivable`.

    A database that is made is made in none.
    """
    return tuple(map(in_archive, ddl_statements(ddl, text, route)))


def in_archive(statement: Statement) -> str:
    """Its text in an archive."""
    if statement.schema is None:
        return f"{statement.text};"
    return _in_database(statement.schema, statement.text)


class Statement(NamedTuple):
    """`schema` is the database that it runs in, "" for none; None: its names have theirs."""

    schema: str | None
    text: str


def ddl_statements(ddl: Ddl, text: str | None, route: Route) -> tuple[Statement, ...]:
    """The statements of a DDL downstream, `text` if not its own. Raises `NotDerivable`."""
    if text is not None:
        statements: tuple[str, ...] = (text,)
    elif ddl.instead:
        statements = ddl.instead
    elif any(route(*name) != name for name in ddl.tables):
        return tuple(Statement(None, statement) for statement in _derived(ddl, route))
    else:
        statements = (ddl.query,)
    schema = ddl.schema or (ddl.tables[0][0] if ddl.tables else "")
    target = route(schema, "")[0] if schema else ""
    return tuple(Statement(target, statement) for statement in statements)


def _in_database(schema: str, statement: str) -> str:
    if "create database" in sql_tokens.events_of(statement):
        return f"{statement};"
    return f"use `{schema.replace('`', '``')}`; {statement};" if schema else statement


def _derived(ddl: Ddl, route: Route) -> tuple[str, ...]:
    if effect_kind(ddl.action) not in _DERIVED:
        kind = ddl_job.action_name(ddl.action)
        raise NotDerivable(f"its tables are routed, and there is no other text for {kind}")
    change = Change(
        ddl.action,
        ddl.before,
        ddl.after,
        derive.database_of(ddl.job),
        present={route(table.schema, table.name): _present(table) for table in ddl.before},
        server=_SERVER,
        route=route,
    )
    derived = derive.derive(change)
    return tuple(statement for step in derived.steps for statement in step.statements)


def _present(tracked: Tracked) -> Present:
    defined = definition.read(tracked.document)
    return Present(VIEW if defined.view else SEQUENCE if defined.sequence else TABLE)

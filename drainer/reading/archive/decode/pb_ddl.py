"""pb DDL: what can be known of a schema change of which an archive has nothing but the text.

In     "use `database`; statement;" as the drainers write it
Out    a Ddl: current database, statement, kind of action, names of the tables and databases that it touches
Holds  a statement whose names cannot be read has none, and a filter by names passes it: it is never dropped
       for a name that was not seen
"""

from __future__ import annotations

from drainer.changes.ddl_effect import Names
from drainer.changes.statement_effect import action_of, statement_effect
from drainer.txn import Ddl


def pb_ddl(commit_ts: int, text: bytes) -> Ddl:
    """The DDL of a record."""
    schema, query = _divided(text.decode("utf-8", "surrogateescape"))
    names = names_of(query, schema)
    return Ddl(commit_ts, 0, action_of(query), schema, query, names, 0)


def _divided(text: str) -> tuple[str, str]:
    """Current database and statement."""
    schema, rest = "", text.strip()
    if rest[:5].lower() == "use `":
        end = rest.find("`; ", 5)
        if end > 0:
            schema, rest = rest[5:end].replace("``", "`"), rest[end + 3 :]
    return schema, rest.strip().rstrip(";").rstrip()


def names_of(query: str, schema: str) -> Names:
    """(database, table) of each that the statement names; a database is ("db", "")."""
    done = statement_effect(query, schema)
    return tuple(dict.fromkeys(name for name in done.tables if name[0])) if done else ()

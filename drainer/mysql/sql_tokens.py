"""SQL tokens: what little is read from a statement. A job says what was done; this says how it was said.

In     the statement as TiDB recorded it
Out    tokens; the names of events that filter rules know; the tables that a statement only reads
Holds  comments that TiDB or MySQL execute (`/*T! ... */`, `/*!40101 ... */`) count as text, others do not;
       quoted names and strings are one token each, so nothing inside them is taken for a word
Why    one place that reads statements: renames, filter rules and the runner ask here
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final

from tidb_binlog.ddl_job import ActionType
from tidb_binlog.late_dataclass import dataclass

_PIECE: Final = re.compile(
    r"/\*(?:!\d*|T!(?:\[[^\]]*\])?)"  # opening of an executed comment: its contents follow
    r"|\*/"
    r"|/\*.*?\*/|--[^\n]*|#[^\n]*"
    r"|(?P<token>"
    r"`(?:[^`]|``)*`"
    r"|\"(?:[^\"\\]|\\.|\"\")*\""
    r"|'(?:[^'\\]|\\.|'')*'"
    r"|[\w$\u0080-\U0010ffff]+"
    r"|[.,;()=@])",
    re.DOTALL,
)

CREATE_TABLE: Final = "create table"
_KINDS: Final = ("DATABASE", "TABLE", "INDEX", "VIEW", "SEQUENCE")
_NAMED: Final = frozenset(
    {
        "create database",
        "drop database",
        "alter database",
        "create table",
        "drop table",
        "alter table",
        "truncate table",
        "rename table",
        "create index",
        "drop index",
        "create view",
        "drop view",
    }
)
_PARTITION_VERBS: Final = ("ADD", "DROP", "TRUNCATE")
# Between CREATE or DROP and the kind: OR REPLACE, TEMPORARY, UNIQUE, ALGORITHM=..., DEFINER=..., SQL SECURITY
_WORDS_BEFORE_KIND: Final = 20

# Words before the names of tables that a statement reads, and those that come after such names.
_NAMES_TABLES: Final = {
    "create view": frozenset({"FROM", "JOIN", "STRAIGHT_JOIN", "TABLE"}),
    CREATE_TABLE: frozenset({"LIKE"}),
}
_ENDS_READING: Final = frozenset(
    {"SELECT", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "UNION", "EXCEPT", "INTERSECT", "WINDOW", "FOR"}
)

# What a job says whose statement is empty (restored or imported tables).
_BY_ACTION: Final[dict[int, str]] = {
    ActionType.CREATE_SCHEMA: "create database",
    ActionType.DROP_SCHEMA: "drop database",
    ActionType.CREATE_TABLE: CREATE_TABLE,
    ActionType.DROP_TABLE: "drop table",
    ActionType.CREATE_TABLES: CREATE_TABLE,
}


def tokens(query: str) -> list[str]:
    """Words, quoted names, strings and the marks `. , ; ( ) = @`, in order."""
    return [token for match in _PIECE.finditer(query) if (token := match["token"]) is not None]


def token_spans(query: str) -> list[tuple[str, int, int]]:
    """The same, each with where it begins and ends."""
    return [
        (token, *match.span("token"))
        for match in _PIECE.finditer(query)
        if (token := match["token"]) is not None
    ]


def unquote(token: str) -> str:
    """The name that a token means."""
    if len(token) >= 2 and token[0] in '`"' and token[-1] == token[0]:
        return token[1:-1].replace(token[0] * 2, token[0])
    return token


def tables_read(query: str, schema: str) -> frozenset[tuple[str, str]]:
    """(schema, table), in lower case, of what a view or a CREATE TABLE ... LIKE is made from; else nothing.

    `schema` is the current database. More than that may be among them (aliases, columns of a join), but no
    column of a list and no word of another clause.
    """
    names_read: set[tuple[str, str]] = set()
    begins = _NAMES_TABLES.get(next(iter(events_of(query)), ""), frozenset())
    reads, outside = False, []
    words = tokens(query)
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word == "(":
            outside.append(reads)
        elif word == ")":
            reads = outside.pop() if outside else False
        elif word.upper() in begins:
            reads = True
        elif word.upper() in _ENDS_READING:
            reads = False
        elif reads and word[0] not in ".,;=@'":
            names = [unquote(word).lower()]
            while words[at : at + 1] == ["."] and at + 1 < len(words):
                names.append(unquote(words[at + 1]).lower())
                at += 2
            names_read.add((names[0], names[1]) if len(names) > 1 else (schema.lower(), names[0]))
    return frozenset(names_read)


def events_of(query: str, action: int = 0) -> tuple[str, ...]:
    """Names under which filter rules know a statement, the most specific first; () for all others.

    `ALTER TABLE ... ADD PARTITION` is `add table partition` and `alter table`. The job's `action` counts
    where there is no statement.
    """
    words = [token.upper() for token in tokens(query)]
    if not words:
        name = _BY_ACTION.get(action)
        return (name,) if name else ()
    verb, rest = words[0], words[1:]
    if verb == "TRUNCATE":
        return ("truncate table",)
    if verb == "RENAME":
        return ("rename table",) if rest[:1] in (["TABLE"], ["TABLES"]) else ()
    if verb not in ("CREATE", "DROP", "ALTER"):
        return ()
    kind = _kind(rest)
    name = f"{verb.lower()} {kind.lower()}"
    if name not in _NAMED:
        return ()
    if name == "alter table":
        return (*_partition_events(rest), name)
    return (name,)


def _kind(words: list[str]) -> str:
    for word in words[:_WORDS_BEFORE_KIND]:
        if word in ("SCHEMA", "TABLES"):
            return {"SCHEMA": "DATABASE", "TABLES": "TABLE"}[word]
        if word in _KINDS:
            return word
        if word in ("PLACEMENT", "RESOURCE", "USER", "ROLE", "BINDING", "STATISTICS"):
            return ""
    return ""


def _partition_events(words: list[str]) -> tuple[str, ...]:
    depth = 0
    events = []
    for word, following in pairwise(words):
        depth += (word == "(") - (word == ")")
        if not depth and word in _PARTITION_VERBS and following == "PARTITION":
            events.append(f"{word.lower()} table partition")
    return tuple(dict.fromkeys(events))


# Names in a RENAME statement -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RenamePair:
    """One `old TO new` of a RENAME; a schema is "" where the statement does not name one."""

    old_schema: str
    old_table: str
    new_schema: str
    new_table: str


def _take_name(tokens: list[str], at: int) -> tuple[str, str, int]:
    """(schema or "", name, index after it); raises IndexError where the tokens end too early."""
    first = tokens[at]
    if at + 2 < len(tokens) and tokens[at + 1] == ".":
        return unquote(first), unquote(tokens[at + 2]), at + 3
    return "", unquote(first), at + 1


def rename_pairs(query: str) -> tuple[RenamePair, ...]:
    """Pairs of `RENAME TABLE a TO b, ...` or `ALTER TABLE a RENAME [TO|AS|=] b`; () for anything else."""
    parts = [token for token in tokens(query) if token != "="]
    words = [token.upper() for token in parts]
    pairs: list[RenamePair] = []
    try:
        if words[0] == "RENAME" and words[1] in ("TABLE", "TABLES"):
            at = 2
            while True:
                old_schema, old_table, at = _take_name(parts, at)
                new_schema, new_table, at = _take_name(parts, at + 1)  # over TO
                pairs.append(RenamePair(old_schema, old_table, new_schema, new_table))
                if at >= len(parts) or parts[at] != ",":
                    return tuple(pairs)
                at += 1
        if words[0] == "ALTER" and words[1] == "TABLE":
            old_schema, old_table, at = _take_name(parts, 2)
            at = words.index("RENAME", at) + 1
            at += words[at] in ("TO", "AS")
            new_schema, new_table, at = _take_name(parts, at)
            return (RenamePair(old_schema, old_table, new_schema, new_table),)
    except (IndexError, ValueError):
        pass
    return ()

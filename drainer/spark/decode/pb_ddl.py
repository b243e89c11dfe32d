"""pb DDL: what can be known of a schema change of which an archive has nothing but the text.

In     "use `database`; statement;" as the drainers write it
Out    a Ddl: current database, statement, kind of action, names of the tables and databases that it touches
Holds  a statement whose names cannot be read has none, and a filter by names passes it: it is never dropped
       for a name that was not seen
"""

from __future__ import annotations

from typing import Final

from drainer.formats.obinlog import reader as obinlog_read
from drainer.schema.sql_tokens import rename_pairs, tokens, unquote
from drainer.txn import Ddl

_KINDS: Final = frozenset({"TABLE", "TABLES", "VIEW", "SEQUENCE", "DATABASE", "SCHEMA", "INDEX"})
_FILLERS: Final = frozenset({"IF", "NOT", "EXISTS"})
_WORDS_BEFORE_KIND: Final = 20

Names = tuple[tuple[str, str], ...]


def pb_ddl(commit_ts: int, text: bytes) -> Ddl:
    """The DDL of a record."""
    schema, query = _divided(text.decode("utf-8", "surrogateescape"))
    names = names_of(query, schema)
    return Ddl(commit_ts, 0, obinlog_read.action_of(query), schema, query, names, 0)


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
    found = _names(tokens(query), query)
    names = tuple((database or schema, table) for database, table in found)
    return tuple(dict.fromkeys(name for name in names if name[0]))


def _names(words: list[str], query: str) -> list[tuple[str, str]]:
    upper = [word.upper() for word in words]
    renamed = rename_pairs(query)
    if renamed:
        pairs = ((pair.old_schema, pair.old_table, pair.new_schema, pair.new_table) for pair in renamed)
        return [name for a, b, c, d in pairs for name in ((a, b), (c, d))]
    if upper[:1] == ["TRUNCATE"]:
        return _list(words, 2 if upper[1:2] == ["TABLE"] else 1)
    if upper[:1] == ["FLASHBACK"] and upper[1:2] in (["DATABASE"], ["SCHEMA"]):
        return [(name, "") for _, name in _restored(words, upper)]
    if upper[:2] in (["RECOVER", "TABLE"], ["FLASHBACK", "TABLE"]):
        return [] if upper[2:3] == ["BY"] else _restored(words, upper)
    kind = next((at for at, word in enumerate(upper[:_WORDS_BEFORE_KIND]) if word in _KINDS and at), 0)
    if not kind or upper[0] not in ("CREATE", "DROP", "ALTER"):
        return []
    if upper[kind] == "INDEX":
        on = next((at for at in range(kind, len(upper)) if upper[at] == "ON"), 0)
        return _list(words, on + 1)[:1] if on else []
    at = kind + 1
    while at < len(upper) and upper[at] in _FILLERS:
        at += 1
    if upper[kind] in ("DATABASE", "SCHEMA"):
        return [(unquote(words[at]), "")] if at < len(words) else []
    found = _list(words, at)
    if upper[0] == "DROP":
        return found
    return found[:1] + _exchanged(words, upper, at)


def _restored(words: list[str], upper: list[str]) -> list[tuple[str, str]]:
    """What came back, and the name that it got."""
    to = upper.index("TO") if "TO" in upper else len(words)
    return _list(words[:to], 2) + _list(words, to + 1)


def _exchanged(words: list[str], upper: list[str], at: int) -> list[tuple[str, str]]:
    """The other table of an EXCHANGE PARTITION."""
    exchange = next((place for place in range(at, len(upper)) if upper[place] == "EXCHANGE"), 0)
    if not exchange or upper[exchange + 1 : exchange + 2] != ["PARTITION"]:
        return []
    table = next((place for place in range(exchange, len(upper)) if upper[place] == "TABLE"), 0)
    return _list(words, table + 1)[:1] if table else []


def _list(words: list[str], at: int) -> list[tuple[str, str]]:
    """Names between commas."""
    found = []
    while at < len(words):
        first = unquote(words[at])
        if words[at + 1 : at + 2] == ["."] and at + 2 < len(words):
            found.append((first, unquote(words[at + 2])))
            at += 3
        else:
            found.append(("", first))
            at += 1
        if words[at : at + 1] != [","]:
            break
        at += 1
    return found

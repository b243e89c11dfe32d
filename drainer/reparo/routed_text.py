"""Routed text: a statement with other names of its tables, where nothing but its text is known.

In     a statement, its current database, where databases and tables are routed to
Out    the same statement, every table and database in it by its name downstream
Why    an archive of a Go Drainer has no definitions that a statement could be derived from
Never  changes anything but names, or leaves a name that the rows after it do not have: a statement whose
       names are not all known raises `NotRoutable`
"""

from __future__ import annotations

from typing import Final

from drainer.ddl.derive.values import Route
from drainer.mysql.literal.quoting import qualified, quote_name
from drainer.mysql.sql_tokens import token_spans, unquote

_OBJECTS: Final = frozenset({"TABLE", "TABLES", "SEQUENCE", "INDEX", "DATABASE", "SCHEMA"})
_BETWEEN: Final = frozenset({"TEMPORARY", "UNIQUE", "FULLTEXT", "SPATIAL", "GLOBAL"})
_BESIDE_RENAME: Final = frozenset({"COLUMN", "INDEX", "KEY", "CONSTRAINT"})


class NotRoutable(Exception):
    """The statement cannot be said with other names. The text says why."""


class _Names:
    """Walks over tokens; notes where a table or database is named."""

    def __init__(self, query: str, schema: str, route: Route) -> None:
        self._spans = token_spans(query)
        self._query = query
        self._schema = schema
        self._route = route
        self._at = 0
        self._found: list[tuple[int, int, str]] = []

    def text(self) -> str:
        verb = self._take()
        if verb in ("CREATE", "DROP", "ALTER"):
            self._about(verb)
        elif verb == "TRUNCATE":
            self._skip("TABLE")
            self._table()
        elif verb == "RENAME" and self._peek() in ("TABLE", "TABLES"):
            self._take()
            self._renames()
        else:
            raise NotRoutable(f"its tables are not known: it begins with {verb}")
        parts, end = [], 0
        for begin, stop, name in self._found:
            parts += [self._query[end:begin], name]
            end = stop
        return "".join(parts) + self._query[end:]

    def _about(self, verb: str) -> None:
        while self._peek() in _BETWEEN:
            self._take()
        about = self._take()
        if about not in _OBJECTS:
            raise NotRoutable(f"its tables are not known: it is about {about or 'nothing'}")
        for word in ("IF", "NOT", "EXISTS"):
            self._skip(word)
        if about in ("DATABASE", "SCHEMA"):
            self._database()
            return
        if about == "INDEX":
            while self._peek() not in ("ON", ""):
                self._take()
            self._take()
        self._table()
        while verb == "DROP" and self._skip(","):
            self._table()
        self._rest(verb)

    def _rest(self, verb: str) -> None:
        """Other tables that a CREATE or ALTER names."""
        depth, first = 0, True
        while word := self._take():
            depth += (word == "(") - (word == ")")
            is_like = verb == "CREATE" and first and (word == "LIKE" or (word == "(" and self._skip("LIKE")))
            if is_like or word == "REFERENCES":
                self._table()
            elif word == "SELECT" and verb == "CREATE":
                raise NotRoutable("its tables are not known: it has a SELECT")
            elif not depth and verb == "ALTER" and word == "RENAME" and self._peek() not in _BESIDE_RENAME:
                for filler in ("TO", "AS", "="):
                    if self._skip(filler):
                        break
                self._table()
            elif not depth and verb == "ALTER" and word == "WITH" and self._skip("TABLE"):
                self._table()
            first = False

    def _renames(self) -> None:
        self._table()
        self._skip("TO")
        self._table()
        while self._skip(","):
            self._table()
            self._skip("TO")
            self._table()

    # -- tokens --------------------------------------------------------------------------------------

    def _peek(self) -> str:
        return self._spans[self._at][0].upper() if self._at < len(self._spans) else ""

    def _take(self) -> str:
        word = self._peek()
        self._at += 1
        return word

    def _skip(self, word: str) -> bool:
        if self._peek() != word:
            return False
        self._at += 1
        return True

    def _name(self) -> tuple[str, int, int]:
        if self._at >= len(self._spans):
            raise NotRoutable("it ends where a name is expected")
        token, begin, end = self._spans[self._at]
        self._at += 1
        return unquote(token), begin, end

    def _database(self) -> None:
        name, begin, end = self._name()
        self._found.append((begin, end, quote_name(self._route(name, "")[0]).decode()))

    def _table(self) -> None:
        name, begin, end = self._name()
        schema = self._schema
        if self._skip("."):
            schema = name
            name, _, end = self._name()
        self._found.append((begin, end, qualified(*self._route(schema, name)).decode()))


def routed_text(query: str, schema: str, route: Route) -> str:
    """Raises `NotRoutable`."""
    return _Names(query, schema, route).text()

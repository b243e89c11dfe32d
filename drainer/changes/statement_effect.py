"""Statement effect: what a DDL does, where nothing but its text is known (archives).

Out    `DdlEffect`, as of a job, with the names as the statement spells them; None: not understood
Holds  of a RENAME the pairs in statement order; of an ALTER TABLE every part that moves the table, changes
       the type of a column, or takes rows of partitions away or brings them
Never  takes a statement that it does not understand for one that does nothing
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from drainer.changes.ddl_effect import DdlEffect, EffectKind, Name, Names, effect, effect_kind
from drainer.mysql.sql_tokens import token_spans, tokens, unquote
from drainer.txn import Ddl
from tidb_binlog.ddl_job import ActionType
from tidb_binlog.tso import Ts

_ACTIONS: Final = {
    ("CREATE", "DATABASE"): ActionType.CREATE_SCHEMA,
    ("CREATE", "SCHEMA"): ActionType.CREATE_SCHEMA,
    ("DROP", "DATABASE"): ActionType.DROP_SCHEMA,
    ("DROP", "SCHEMA"): ActionType.DROP_SCHEMA,
    ("CREATE", "TABLE"): ActionType.CREATE_TABLE,
    ("DROP", "TABLE"): ActionType.DROP_TABLE,
    ("TRUNCATE", "TABLE"): ActionType.TRUNCATE_TABLE,
    ("RENAME", "TABLE"): ActionType.RENAME_TABLE,
    ("CREATE", "VIEW"): ActionType.CREATE_VIEW,
    ("DROP", "VIEW"): ActionType.DROP_VIEW,
    ("CREATE", "SEQUENCE"): ActionType.CREATE_SEQUENCE,
    ("DROP", "SEQUENCE"): ActionType.DROP_SEQUENCE,
}
_OBJECTS: Final = {
    "TABLE": "TABLE",
    "TABLES": "TABLE",
    "DATABASE": "DATABASE",
    "SCHEMA": "DATABASE",
    "VIEW": "VIEW",
    "SEQUENCE": "SEQUENCE",
    "INDEX": "INDEX",
}
_WITHOUT_TABLE: Final = frozenset({"PLACEMENT", "RESOURCE", "USER", "POLICY"})
_NO_ROWS: Final = frozenset({"ANALYZE", "LOCK", "UNLOCK", "SET", "GRANT", "REVOKE"})
_PARTITIONS_GO: Final = frozenset({"DROP", "TRUNCATE", "EXCHANGE", "DISCARD", "IMPORT", "FIRST"})
_OF_COLUMNS: Final = {
    "ADD": ActionType.ADD_COLUMN,
    "DROP": ActionType.DROP_COLUMN,
    "RENAME": ActionType.DROP_COLUMN,  # of that name
}
_NO_COLUMNS: Final = frozenset(
    {"INDEX", "KEY", "UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR", "COLUMNAR", "PRIMARY"}
    | {"FOREIGN", "CONSTRAINT", "CHECK", "PARTITION", "DEFAULT"}
)
BESIDE_RENAME: Final = frozenset({"COLUMN", "INDEX", "KEY", "CONSTRAINT"})
_WORDS_BEFORE_OBJECT: Final = 20


def action_of(query: str) -> int:
    """Number of the job action of a statement, as far as its first words say; 0 for others."""
    words = [word.upper() for word in tokens(query)[:6]]
    for word in words[1:]:
        action = _ACTIONS.get((words[0], word))
        if action is not None:
            return int(action)
    return int(ActionType.TRUNCATE_TABLE if words[:1] == ["TRUNCATE"] else ActionType.NONE)


def statement_effect(query: str, schema: str, action: int = 0) -> DdlEffect | None:
    """What a statement does; `schema` is current unless it begins with USE. None: it is not understood."""
    words = Words(query)
    if words.skip("USE"):
        schema = words.name("")[1]
        words.skip(";")
    verb = words.take()
    read = _VERBS.get(verb)
    if read is None:
        return DdlEffect() if verb in _NO_ROWS else None
    return read(words, schema, action)


class Words:
    """Tokens of a statement, read from the front."""

    def __init__(self, query: str) -> None:
        self.spans = token_spans(query)
        self.at = 0

    def peek(self, ahead: int = 0) -> str:
        """Look at a word that comes, in capitals; "" after the end."""
        at = self.at + ahead
        return self.spans[at][0].upper() if at < len(self.spans) else ""

    def take(self) -> str:
        """Pass over a word."""
        self.at += 1
        return self.peek(-1)

    def skip(self, *words: str) -> bool:
        """Pass over these words if they come next."""
        if all(self.peek(n) == word for n, word in enumerate(words)):
            self.at += len(words)
            return True
        return False

    def skip_first(self, *words: str) -> None:
        """Pass over the first of these words that comes next."""
        any(self.skip(word) for word in words)

    def name(self, schema: str) -> Name:
        """Read the name of a table."""
        first = unquote(self.spans[self.at][0]) if self.at < len(self.spans) else ""
        self.at += 1
        if self.peek() == "." and self.peek(1):
            second = unquote(self.spans[self.at + 1][0])
            self.at += 2
            return first, second
        return schema, first

    def names(self, schema: str) -> tuple[Name, ...]:
        """Names between commas."""
        names = [self.name(schema)]
        while self.skip(","):
            names.append(self.name(schema))
        return tuple(names)

    def object(self) -> str:
        """Go to what a CREATE, DROP or ALTER is about, and pass over it; "" for nothing that is known."""
        for _ in range(_WORDS_BEFORE_OBJECT):
            word = self.take()
            if word in _OBJECTS or word in _WITHOUT_TABLE or not word:
                self.skip("IF")
                self.skip("NOT")
                self.skip("EXISTS")
                return _OBJECTS.get(word, word)
        return ""


def _of_index(words: Words, schema: str) -> DdlEffect:
    while word := words.take():
        if word == "ON":
            return DdlEffect(tables=(words.name(schema),))
    return DdlEffect()


def _create(words: Words, schema: str, action: int) -> DdlEffect | None:
    about = words.object()
    if about == "INDEX":
        return _of_index(words, schema)
    if about not in _OBJECTS:
        return DdlEffect() if about else None
    restored = effect_kind(action) is EffectKind.RESTORE
    done = effect(action if restored else _ACTIONS["CREATE", about])
    return replace(done, tables=((words.name("")[1], ""),) if about == "DATABASE" else (words.name(schema),))


def _drop(words: Words, schema: str, _action: int) -> DdlEffect | None:
    about = words.object()
    if about == "INDEX":
        return _of_index(words, schema)
    if about not in _OBJECTS:
        return DdlEffect()
    tables = ((words.name("")[1], ""),) if about == "DATABASE" else words.names(schema)
    return replace(effect(_ACTIONS["DROP", about]), tables=tables)


def _truncate(words: Words, schema: str, _action: int) -> DdlEffect:
    words.skip("TABLE")
    return replace(effect(ActionType.TRUNCATE_TABLE), tables=(words.name(schema),))


def _moved(done: DdlEffect, renamed: list[tuple[Name, Name]]) -> DdlEffect:
    names = (name for pair in renamed for name in pair)
    tables = tuple(dict.fromkeys((*done.tables, *names)))
    return replace(done, kind=EffectKind.RENAME, tables=tables, renamed=tuple(renamed))


def _rename(words: Words, schema: str, _action: int) -> DdlEffect:
    if not (words.skip("TABLE") or words.skip("TABLES")):
        return DdlEffect()  # a user
    renamed: list[tuple[Name, Name]] = []
    while not renamed or words.skip(","):
        old = words.name(schema)
        words.skip("TO")
        renamed.append((old, words.name(schema)))
    return _moved(effect(ActionType.RENAME_TABLE), renamed)


def _alter(words: Words, schema: str, _action: int) -> DdlEffect:
    about = words.object()
    if about == "DATABASE":
        return DdlEffect(EffectKind.ALTER_DATABASE, tables=((words.name("")[1], ""),))
    if about not in _OBJECTS:
        return DdlEffect()
    name = words.name(schema)
    return _alter_table(words, schema, name) if about == "TABLE" else DdlEffect(tables=(name,))


def _alter_table(words: Words, schema: str, name: Name) -> DdlEffect:
    kind, tables, depth = EffectKind.ALTER, [name], 0
    actions: set[int] = set()
    renamed: list[tuple[Name, Name]] = []
    while word := words.take():
        depth += (word == "(") - (word == ")")
        if depth:
            continue
        if word == "RENAME" and words.peek() not in BESIDE_RENAME:
            words.skip_first("TO", "AS", "=")
            renamed.append((name, words.name(schema)))
        elif word in ("MODIFY", "CHANGE"):
            actions.add(ActionType.MODIFY_COLUMN)
        elif word in _OF_COLUMNS and words.peek() not in _NO_COLUMNS:
            actions.add(_OF_COLUMNS[word])
        elif word in _PARTITIONS_GO and words.peek() in ("PARTITION", "TABLESPACE"):
            emptied = word == "TRUNCATE"
            actions.add(ActionType.TRUNCATE_TABLE_PARTITION if emptied else ActionType.DROP_TABLE_PARTITION)
            while word == "EXCHANGE" and words.peek():
                kind = EffectKind.EXCHANGE
                if words.skip("WITH", "TABLE"):
                    tables.append(words.name(schema))
                else:
                    words.at += 1
    done = DdlEffect(kind, actions=frozenset(actions), tables=tuple(tables))
    return _moved(done, renamed) if renamed else done


def _recover(words: Words, schema: str, _action: int) -> DdlEffect:
    """What came back, and the name that it got; nothing where only the job names it, or a cluster is."""
    if words.skip("DATABASE") or words.skip("SCHEMA"):
        names = [(words.name("")[1], "")]
        if words.skip("TO"):
            names.append((words.name("")[1], ""))
        return replace(effect(ActionType.RECOVER_SCHEMA), tables=tuple(names))
    if not words.skip("TABLE"):
        return effect(ActionType.FLASHBACK_CLUSTER)
    done = effect(ActionType.RECOVER_TABLE)
    if words.skip("BY") or not words.peek():
        return done
    tables = words.names(schema)
    if words.skip("TO") and words.peek() not in ("TIMESTAMP", "TSO"):
        tables += (words.name(schema),)
    return replace(done, tables=tables)


_VERBS: Final[dict[str, Callable[[Words, str, int], DdlEffect | None]]] = {
    "CREATE": _create,
    "DROP": _drop,
    "TRUNCATE": _truncate,
    "RENAME": _rename,
    "ALTER": _alter,
    "RECOVER": _recover,
    "FLASHBACK": _recover,
}


def pb_ddl(commit_ts: Ts, text: bytes) -> Ddl:
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

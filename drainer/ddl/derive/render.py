"""Render: types, columns, keys, partitions and options of a definition as SQL of one downstream.

Out    SQL text; what the downstream cannot have is left out and said in `lacks`, one line each
Why    servers differ in little: collations, functional keys, invisible keys, sequences, row and key sizes
Never  guesses: a type without a counterpart raises `NotDerivable`

Text is for a session with backslash escapes, `time_zone` '+00:00' (timestamps of definitions are in UTC).
Tests  tests/drainer/ddl/derive/test_derive.py
"""

from __future__ import annotations

import re
from typing import Final

from drainer.ddl.derive.definition import (
    Check,
    Column,
    Default,
    Definition,
    ForeignKey,
    Key,
    Part,
    Partition,
    Partitioning,
)
from drainer.mysql.literal.charset import Charset
from drainer.mysql.literal.quoting import quote_name
from drainer.mysql.rows.dialect import Dialect
from tidb_binlog import table_info as ti
from tidb_binlog.late_dataclass import dataclass, field, replace
from tidb_binlog.type_text import LONG_TEXTS, literal, type_text

KEY_BYTES_MAX: Final = 3072
ROW_BYTES_MAX: Final = 65535
_POINTER_BYTES: Final = 12  # what a BLOB or TEXT costs of a row

_LONGTEXT: Final = ti.FieldType(ti.LONG_BLOB, charset="utf8mb4", collate="utf8mb4_bin")
_NO_DEFAULT: Final = frozenset({*LONG_TEXTS, ti.JSON})
_ZERO_TIME: Final = " DEFAULT '0000-00-00 00:00:00'"
_CHARACTER_BYTES: Final = {"utf8mb4": 4, "utf8mb3": 3, "utf8": 3, "gbk": 2, "gb18030": 4}
# The nearest of other servers, best first. A collation that distinguishes more is safe: keys that are
# different upstream stay different.
_NEAREST: Final = {
    "utf8mb4_0900_ai_ci": (
        "utf8mb4_uca1400_nopad_ai_ci",
        "utf8mb4_unicode_520_nopad_ci",
        "utf8mb4_unicode_520_ci",
        "utf8mb4_unicode_ci",
    ),
    "utf8mb4_0900_bin": ("utf8mb4_nopad_bin", "utf8mb4_bin"),
    "gbk_utf8mb4_bin": ("gbk_bin",),
}


class NotDerivable(Exception):
    """What the upstream did cannot be reached by other statements; the text says why."""


@dataclass(frozen=True, slots=True)
class Server:
    """What the downstream said of itself. `collations` empty: not known, everything is taken for granted.

    `invisible`: the word for a key that queries do not use; "" where there is none. `functional_keys`: keys
    may have expressions. `engines` are those with transactions, in lower case; empty: not known. `json`:
    there is such a type.
    `explicit_timestamps`: the session gives a TIMESTAMP no defaults of its own. `rounds_times`: it rounds
    fractions of a second where it is told to.
    """

    dialect: Dialect = Dialect.MARIADB
    collations: frozenset[str] = field(default=frozenset(), repr=False)
    engines: frozenset[str] = field(default=frozenset(), repr=False)
    invisible: str = ""
    functional_keys: bool = False
    json: bool = True
    explicit_timestamps: bool = True
    rounds_times: bool = False

    @property
    def drop_check(self) -> str:
        return "DROP CHECK" if self.dialect is Dialect.MYSQL else "DROP CONSTRAINT"

    @property
    def sequences(self) -> bool:
        return self.dialect is not Dialect.MYSQL

    @property
    def text_defaults(self) -> bool:
        """TEXT, BLOB and JSON columns may have a literal as default."""
        return self.dialect is Dialect.MARIADB

    def collation(self, charset: str, collate: str) -> tuple[str, str]:
        """The pair itself, or the nearest that the server has."""
        names = self.collations
        if not names or collate in names or same_charset(collate) in names:
            return charset, collate
        for nearest in _NEAREST.get(collate, ()):
            if nearest in names:
                return charset, nearest
        if f"{charset}_bin" in names:
            return charset, f"{charset}_bin"
        return "utf8mb4", "utf8mb4_bin"


def same_charset(name: str) -> str:
    """`utf8` and `utf8mb3` are one character set under two names; so are their collations."""
    if name == "utf8" or name.startswith("utf8_"):
        return "utf8mb3" + name[len("utf8") :]
    return name


def name_of(*names: str) -> str:
    """A name in backquotes; a qualified one of several."""
    return ".".join(quote_name(name).decode() for name in names)


# Types ---------------------------------------------------------------------------------------------------


def type_of(column: Column) -> str:
    """The type without character set, as the downstream would print it (with widths)."""
    try:
        return type_text(column.type)
    except ValueError:
        raise NotDerivable(
            f"column {column.name} has type {column.type.tp}, which has no counterpart"
        ) from None


def _bytes_of(column: Column) -> int:
    """Bytes a text or binary column can take of a row; 0 for types that are always small."""
    if column.type.tp in LONG_TEXTS or column.type.tp == ti.JSON:
        return _POINTER_BYTES
    if column.type.tp in (ti.VARCHAR, ti.VAR_STRING, ti.STRING):
        return max(column.type.flen, 0) * _CHARACTER_BYTES.get(column.type.charset, 1) + 2
    return 0


def fitting(definition: Definition, server: Server, lacks: list[str]) -> Definition:
    """The definition with its longest columns as TEXT or BLOB, where a row would be longer than a server
    of MySQL's kind allows (TiDB has no such limit), JSON as LONGTEXT where there is no such type, and no
    AUTO_INCREMENT where rows may hold NULL: these servers would make a number of it."""
    if server.dialect is Dialect.TIDB:
        return definition
    keyed = {part.column.lower() for key in definition.keys for part in key.parts}
    columns = list(definition.columns)
    for number, column in enumerate(columns):
        if column.type.tp == ti.JSON and not server.json:
            columns[number] = replace(
                column, type=_LONGTEXT if column.nullable else replace(_LONGTEXT, flag=1)
            )
            lacks.append(f"column {column.name} is longtext instead of json")
        elif column.auto_increment and column.nullable:
            kind = replace(column.type, flag=column.type.flag & ~ti.FLAG_AUTO_INCREMENT)
            columns[number] = replace(column, type=kind)
            lacks.append(f"column {column.name} is not AUTO_INCREMENT: it may hold NULL")
    total = sum(_bytes_of(column) or 8 for column in columns)
    by_size = sorted(range(len(columns)), key=lambda number: -_bytes_of(columns[number]))
    for number in by_size:
        column = columns[number]
        if total <= ROW_BYTES_MAX or column.type.tp not in (ti.VARCHAR, ti.VAR_STRING):
            break
        if column.name.lower() in keyed:
            continue
        size = _bytes_of(column)
        wide = ti.BLOB if size <= 1 << 16 else ti.MEDIUM_BLOB
        columns[number] = replace(column, type=replace(column.type, tp=wide, flen=-1))
        total += _POINTER_BYTES - size
        lacks.append(f"column {column.name} is {type_of(columns[number])} instead of {type_of(column)}")
    by_name = {column.name.lower(): column for column in columns}
    return replace(definition, columns=tuple(columns), by_name=by_name)


# Columns -------------------------------------------------------------------------------------------------


def collated(charset: str, collate: str) -> str:
    """`CHARACTER SET x COLLATE y`. MySQL takes `binary` for the name of a collation only if it is quoted."""
    return f"CHARACTER SET {charset} COLLATE {'`binary`' if collate == 'binary' else collate}"


def collate_clause(column: Column, server: Server, lacks: list[str]) -> str:
    if column.type.tp in (ti.ENUM, ti.SET) and column.type.charset == "binary":
        return f" {collated('binary', 'binary')}"
    if not column.is_text:
        return ""
    pair = column.type.charset, column.type.collate
    charset, collate = server.collation(*pair)
    if (charset, collate) != pair:
        lacks.append(f"column {column.name} has collation {collate} instead of {pair[1]}")
    return f" {collated(charset, collate)}"


_CUT: Final = "column {} has its default cut: that of the upstream is longer than it"


def default_clause(column: Column, default: Default | None, server: Server, lacks: list[str]) -> str:
    """` DEFAULT ...`, or nothing."""
    if default is None:
        if column.type.tp != ti.TIMESTAMP:
            return ""
        # Or an old server gives it the current time, and makes it NOT NULL.
        return " DEFAULT NULL" if column.nullable else "" if server.explicit_timestamps else _ZERO_TIME
    if default.bits is not None:
        return f" DEFAULT b'{int.from_bytes(default.bits, 'big'):b}'"
    if default.expression:
        if "nextval" in default.text.lower():
            if server.sequences:
                return f" DEFAULT {default.text}"  # TiDB takes no parentheses around it
            lacks.append(f"column {column.name} has no default {default.text}")
            return ""
        return f" DEFAULT ({expression(default.text, server)})"
    if default.is_now:
        return f" DEFAULT {_now(column)}"
    if column.type.tp in _NO_DEFAULT and not server.text_defaults:
        return f" DEFAULT ({literal(default.text)})"
    if column.type.tp in (ti.STRING, ti.VARCHAR):
        # TiDB keeps a byte as three, and takes any text in a session that is not strict. Rows have it cut.
        if column.type.charset == "binary":
            raw = default.text.encode("utf-8", "surrogateescape")
            shown = raw.rstrip(b"\0") if column.type.tp == ti.STRING else raw
            if len(shown) > column.type.flen:
                lacks.append(_CUT.format(column.name))
                return f" DEFAULT x'{raw[: column.type.flen].hex()}'"
            return f" DEFAULT {literal(shown.decode('utf-8', 'surrogateescape'))}"
        text = default.text
        if len(text.rstrip(" ") if column.type.tp == ti.STRING else text) > column.type.flen:
            lacks.append(_CUT.format(column.name))
            default = replace(default, text=text[: column.type.flen])
    charset = Charset(column.type.charset, max(column.type.flen, 0))
    if column.is_text and server.dialect is not Dialect.TIDB and Charset.is_narrow(charset.name):
        raw = default.text.encode("utf-8", "surrogateescape")
        if not charset.holds(raw):  # it would be refused; old rows get it as rows get such values
            lacks.append(f"column {column.name} has the default {default.text} as {charset.name} can have it")
            if column.type.tp in (ti.ENUM, ti.SET):  # the server has its members so
                return f" DEFAULT {literal(charset.with_marks(default.text))}"
            return f" DEFAULT {charset.literal(raw).decode()}"
    return f" DEFAULT {literal(default.text)}"


def _now(column: Column) -> str:
    return f"CURRENT_TIMESTAMP({column.type.fsp})" if column.type.fsp else "CURRENT_TIMESTAMP"


_PLAIN_TEXT: Final = re.compile(r"'[ -&(-\[\]-~]*'")
_TEXT: Final = r"'(?:[^'\\]|\\.|'')*'"
_LITERAL: Final = re.compile(rf"(?is)`[^`]*`|(?:_([a-z0-9]+))?({_TEXT})(?=(\s+collate\s+(?!utf8mb4))?)")
_CONVERTED: Final = ("gbk", "gb18030")


def expression(text: str, server: Server) -> str:
    """An expression of a definition. TiDB keeps literals as UTF-8, whatever character set they name, and
    counts so; of GBK it takes the bytes. MariaDB keeps `_utf8mb4'é'` as a text without the backslashes of its
    bytes, and computes with that, and cannot read a quote in it again; the session has the same character
    set."""
    if server.dialect is Dialect.TIDB:
        return text
    bare = server.dialect is Dialect.MARIADB
    return _LITERAL.sub(lambda match: _own_literal(match, bare=bare), text)


def _own_literal(match: re.Match[str], *, bare: bool) -> str:
    charset, text = (match[1] or "").lower(), match[2]
    if text is None or _PLAIN_TEXT.fullmatch(text):
        return match[0]
    if charset == "binary":
        raw = text[1:-1].replace("''", "'").encode("utf-8", "surrogateescape")
        return f"x'{raw.hex()}'" if bare and b"\\" not in raw else match[0]
    unicode = text if bare or not charset else f"_utf8mb4{text}"
    is_collated = match[3] is not None and Charset.is_narrow(charset) and Charset(charset).has(text)
    return f"convert({unicode} using {charset})" if is_collated or charset in _CONVERTED else unicode


_COMPUTED_ALIKE: Final = re.compile(
    "(?i)char_length|concat|day|hex|if|ifnull|in|left|length|md5|mod|month|right|substr|substring|trim|year"
)
_OF_BYTES: Final = re.compile(r"(?i)\b(?:hex|length|md5)\b")
_NEVER_NEGATIVE: Final = re.compile(r"(?i)[&|^~<>=!]|\b(?:is|in|between|and|x?or|not|length|char_length)\b")
_WIDE: Final = frozenset({"utf8mb4", "utf8mb3", "utf8"})
_UNICODE: Final = _WIDE | {"ascii"}
_EXACT_TYPES: Final = frozenset(
    {ti.TINY, ti.SHORT, ti.INT24, ti.LONG, ti.LONGLONG, ti.DATE, ti.YEAR, *ti.STRING_TYPES}
)


def own_rules(column: Column, definition: Definition) -> list[str]:
    """The line that says that a generated column's values can differ: servers round, print and compare in
    their own ways. Whole numbers, dates and text in plain functions are computed alike, but not octets that
    are no text, nor what becomes a YEAR or a date and may be none: TiDB has 2155 where others have 0.
    Nor what becomes UNSIGNED and may be negative: of -1 a virtual one has the highest number in a TiDB."""
    text = re.sub(f"(?s){_TEXT}", "''", column.generated)
    named = [definition.column(name) for name in re.findall(r"`([^`]+)`", text)]
    exact = all(operand is not None and operand.type.tp in _EXACT_TYPES for operand in (column, *named))
    plain = all(map(_COMPUTED_ALIKE.fullmatch, re.findall(r"(\w+)\s*\(", text)))
    texts = [operand for operand in named if operand is not None and operand.is_text]
    numbers = bool(texts) and re.search(r"(?i)[-+*%]|\b(?:div|mod)\b", text)  # out of a text
    narrow = any(operand.type.charset not in _UNICODE for operand in texts)  # TiDB keeps UTF-8 in them
    # What a lax session has cut, another session refuses or keeps.
    cut = column.is_text and column.type.charset not in _WIDE and (texts or not column.generated.isascii())
    strange = (
        re.search(r"/|\d[.e]|\b(?:[xb]''|0[xb])", text)
        or numbers
        or cut
        or (narrow and _OF_BYTES.search(text))
    )
    is_as_it_is = re.fullmatch(r"`[^`]+`", text) and all(it and it.type.tp == column.type.tp for it in named)
    turned = column.type.tp in (ti.YEAR, ti.DATE) and not is_as_it_is
    signed = any(it and it.type.tp in ti.INTEGER_TYPES and not it.type.unsigned for it in named)
    negative = column.type.unsigned and (signed or "-" in text) and not _NEVER_NEGATIVE.search(text)
    if not column.generated or (exact and plain and not strange and not turned and not negative):
        return []
    return [f"column {column.name} is computed by the downstream's own rules: its values can differ"]


def column_clause(
    column: Column,
    server: Server,
    lacks: list[str],
    *,
    auto_increment: bool = True,
    plain: bool = False,
    kind: str = "",
) -> str:
    """Name and definition. `plain`: a generated column becomes an ordinary one. `kind`: type and collation in
    place of its own."""
    kind = kind or f"{type_of(column)}{collate_clause(column, server, lacks)}"
    text = f"{name_of(column.name)} {kind}"
    if column.generated and not plain:
        kind = "STORED" if column.stored else "VIRTUAL"
        text += f" GENERATED ALWAYS AS ({expression(column.generated, server)}) {kind}"
        if not column.nullable and server.dialect is not Dialect.MARIADB:
            text += " NOT NULL"
    else:
        text += " NULL" if column.nullable or column.generated else " NOT NULL"  # nothing writes the latter
        if column.auto_increment and auto_increment:
            text += " AUTO_INCREMENT"
        elif not column.generated:
            text += default_clause(column, column.default, server, lacks)
        if column.on_update_now:
            text += f" ON UPDATE {_now(column)}"
    if column.comment:
        text += f" COMMENT {literal(column.comment)}"
    return text


# Keys ----------------------------------------------------------------------------------------------------


def key_clause(key: Key, definition: Definition, server: Server, lacks: list[str]) -> str | None:
    """`PRIMARY KEY (...)`, `UNIQUE KEY name (...)` or `KEY name (...)`; None: the server cannot have it."""
    if key.has_expressions and not (
        server.functional_keys and not (server.dialect is Dialect.MYSQL and any(p.array for p in key.parts))
    ):
        words = "multi-valued key" if any(part.array for part in key.parts) else "expression key"
        lacks.append(f"{words} {key.name}")
        return None
    parts_used, unique = key.parts, key.unique
    if server.dialect is not Dialect.TIDB and not key.primary:
        parts_used = _short_enough(key, definition)
    if parts_used != key.parts:
        unique = False
        lacks.append(f"key {key.name} is longer than {KEY_BYTES_MAX} bytes: a prefix, and not unique")
    parts = ",".join(_part(part, server) for part in parts_used)
    of_columns = [definition.column(part.column) for part in key.parts if key.primary]
    if server.dialect is Dialect.MARIADB and any(column and column.generated for column in of_columns):
        lacks.append("primary key, which has a generated column: a unique key")
        return f"UNIQUE KEY ({parts})"
    if key.primary:
        word = "CLUSTERED" if definition.clustered else "NONCLUSTERED"
        return f"PRIMARY KEY ({parts})" + (f" {word}" if server.dialect is Dialect.TIDB else "")
    comment = f" COMMENT {literal(key.comment)}" if key.comment else ""
    return f"{'UNIQUE ' if unique else ''}KEY {name_of(key.name)} ({parts}){comment}"


def _part(part: Part, server: Server) -> str:
    if part.expression:
        return f"({expression(part.expression, server)})"
    return name_of(part.column) + (f"({part.length})" if part.length > 0 else "")


def _short_enough(key: Key, definition: Definition) -> tuple[Part, ...]:
    parts_short = []
    for part in key.parts:
        column = definition.column(part.column)
        width = _CHARACTER_BYTES.get(column.type.charset, 1) if column else 1
        length = part.length
        if length < 0 and column is not None and column.type.tp in ti.STRING_TYPES:
            length = column.type.flen
        too_long = length > 0 and length * width > KEY_BYTES_MAX
        parts_short.append(replace(part, length=KEY_BYTES_MAX // width) if too_long else part)
    return tuple(parts_short)


def foreign_key_clause(key: ForeignKey, schema: str, table: str) -> str:
    """`schema` and `table` are where the referenced table is downstream."""
    own = ",".join(map(name_of, key.columns))
    referenced = ",".join(map(name_of, key.referenced))
    text = f"CONSTRAINT {name_of(key.name)} FOREIGN KEY ({own})"
    text += f" REFERENCES {name_of(schema, table)} ({referenced})"
    if key.on_delete:
        text += f" ON DELETE {key.on_delete}"
    if key.on_update:
        text += f" ON UPDATE {key.on_update}"
    return text


def check_clause(check: Check, server: Server) -> str:
    enforced = "" if check.enforced else " NOT ENFORCED"
    return f"CONSTRAINT {name_of(check.name)} CHECK ({expression(check.expression, server)}){enforced}"


# Partitions ----------------------------------------------------------------------------------------------


def partition_clause(partitioning: Partitioning) -> str:
    """`PARTITION BY ... (...)`."""
    listed = partition_list(partitioning, partitioning.partitions)
    return f"PARTITION BY {partition_by(partitioning)} ({listed})"


def partition_by(partitioning: Partitioning) -> str:
    """`RANGE (...)`, `LIST COLUMNS(...)` and the like."""
    columns = ",".join(map(name_of, partitioning.columns))
    if partitioning.kind in (ti.PARTITION_RANGE, ti.PARTITION_LIST):
        word = "RANGE" if partitioning.kind == ti.PARTITION_RANGE else "LIST"
        return f"{word} COLUMNS({columns})" if columns else f"{word} ({partitioning.expression})"
    if partitioning.kind == ti.PARTITION_HASH:
        return f"HASH ({partitioning.expression})"
    return f"KEY ({columns})"


def partition_list(partitioning: Partitioning, partitions: tuple[Partition, ...]) -> str:
    return ",".join(_partition(partitioning, partition) for partition in partitions)


def _partition(partitioning: Partitioning, partition: Partition) -> str:
    text = f"PARTITION {name_of(partition.name)}"
    if partitioning.kind == ti.PARTITION_RANGE:
        return f"{text} VALUES LESS THAN ({','.join(partition.less_than)})"
    if partitioning.kind == ti.PARTITION_LIST:
        listed = partition.listed(len(partitioning.columns))
        return f"{text} VALUES IN ({listed})" if listed else f"{text} DEFAULT"
    return text

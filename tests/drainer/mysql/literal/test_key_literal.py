"""Keys against real servers: a list of keys finds what one statement for each key finds, in every character
set, collation and type.

The server is asked for the character sets that it has, for the characters that each of them holds, and for
what it stored. Rows go through the same plans and statements as a lane's.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from drainer.mysql.connection import Connection, Target, connect
from drainer.mysql.errors import SessionError
from drainer.mysql.rows.change import PUT_INSERT, PUT_UPDATE, REMOVE, Change, TableTarget
from drainer.mysql.rows.row_fold import fold
from drainer.mysql.rows.statement import statements
from drainer.mysql.rows.table_target import target_of
from drainer.mysql.table_reader import read_table
from drainer.txn import TableVersion
from tests.common.rowcodec.tables import binary, index, kind, table
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.table_info import FieldType, TableInfo

pytestmark = pytest.mark.integration

ASCII = ["a", "b", "zz", "it's", "back\\slash", "{~}", "x y", "", "0"]
LETTERS = [
    chr(code)
    for first, last in ((0xA1, 0x600), (0xE01, 0xE40), (0x10D0, 0x10F0), (0x3041, 0x3097), (0x4E00, 0x4E40))
    for code in range(first, last)
]
COMPOSITES = 40
Values = dict[str, Any]


@pytest.fixture(scope="module")
def connection(server: Target) -> Iterator[Connection]:
    opened = connect(server)
    opened.run(b"DROP DATABASE IF EXISTS kl")
    opened.run(b"CREATE DATABASE kl")
    yield opened
    opened.rollback()
    opened.run(b"DROP DATABASE kl")
    opened.close()


@dataclass
class Rows:
    """A table on the server, and rows of it as a lane has them."""

    connection: Connection
    info: TableInfo
    target: TableTarget
    encoder: RowEncoder

    @classmethod
    def of(cls, connection: Connection, info: TableInfo, create: str) -> Rows:
        connection.run(b"DROP TABLE IF EXISTS kl.t")
        connection.run(create.encode())
        found = read_table(connection, "kl", "t")
        return cls(connection, info, target_of(TableVersion(info, "kl", "t", 1), 4, found), RowEncoder(info))

    def inserted(self, row: Values) -> Change:
        raw = self.encoder.insert(row, rowid=1)
        return self.target, PUT_INSERT, self.target.sql.insert_key(raw), raw, 0

    def deleted(self, row: Values) -> Change:
        raw = self.encoder.delete(row, rowid=1)
        return self.target, REMOVE, self.target.sql.delete_key(raw), raw, 0

    def updated(self, old: Values, new: Values) -> Change:
        raw = self.encoder.update(old, new, rowid=1)
        key, _, split = self.target.sql.update_keys(raw)
        return self.target, PUT_UPDATE, key, raw, split

    def apply(self, changes: list[Change]) -> None:
        for statement in statements(fold(changes), 1 << 20, replaying=False):
            affected = self.connection.run(statement.sql)
            assert statement.drift(affected) == 0, (affected, statement.expected, statement.sql.decode())

    def count(self, condition: str = "TRUE") -> int:
        ((found,),) = self.connection.rows(f"SELECT COUNT(*) FROM kl.t WHERE {condition}".encode())
        return int(found)

    def found(self, rows: list[Values]) -> int:
        """By one condition on the keys of all these rows."""
        sql = self.target.sql
        literals = [sql.key_literal_of_delete(self.encoder.delete(row, rowid=1)) for row in rows]
        return self.count(sql.key_list.condition(literals).decode())

    def put(self, rows: list[Values]) -> list[Values]:
        """Those of them that the server takes, one by one, and that one condition for each finds."""
        taken = []
        for row in rows:
            literal = self.target.sql.insert_literals(self.encoder.insert(row, rowid=1))
            insert = b"INSERT INTO kl.t (%b) VALUES %b" % (self.target.sql.column_list, literal)
            try:
                self.connection.run(insert)
            except SessionError:
                continue
            taken.append(row)
        return taken


def lists_find_what_single_keys_find(rows: Rows, all_: list[Values], rng: random.Random) -> None:
    """Then all kinds of changes, in batches, as a lane makes them; `v` is no part of the key."""
    taken = rows.put(all_)
    single = sum(rows.found([row]) for row in taken)
    assert rows.found(taken) == single == len(taken) == rows.count()
    changed = [rows.updated(row, {**row, "v": row["v"] + 1000}) for row in taken]
    rows.apply(changed)
    assert rows.count("v >= 1000") == len(taken) == rows.count()
    rng.shuffle(taken)
    gone, left = taken[: len(taken) // 2], taken[len(taken) // 2 :]
    rows.apply([rows.deleted({**row, "v": row["v"] + 1000}) for row in gone])
    assert rows.count() == len(left) == rows.found(left)
    assert rows.found(gone) == 0
    rows.apply([rows.inserted(row) for row in gone])
    rows.apply([rows.deleted({**row, "v": row["v"] + 1000}) for row in left])
    assert rows.count() == rows.count("v < 1000") == len(gone) == rows.found(gone)
    rows.connection.commit()


def character_sets(connection: Connection) -> dict[str, list[str]]:
    """Collations by character set."""
    try:
        query = b"SELECT FULL_COLLATION_NAME, CHARACTER_SET_NAME FROM information_schema."
        found = connection.rows(query + b"COLLATION_CHARACTER_SET_APPLICABILITY")
    except SessionError:
        query = b"SELECT COLLATION_NAME, CHARACTER_SET_NAME FROM information_schema.COLLATIONS"
        found = connection.rows(query)
    sets: dict[str, list[str]] = {}
    for collation, charset in found:
        if charset and charset != "binary":
            sets.setdefault(charset, []).append(collation)
    return sets


def held(connection: Connection, charset: str) -> list[str]:
    """Characters that the server can store in a character set, and give back."""
    same = "CONVERT(CONVERT('{0}' USING {1}) USING utf8mb4) = '{0}' COLLATE utf8mb4_bin"
    query = "SELECT " + ",".join(same.format(letter, charset) for letter in LETTERS)
    (flags,) = connection.rows(query.encode())
    return [letter for letter, flag in zip(LETTERS, flags, strict=True) if flag]


def text_rows(rng: random.Random, letters: list[str], charset: str) -> list[Values]:
    some = rng.sample(letters, min(12, len(letters)))
    # MySQL 5.6 stores an apostrophe as a byte of its own in armscii8, and no comparison finds it.
    plain = [text for text in ASCII if charset != "armscii8" or "'" not in text]
    texts = [*plain, *some, *(letter + "x" for letter in some[:4]), "".join(some[:3])]
    return [
        {"x": text, "k": number, "y": rng.choice(["é", "e", "日本"]), "v": number}
        for number, text in enumerate(dict.fromkeys(texts))
    ]


TEXT_KEYS = {"one": ("x",), "two": ("x", "k"), "three": ("k", "x", "y")}


def text_table(parts: tuple[str, ...], *, unique: bool) -> TableInfo:
    """As upstream has it: text is utf8mb4 there, whatever it is downstream."""
    columns = {
        "x": kind("varchar", flen=20, not_null=True),
        "k": kind("int", not_null=True),
        "y": kind("varchar", flen=20, not_null=True),
        "v": kind("int"),
    }
    places = {name: place for place, name in enumerate(columns)}
    keys = [index(1, *((part, places[part]) for part in parts), primary=True)]
    if unique:
        keys.append(index(2, ("v", places["v"])))
    return table(*columns.items(), handle="rowid", indexes=tuple(keys))


@pytest.mark.parametrize("unique", [False, True], ids=["replace", "rewrite"])
def test_texts_of_every_character_set(connection: Connection, unique: bool) -> None:
    """The forms of the key in turn, a collation or two of each set: more of what TiDB has stand below."""
    rng, forms = random.Random(unique), itertools.cycle(TEXT_KEYS.values())
    for charset, collations in sorted(character_sets(connection).items()):
        letters = held(connection, charset)
        binary_ = [collation for collation in collations if collation.endswith("_bin")]
        for collation in dict.fromkeys([*([] if unique else binary_[:1]), rng.choice(collations)]):
            check_text(connection, charset, collation, letters, next(forms), rng, unique=unique)


def check_text(
    connection: Connection,
    charset: str,
    collation: str,
    letters: list[str],
    parts: tuple[str, ...],
    rng: random.Random,
    *,
    unique: bool,
) -> None:
    of = f"CHARACTER SET {charset} COLLATE {collation}"
    more = ", UNIQUE (v)" if unique else ""
    create = (
        f"CREATE TABLE kl.t (x VARCHAR(20) {of} NOT NULL, k INT NOT NULL,"
        f" y VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, v INT,"
        f" PRIMARY KEY ({', '.join(parts)}){more})"
    )
    rows = Rows.of(connection, text_table(parts, unique=unique), create)
    try:
        lists_find_what_single_keys_find(rows, text_rows(rng, letters, charset), rng)
    except AssertionError as error:
        raise AssertionError(f"{charset} {collation}: {error}") from error


@pytest.mark.parametrize("charset", ["latin1", "gbk", "utf8mb4"])
def test_collations_of_what_tidb_has(connection: Connection, charset: str) -> None:
    rng = random.Random(charset)
    sets = character_sets(connection)
    if charset in sets:
        letters = held(connection, charset)
        # MariaDB's uca1400 are languages, each compared in eight ways: one way of each, by lot.
        names = rng.sample(sorted(sets[charset]), len(sets[charset]))
        by_language = {name.partition("_uca1400_")[2].split("_")[0] or name: name for name in names}
        for collation in by_language.values():
            check_text(connection, charset, collation, letters, TEXT_KEYS["two"], rng, unique=False)


# -- keys of several columns of any type -----------------------------------------------------------

Part = tuple[FieldType, str, list[Any]]
FLOATS = [0.1, 0.25, -1.5, 3.1, 12345.68, 1e-7, 7.0, -0.3]
TIMES = ["00:00:00", "-12:34:56", "838:59:59", "01:02:03", "-00:00:01"]
MOMENTS = ["2024-01-02 03:04:05", "1999-12-31 23:59:59", "2024-01-02 03:04:06", "2000-02-29 00:00:00"]
DECIMALS = ["1.10", "-0.01", "0.00", "99999999.99", "1.11", "-7.00"]
LATIN, WORDS = ["é", "e", "ß", "ss", "Ä x", "'", "\\"], ["日本", "日", "é", "a", "'q'", "b\\"]
ELEMENTS = ("a", "b'c", "é", "x y")


def part(name: str, type_: FieldType, values: list[Any]) -> Part:
    return type_, name + " NOT NULL", values


def named(name: str, declared: str, values: list[Any], **more: Any) -> Part:
    return part(declared, kind(name, not_null=True, **more), values)


def bytes_of(name: str, declared: str, values: list[bytes], **more: Any) -> Part:
    return part(declared, binary(name, not_null=True, **more), values)


def fractions(values: list[str], digits: int) -> list[str]:
    ends = ["0" * digits, "1".rjust(digits, "0"), "5".ljust(digits, "0")]
    return [f"{value}.{end}" for value in values if value != "838:59:59" for end in ends]


PARTS: dict[str, Part] = {
    "tinyint": named("tinyint", "TINYINT", [-128, 0, 127, 5]),
    "int": named("int", "INT", [-1, 0, 1, 2**31 - 1]),
    "unsigned": named("bigint", "BIGINT UNSIGNED", [0, 1, 2**63, 2**64 - 1, 2**53 + 1], unsigned=True),
    "bigint": named("bigint", "BIGINT", [-(2**63), 2**63 - 1, 2**53, 2**53 + 1, 0]),
    "bigint_in_text": named("bigint", "VARCHAR(30)", [2**53, 2**53 + 1, -5, 0]),
    "decimal": named("decimal", "DECIMAL(10,2)", DECIMALS, flen=10, decimal=2),
    "decimal_in_text": named("decimal", "VARCHAR(30)", DECIMALS, flen=10, decimal=2),
    "float": named("float", "FLOAT", FLOATS),
    "double": named("double", "DOUBLE", FLOATS),
    "float_md": named("float", "FLOAT(10,3)", [0.1, 0.125, -1.5, 3.1, 1234.5], flen=10, decimal=3),
    "double_md": named("double", "DOUBLE(10,3)", [0.1, 0.125, -1.5, 3.1, 12345.678], flen=10, decimal=3),
    "year": named("year", "YEAR", [1901, 1970, 2023, 2155, 2000, 0]),
    "bit": named("bit", "BIT(9)", [0, 1, 256, 511], flen=9),
    "bit64": named("bit", "BIT(64)", [0, 2**64 - 1, 2**63], flen=64),
    "date": named("date", "DATE", ["2024-01-02", "1000-01-01", "9999-12-31"]),
    "datetime": named("datetime", "DATETIME", MOMENTS),
    "datetime3": named("datetime", "DATETIME(3)", fractions(MOMENTS, 3), decimal=3),
    "datetime6": named("datetime", "DATETIME(6)", fractions(MOMENTS, 6), decimal=6),
    "timestamp": named("timestamp", "TIMESTAMP DEFAULT '2001-01-01'", MOMENTS),
    "timestamp6": named(
        "timestamp", "TIMESTAMP(6) DEFAULT '2001-01-01'", fractions(MOMENTS, 6), decimal=6
    ),
    "time": named("time", "TIME", TIMES),
    "time3": named("time", "TIME(3)", fractions(TIMES, 3), decimal=3),
    "enum": named("enum", "ENUM('a','b''c','é','x y')", list(ELEMENTS), elems=ELEMENTS),
    "set": named("set", "SET('a','b''c','é','x y')", ["", "a", "é,x y", "b'c"], elems=ELEMENTS),
    "enum_latin1": named(
        "enum", "ENUM('a','b''c','é','x y') CHARACTER SET latin1", list(ELEMENTS), elems=ELEMENTS
    ),
    "set_latin1": named(
        "set", "SET('a','b''c','é','x y') CHARACTER SET latin1", ["", "a", "é,x y", "é"], elems=ELEMENTS
    ),
    "binary": bytes_of("char", "BINARY(4)", [b"a\0\0\0", b"\xff\0\0\0", b"abcd", b"\0\0\0\0"], flen=4),
    "binary_wider": bytes_of("char", "BINARY(7)", [b"a\0\0\0", b"\xff\0\0\0", b"abcd"], flen=4),
    "varbinary": bytes_of("varchar", "VARBINARY(9)", [b"", b"a", b"a\0", b"a ", b"\xc3\xa9", b"'\\"], flen=9),
    "varchar": named("varchar", "VARCHAR(9)", [*WORDS, "A", "a "][:-1], flen=9),
    "char": named("char", "CHAR(9)", WORDS, flen=9),
    "general_ci": named("varchar", "VARCHAR(9) COLLATE utf8mb4_general_ci", WORDS, flen=9),
    "utf8": named("varchar", "VARCHAR(9) CHARACTER SET utf8", WORDS, flen=9),
    "latin1": named("varchar", "VARCHAR(9) CHARACTER SET latin1 COLLATE latin1_bin", LATIN, flen=9),
    "latin1_ci": named("char", "CHAR(9) CHARACTER SET latin1", LATIN[2:], flen=9),
    "latin1_bytes": named("varchar", "VARCHAR(36) CHARACTER SET latin1 COLLATE latin1_bin", WORDS, flen=9),
    "ascii": named("varchar", "VARCHAR(9) CHARACTER SET ascii", ["a", "b", "'"], flen=9),
    "gbk": named("varchar", "VARCHAR(9) CHARACTER SET gbk", ["日本", "日", "a", "'q'", "b\\"], flen=9),
    "text_in_bytes": named("varchar", "VARBINARY(36)", WORDS, flen=9),
}  # fmt: skip


def composite(names: list[str], rng: random.Random, *, unique: bool) -> tuple[TableInfo, str, list[Values]]:
    columns = {f"c{number}": PARTS[name] for number, name in enumerate(names)}
    keys = [index(1, *((called, place) for place, called in enumerate(columns)), primary=True)]
    if unique:
        keys.append(index(2, ("v", len(columns))))
    types = [(called, entry[0]) for called, entry in columns.items()]
    info = table(*types, ("v", kind("int")), handle="rowid", indexes=tuple(keys))
    declared = ", ".join(f"{called} {entry[1]}" for called, entry in columns.items())
    more = ", UNIQUE (v)" if unique else ""
    create = f"CREATE TABLE kl.t ({declared}, v INT, PRIMARY KEY ({', '.join(columns)}){more})"
    rows: list[Values] = []
    seen = set()
    for _ in range(40):
        made = {called: rng.choice(entry[2]) for called, entry in columns.items()}
        if repr(made) not in seen:
            seen.add(repr(made))
            rows.append({**made, "v": len(rows)})
    return info, create, rows


@pytest.mark.parametrize("name", PARTS)
def test_a_key_of_one_column_of_each_type(connection: Connection, name: str) -> None:
    rng = random.Random(name)
    info, create, rows = composite([name], rng, unique=False)
    lists_find_what_single_keys_find(Rows.of(connection, info, create), rows, rng)


@pytest.mark.parametrize("seed", range(COMPOSITES))
def test_keys_of_several_columns(connection: Connection, seed: int) -> None:
    rng = random.Random(seed)
    # Each type is in a table at least.
    first = list(PARTS)[seed % len(PARTS)]
    names = [first, *rng.choices(list(PARTS), k=rng.randint(1, 3))]
    rng.shuffle(names)
    info, create, rows = composite(names, rng, unique=seed % 2 == 1)
    try:
        lists_find_what_single_keys_find(Rows.of(connection, info, create), rows, rng)
    except AssertionError as error:
        raise AssertionError(f"{names}: {error}") from error

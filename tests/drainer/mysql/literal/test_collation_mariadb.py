"""Every collation of the server that is told by its characters: what its unique index takes for one key has
equal bytes, of random texts that are nearly equal."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

import pytest

from drainer.mysql.collation_reader import _weight, _weights, read_collation
from drainer.mysql.connection import Connection, Target, connect
from drainer.mysql.errors import StatementRefused
from drainer.mysql.literal.collation import is_per_character
from drainer.mysql.literal.quoting import string_literal

pytestmark = pytest.mark.integration

TEXTS: Final = 500
# Of each, all are one to some collation.
GROUPS: Final = [
    *(["a", "A", "á", "Á", "ａ", "\U0001d400", "ª", "a\u0301", "ã"], ["ß", "ss", "ẞ", "s", "ſ", "SS", "ß"]),
    *(["ﬁ", "fi", "FI", "f", "i", "ﬃ", "ı", "İ", "i\u0307"], ["Æ", "ae", "AE", "æ", "ǽ", "e"]),
    *(["", "\0", "\u00ad", "\u200b", "\u0301", "\u200d", "\x7f", "\ufe0f", "\U000e0001"], ["œ", "oe", "ø"]),
    *([" ", "\xa0", "  ", "\t", "\n", "\u3000", "\u2003"], ["и", "й", "и\u0306", "И", "Й", "ѝ", "ё", "е"]),
    *(["l", "l·", "ŀ", "L\u0387", "ł", "ǉ"], ["ก", "เก", "กเ", "เ", "ຂເ", "ເຂ"], ["ü", "ue", "Ü", "y", "u"]),
    *(["가", "\u1100\u1161", "ᄀ", "\u3131"], ["日", "⽇", "曰", "\U0002f8d6"], ["か", "カ", "が", "ｶ", "ｶﾞ"]),
    *(["Ω", "\u2126", "ω", "ώ"], ["K", "\u212a", "k", "ķ"], ["1", "１", "①", "١", "\U0001d7cf"]),
    *(["😀", "😁", "\U0001f3fb", "\ufffd"], ["\U00020000", "\U00020001", "\U0002a6d6"], ["ij", "ĳ", "IJ"]),
    *(["ǆ", "dž", "DŽ", "ǅ"], ["½", "1\u20442"], ["㎏", "kg", "KG"], ["’", "'", "ʼ", "\\"], ["-", "‐", "—"]),
    *(["c", "č", "ç", "ch", "CH"], ["ö", "o\u0308", "Ö", "ő", "oe"], ["\u0cc6\u0cd5", "\u0cc7"], ["क", "क़"]),
    *(["\u0fb2\u0f81", "\u0f76", "\u0f77"], ["\u09c7\u09be", "\u09cb"], ["ñ", "n\u0303", "ŋ"], ["z", "Ž"]),
]  # fmt: skip


@pytest.fixture
def connection(server: Target) -> Iterator[Connection]:
    opened = connect(server)
    opened.run(b"DROP DATABASE IF EXISTS texts")
    opened.run(b"CREATE DATABASE texts")
    opened.run(b"SET SESSION sql_mode=''")
    yield opened
    opened.rollback()
    opened.run(b"DROP DATABASE texts")
    opened.close()


def collations(connection: Connection) -> list[str]:
    """Of the server, that are told by their characters."""
    try:
        rows = connection.rows(
            b"SELECT FULL_COLLATION_NAME FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY"
        )
    except StatementRefused:  # only MariaDB has names that are short
        rows = connection.rows(b"SELECT COLLATION_NAME FROM information_schema.COLLATIONS")
    return sorted(name for (name,) in rows if is_per_character(str(name)))


def nearly_equal(pick: random.Random, upto: str) -> list[str]:
    """Different ones, most with others beside them that are made of the same groups."""
    found: dict[str, None] = {}
    while len(found) < TEXTS:
        groups = [pick.choice(GROUPS) for _ in range(pick.randint(1, 3))]
        for _ in range(4):
            text = "".join(map(pick.choice, groups)) + pick.choice(["", "", " ", "  ", "\xa0", "\t", "\0"])
            if not text or max(text) <= upto:
                found[text] = None
    return list(found)


def test_what_a_unique_index_takes_for_one_key_has_equal_bytes(connection: Connection) -> None:
    names = collations(connection)
    assert {"utf8mb4_general_ci", "utf8mb4_unicode_ci"} <= set(names)
    for name in names:
        collation = read_collation(connection, name)
        assert collation is not None, name
        charset = name.partition("_")[0]
        texts = nearly_equal(random.Random(name), "\U0010ffff" if charset == "utf8mb4" else "\uffff")
        kind = f"VARCHAR(40) CHARACTER SET {charset} COLLATE {name} NOT NULL".encode()
        connection.run(b"CREATE TABLE texts.given (n INT PRIMARY KEY, k %b)" % kind)
        connection.run(b"CREATE TABLE texts.kept (n INT, k %b, UNIQUE KEY u (k))" % kind)
        rows = b",".join(b"(%d,%b)" % (n, string_literal(text)) for n, text in enumerate(texts))
        connection.run(b"INSERT INTO texts.given VALUES " + rows)
        connection.run(b"INSERT IGNORE INTO texts.kept SELECT * FROM texts.given ORDER BY n")
        found = connection.rows(
            b"SELECT g.n, t.n FROM texts.given g JOIN texts.kept t FORCE INDEX (u) ON g.k=t.k"
        )
        connection.run(b"DROP TABLE texts.given, texts.kept")
        assert len(found) == len(texts), name
        forms = [collation.form(text.encode()) for text in texts]
        assert [(name, texts[one], texts[other]) for one, other in found if forms[one] != forms[other]] == []
        kept = {other for _, other in found}
        assert len(kept) < len(texts), "some were equal"
        assert len(set(forms)) > len(kept) * 0.25, (name, "few bytes tell keys apart")


def test_weights_of_a_long_text_are_those_of_its_characters(connection: Connection) -> None:
    pick = random.Random(1)
    for name in ("utf8mb4_general_ci", "utf8mb4_unicode_ci"):
        weights = _weights(connection, name)
        for character in pick.sample(sorted(weights), 300):
            assert weights[character] == _weight(connection, name, character), (name, character)


def test_others_are_not_read(connection: Connection) -> None:
    assert read_collation(connection, "utf8mb4_czech_ci") is None
    assert read_collation(connection, "utf8mb4_general_mysql500_ci") is None, (
        "the server has none of the name"
    )

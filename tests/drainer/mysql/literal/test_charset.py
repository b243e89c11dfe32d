"""Text for columns with a narrower character set: what is kept, what is marked, what is counted."""

from __future__ import annotations

import contextlib

import pytest

from drainer.mysql.literal.charset import Charset
from drainer.mysql.literal.downstream_column import DownstreamColumn
from drainer.mysql.literal.plan import Written, compile_sql
from drainer.mysql.rows.column_match import DownstreamTable, KeyPart, UniqueKey
from drainer.mysql.rows.table_target import target_of
from drainer.txn import TableVersion
from tests.common.rowcodec.tables import index, key, kind, table
from tidb_binlog.errors import DownstreamError
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.table_info import WHOLE_COLUMN


@pytest.mark.parametrize(
    ("charset", "length", "text", "literal", "holds"),
    [
        ("latin1", 9, "plain", b"'plain'", True),
        ("latin1", 9, "it's", b"'it''s'", True),
        ("latin1", 9, "é€", "'é€'".encode(), True),
        ("latin1", 9, "日本", b"_latin1 x'e697a5e69cac'", False),
        ("latin1", 0, "日本", b"_latin1 x'e697a5e69cac'", False),
        ("latin1", 5, "日本", b"'??'", False),
        ("latin1", 5, "é日", b"_latin1 x'c3a9e697a5'", False),
        ("ascii", 9, "é", b"'?'", False),
        ("gbk", 9, "日本", "'日本'".encode(), True),
        ("gbk", 9, "日😀", "'日?'".encode(), False),
        ("utf8mb3", 9, "日😀", "'日?'".encode(), False),
        ("utf8", 9, "日本", "'日本'".encode(), True),
    ],
)
def test_literals(charset: str, length: int, text: str, literal: bytes, holds: bool) -> None:
    made = Charset(charset, length)
    assert made.literal(text.encode()) == literal
    assert made.holds(text.encode()) is holds


@pytest.mark.parametrize("text", ["日本", "é", "Ã©", "a", "Ж\u0081", "€", "\u0081", "Ã\u0081"])
def test_what_is_shown_says_what_was_meant(text: str) -> None:
    raw = text.encode()
    stored = text.encode("cp1252") if Charset("latin1").holds(raw) else raw
    shown = "".join(bytes((byte,)).decode("cp1252", "ignore") or chr(byte) for byte in stored).encode()
    assert Charset("latin1").meant(shown) == raw
    assert Charset("utf8mb4").meant(shown) == shown
    assert Charset("latin1").meant("ÿé".encode()) == "ÿé".encode()


def test_bytes_that_are_no_utf8_stay_as_they_are() -> None:
    assert Charset("latin1", 9).literal(b"\xe9t") == b"_latin1 x'e974'"
    assert Charset("latin1", 9).holds(b"\xe9t")
    assert Charset("latin1").literal(b"\xff'\\" * 200) == b"_latin1'" + b"\xff''\\\\" * 200 + b"'"


def test_long_text_is_not_hexadecimal() -> None:
    assert Charset("latin1").literal("日".encode() * 200) == b"_latin1'" + "日".encode() * 200 + b"'"


def test_two_texts_stay_two_texts() -> None:
    texts = ["日本", "中文", "é", "è", "ı", "plain", "??", "Ä±"]
    literals = {Charset("latin1", 80).literal(text.encode()) for text in texts}
    assert len(literals) == len(texts)


def test_rows_of_plain_text_do_not_take_the_slow_way() -> None:
    info = table(("id", key("int")), ("a", kind("varchar", charset="latin1", flen=9)))
    narrow = compile_sql(info, written=Written(charsets={2: Charset("latin1", 9)}))
    row = RowEncoder(info).insert((1, "plain"))
    assert narrow.insert_literals(row) == compile_sql(info).insert_literals(row) == b"(1,'plain')"
    odd = RowEncoder(info).insert((1, "日本"))
    assert narrow.insert_literals(odd) == b"(1,_latin1 x'e697a5e69cac')"
    assert narrow.foreign_text("insert", odd) == ["a"]
    assert narrow.foreign_text("insert", row) == []


def test_wide_character_sets_are_not_narrow() -> None:
    assert [name for name in ("latin1", "utf8", "utf8mb4", "binary", "") if Charset.is_narrow(name)] == [
        "latin1",
        "utf8",
    ]


def test_a_key_that_does_not_fit_is_no_question_mark() -> None:
    """Two keys would be one row: the downstream's column has to be made longer."""
    column = Charset("latin1", 8, "d.t.k")
    assert column.literal("日本".encode()) == b"_latin1 x'e697a5e69cac'"
    with pytest.raises(
        DownstreamError, match=r"a key in d\.t\.k does not fit: .* 8 latin1 .* 9 bytes"
    ) as raised:
        column.literal("日本語".encode())
    assert "longer downstream" in raised.value.hint
    assert "日" not in str(raised.value)


@pytest.mark.parametrize("prefix", [None, 3])
def test_only_what_identifies_a_row_must_fit(prefix: int | None) -> None:
    """Of a prefix the server compares the beginning alone, which may be half of a character."""
    latin1 = {"charset": "latin1", "collation": "latin1_bin"}
    text = kind("varchar", charset="latin1", flen=8, not_null=True)
    parts = index(1, ("k", 0, prefix or WHOLE_COLUMN), primary=True)
    info = table(("k", text), ("v", text), handle="rowid", indexes=(parts,))
    columns = [DownstreamColumn(name, "varchar", 8, **latin1) for name in ("k", "v")]
    other = UniqueKey("other", (KeyPart("k", 2), KeyPart("v")))  # which identifies no row
    keys = (UniqueKey("PRIMARY", (KeyPart("k", prefix),)), other)
    sql = target_of(TableVersion(info, "d", "t", 1), 4, DownstreamTable("d", "t", tuple(columns), keys)).sql
    encoder = RowEncoder(info)
    assert sql.insert_literals(encoder.insert(("k", "日本語"), rowid=1)) == b"('k','???')"
    for make in (sql.insert_literals, sql.key_literal_of_insert):
        with pytest.raises(DownstreamError, match=r"d\.t\.k"):
            make(encoder.insert(("日本語", "v"), rowid=1))
    refused = contextlib.nullcontext() if prefix is None else pytest.raises(DownstreamError, match="it has 3")
    with refused:
        sql.insert_literals(encoder.insert(("日本", "v"), rowid=1))
    assert sql.insert_literals(encoder.insert(("éàè longer", "v"), rowid=1)) == "('éàè longer','v')".encode()

"""Bytes that decide a lane, of texts under collations whose weights were recorded from MariaDB 10.11."""

from __future__ import annotations

import pytest

from drainer.mysql.literal.collation import asked, is_per_character
from tests.drainer.mysql.literal.recorded_weights import (
    CHARACTERS,
    GENERAL,
    RECORDED,
    ROOT,
    UNICODE,
    collation,
)


def same(name: str, one: str, other: str) -> bool:
    form = collation(name).form
    return form(one.encode()) == form(other.encode())


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        (GENERAL, "aA", "áa"),
        (GENERAL, "ß", "s"),
        (GENERAL, "a", "A  "),
        (GENERAL, "😀", "\U0001d400"),
        (GENERAL, "😀", "\U000e0001"),  # nobody asked for it: it has the weight of all that is far
        (UNICODE, "ß", "ss"),
        (UNICODE, "ﬁ", "fi"),
        (UNICODE, "é", "e\u0301"),
        (UNICODE, "a", "a\xa0\0 \u0301"),
        (UNICODE, "日", "⽇"),
        (UNICODE, "ω", "\u2126"),
        (UNICODE, "ŀ", "l·"),
        (ROOT, "Æ", "áe"),
        (ROOT, "\U0001d400", "A"),
        (ROOT, "й", "и\u0306"),
        (ROOT, "ŀ", "l·"),
        (ROOT, "l\u0387a", "la"),
        (ROOT, "ก", "เก"),  # of characters that may be in contractions nothing is known
    ],
)
def test_texts_that_the_server_takes_for_equal_have_equal_bytes(name: str, one: str, other: str) -> None:
    assert same(name, one, other)


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        *((name, one, other) for name in RECORDED for one, other in (("a", "b"), ("a", "ab"), ("a", "a\t"))),
        *((name, "日", "文") for name in RECORDED),
        (GENERAL, "ß", "ss"),
        (GENERAL, "é", "e\u0301"),
        (GENERAL, "a", "a\xa0"),
        (GENERAL, "a", "a\0"),
        (UNICODE, "й", "и"),
        (UNICODE, "Æ", "ae"),
        (ROOT, "ω", "s"),
        (ROOT, " a", "a"),
    ],
)
def test_texts_that_differ_mostly_have_other_bytes(name: str, one: str, other: str) -> None:
    assert not same(name, one, other)


def test_ascii_has_the_bytes_that_it_has_beside_other_text() -> None:
    for name in RECORDED:
        form = collation(name).form
        for code in range(128):
            text = chr(code) + "x"
            assert form(f"é{text}".encode()) == form("é".encode()) + form(text.encode())


def test_a_label_is_of_all_that_counts() -> None:
    label = collation(ROOT).label
    assert label.startswith(f"{ROOT} ")
    assert label == collation(ROOT).label
    assert label == collation(ROOT, **{"ก": b"\x33\x40", "😀": b"\x19\x6d"}).label, "these count for nothing"
    others = [collation(UNICODE), collation(ROOT, a=b"\x20\x80"), collation(ROOT, é=b"\x20\xdc")]
    assert len({label, *(other.label for other in others)}) == 4


@pytest.mark.parametrize(
    "other",
    [{"b": b"\x20"}, {"b": b"\xfb\x40"}, {"b": b"\x20\x8f\x20\x90"}, {" ": b""}, {" ": b"\x20\x75\x20\x75"}],
    ids=["no unit", "half a weight", "a letter of two", "no blank", "a blank of two"],
)
def test_what_are_no_such_weights_is_refused(other: dict[str, bytes]) -> None:
    with pytest.raises(ValueError, match=ROOT):
        collation(ROOT, **other)


def test_which_collations_are_told_by_their_characters() -> None:
    told = (
        *("utf8mb4_general_ci", "utf8mb3_general_ci", "utf8_general_ci", "utf8mb4_general_nopad_ci"),
        *("utf8mb3_general_mysql500_ci", "utf8mb4_unicode_ci", "utf8mb4_unicode_520_nopad_ci"),
        *("utf8mb4_uca1400_ai_ci", "utf8mb3_uca1400_nopad_as_cs", "utf8mb4_0900_ai_ci", "utf8mb4_0900_as_cs"),
    )
    assert [name for name in told if not is_per_character(name)] == []
    other = (
        *(
            "utf8mb4_bin",
            "utf8mb4_czech_ci",
            "utf8mb4_uca1400_czech_ai_ci",
            "utf8mb4_cs_0900_ai_ci",
            "binary",
        ),
        *("utf8mb4_ja_0900_as_cs_ks", "utf8mb4_thai_520_w2", "latin1_swedish_ci", "gbk_chinese_ci"),
        *("ucs2_general_ci", "utf16_unicode_ci", "utf8mb4_german2_ci", "utf8mb4_spanish2_ci"),
    )
    assert [name for name in other if is_per_character(name)] == []


def test_every_character_that_another_could_be_equal_to_is_asked() -> None:
    wide, narrow = set(asked("utf8mb4_general_ci")), set(asked("utf8mb3_general_ci"))
    assert max(narrow) == "\uffff"
    assert wide > narrow
    assert set(CHARACTERS) <= wide
    assert {"\U0002f800", "\U0001f600"} <= wide
    assert not any("\ud800" <= character <= "\udfff" for character in wide)

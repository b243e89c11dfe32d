from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidb_binlog import quantities


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("42 MB", 42_000_000),
        ("42 mib", 44_040_192),
        ("10 GiB", 10_737_418_240),
        ("1,000", 1000),
        ("1.5k", 1500),
        ("0", 0),
        ("", 0),
        ("7b", 7),
        (4096, 4096),
        ("8E", 8_000_000_000_000_000_000),
    ],
)
def test_sizes(text: str | int, expected: int) -> None:
    assert quantities.size_bytes(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("10 GiBs", "unhandled size name: GiBs"),
        ("9999EB", "too large"),
        ("big", "a size like"),
        ("1.2.3", "a size like"),
        (-1, "at least 0"),
        (1 << 63, "too large"),
    ],
)
def test_wrong_sizes(text: str | int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quantities.size_bytes(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1m30s", 90.0),
        ("30ms", 0.03),
        ("1.5h", 5400.0),
        ("12h30m", 45000.0),
        ("100us", 1e-4),
        ("100µs", 1e-4),
        (".5s", 0.5),
        ("-2s", -2.0),
        ("0", 0.0),
        ("2.5", 2.5),
        (3, 3.0),
        (0.25, 0.25),
    ],
)
def test_durations(text: str | float, expected: float) -> None:
    assert quantities.duration_s(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", "7d", "s", "1m30", "1 m", "h1", "--1s"])
def test_wrong_durations(text: str) -> None:
    with pytest.raises(ValueError, match="a duration like"):
        quantities.duration_s(text)


@pytest.mark.parametrize(("text", "days"), [("7", 7.0), (7, 7.0), ("12h", 0.5), ("30m", 1 / 48)])
def test_retention(text: str | int, days: float) -> None:
    assert quantities.retention_s(text) == pytest.approx(days * 86400)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("7d", "unsupported gc time 7d, etc: use 7 for 7 day, 7h for 7 hour"),
        ("0", "must bigger than 0"),
        (0, "must bigger than 0"),
        ("-1h", "must bigger than 0"),
        (106_752, "must bigger than 0"),
    ],
)
def test_wrong_retention(text: str | int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quantities.retention_s(text)


@given(st.text(max_size=20))
def test_any_text_gives_a_value_or_a_value_error(text: str) -> None:
    for read in (quantities.size_bytes, quantities.duration_s, quantities.retention_s):
        with contextlib.suppress(ValueError):
            assert isinstance(read(text), int | float)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-3, "0.0 s"), (9.94, "9.9 s"), (119.4, "119 s"), (120, "2 min"), (7200, "2.0 h"), (172_800, "2.0 d")],
)
def test_a_span_as_people_read_it(seconds: float, text: str) -> None:
    assert quantities.span(seconds) == text

"""One value has one canonical form, wherever it is shown; two values have two."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drainer.changes import canonical


@pytest.mark.parametrize(
    ("form", "image", "shown"),
    [
        (canonical.DECIMALS, "-10.50", "-10.5000"),
        (canonical.DECIMALS, "0.00", "-0.0"),
        (canonical.DECIMALS, "7", b"0007"),
        (canonical.DECIMALS, -7, b"-7.00"),
        (canonical.DOUBLES, -0.0, "0"),
        (canonical.DOUBLES, 1.100000023841858, "1.100000023841858"),
        (canonical.TIMES, "2023-01-01 00:00:00.500000", "2023-01-01 00:00:00.5"),
        (canonical.TIMES, "0000-00-00 00:00:00.000", "0000-00-00 00:00:00"),
        (canonical.TIMES, "-838:59:59", "-838:59:59.000000"),
        (canonical.CHAR, "a  ", b"a"),
        (canonical.PADDED, b"a\0\0", b"a"),
        (canonical.UNSIGNED, 18446744073709551615, "18446744073709551615"),
        (canonical.DOCUMENT, '{"b": [1, 2.0], "a": "\u00e9"}', b'{"a":"\\u00e9","b":[1.0,2]}'),
        (canonical.DOCUMENT, "1e400x", b"1e400x"),
    ],
)
def test_an_image_and_a_server_show_one_value_alike(form: str, image: object, shown: str | bytes) -> None:
    assert canonical.OF_IMAGE[form](image) == canonical.of_server(shown, form)


@pytest.mark.parametrize(
    ("form", "one", "other"),
    [
        (canonical.TEXT, "a ", "a"),
        (canonical.BINARY, b"a\0", b"a"),
        (canonical.DECIMALS, "100", "1"),
        (canonical.TIMES, "2023-01-10", "2023-01-1"),
        (canonical.DOCUMENT, '{"a": "1"}', '{"a": 1}'),
        (canonical.DOCUMENT, "123456789012345678", "123456789012345679"),
    ],
)
def test_different_values_stay_different(form: str, one: object, other: object) -> None:
    assert canonical.OF_IMAGE[form](one) != canonical.OF_IMAGE[form](other)


@given(st.lists(st.one_of(st.none(), st.binary(max_size=12)), max_size=6))
def test_a_packed_row_is_taken_apart_as_it_was(values: list[bytes | None]) -> None:
    assert canonical.unpack(canonical.pack(values)) == values

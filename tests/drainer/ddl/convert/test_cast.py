"""TiDB's cast, against what a real one made of 2,231 values."""

from __future__ import annotations

from datetime import UTC, timedelta

import pytest

from drainer.ddl.convert.cast import Moments, cast
from drainer.ddl.convert.moments import NoCast, zone_of
from tests.drainer.support import conversions
from tests.drainer.support.conversions import Case, field_type

JOB = Moments(UTC, conversions.DAY)


def _agrees(case: Case) -> str:
    """ "" where the cast agrees; what differs."""
    source, target = field_type(case.source), field_type(case.target)
    value = cast(conversions.value_before(case), source, target, JOB)
    text, digits = conversions.shown(value, target)
    if value is None or case.after is None:
        return "" if value is None and case.after is None else f"{case}: {value!r}"
    if digits is not None and digits != case.hex:
        return f"{case}: {value!r} {digits}"
    shown = case.after
    if (
        text is not None
        and text != shown
        and not (target.kind.name == "UNSIGNED" and text.startswith(shown[:3]))
    ):
        return f"{case}: {value!r} {text}"
    return ""


def test_every_recorded_value() -> None:
    wrong = [found for case in conversions.cases() if (found := _agrees(case))]
    assert len(conversions.cases()) == 2231
    assert not wrong, "\n".join(wrong[:60])


@pytest.mark.parametrize(
    ("text", "target", "expected"),
    [
        ("１２", "int", 0),
        ("١٢:١٢", "time", "00:00:00"),
        ("1２", "decimal(10,2)", 1),
        ("2 ", "enum('a','b')", 0),
        ("2", "enum('a','b')", 2),
    ],
)
def test_digits_are_those_of_ascii(text: str, target: str, expected: object) -> None:
    """Python reads digits of any script."""
    assert cast(text.encode(), field_type("varchar(60)"), field_type(target), JOB) == expected


@pytest.mark.parametrize("text", [b'"\\ud800"', b'"\xff"'])
def test_half_a_character_in_json_is_not_known(text: bytes) -> None:
    with pytest.raises(NoCast):
        cast(text, field_type("blob"), field_type("json"), JOB)


def test_zero_octets_are_no_other_encoding() -> None:
    assert cast(b"1\0", field_type("blob"), field_type("json"), JOB) is None


@pytest.mark.parametrize("name", ["Asia", "x" * 300, "../UTC", "\0", "+24:00", "+99", ""])
def test_a_zone_of_any_name_is_one_or_is_not_known(name: str) -> None:
    """A directory of zones is none, nor is what no file can be called."""
    assert zone_of(name, "+08:00").utcoffset(None) == timedelta(hours=8)
    with pytest.raises(NoCast):
        zone_of(name, name)

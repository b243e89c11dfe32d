"""TiDB's cast, against what a real one made of 2,231 values."""

from __future__ import annotations

from datetime import UTC

from drainer.ddl.convert.cast import Moments, cast
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

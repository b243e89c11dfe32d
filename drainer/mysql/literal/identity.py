"""When are two key values the same? Canonical bytes of raw column values, in two strengths.

*Identity* is exact: equal bytes mean equal values, whatever image they came from. *Lane form* is coarse:
values that the server may take for equal (trailing blanks, case and accents where a `collation` says so) have
equal bytes; values it keeps apart may collide, which costs parallelism and nothing else. The reverse must
never happen.

Tests  tests/drainer/mysql/literal/test_plan.py
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from drainer.mysql.literal.collation import Collation
from tidb_binlog.table_info import DECIMAL, DOUBLE, FLOAT, STRING, STRING_TYPES, FieldType

Canonical = Callable[[Any], bytes]


def number(value: int) -> bytes:
    return b"%d" % value


def floating(value: float) -> bytes:
    return repr(value + 0.0).encode()  # -0.0 + 0.0 is 0.0


def decimal(text: bytes) -> bytes:
    """1.50 and 1.5 are one number."""
    return text.rstrip(b"0").rstrip(b".") if b"." in text else text


def _char(raw: bytes) -> bytes:
    return raw.rstrip(b" ")


def _as_is(raw: bytes) -> bytes:
    return raw


def identity_of(kind: FieldType) -> Canonical:
    """Exact canonical form of raw values (see `literals`) of a type."""
    if kind.tp in STRING_TYPES:
        return _char if kind.tp == STRING and not kind.is_binary_string else _as_is
    if kind.tp in (FLOAT, DOUBLE):
        return floating
    if kind.tp == DECIMAL:
        return decimal
    return _number_or_text


def _number_or_text(raw: int | bytes) -> bytes:
    return b"%d" % raw if isinstance(raw, int) else raw


def lane_form_of(kind: FieldType, collation: Collation | None) -> Canonical:
    """Coarse canonical form of raw values; `collation` is the one downstream, None if it is binary."""
    if collation is not None:
        return collation.form
    return _char if kind.tp in STRING_TYPES and not kind.is_binary_string else identity_of(kind)


def sized(raw: bytes) -> bytes:
    """Self-delimiting form, for keys of several columns."""
    return b"%d:%b" % (len(raw), raw)

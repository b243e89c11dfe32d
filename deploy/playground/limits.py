"""What MariaDB cannot hold although TiDB does: the documented list, each with its reason.

A row that differs only inside these limits is counted and named in the report instead of being a difference.
Anything that a Drainer could do better does not belong here.
"""

from __future__ import annotations

from typing import Final

from deploy.playground.verify import Canonical, ColumnForm, Limit, Raw


def _outside_charset(column: ColumnForm, expected: Canonical, actual: Canonical) -> bool:
    """The text upstream has a character that the column's character set does not have."""
    codec = {"latin1": "cp1252", "ascii": "ascii"}.get(column.charset)
    if codec is None or expected is None:
        return False
    if isinstance(expected, Raw):
        return True
    try:
        expected.encode(codec)
    except UnicodeEncodeError:
        return True
    return False


def _negative_zero(column: ColumnForm, expected: Canonical, actual: Canonical) -> bool:
    return column.repr == "double" and expected == "-0.0" and actual == "0.0"


MARIADB: Final[tuple[Limit, ...]] = (
    Limit(
        "text outside the character set",
        "TiDB stores any UTF-8 text in latin1 and ascii columns; MariaDB stores these characters only",
        _outside_charset,
    ),
    Limit(
        "negative zero",
        "MariaDB shows the FLOAT or DOUBLE -0 as 0, whatever it was given",
        _negative_zero,
    ),
)

"""Chunk: a part of a table between two places in the order of a key.

Out    the condition that its rows fulfil, for a WHERE on either side; text to keep it by
Holds  `low` belongs to the chunk and `high` to the next one, so chunks that follow each other have every row
       once. An end without literals is open: first and last chunk have what lies beyond all known keys
Why    a condition names columns and never the table, so it fits the table downstream, whatever its name is
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final, Self

from drainer.mysql.literal.quoting import quote_name
from tidb_binlog.errors import Corruption, DownstreamError
from tidb_binlog.late_dataclass import dataclass

Place = tuple[bytes, ...]
"""Literals of the key's columns; () beyond all of them."""
# Every form in which a server prints one of a cut key, and nothing that would be more SQL.
_LITERAL: Final = re.compile(rb"-?[0-9.]+|x?'([^'\\]|''|\\.)*'", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows of a table from `low` on and before `high`; without `key` the whole table.

    `number` counts the chunks of a table from 0 in the order of the key.
    """

    number: int
    key: tuple[str, ...] = ()
    low: Place = ()
    high: Place = ()

    @property
    def is_last(self) -> bool:
        return not self.high

    def where(self) -> bytes:
        """`` WHERE `a`>=1 AND `a`<5 ``, with a blank in front; nothing for the whole table."""
        condition = self.condition()
        return b" WHERE " + condition if condition else b""

    def condition(self) -> bytes:
        """The condition alone, fit to be joined with AND; b"" for the whole table."""
        parts = []
        if self.low:
            parts.append(at_or_after(self.key, self.low))
        if self.high:
            parts.append(before(self.key, self.high))
        return b" AND ".join(parts)

    def stored(self) -> str:
        """Text that `of_stored` reads."""
        low, high = ([_text(literal) for literal in place] for place in (self.low, self.high))
        return json.dumps([self.number, list(self.key), low, high])

    @classmethod
    def of_stored(cls, text: str) -> Self:
        """Raises `Corruption`, for more than literals too: the text becomes SQL, and may be of anybody."""
        try:
            number, key, low, high = json.loads(text)
            chunk = cls(int(number), tuple(key), tuple(map(_bytes, low)), tuple(map(_bytes, high)))
            if not all(len(place) in (0, len(key)) for place in (low, high)):
                raise ValueError
            if not all(map(_LITERAL.fullmatch, chunk.low + chunk.high)):
                raise ValueError
            return chunk
        except (ValueError, TypeError, AttributeError):
            raise Corruption(
                f"{text[:80]!r} is no chunk of a table", hint="begin anew, without the stored progress"
            ) from None


class RowsLost(DownstreamError):
    """A server gave other rows of a chunk than it counts there at the same moment."""


def check_rows(label: str, read: int, count: int) -> None:
    """Raises `RowsLost` unless as many rows were read as the server counts."""
    if read != count:
        raise RowsLost(
            f"{label}: {read:,} rows came, and the server counts {count:,}",
            hint="something cuts its answers: a proxy, a limit for this user, a row that was changed by hand",
        )


def at_or_after(key: Sequence[str], place: Place) -> bytes:
    """`a`>=1, or of several columns (`a`>1 OR (`a`=1 AND `b`>=2)): servers use the key for it."""
    return _compared(key, place, b">", b">=")


def after(key: Sequence[str], place: Place) -> bytes:
    return _compared(key, place, b">", b">")


def before(key: Sequence[str], place: Place) -> bytes:
    return _compared(key, place, b"<", b"<")


def _compared(key: Sequence[str], place: Place, outer: bytes, last: bytes) -> bytes:
    """The row of columns compared with a row of literals, which no server looks up in an index as a row."""
    terms = []
    same: list[bytes] = []
    names = [quote_name(name) for name in key]
    for number, (name, literal) in enumerate(zip(names, place, strict=True), 1):
        sign = last if number == len(names) else outer
        terms.append(b" AND ".join([*same, name + sign + literal]))
        same.append(name + b"=" + literal)
    if len(terms) == 1:
        return terms[0]
    return b"(" + b" OR ".join([terms[0], *(b"(%b)" % term for term in terms[1:])]) + b")"


def _text(literal: bytes) -> str:
    return literal.decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")

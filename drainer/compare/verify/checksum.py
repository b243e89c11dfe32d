"""Checksum: the queries by which both servers sum up a part of a table, and those that read its rows.

Out    SQL: count and checksum of a part; the same by buckets of a hash; the rows of some buckets
Holds  the checksum is the SUM of 64 bits of each row's SHA2: a row that is there twice counts twice, and two
       changes do not cancel each other, as they would with XOR. A row's text cannot be read in two ways:
       texts stand behind their length, NULL is an `N` where a length or a number would be. The bucket of a
       row depends on its key alone, or without a key on all of it, so equal rows are in one bucket on both
       sides, whatever order the servers have. The rows whose hash the server made are counted: a text that
       is larger than its max_allowed_packet is NULL, which SUM passes over
Never  an alias: a column of the table may be called so, and the server would take that one
Why    SHA2 is in every server (MD5 is no more in MySQL 9.6), and no linear function: sums of CRC32 cancel out
       when rows exchange values
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from drainer.compare.verify.column_pairs import ColumnPair
from drainer.compare.verify.compared_table import ComparedTable
from tidb_binlog.late_dataclass import dataclass

BUCKETS_MAX: Final = 4096
_PACKET_MIN: Final = 1024
"""No server has a lower max_allowed_packet."""


@dataclass(frozen=True, slots=True)
class Sum:
    """Of a part of a table. `hashed`: rows of which the server could compute the hash."""

    rows: int = 0
    checksum: int = 0
    hashed: int = 0

    def __add__(self, other: Sum) -> Sum:
        return Sum(self.rows + other.rows, self.checksum + other.checksum, self.hashed + other.hashed)

    @property
    def is_whole(self) -> bool:
        """False where a row was too large for the server."""
        return self.rows == self.hashed


def sum_queries(table: ComparedTable, side: int, where: bytes) -> list[bytes]:
    """One for each table of the side; `read_sum` reads the answers. `where`: a condition, or empty."""
    aggregates = _aggregates(table, side)
    return [b"SELECT %b FROM %b%b" % (aggregates, source, _where(where)) for source in table.sources(side)]


def read_sum(row: Sequence[Any]) -> Sum:
    rows, checksum, hashed = row[-3:]
    if checksum is None:  # no rows, or none has a hash: of a server that was built without it
        return Sum(int(rows))
    return Sum(int(rows), int(checksum), int(hashed))


def bucket_queries(table: ComparedTable, side: int, where: bytes, buckets: int) -> list[bytes]:
    """Answers are (bucket, ...) and a sum as above."""
    bucket, aggregates = _bucket(table, side, buckets), _aggregates(table, side)
    return [
        b"SELECT %b,%b FROM %b%b GROUP BY 1" % (bucket, aggregates, source, _where(where))
        for source in table.sources(side)
    ]


def count_queries(table: ComparedTable, side: int, where: bytes) -> list[bytes]:
    """Only how many rows there are."""
    return [b"SELECT COUNT(*) FROM %b%b" % (source, _where(where)) for source in table.sources(side)]


def row_queries(
    table: ComparedTable, side: int, where: bytes, chosen: Iterable[int] = (), buckets: int = 1
) -> list[bytes]:
    """The compared columns of all rows, or of those in some buckets."""
    shown = b",".join(pair.shown(side) for pair in table.pairs)
    conditions = [b"(%b)" % where] if where else []
    if buckets > 1:
        numbers = b",".join(b"%d" % number for number in chosen)
        conditions.append(b"%b IN (%b)" % (_bucket(table, side, buckets), numbers))
    limited = _where(b" AND ".join(conditions))
    return [b"SELECT %b FROM %b%b" % (shown, source, limited) for source in table.sources(side)]


def _aggregates(table: ComparedTable, side: int) -> bytes:
    row = _row_text(table.pairs, side)
    hashed = b"CAST(CONV(LEFT(SHA2(%b,256),16),16,10) AS UNSIGNED)" % row
    # Of a server whose limit no row can reach the text is not made a second time.
    longest = sum(pair.longest for pair in table.pairs)
    if longest < _PACKET_MIN:
        return b"COUNT(*),SUM(%b),COUNT(*)" % hashed
    return b"COUNT(*),SUM(%b),COUNT(IF(@@max_allowed_packet>%d,1,%b))" % (hashed, longest, row)


def _row_text(pairs: Iterable[ColumnPair], side: int) -> bytes:
    """One text for the columns; binary, so that no charset is converted and no collation counts, nor whether
    the columns' collations go together."""
    parts = []
    for pair in pairs:
        assert pair.texts is not None, pair.name
        text = pair.texts[side]
        if pair.sized:
            size = b"LENGTH(%b)" % text
            size = b"IF(%b IS NULL,'N',%b)" % (pair.names[side], size) if pair.nullable else size
            parts.append(b"%b,CONVERT(%b USING binary)" % (size, text))
        else:
            parts.append(b"IFNULL(%b,'N')" % text if pair.nullable else text)
    return b"CONCAT_WS(_binary',',%b)" % b",".join(parts)


def _bucket(table: ComparedTable, side: int, buckets: int) -> bytes:
    assert 0 < buckets <= BUCKETS_MAX
    pairs = [table.pairs[place] for place in table.key] or table.pairs
    # The last digits of a CRC32 of numbers in a row are not spread evenly, those of a SHA2 are.
    return b"CRC32(SHA2(%b,256))%%%d" % (_row_text(pairs, side), buckets)


def _where(condition: bytes) -> bytes:
    return b" WHERE " + condition if condition else b""

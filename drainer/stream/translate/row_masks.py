"""Row masks: rows with other datums in some columns, by functions generated for a table version.

In     rows of one table version; a function from datum to datum for each masked column
Out    the rows with the masked datums; all other bytes as they were
Holds  NULL stays NULL. Of a row older than its column the default that stands for the column is masked, too.
       What generated columns were made of a masked column is NULL: servers make it again
Why    a row is cut at the masked datums in one pass. What is not as the reader expects, a key in front of an
       INSERT, and generated columns go the long way, through all pairs of the row
Tests  tests/drainer/stream/translate/test_row_edit.py
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cached_property

from tidb_binlog.rowcodec.codegen import Conversion, Shape
from tidb_binlog.rowcodec.datum import NULL_DATUM, skip
from tidb_binlog.rowcodec.images import Exchange, Images
from tidb_binlog.rowcodec.plan import RowReaders
from tidb_binlog.table_info import Column, TableInfo

Masked = Callable[[bytes], bytes]


def _span(b: bytes, i: int) -> tuple[tuple[int, int], int]:
    end = skip(b, i)
    return (i, end), end


class RowMasks:
    """`masked[kind](row)`. `made` are ids of generated columns that were made of masked ones."""

    def __init__(
        self, info: TableInfo, images: Images, exchanges: Mapping[int, Exchange], made: Collection[int]
    ) -> None:
        self._info, self._images = info, images
        self._cut = {} if made else dict(exchanges)
        self._exchanges = {**exchanges, **dict.fromkeys(made, lambda _: NULL_DATUM)}

    @cached_property
    def masked(self) -> tuple[Masked, Masked, Masked]:
        """Made when the first row comes: rules may be about thousands of tables."""
        exchanges = self._cut
        if not exchanges:
            return self._insert, self._update, self._delete
        readers = RowReaders(self._info, _spans, None)
        columns = readers.layout.columns
        places = [place for place, column in enumerate(columns) if column.id in exchanges]
        extra = {f"mask{place}": exchanges[columns[place].id] for place in places}
        once, twice = _lines("v", places), [*_lines("o", places), *_lines("v", places)]
        of_insert: Masked = self._insert
        if self._images.handle_ids.isdisjoint(exchanges):
            of_insert = readers.of_insert(places, _joined(once), self._insert, extra=extra)
        return (
            of_insert,
            readers.of_update(places, places, _joined(twice), self._update, extra=extra),
            readers.of_delete(places, _joined(once), self._delete, extra=extra),
        )

    def _insert(self, row: bytes) -> bytes:
        return self._images.exchanged_insert(row, self._exchanges)

    def _delete(self, row: bytes) -> bytes:
        return self._images.exchanged_image(row, self._exchanges)

    def _update(self, row: bytes) -> bytes:
        images, split = self._images, self._images.split(row)
        old = images.exchanged_image(row, self._exchanges, 0, split)
        return old + images.exchanged_image(row, self._exchanges, split)


def _spans(column: Column, place: int) -> Conversion:
    return Conversion(Shape.PLACE, "", _span)


def _lines(prefix: str, places: Collection[int]) -> list[str]:
    found = []
    for place in places:
        local = f"{prefix}{place}"
        found.append(f"if {local} is not None:")
        found.append(f"    i, j = {local}")
        found.append(f"    parts += (b[at:i], mask{place}(b[i:j]))")
        found.append("    at = j")
    return found


def _joined(lines: list[str]) -> list[str]:
    return ["parts, at = [], 0", *lines, "parts.append(b[at:])", 'return b"".join(parts)']

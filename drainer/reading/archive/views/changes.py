"""View changes: one row a change, images as JSON, or as typed columns of one table.

Tests  tests/spark/source/test_source.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import pyarrow as pa

from drainer.reading.archive.columns.json_text import ImageText
from drainer.reading.archive.decode.records import Record, Row
from drainer.reading.archive.views import typed_changes
from drainer.reading.archive.views.columns import PLACE, PlaceColumns, Portion, batch, portions
from drainer.reading.archive.views.view import ReadTask, View
from drainer.txn import TableVersion

_IMAGES: Final = ("key", "before", "after")
COLUMNS: Final = pa.schema([*PLACE, *(pa.field(name, pa.string()) for name in _IMAGES)])


def _batches(task: ReadTask) -> Iterator[pa.RecordBatch]:
    if task.version is not None:
        yield from typed_changes.batches(task)
    else:
        yield from of_records(task, typed_changes.read(task))


def of_records(task: ReadTask, records: Iterable[Record]) -> Iterator[pa.RecordBatch]:
    """Batches of records that come from elsewhere."""
    if task.version is not None:
        yield from map(typed_changes.TypedRows(task).batch, portions(records))
        return
    texts, places = Texts(), PlaceColumns()
    for portion in portions(records):
        for changes, first, rows in portion:
            places.add(changes, first, rows)
        yield batch(task.columns, places.take() | texts.arrays(portion))


class Texts:
    """Images of any tables as JSON."""

    def __init__(self) -> None:
        self._texts: dict[TableVersion, ImageText] = {}

    def of(self, version: TableVersion) -> ImageText:
        found = self._texts.get(version)
        if found is None:
            found = self._texts[version] = ImageText(version.info)
        return found

    def arrays(self, portion: Portion) -> dict[str, Callable[[], pa.Array]]:
        return {
            "key": lambda: _strings(portion, self._key),
            "before": lambda: _strings(portion, lambda row: self._image(row[0], row[2])),
            "after": lambda: _strings(portion, lambda row: self._image(row[0], row[3])),
        }

    def _image(self, version: TableVersion, image: bytes | None) -> str | None:
        return None if image is None else self.of(version).row(image)

    def _key(self, row: Row) -> str | None:
        """Of the row as it is afterwards, or was if it is gone."""
        version, _, before, after = row
        key = self.of(version).key
        image = before if after is None else after
        return None if key is None or image is None else key(image)


def _strings(portion: Portion, show: Callable[[Any], str | None]) -> pa.Array:
    return pa.array([show(row) for _, _, rows in portion for row in rows], pa.string())


VIEW: Final = View(COLUMNS, _batches)

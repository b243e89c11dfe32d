"""Image columns: encoded rows of one table as the Arrow columns of its image.

Out    a struct of all writable columns; what columns cannot hold as JSON text beside it (`INVALID`)
Holds  the same rows have the same checksum in any order
Tests  tests/drainer/points/image/test_parquet.py
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final

import pyarrow as pa

from drainer.reading.archive.views.changes import INVALID, ImageSide, schema
from drainer.txn import INSERT, TableVersion

ROW: Final = "after"
"""How the view of changes calls the rows of which an image is made; keys of `INVALID` begin with it."""
_SIDE: Final = 3
_CHECKSUM_BITS: Final = 64


class ImageColumns:
    """`arrow`: with a field `ROW`; another form of the same columns than the view of changes has."""

    def __init__(self, version: TableVersion, arrow: pa.Schema | None = None) -> None:
        self._version = version
        self._side = ImageSide(ROW, _SIDE, arrow or schema(version), version)

    @property
    def schema(self) -> pa.Schema:
        """Of a file: a column each, and `INVALID`."""
        return pa.schema([*self._side.fields, pa.field(notes_name(self._version), pa.string())])

    def arrays(self, images: Sequence[bytes]) -> tuple[pa.StructArray, pa.Array]:
        """What older rows lack they hold since the column was added. There is at least one."""
        invalid: dict[int, dict[str, Any]] = {}
        array = self._side.array([(self._version, INSERT, None, image) for image in images], invalid)
        notes = [json.dumps(invalid[row]) if row in invalid else None for row in range(len(images))]
        return array, pa.array(notes, pa.string())

    def batch(self, images: Sequence[bytes]) -> pa.RecordBatch:
        """As a file has them."""
        array, notes = self.arrays(images)
        return pa.RecordBatch.from_arrays([*array.flatten(), notes], schema=self.schema)


def notes_name(version: TableVersion) -> str:
    """What the column `INVALID` is called in the image of a table, which may have one of that name itself."""
    taken, name = {column.name.lower() for column in version.info.columns}, INVALID
    while name in taken:
        name = f"_{name}"
    return name


def checksum_of(batch: pa.RecordBatch) -> int:
    """The sum of a hash of each row, to be added up modulo 2^64."""
    columns = [_plain(array).to_pylist() for array in batch.columns]
    total = 0
    for row in zip(*columns, strict=True):
        total += int.from_bytes(blake2b(repr(row).encode(), digest_size=8).digest(), "big")
    return added(0, total)


def added(total: int, more: int) -> int:
    """Two checksums of different rows as one."""
    return (total + more) % (1 << _CHECKSUM_BITS)


def _plain(array: pa.Array) -> pa.Array:
    """Times as numbers, which every version of Arrow shows alike."""
    kind = array.type
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        return array.cast(pa.int64())
    if pa.types.is_date(kind):
        return array.cast(pa.int32())
    return array

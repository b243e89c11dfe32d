"""View: one way to read an archive, as a data source needs it.

A view has a schema and gives record batches of a slice. `columns` of a task are those that are wanted: the
schema that was given may have fewer, and then the others are not made.

Tests  tests/spark/source/test_source.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from drainer.reading.archive.decode.definitions import Definitions
from drainer.reading.archive.decode.reading import FAIL, Reach
from drainer.reading.archive.files.location import Location
from drainer.reading.archive.files.segments import Segment, Slice
from drainer.reading.archive.files.selection import Selection
from drainer.txn import TableVersion

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_MAX: Final = 8192
"""Rows of a batch: where the cost a row is lowest."""
BYTES_MAX: Final = 8 << 20
"""Bytes of images in a batch."""


@dataclass(frozen=True, slots=True)
class ReadTask:
    """What one task reads. `columns`: the schema of its batches, exactly. `version`: of a typed table.

    `files`: whole files and what is known of them, instead of a part; `verify`: read them nevertheless.
    `reach`: of a reading of whole files in order, one after the other.
    """

    location: Location
    part: Slice
    selection: Selection
    definitions: Definitions
    columns: pa.Schema
    version: TableVersion | None = None
    damage: str = FAIL
    files: tuple[tuple[Slice, Segment], ...] = ()
    verify: bool = False
    reach: Reach | None = None


@dataclass(frozen=True, slots=True)
class View:
    """`schema` of rows that are not typed; `batches` is called in a task."""

    schema: pa.Schema
    batches: Callable[[ReadTask], Iterator[pa.RecordBatch]]
    is_of_definitions: bool = False
    """One task gives all, and it reads no segment."""
    is_of_files: bool = False
    """A task is about whole files."""

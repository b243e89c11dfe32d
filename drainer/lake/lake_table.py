"""Lake table: the port to a format of tables, kept by `delta` and `iceberg`.

Holds  rows, the commit_ts up to which they are there and columns that they need appear together, or nothing
       of them does
Raises `Unavailable` for what may pass by itself, `DownstreamError` for what may not, `Conflict` for a table
       that another program has removed or taken over
Tests  tests/drainer/lake/test_lake_sink.py
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa

if TYPE_CHECKING:
    from drainer.lake.data_files import DataFile

Name = tuple[str, str]
"""(database, table), as the format is told them."""
IMAGES: Final = ("before", "after")
"""Columns that change when the table's do."""
IDS: Final = "tidb-binlog.columns"
"""Property of a table: ids of columns by name, by id of the table upstream, as JSON."""
_SPECIAL: Final = re.compile(r"[^\w-]|_(?=_v\d+$)", re.ASCII)


def plain_name(name: Name) -> Name:
    """As directories and names in any catalog can be called, and no other name is: `a.b` is `a~2e~b`. What
    would be the name of a version is none."""
    schema, table = (_SPECIAL.sub(lambda match: f"~{ord(match[0]):x}~", part) for part in name)
    return schema, table


def versioned(name: Name, count: int) -> Name:
    """Of a changelog that went on in other tables, what the table of that number is called, from 1 on."""
    schema, table = name
    return name if count == 1 else (schema, f"{table}__v{count}")


def plain(schema: pa.Schema) -> dict[str, pa.DataType]:
    """The columns of the images of a changelog, from its schema as the format gives it; empty for a table
    that is no changelog."""
    place = schema.get_field_index("after")
    image = schema.field(place).type if place >= 0 else None
    if image is None or not pa.types.is_struct(image):
        return {}
    return {field.name: plain_type(field.type) for field in image}


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Of several that hold the same, the one that rows are written in."""
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    return kind


class LakeTable(Protocol):
    """A changelog, as it was when it was loaded last."""

    @property
    def columns(self) -> dict[str, pa.DataType]:
        """Those of its images; empty where it is no changelog."""
        ...

    @property
    def position(self) -> int:
        """The commit_ts of the last rows that were appended, 0 for none."""
        ...

    @property
    def ids(self) -> str:
        """What was remembered last, "" for nothing."""
        ...

    def refresh(self) -> None:
        """Load it again."""
        ...

    def remember(self, ids: str) -> None:
        """Store the property `IDS`."""
        ...

    def evolve(self, added: Mapping[str, pa.DataType], widened: Mapping[str, pa.DataType]) -> None:
        """Change its columns, at the latest with the next rows."""
        ...

    def append(self, rows: pa.RecordBatchReader, position: int) -> None:
        """Commit rows and position."""
        ...

    def add(self, files: Sequence[DataFile], position: int) -> None:
        """Commit files of rows, which lie in its directory, and position."""
        ...

    def compact(self, target_bytes: int) -> None:
        """Make large files of small ones, where the format's library can."""
        ...

    def expire(self, age: datetime.timedelta) -> None:
        """Forget versions that are older."""
        ...


class Lake(Protocol):
    """Where the tables are. `can_widen`: types of columns can be widened."""

    can_widen: bool

    def open(self) -> None:
        """Connect to the catalog, and see that the warehouse can be written."""
        ...

    def load(self, name: Name) -> LakeTable | None:
        """Load a table, None if there is none."""
        ...

    def create(self, name: Name, schema: pa.Schema, ids: str) -> LakeTable:
        """Make a table."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...

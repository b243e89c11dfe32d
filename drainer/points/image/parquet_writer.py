"""Parquet writer: rows of one table as files of an image, a file for each part of the table.

In     a table version, images of its rows in any order
Out    files that appear whole or not at all; each says how many rows it has and their checksum
Holds  memory: one row group, whatever a part has
Why    parts are what a copy that was killed goes on with: those that are there are not made again
Tests  tests/drainer/points/image/test_parquet.py

Blocks. One writer of a part at a time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Final, Self

import pyarrow as pa
from pyarrow import parquet

from drainer.formats.obinlog import writer
from drainer.places.place import UNFINISHED, Place
from drainer.points.image.columns import ImageColumns, added, checksum_of
from drainer.points.image.manifest import TableImage, checksum_of_file, directory_of, names_of
from drainer.txn import TableVersion
from tidb_binlog.errors import Corruption, Unavailable
from tidb_binlog.late_dataclass import dataclass

GROUP_ROWS: Final = 20_000
GROUP_BYTES: Final = 16 << 20
_CHECKSUM: Final = b"tidb_binlog.checksum"


@dataclass(frozen=True, slots=True)
class Part:
    """A file that is whole. `bytes`: on disk."""

    rows: int
    checksum: int
    bytes: int = 0


class TableWriter:
    """Files of one table below the directory of an image."""

    def __init__(self, directory: str, version: TableVersion) -> None:
        self._version = version
        self._name = directory_of(version.schema, version.name)
        self._place = Place(directory).under(self._name)
        self._columns = ImageColumns(version)

    def begin(self) -> None:
        """What an earlier run left unfinished goes."""
        self._place.make()
        self._remove(UNFINISHED)

    def forget(self) -> None:
        """All parts go: the rows are those of another moment."""
        self._remove(UNFINISHED, ".parquet")

    def _remove(self, *suffixes: str) -> None:
        names = [entry.name for entry in self._place.list(missing_ok=True)]
        self._place.delete(*(name for name in names if name.endswith(suffixes)))

    def part(self, number: int) -> PartWriter:
        return PartWriter(self._place, _name(number), self._columns)

    def has(self, number: int) -> Part | None:
        """A part that is there. Raises `Corruption`."""
        name = _name(number)
        return written(self._place, name) if self._place.has(name) else None

    def table_image(self) -> TableImage:
        """All parts together. Raises `Corruption`."""
        rows = checksum = 0
        files = {}
        for name in names_of(self._place):
            part = written(self._place, name)
            rows, checksum = rows + part.rows, added(checksum, part.checksum)
            files[name] = checksum_of_file(self._place, name)
        version = self._version
        definition = writer.definition_json(version).decode()
        return TableImage(version.schema, version.name, self._name, rows, str(checksum), definition, files)


def _name(number: int) -> str:
    return f"part-{number:06d}.parquet"


def written(place: Place, name: str) -> Part:
    """What a file of `PartWriter` says of itself. Raises `Corruption`."""
    try:
        with place.native(name) as source:
            footer = parquet.read_metadata(source)
            return Part(footer.num_rows, int((footer.metadata or {})[_CHECKSUM]), source.size())
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise Corruption(
            f"{place.path_of(name)} cannot be read: {str(error) or type(error).__name__:.200}",
            hint="delete the file: the same command makes it again",
        ) from None


class PartWriter:
    """A context: the file is there when it ends well, and nothing of it otherwise."""

    def __init__(self, place: Place, name: str, columns: ImageColumns) -> None:
        self._path = place.path_of(name)
        self._stream = place.stream(name)
        self._columns = columns
        self._images: list[bytes] = []
        self._bytes = 0
        self._rows = self._checksum = 0

    def add(self, images: Sequence[bytes]) -> None:
        """Raises `Unavailable` where the directory takes no more."""
        for image in images:
            self._images.append(image)
            self._bytes += len(image)
            if len(self._images) >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
                self._flush()

    def _flush(self) -> None:
        if self._images:
            batch = self._columns.batch(self._images)
            self._rows += batch.num_rows
            self._checksum = added(self._checksum, checksum_of(batch))
            with _said(self._path):
                self._file.write_batch(batch)
        self._images, self._bytes = [], 0

    def __enter__(self) -> Self:
        with _said(self._path):
            self._file = parquet.ParquetWriter(
                self._stream.__enter__(),
                self._columns.schema,
                compression="zstd",
                store_schema=False,
                write_page_checksum=True,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._flush()
                self._file.add_key_value_metadata({_CHECKSUM: str(self._checksum).encode()})
            with _said(self._path):
                self._file.close()
        except BaseException as failure:
            self._stream.__exit__(type(failure), failure, failure.__traceback__)
            if kind is None:
                raise
        else:
            self._stream.__exit__(kind, error, trace)


@contextlib.contextmanager
def _said(path: str) -> Iterator[None]:
    """Errors of the disk as the project's."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise Unavailable(
            f"{path} cannot be written: {str(error) or type(error).__name__:.200}",
            hint="make room or give another directory; the same command goes on",
        ) from None

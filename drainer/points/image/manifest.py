"""Manifest: what an image is: its commit_ts, its tables, how many rows each has, a checksum of them.

Out    `manifest.json`; the definition that the columns of each table have
Holds  it is written last: a directory without it is no image
Tests  tests/drainer/points/image/test_parquet.py
"""

from __future__ import annotations

import urllib.parse
from typing import Any, Final

from drainer.formats.obinlog import reader
from drainer.places.place import READ, Place
from drainer.txn import TableVersion
from tidb_binlog import checked
from tidb_binlog.errors import ConfigError, Corruption
from tidb_binlog.late_dataclass import asdict, dataclass, field
from tidb_binlog.record import crc32c_extend
from tidb_binlog.tso import Ts

MANIFEST: Final = "manifest.json"
FORMAT: Final = 1
ANEW: Final = "make the image anew"
_CHUNK: Final = 4 << 20
SPARK: Final = "xxhash64"
ROWS: Final = "blake2b"


@dataclass(frozen=True, slots=True)
class TableImage:
    """`checksum`: the sum of a hash of each row, so that the order of rows does not matter. `definition`: the
    one of its columns, as `writer.definition_json` writes it. `files`: the CRC-32C of each, {} of an
    older release's."""

    schema: str
    table: str
    directory: str
    rows: int
    checksum: str
    definition: str
    files: dict[str, int] = field(default_factory=dict)

    @property
    def version(self) -> TableVersion:
        """Raises `Corruption`."""
        return reader.definition(self.definition.encode())

    def place(self, image: str) -> Place:
        """The directory of its files in that image."""
        return Place(image).under(self.directory)

    def names(self, image: str) -> list[str]:
        """Its files in that image. Raises `Corruption` where they are not those that were written."""
        place = self.place(image)
        names = names_of(place)
        if self.files and sorted(self.files) != names:
            raise Corruption(f"{place.shown} has other files than {MANIFEST} says", hint=ANEW)
        return names

    def size(self, image: str) -> int:
        """Bytes of its files in that image."""
        return sum(entry.size for entry in self.place(image).list(missing_ok=True))

    def check(self, image: str, name: str) -> None:
        """Before one of `names` is read. Raises `Corruption`, `OSError`."""
        place = self.place(image)
        if self.files and checksum_of_file(place, name) != self.files[name]:
            raise Corruption(f"{place.path_of(name)} does not fit its checksum in {MANIFEST}", hint=ANEW)

    @property
    def shown(self) -> str:
        return f"{self.schema}.{self.table}"


@dataclass(frozen=True, slots=True)
class Manifest:
    """`commit_ts`: all transactions up to it are in the image, none after it. `selected`: patterns of the
    tables that were wanted, () for all. `archive`: where the rows are from. `hashed`: of which hash the
    checksums are sums. `objects`: what tables are made from lies beside it (`objects.py`)."""

    commit_ts: Ts
    time: str
    archive: str
    base: str
    selected: tuple[str, ...]
    tables: tuple[TableImage, ...]
    hashed: str = SPARK
    objects: bool = False

    def to_json(self) -> str:
        return checked.document({"format": FORMAT, **asdict(self)}, indent=1).decode()

    def store(self, directory: str) -> None:
        Place(directory).put(MANIFEST, self.to_json().encode())

    @classmethod
    def load(cls, directory: str) -> Manifest:
        """Raises `ConfigError`."""
        place = Place(directory).require("image", READ)
        try:
            text = place.content(MANIFEST)
            if text is None:
                raise FileNotFoundError("it is not there")
            document: dict[str, Any] = checked.read_document(text)
            if document.pop("format") != FORMAT:
                raise ValueError("of another format")
            tables = tuple(TableImage(**entry) for entry in document.pop("tables"))
            selected = tuple(document.pop("selected"))
            return cls(**document, selected=selected, tables=tables)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(
                f"{place.shown} is no image: {MANIFEST}: {error}",
                hint="name a directory that `binlogctl load -to archive` or `binlog-spark image` has made",
            ) from None


def names_of(table: Place) -> list[str]:
    """The files of a table."""
    return [entry.name for entry in table.list(missing_ok=True) if entry.name.endswith(".parquet")]


def checksum_of_file(table: Place, name: str) -> int:
    """Parquet has checksums of pages at most, and none of what says how they are to be read."""
    checksum = at = 0
    with table.open_packed(name) as file:
        while data := file.read(at, _CHUNK):
            checksum, at = crc32c_extend(checksum, data), at + len(data)
    return checksum


def is_image(directory: str) -> bool:
    return Place(directory).has(MANIFEST)


def directory_of(schema: str, table: str) -> str:
    """The directory of a table, within that of its image."""
    return urllib.parse.quote(f"{schema}.{table}", safe=". ")

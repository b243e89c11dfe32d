"""Manifest: what an image is: its commit_ts, its tables, how many rows each has, a checksum of them.

In     the directory of an image
Out    `manifest.json`; the definition that the columns of each table have
Holds  it is written last: a directory without it is no image
Tests  tests/drainer/points/image/test_parquet.py
"""

from __future__ import annotations

import urllib.parse
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from drainer.formats.obinlog import reader
from drainer.txn import TableVersion
from tidb_binlog import checked
from tidb_binlog.errors import ConfigError, Corruption
from tidb_binlog.filesystem import replace_file
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

    def paths(self, image: str) -> list[Path]:
        """Its files in that image. Raises `Corruption` where they are not those that were written."""
        paths = paths_of(Path(image) / self.directory)
        if self.files and sorted(self.files) != [path.name for path in paths]:
            raise Corruption(
                f"{Path(image) / self.directory} has other files than {MANIFEST} says", hint=ANEW
            )
        return paths

    def check(self, path: Path) -> None:
        """Before one of `paths` is read. Raises `Corruption`, `OSError`."""
        if self.files and checksum_of_file(path) != self.files[path.name]:
            raise Corruption(f"{path} does not fit its checksum in {MANIFEST}", hint=ANEW)

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
        place = Path(directory)
        place.mkdir(parents=True, exist_ok=True)
        replace_file(str(place / MANIFEST), self.to_json().encode())

    @classmethod
    def load(cls, directory: str) -> Manifest:
        """Raises `ConfigError`."""
        try:
            document: dict[str, Any] = checked.read_document((Path(directory) / MANIFEST).read_bytes())
            if document.pop("format") != FORMAT:
                raise ValueError("of another format")
            tables = tuple(TableImage(**entry) for entry in document.pop("tables"))
            selected = tuple(document.pop("selected"))
            return cls(**document, selected=selected, tables=tables)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(
                f"{directory} is no image: {MANIFEST}: {error}",
                hint="name a directory that `binlogctl load -to archive` or `binlog-spark image` has made",
            ) from None


def paths_of(directory: Path) -> list[Path]:
    """The files of a table."""
    return sorted(directory.glob("*.parquet"))


def checksum_of_file(path: Path) -> int:
    """Parquet has checksums of pages at most, and none of what says how they are to be read."""
    checksum = 0
    with path.open("rb", 0) as file:
        while data := file.read(_CHUNK):
            checksum = crc32c_extend(checksum, data)
    return checksum


def is_image(directory: str) -> bool:
    return (Path(directory) / MANIFEST).exists()


def directory_of(schema: str, table: str) -> str:
    """The directory of a table, within that of its image."""
    return urllib.parse.quote(f"{schema}.{table}", safe=". ")

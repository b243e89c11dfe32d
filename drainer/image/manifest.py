"""Manifest: what an image is: its commit_ts, its tables, how many rows each has, a checksum of them.

In     the directory of an image
Out    `manifest.json`; the definition that the columns of each table have
Holds  it is written last: a directory without it is no image
Tests  tests/drainer/image/test_parquet.py
"""

from __future__ import annotations

import json
import urllib.parse
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from common.errors import ConfigError
from common.filesystem import replace_file
from drainer.formats.obinlog import reader
from drainer.txn import TableVersion

MANIFEST: Final = "manifest.json"
FORMAT: Final = 1
SPARK: Final = "xxhash64"
ROWS: Final = "blake2b"


@dataclass(frozen=True, slots=True)
class TableImage:
    """`checksum`: the sum of a hash of each row, so that the order of rows does not matter. `definition`: the
    one of its columns, as `writer.definition_json` writes it."""

    schema: str
    table: str
    directory: str
    rows: int
    checksum: str
    definition: str

    @property
    def version(self) -> TableVersion:
        """Raises `Corruption`."""
        return reader.definition(self.definition.encode())

    @property
    def shown(self) -> str:
        return f"{self.schema}.{self.table}"


@dataclass(frozen=True, slots=True)
class Manifest:
    """`commit_ts`: all transactions up to it are in the image, none after it. `selected`: patterns of the
    tables that were wanted, () for all. `archive`: where the rows are from. `hashed`: of which hash the
    checksums are sums."""

    commit_ts: int
    time: str
    archive: str
    base: str
    selected: tuple[str, ...]
    tables: tuple[TableImage, ...]
    hashed: str = SPARK

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1)

    def store(self, directory: str) -> None:
        place = Path(directory)
        place.mkdir(parents=True, exist_ok=True)
        replace_file(str(place / MANIFEST), self.to_json().encode())

    @classmethod
    def load(cls, directory: str) -> Manifest:
        """Raises `ConfigError`."""
        try:
            document: dict[str, Any] = json.loads((Path(directory) / MANIFEST).read_text("utf-8"))
            if document.pop("format") != FORMAT:
                raise ValueError("of another format")
            tables = tuple(TableImage(**one) for one in document.pop("tables"))
            selected = tuple(document.pop("selected"))
            return cls(**document, selected=selected, tables=tables)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(
                f"{directory} is no image: {MANIFEST}: {error}",
                hint="name a directory that `binlogctl load -to archive` or `binlog-spark image` has made",
            ) from None


def is_image(directory: str) -> bool:
    return (Path(directory) / MANIFEST).exists()


def directory_of(schema: str, table: str) -> str:
    """The directory of a table, within that of its image."""
    return urllib.parse.quote(f"{schema}.{table}", safe=". ")

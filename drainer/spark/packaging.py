"""Packaging: this program as one zip for `spark-submit --py-files`, and the script that it starts.

Out     `binlog_spark.zip` and `binlog_spark.py` in a directory
Holds   pure Python only: what is compiled (pyarrow, google-crc32c, protobuf, PyMySQL's needs) must be in the
        interpreter of every node. Two zips of the same sources are equal, byte for byte
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import drainer
import tidb_binlog

ZIP: Final = "binlog_spark.zip"
SCRIPT: Final = "binlog_spark.py"
_KEPT: Final = frozenset({".py", ".typed", ".properties"})
_FIRST_DAY: Final = (1980, 1, 1, 0, 0, 0)  # of the format
_START: Final = """\
from drainer.spark.__main__ import main

main()
"""


def package(directory: Path) -> Path:
    """Write the zip into a directory that is there; its path."""
    path = directory / ZIP
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, file in _files():
            archive.writestr(zipfile.ZipInfo(name, _FIRST_DAY), file.read_bytes(), zipfile.ZIP_DEFLATED)
    return path


def script(directory: Path) -> Path:
    """Write what `spark-submit` is to start; its path."""
    path = directory / SCRIPT
    path.write_text(_START)
    return path


def _files() -> Iterator[tuple[str, Path]]:
    for root in (tidb_binlog, drainer):
        (top,) = (Path(path) for path in root.__path__)
        for file in sorted(top.rglob("*")):
            if file.suffix in _KEPT:
                yield f"{root.__name__}/{file.relative_to(top).as_posix()}", file

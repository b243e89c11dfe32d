"""File system: what a URI leads to through pyarrow.fs, and why it did not.

Holds   no argument of a file system is in a text that this makes
Tests   tests/drainer/places/test_place.py
"""

from __future__ import annotations

import functools
import os
import re
import urllib.parse
from typing import TYPE_CHECKING, Any, Final

from tidb_binlog.errors import ConfigError

if TYPE_CHECKING:
    from pyarrow import fs

EXTRA_HINT: Final = "pip install 'tidb-binlog[arrow]'"
_CLASSES: Final = {
    "s3": "S3FileSystem",
    "gs": "GcsFileSystem",
    "gcs": "GcsFileSystem",
    "hdfs": "HadoopFileSystem",
    "viewfs": "HadoopFileSystem",
    "abfs": "AzureFileSystem",
    "abfss": "AzureFileSystem",
}
SCHEMES: Final = frozenset(_CLASSES)
_CODE: Final = re.compile(r"AWS Error ([A-Z_]+)|<Code>([A-Za-z]+)</Code>|(HTTP status \d+)")


def shown(uri: str) -> str:
    """A URI without what may be a credential."""
    parts = urllib.parse.urlsplit(uri)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def reason(error: BaseException) -> str:
    """What an error says that is no secret: of a disk its words, of a store its code."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    code = _CODE.search(str(error))
    return next(filter(None, code.groups())) if code else type(error).__name__


def pyarrow_fs() -> Any:
    """`pyarrow.fs`, which local directories do not need. Raises `ConfigError`."""
    try:
        from pyarrow import fs
    except ModuleNotFoundError as error:
        raise ConfigError(f"{error.name} is not installed", hint=EXTRA_HINT) from None
    return fs


@functools.lru_cache(maxsize=8)
def file_system(uri: str, options: tuple[tuple[str, str], ...]) -> tuple[fs.FileSystem, str]:
    """pyarrow's file system and the path in it. Raises `ConfigError`."""
    arrow = pyarrow_fs()
    parts = urllib.parse.urlsplit(uri)
    try:
        if not options:
            opened: tuple[fs.FileSystem, str] = arrow.FileSystem.from_uri(
                uri if parts.scheme else os.path.abspath(uri)
            )
            return opened
        if parts.scheme in ("", "file"):
            raise ValueError("a local directory takes none")
        kind = getattr(arrow, _CLASSES[parts.scheme])
        arguments: dict[str, Any] = {name: _argument(text) for name, text in options}
        if kind.__name__ == "HadoopFileSystem":
            return kind(parts.hostname or "default", parts.port or 0, **arguments), parts.path
        return kind(**arguments), f"{parts.netloc.rpartition('@')[2]}{parts.path}"
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        what = "not supported" if isinstance(error, KeyError) else type(error).__name__
        names = ", ".join(f"fs.{name}" for name, _ in options) or "none"
        raise ConfigError(
            f"{shown(uri)} cannot be opened with the options given ({names}): {what}",
            hint="options with the prefix fs. are arguments of the file system's class in pyarrow.fs",
        ) from None


def _argument(text: str) -> str | int | bool:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else text

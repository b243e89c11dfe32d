"""DDL history: a file of DDL jobs, which value logs need: their rows name no columns.

In     one JSON object a line, plain or gzip: a job as TiDB stores it, or {"raw": base64 of such a job}
Holds  without a name the usual ones beside the archive count: `ddl_jobs.jsonl`, `ddl_jobs.jsonl.gz`
Tests  tests/drainer/reading/archive/decode/test_definitions.py
"""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from dataclasses import replace
from typing import Final

from drainer.places.place import Place
from tidb_binlog.errors import ConfigError

NAMES: Final = ("ddl_jobs.jsonl", "ddl_jobs.jsonl.gz")
_GZIP: Final = b"\x1f\x8b"


def load(location: Place, name: str = "") -> list[bytes]:
    """`name`: a file beside the archive, or a path; a local one, or one of the archive's file system.

    Nothing where no name was given and none of the usual ones is there. Raises `ConfigError`.
    """
    for each in (name,) if name else NAMES:
        head, _, tail = each.rpartition("/")
        place = replace(location, uri=head or "/") if "/" in each else location
        data = place.content(tail)
        if data is not None:
            return _jobs(data, each)
    if name:
        raise ConfigError(f"there is no file {name} with the DDL history", hint="check ddl-history")
    return []


def _jobs(data: bytes, name: str) -> list[bytes]:
    try:
        if data.startswith(_GZIP):
            data = gzip.decompress(data)
        return [_job(line) for line in data.splitlines() if line.strip()]
    except (EOFError, OSError, ValueError, zlib.error) as error:
        raise ConfigError(
            f"the DDL history {name} cannot be read: {error}",
            hint='one JSON object a line: a DDL job, or {"raw": base64 of one}',
        ) from None


def _job(line: bytes) -> bytes:
    document = json.loads(line)
    if not isinstance(document, dict):
        raise ValueError("a line is no object")
    raw = document.get("raw")
    return line if raw is None else base64.b64decode(raw)

"""DDL history: a file of DDL jobs, which value logs need: their rows name no columns.

In     one JSON object a line, plain or gzip: a job as TiDB stores it, or {"raw": base64 of such a job}
Out    the jobs as TiDB stores them
"""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from pathlib import Path
from typing import Final

from common.errors import ConfigError

_GZIP: Final = b"\x1f\x8b"


def load(path: str) -> list[bytes]:
    """Raises `ConfigError`."""
    try:
        data = Path(path).read_bytes()
        if data.startswith(_GZIP):
            data = gzip.decompress(data)
        return [_job(line) for line in data.splitlines() if line.strip()]
    except OSError as error:
        reason = error.strerror or str(error)
    except (EOFError, ValueError, zlib.error) as error:
        reason = str(error)
    raise ConfigError(
        f"the DDL history {path} cannot be read: {reason}",
        hint='one JSON object a line: a DDL job, or {"raw": base64 of one}',
    )


def _job(line: bytes) -> bytes:
    document = json.loads(line)
    if not isinstance(document, dict):
        raise ValueError("a line is no object")
    raw = document.get("raw")
    return line if raw is None else base64.b64decode(raw)

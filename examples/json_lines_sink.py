"""Every changed row as one line of JSON, in files that are begun anew at a size: a sink of one's own.

    [syncer]
    db-type = "python:examples.json_lines_sink:JsonLines"
    [syncer.to.options]
    directory = "/var/lib/changes"
    file-bytes = 100000000

    {"commit_ts": 4711, "table": "shop.item", "kind": "update", "before": {...}, "after": {...}}
    {"position": 4711}

A batch of lines ends with its position. What stands after the last position was cut off by a crash: it is
removed by the next start, and comes again. So every change is there exactly once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from drainer import ConfigError, Ddl, Transaction, json_value


class JsonLines:
    retriable = (OSError,)  # a full disk, say: pauses grow until there is room

    def __init__(self, options: Mapping[str, Any]) -> None:
        if not isinstance(options.get("directory"), str):
            raise ConfigError("syncer.to.options.directory is missing", hint='directory = "/var/lib/changes"')
        self._directory = Path(options["directory"])
        self._file_bytes = int(options.get("file-bytes", 100_000_000))
        self._file: BinaryIO

    def open(self) -> int:
        """The position of the last batch that is there as a whole."""
        self._directory.mkdir(parents=True, exist_ok=True)
        newest = max(self._directory.glob("changes-*.jsonl"), default=None)
        if newest is None:
            self._begin(0)
            return 0
        data = newest.read_bytes()
        whole = b"\n" + data[: data.rfind(b"\n") + 1]  # without what a crash left of a line
        end = whole.index(b"\n", whole.rfind(b'\n{"position"') + 1)
        last = data[:end].rstrip().rpartition(b"\n")[2]
        position = int(json.loads(last)["position"])
        self._file = newest.open("r+b")
        self._file.truncate(end)
        self._file.seek(end)
        return position

    def write(self, items: Sequence[Transaction | Ddl], position: int) -> None:
        self._file.writelines(line for item in items for line in lines(item))
        self._file.write(b'{"position": %d}\n' % position)
        self._sync()
        if self._file.tell() >= self._file_bytes:
            self._file.close()
            self._begin(position)

    def close(self) -> None:
        self._file.close()

    def _begin(self, position: int) -> None:
        """Another file. Under its name it has a position from the start."""
        path = self._directory / f"changes-{position:020d}.jsonl"
        part = path.with_suffix(".part")
        self._file = part.open("w+b")
        self._file.write(b'{"position": %d}\n' % position)
        self._sync()
        part.rename(path)
        directory = os.open(self._directory, os.O_RDONLY)
        os.fsync(directory)
        os.close(directory)

    def _sync(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())


def lines(item: Transaction | Ddl) -> Iterator[bytes]:
    if isinstance(item, Ddl):
        yield line({"commit_ts": item.commit_ts, "ddl": item.query, "schema": item.schema})
        return
    for row in item.rows:  # of a large transaction they are read piece by piece
        yield line(
            {
                "commit_ts": item.commit_ts,
                "table": str(row.table),
                "kind": row.kind,
                "before": row.before,
                "after": row.after,
            }
        )


def line(document: dict[str, Any]) -> bytes:
    """Decimals, times and bytes are texts."""
    return json.dumps(document, default=json_value).encode() + b"\n"

"""State file: what a comparison found equal, so that the next run goes on from there.

    {"verify": 1, "of": "..."}                      a comparison, and what it belongs to
    {"table": "shop.a", "how": "...", "chunk": "...", "rows": [10, 10]}       a chunk that is equal

Holds  a line is whole or does not count: what a crash cut off at the end is compared again. A chunk counts
       for a table only as long as it is compared in the same way. A finished comparison leaves no file
Never  has values of rows, but for those of key columns, by which tables are cut
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from common.errors import ConfigError, Corruption
from common.filesystem import replace_file
from drainer.chunks.chunk import Chunk
from drainer.verify.chunk_comparison import Part
from drainer.verify.compared_table import ComparedTable
from drainer.verify.table_work import TableWork

_VERSION: Final = 1
_MODE: Final = 0o600


class StateFile:
    """`of`: which sides are compared under which rules; a file of others is begun anew. Raises `ConfigError`
    for a file that cannot be read or written."""

    def __init__(self, path: Path, of: str) -> None:
        self._path = path
        self._of = _digest(of)
        self._known: dict[tuple[str, str], list[tuple[Chunk, Part]]] = {}
        self.resumed = 0
        try:
            lines = self._read()
            replace_file(os.fspath(path), b"".join(lines), _MODE)
            self._file = path.open("ab", 0)
        except OSError as error:
            raise ConfigError(
                f"{path} cannot be used for the state of the comparison: {error.strerror}",
                hint="-state names another file",
            ) from None

    def kept(self, work: TableWork, how: ComparedTable) -> Iterable[tuple[Chunk, Part]]:
        found = self._known.pop((work.wanted.label, _digest(how.identity)), [])
        self.resumed += len(found)
        return found

    def keep(self, work: TableWork, chunk: Chunk, part: Part) -> None:
        self._write(
            {
                "table": work.wanted.label,
                "how": _digest(work.how.identity if work.how is not None else ""),
                "chunk": chunk.stored(),
                "rows": [part.rows, part.downstream_rows],
            }
        )

    def close(self, *, finished: bool) -> None:
        self._file.close()
        if finished:
            self._path.unlink(missing_ok=True)

    def _write(self, line: dict[str, object]) -> None:
        self._file.write(json.dumps(line).encode() + b"\n")

    def _read(self) -> list[bytes]:
        """The lines that count, and what they say into `_known`; of another comparison's file none."""
        head = json.dumps({"verify": _VERSION, "of": self._of}).encode() + b"\n"
        try:
            first, *lines = self._path.read_bytes().splitlines(keepends=True)
        except (FileNotFoundError, ValueError):
            return [head]
        if first != head:
            return [head]
        kept = [head]
        for line in lines:
            try:
                one = json.loads(line)
                rows, downstream_rows = one["rows"]
                entry = Chunk.of_stored(one["chunk"]), Part(int(rows), int(downstream_rows))
                self._known.setdefault((one["table"], one["how"]), []).append(entry)
            except (ValueError, KeyError, TypeError, Corruption):
                break
            kept.append(line)
        return kept


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]

"""State file: what a comparison found equal, so that the next run goes on from there.

    {"verify": 1, "of": "...", "began_s": 1763868000}   a comparison, what it belongs to, when it began
    {"table": "shop.a", "how": "...", "chunk": "...", "rows": [10, 10]}       a chunk that is equal

Holds  a line is whole and fits its checksum, or neither it nor what follows counts: it is compared again. A
       chunk counts for a table only as long as it is compared in the same way. A finished comparison leaves
       no file; one that began more than `KEPT_S` ago is begun anew, for what was equal then says little today
Never  has values of rows, but for those of key columns, by which tables are cut
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from drainer.compare.verify.chunk_comparison import Part
from drainer.compare.verify.compared_table import ComparedTable
from drainer.compare.verify.table_work import TableWork
from drainer.mysql.chunks.chunk import Chunk
from tidb_binlog import checked
from tidb_binlog.errors import ConfigError, Corruption
from tidb_binlog.filesystem import replace_file

KEPT_S: Final = 24 * 3600.0
_VERSION: Final = 2
_MODE: Final = 0o600


class StateFile:
    """`of`: which sides are compared under which rules; a file of others is begun anew. `began_s`: when what
    it has began, by the wall clock. Raises `ConfigError` for a file that cannot be read or written."""

    def __init__(self, path: Path, of: str, now_s: float) -> None:
        self._path = path
        self._of = _digest(of)
        self.began_s = now_s
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
        parts = self._known.pop((work.request.label, _digest(how.identity)), [])
        self.resumed += len(parts)
        return parts

    def keep(self, work: TableWork, chunk: Chunk, part: Part) -> None:
        self._write(
            {
                "table": work.request.label,
                "how": _digest(work.how.identity if work.how is not None else ""),
                "chunk": chunk.stored(),
                "rows": [part.rows, part.downstream_rows],
                "read": part.is_read,
            }
        )

    def close(self, *, finished: bool) -> None:
        self._file.close()
        if finished:
            self._path.unlink(missing_ok=True)

    def _write(self, line: dict[str, object]) -> None:
        self._file.write(checked.document(line) + b"\n")

    def _read(self) -> list[bytes]:
        """The lines that count, and what they say into `_known`; of another comparison's file none."""
        try:
            first, *lines = self._path.read_bytes().splitlines(keepends=True)
        except (FileNotFoundError, ValueError):
            return [self._head()]
        if not self._goes_on(first):
            return [self._head()]
        kept = [first]
        for line in lines:
            try:
                document = checked.read_document(line.rstrip(b"\n"))
                rows, downstream_rows = document["rows"]
                entry = Chunk.of_stored(document["chunk"]), _part(rows, downstream_rows, document["read"])
                self._known.setdefault((document["table"], document["how"]), []).append(entry)
            except (ValueError, KeyError, TypeError, Corruption):
                break
            kept.append(line)
        return kept

    def _head(self) -> bytes:
        return checked.document({"verify": _VERSION, "of": self._of, "began_s": self.began_s}) + b"\n"

    def _goes_on(self, head: bytes) -> bool:
        try:
            document = checked.read_document(head.rstrip(b"\n"))
            began_s = float(document["began_s"])
            is_ours = (document["verify"], document["of"]) == (_VERSION, self._of)
        except (ValueError, KeyError, TypeError):
            return False
        if not is_ours or not self.began_s - KEPT_S <= began_s <= self.began_s:
            return False
        self.began_s = began_s
        return True


def _part(rows: int, downstream_rows: int, is_read: bool) -> Part:
    return Part(int(rows), int(downstream_rows), is_read=bool(is_read))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]

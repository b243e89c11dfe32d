"""Repair file: SQL that mends a downstream, for people to read and for a client to run.

Out    one file: the session's settings, then a transaction for each table
Holds  the file is there whole or not at all; a statement is one line, without bytes that a client would
       change (NUL, line breaks), so that `mariadb < FILE` runs what was written. A name may have line breaks
Never  keeps the statements in memory: removals and writes of a table wait in files without a name
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from types import TracebackType
from typing import IO, Final

from drainer.compare.report.repair.mending import mending
from drainer.compare.report.shown import name_text
from drainer.compare.verify.result import Name, RowDifference, State, TableResult, Verification
from drainer.mysql.pinned_settings import FIRST
from drainer.mysql.rows.dialect import Dialect
from drainer.mysql.session_mode import DEFAULT
from tidb_binlog import time_text
from tidb_binlog.errors import ConfigError
from tidb_binlog.filesystem import sync_directory
from tidb_binlog.late_dataclass import dataclass, field

_IN_MEMORY_BYTES: Final = 1 << 20
_QUOTED: Final = re.compile(rb"`[^`]*`|'(?:[^'\\]+|\\.)*'", re.DOTALL)
_TIDB: Final = b"SET SESSION allow_auto_random_explicit_insert=1;\n"
_LAX: Final = b"SET SESSION sql_mode='%b';\n" % DEFAULT.lax.encode()
_STRICT: Final = b"SET SESSION sql_mode='%b';\n" % DEFAULT.strict.encode()
_SESSION: Final = (
    b"SET NAMES utf8mb4;\n%b;\nSET SESSION time_zone='+00:00', foreign_key_checks=0, sql_mode='%b';\n"
    % (FIRST, DEFAULT.strict.encode())
)
_HEAD: Final = """\
-- Makes {down} equal to {up} as it was at {time} ({ts}), where a comparison found differences.
-- A statement changes a row only as it was seen then. It cannot know what the upstream did since: stop the
-- Drainer first (binlogctl pause), or use -repair-now, which looks at both sides again. Then verify again.
"""


def _waiting() -> IO[bytes]:
    return tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES)


@dataclass(slots=True)
class _Table:
    """What was found of one table so far."""

    removals: IO[bytes] = field(default_factory=_waiting)
    writes: IO[bytes] = field(default_factory=_waiting)
    rows: int = 0
    refused: Counter[str] = field(default_factory=Counter)


class RepairFile:
    """One file that is being made. `add` may be called by any thread."""

    def __init__(self, path: str, dialect: Dialect) -> None:
        self._path = path
        self._dialect = dialect
        self._lock = threading.Lock()
        self._tables: dict[Name, _Table] = {}
        folder = os.path.dirname(os.path.abspath(path))
        if not os.access(folder, os.W_OK) or os.path.isdir(path):
            raise ConfigError(f"-repair: {path} cannot be written", hint="name a file in a folder of yours")

    def __enter__(self) -> RepairFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for table in self._tables.values():
            for file in (table.removals, table.writes):
                with suppress(OSError):  # what was not written yet, on a full disk
                    file.close()

    def add(self, table: TableResult, difference: RowDifference) -> None:
        """One difference; an `OnDifference`. Raises `ConfigError` on a full disk."""
        mended = mending(table, difference, self._dialect)
        with self._lock:
            kept = self._tables.get(table.downstream)
            if kept is None:
                kept = self._tables[table.downstream] = _Table()
            try:
                kept.removals.writelines(_lines(mended.removals))
                kept.writes.writelines(_lines(mended.writes, is_lax=mended.is_lax))
            except OSError as error:
                raise ConfigError(
                    f"-repair: statements cannot be kept in {tempfile.gettempdir()}: {error.strerror}",
                    hint="TMPDIR names another directory",
                ) from None
            kept.rows += bool(mended.removals or mended.writes)
            if mended.refused:
                kept.refused[mended.refused] += 1

    @property
    def rows(self) -> int:
        """Rows that the file mends."""
        return sum(table.rows for table in self._tables.values())

    @property
    def refused(self) -> list[str]:
        """What it does not mend, by table."""
        return [
            f"{name_text(name)}: {number:,} x {why}"
            for name, table in sorted(self._tables.items())
            for why, number in table.refused.items()
        ]

    def finish(self, result: Verification) -> None:
        """Put the file where it belongs. Raises `ConfigError` where it cannot be written."""
        part = f"{self._path}.part"
        try:
            with open(part, "wb") as file:
                file.write(self._head(result))
                for name, table in sorted(self._tables.items()):
                    _write_table(file, name, table, self._dialect)
                file.writelines(_comment(f"not compared: {_why(entry)}") for entry in _apart(result))
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, self._path)
            sync_directory(os.path.dirname(os.path.abspath(self._path)))
        except OSError as error:
            raise ConfigError(
                f"-repair: {self._path} cannot be written: {error.strerror}", hint="correct -repair"
            ) from None

    def _head(self, result: Verification) -> bytes:
        text = _HEAD.format(
            down=_one_line(result.downstream),
            up=_one_line(result.upstream),
            time=time_text.utc(result.ts),
            ts=result.ts,
        )
        nothing = b"" if self._tables else _comment("nothing differs: there is nothing to mend")
        return text.encode() + nothing + _SESSION + (_TIDB if self._dialect is Dialect.TIDB else b"")


def _write_table(file: IO[bytes], name: Name, table: _Table, dialect: Dialect) -> None:
    file.write(_comment(f"{name_text(name)}: {table.rows:,} rows"))
    file.writelines(_comment(f"not mended: {number:,} x {why}") for why, number in table.refused.items())
    file.write(b"START TRANSACTION;\n")
    # A strict TiDB does not find each row.
    around = (_LAX, _STRICT) if dialect is Dialect.TIDB and table.removals.tell() else (b"", b"")
    for some, (before, after) in ((table.removals, around), (table.writes, (b"", b""))):
        file.write(before)
        some.seek(0)
        shutil.copyfileobj(some, file)
        file.write(after)
    file.write(b"COMMIT;\n")


def _lines(statements: Iterable[bytes], *, is_lax: bool = False) -> Iterable[bytes]:
    for statement in statements:
        if is_lax:
            yield _LAX
        yield _QUOTED.sub(_on_one_line, statement) + b";\n"
        if is_lax:
            yield _STRICT


def _on_one_line(quoted: re.Match[bytes]) -> bytes:
    """In a literal a backslash escapes, in a name it does not."""
    text = quoted[0]
    if text[:1] == b"`":
        return text
    return text.replace(b"\0", b"\\0").replace(b"\r", b"\\r").replace(b"\n", b"\\n")


def _apart(result: Verification) -> list[TableResult]:
    return [table for table in result.tables if table.state is State.NOT_COMPARABLE]


def _why(table: TableResult) -> str:
    return f"{name_text(table.downstream)}: {table.why}"


def _comment(text: str) -> bytes:
    return b"-- %b\n" % _one_line(text).encode("utf-8", "backslashreplace")


def _one_line(text: str) -> str:
    return " ".join(text.split())

"""Undo script: undos as a file of SQL that people read, and that a client of MySQL runs.

In     undos in their order; what the header says of the range
Out    bytes: a header of comments, the settings that literals are made for, transactions of bounded size
Holds  a name or text from the archive never ends the comment it stands in
Tests  tests/spark/flashback/test_run.py

The file does not compare rows with the archive before it changes them; restoring them with `--yes` does.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from drainer.mysql.session_mode import SessionMode
from drainer.spark.flashback import undo
from drainer.spark.flashback.undo import Undo, UndoKind
from tidb_binlog.late_dataclass import dataclass, field

TRANSACTION_ROWS: Final = 1000
STATEMENT_BYTES: Final = 1 << 18
_WORDS: Final = {UndoKind.DELETE: "delete", UndoKind.OVERWRITE: "overwrite", UndoKind.INSERT: "insert"}
_RUN: Final = "mysql --binary-mode --default-character-set=utf8mb4"


@dataclass(slots=True)
class Tally:
    """Statements' rows by table and kind, and what a reader should know."""

    rows: dict[str, Counter[UndoKind]] = field(default_factory=dict)
    warnings: dict[str, None] = field(default_factory=dict)

    def note(self, row_undo: Undo) -> None:
        label = row_undo.target.label
        kinds = self.rows.setdefault(label, Counter())
        if not row_undo.target.keyed and not kinds:
            self.warn(f"{label} has no key: rows are found by all of their values")
        kinds[row_undo.kind] += row_undo.times

    def warn(self, text: str) -> None:
        self.warnings[text] = None

    @property
    def total(self) -> int:
        return sum(map(Counter.total, self.rows.values()))


def body(undos: Iterable[Undo], mode: SessionMode, tally: Tally) -> Iterator[bytes]:
    """All statements; `tally` gets what they come to."""
    iterator = iter(undos)
    while some := list(itertools.islice(iterator, TRANSACTION_ROWS)):
        yield b"\nSTART TRANSACTION;\n"
        for batch in undo.batches(some, TRANSACTION_ROWS, STATEMENT_BYTES):
            for row_undo in batch:
                tally.note(row_undo)
            yield from _statements(batch, mode, tally)
        yield b"COMMIT;\n"


def _statements(batch: list[Undo], mode: SessionMode, tally: Tally) -> Iterator[bytes]:
    for statement in undo.statements(batch, STATEMENT_BYTES):
        if statement.lax:
            yield b"SET SESSION sql_mode='%b';\n" % mode.lax.encode()
        yield statement.sql + b";\n"
        if statement.lax:
            yield b"SET SESSION sql_mode='%b';\n" % mode.strict.encode()
        for column, values in statement.foreign_text:
            tally.warn(f"{statement.table.label}.{column}: {values} texts are not in its character set")


def header(about: Sequence[str], mode: SessionMode, tally: Tally) -> bytes:
    """What stands before the body. `about`: the range, the archive, the way."""
    lines = [*about, f"run it with: {_RUN} < this file", ""]
    for label, kinds in sorted(tally.rows.items()):
        counts = ", ".join(f"{number} to {_WORDS[kind]}" for kind, number in sorted(kinds.items()))
        lines.append(f"table {label}: {counts}")
    if not tally.rows:
        lines.append("nothing changed in this range")
    lines += [f"WARNING: {text}" for text in tally.warnings]
    lines.append("WARNING: nothing here looks at what rows are before they are changed; --yes does")
    comments = "".join(f"-- {_one_line(line)}".rstrip() + "\n" for line in lines)
    session = f"time_zone='+00:00', foreign_key_checks=0, sql_mode='{mode.strict}'"
    return f"{comments}SET NAMES utf8mb4;\nSET SESSION {session};\n".encode("utf-8", "replace")


def _one_line(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text)

"""Undo: what brings rows back to what they were, as statements and as questions to ask before.

Out    `Undo`s in an order in which they can run; batches of them as a query with the count that it has to
       give, and statements with the counts that they have to give
Holds  an image is overwritten or removed only where the whole row is what the archive says it is; a row is
       added only where none has its key. Both are part of the batch, so that they hold while it runs
Why    in a table with further unique keys rows that change are removed first and added again: what is there
       in between never collides with a value that another row still has

Rows are single images (`ImageSqlPlan`). Two phases: all removals, then what is written; each row is in both
at most once, so the order inside a phase does not matter.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum
from hashlib import blake2b
from typing import Final

from drainer.mysql.rows.change import (
    APPEND,
    DROP_ONE,
    PUT_INSERT,
    PUT_UPDATE,
    REMOVE,
    Change,
    Form,
    TableTarget,
)
from drainer.mysql.rows.row_fold import TableFold
from drainer.mysql.rows.statement import Statement, removals, writes
from drainer.mysql.session_mode import SessionMode
from drainer.spark.effects.operations import OPERATION, RowEffect
from tidb_binlog.late_dataclass import dataclass, field, replace
from tidb_binlog.table_info import STRING_TYPES

REMOVALS: Final = 0
WRITES: Final = 1
_CHECKED_ROWS: Final = 100  # alternatives in one question: the server compares each row with each of them


class UndoKind(IntEnum):
    DELETE = 0
    OVERWRITE = 1
    INSERT = 2


@dataclass(frozen=True, slots=True)
class Undo:
    """`now` has to be there (None: no row with that key), `then` comes instead (None: nothing).

    `key`: identity, b"" in a table without key. `times`: so many equal rows of a table without key.
    """

    target: TableTarget
    key: bytes
    now: bytes | None
    then: bytes | None
    times: int = 1

    @property
    def kind(self) -> UndoKind:
        if self.then is None:
            return UndoKind.DELETE
        return UndoKind.INSERT if self.now is None else UndoKind.OVERWRITE

    @property
    def size(self) -> int:
        return len(self.now or b"") + len(self.then or b"") * self.times

    @property
    def shown(self) -> str:
        """The row, for people: table and key, or table and image."""
        sql = self.target.sql
        image = self.now if self.now is not None else self.then
        assert image is not None
        if self.target.keyed:
            shown = sql.key_list.shown(sql.key_literal_of_delete(image))
        else:
            shown = sql.column_list + b" = " + sql.insert_literals(image)
        return f"{self.target.label} {shown.decode('utf-8', 'replace')}"


def of_effects(effects: Iterable[RowEffect], target_of: Callable[[RowEffect], TableTarget]) -> Iterator[Undo]:
    """Effects of one transaction, or of a few keys: the last one first, all removals before."""
    backwards = sorted(
        effects, key=lambda effect: (effect.last_order, effect.table, effect.key), reverse=True
    )
    for phase in (REMOVALS, WRITES):
        for effect in backwards:
            undo = of_effect(effect, phase, target_of(effect))
            if undo is not None:
                yield undo


def of_effect(effect: RowEffect, phase: int, target: TableTarget) -> Undo | None:
    """What is to be done about a net effect in a phase; None: nothing. It needs the image before."""
    now, then = _ends(effect)
    if now == then:
        return None
    times = abs(effect.times) or 1
    if now is None or then is None or _stays(target, now, then):
        due_phase = REMOVALS if then is None else WRITES
        return Undo(target, effect.key, now, then, times) if phase == due_phase else None
    if phase == REMOVALS:
        return Undo(target, effect.key, now, None)
    return Undo(target, effect.key, None, then)


def whole(effect: RowEffect, target: TableTarget) -> Undo | None:
    """What has to be true of a row before anything is done, and what is to become of it; None: nothing.

    Not for a row to be added under a text key: a row that goes may have a key that the server takes for it.
    """
    now, then = _ends(effect)
    if now == then or (now is None and _has_text_key(target)):
        return None
    return Undo(target, effect.key, now, then, abs(effect.times) or 1)


def _has_text_key(target: TableTarget) -> bool:
    return any(column.type.tp in STRING_TYPES for column in target.sql.key_columns)


def _ends(effect: RowEffect) -> tuple[bytes | None, bytes | None]:
    """Image now and image then."""
    if effect.first_order & OPERATION >= APPEND:
        if not effect.times:
            return None, None
        return (effect.image, None) if effect.times > 0 else (None, effect.image)
    was_there = effect.first_order & OPERATION >= PUT_UPDATE
    is_there = effect.last_order & OPERATION <= PUT_UPDATE
    return effect.image if is_there else None, effect.before if was_there else None


def _stays(target: TableTarget, now: bytes, then: bytes) -> bool:
    """Whether the row is overwritten in place."""
    if target.form is not Form.REWRITE:
        return True
    if not target.gentle:
        return False
    unique = target.sql.unique_values("delete", now)
    return unique is not None and unique == target.sql.unique_values("delete", then)


def steps_of(target: TableTarget) -> int:
    """Another number where the rows of a table go in other steps (`of_effect`), by keys that it has now."""
    unique = target.sql.unique_names if target.form is Form.REWRITE and target.gentle else None
    told = repr((target.label, target.form is Form.REWRITE, target.gentle, unique))
    return int.from_bytes(blake2b(told.encode(), digest_size=7).digest(), "big")


# -- batches ---------------------------------------------------------------------------------------------


def batches(undos: Iterable[Undo], rows_max: int, bytes_max: int) -> Iterator[list[Undo]]:
    """Undos of one table and kind that follow each other, each key once."""
    batch: list[Undo] = []
    keys: set[bytes] = set()
    size = 0
    for undo in undos:
        if batch and (
            undo.target is not batch[0].target
            or undo.kind is not batch[0].kind
            or undo.key in keys
            or len(batch) >= rows_max
            or size + undo.size > bytes_max
        ):
            yield batch
            batch, keys, size = [], set(), 0
        batch.append(undo)
        if undo.target.keyed:
            keys.add(undo.key)
        size += undo.size
    if batch:
        yield batch


def questions(batch: list[Undo]) -> Iterator[tuple[bytes, int]]:
    """Queries, and what they have to answer for the batch to be allowed. One count each."""
    target, kind = batch[0].target, batch[0].kind
    if not target.keyed:
        yield from _keyless_questions(batch)
        return
    head = b"SELECT COUNT(*) FROM " + target.name + b" WHERE ("
    step = len(batch) if kind is UndoKind.INSERT else _CHECKED_ROWS
    for at in range(0, len(batch), step):
        some = batch[at : at + step]
        images = [undo.then if kind is UndoKind.INSERT else undo.now for undo in some]
        whole = [image for image in images if image is not None]
        query = head + target.sql.key_list.condition(map(target.sql.key_literal_of_delete, whole))
        query += b")"
        if kind is UndoKind.INSERT:
            yield query, 0
            continue
        alternatives = b" OR ".join(
            b"(%b)" % target.sql.full_row_predicate("delete", image) for image in whole
        )
        yield query + b" AND (" + alternatives + b")", len(some)


def _keyless_questions(batch: list[Undo]) -> Iterator[tuple[bytes, int]]:
    """At least so many are there: asked for as a LIMIT, since more rows may be equal."""
    counts: Counter[bytes] = Counter()
    for undo in batch:
        if undo.now is not None:
            counts[undo.target.sql.full_row_predicate("delete", undo.now)] += undo.times
    name = batch[0].target.name
    for predicate, count in counts.items():
        limited = b"SELECT 1 FROM " + name + b" WHERE " + predicate + b" LIMIT %d" % count
        yield b"SELECT COUNT(*) FROM (" + limited + b") AS found", count


def statements(batch: list[Undo], bytes_max: int) -> Iterator[Statement]:
    """What the batch comes to."""
    target, kind = batch[0].target, batch[0].kind
    if not target.keyed:
        fold = TableFold(target)
        operation = DROP_ONE if kind is UndoKind.DELETE else APPEND
        for undo in batch:
            image = undo.now if kind is UndoKind.DELETE else undo.then
            assert image is not None
            fold.ordered += [(target, operation, b"", image, 0)] * undo.times
        yield from writes(fold, bytes_max, replaying=False)
        return
    # A row to be added is never put over another one; one that stays keeps what only the downstream has.
    target = replace(target, form=Form.UPSERT if kind is UndoKind.OVERWRITE else Form.REWRITE, gentle=False)
    fold = TableFold(target)
    for undo in batch:
        fold.first[undo.key] = fold.last[undo.key] = _change(target, undo)
    yield from removals(fold, bytes_max, replaying=False)
    yield from writes(fold, bytes_max, replaying=False)


def _change(target: TableTarget, undo: Undo) -> Change:
    image = undo.now if undo.then is None else undo.then
    assert image is not None
    operation = (REMOVE, PUT_UPDATE, PUT_INSERT)[undo.kind]
    return target, operation, undo.key, image, 0


# Undo script: undos as a file of SQL that people read, and that a client of MySQL runs.
# Holds  a name or text from the archive never ends the comment it stands in
# The file does not compare rows with the archive before it changes them; restoring them with `--yes` does.

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
        for batch in batches(some, TRANSACTION_ROWS, STATEMENT_BYTES):
            for row_undo in batch:
                tally.note(row_undo)
            yield from _statements(batch, mode, tally)
        yield b"COMMIT;\n"


def _statements(batch: list[Undo], mode: SessionMode, tally: Tally) -> Iterator[bytes]:
    for statement in statements(batch, STATEMENT_BYTES):
        is_lax = statement.lax or statement.meets_no_month  # of which a strict TiDB may not find the rows
        if is_lax:
            yield b"SET SESSION sql_mode='%b';\n" % mode.lax.encode()
        yield statement.sql + b";\n"
        if is_lax:
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

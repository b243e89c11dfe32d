"""Restore: undos go into a database in chunks, each in one transaction together with its place, each once.

Holds   inside a chunk's transaction rows are locked, compared with what the archive says of them, and only
        then changed: what changed a row since is not lost, the chunk is rolled back and the row named. A
        process that was killed resumes after its last chunk
Never   retries: whatever stopped it, the same command resumes
Tests   tests/spark/flashback/test_run.py

Undos come in an order that depends on nothing but the frozen range, so chunks are the same in every run.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final

from drainer.mysql.connection import Connection, Target
from drainer.mysql.errors import DUPLICATE, SessionError, StatementRefused, final_error, safe_text
from drainer.spark.flashback import undo
from drainer.spark.flashback.undo import Undo, UndoKind
from drainer.spark.replay.job import Bucket
from drainer.spark.replay.writer import STATEMENT_BYTES_MAX, execute
from tidb_binlog.errors import Conflict, Unavailable

CHUNK_ROWS: Final = 1000
BATCH_BYTES: Final = STATEMENT_BYTES_MAX >> 2  # a question names each row and all its values
SHOWN_MAX: Final = 20
_LOCK: Final = b" FOR UPDATE"


class Drifted(Conflict):
    """Rows are not as the archive says they are after the range."""

    def __init__(self, rows: list[str], where: str) -> None:
        shown = "; ".join(rows[:SHOWN_MAX])
        more = f"; and {len(rows) - SHOWN_MAX} more" if len(rows) > SHOWN_MAX else ""
        super().__init__(
            f"{where}: {len(rows)} rows are not as they were at the end of the range: {shown}{more}",
            hint="they were changed since, and nothing of that was overwritten: take a later --stop, so"
            " that those changes are in the range, or leave their tables out with --tables",
        )
        self.rows = rows


class Restorer:
    """`bucket`: the place of the job in `spark_progress`."""

    def __init__(self, connection: Connection, target: Target, bucket: Bucket) -> None:
        self._connection = connection
        self._target = target
        self._bucket = bucket

    def begun(self) -> bool:
        """Whether a chunk was written already."""
        following = self._bucket.next_chunk(self._connection)
        self._connection.rollback()
        return following > 0

    def check(self, undos: Iterable[Undo]) -> None:
        """Compare all rows before the first one is changed; `undos` as `undo.whole` makes them.

        Raises `Drifted`.
        """
        rows: list[str] = []
        for batch in undo.batches(undos, CHUNK_ROWS, BATCH_BYTES):
            rows += self._differing(batch, b"")
            self._connection.rollback()
        if rows:
            raise Drifted(rows, "nothing was changed")

    def apply(self, undos: Iterable[Undo], on_progress: Callable[[int], None] | None = None) -> int:
        """How many undos were done, those of former runs included. Raises `Drifted`, `DownstreamError`."""
        done = 0
        for number, chunk in enumerate(_chunks(undos)):
            try:
                self._write(number, chunk)
            except SessionError as error:
                raise self._refused(error, chunk) from None
            done += len(chunk)
            if on_progress is not None:
                on_progress(done)
        return done

    def _write(self, number: int, chunk: list[Undo]) -> None:
        connection = self._connection
        following = self._bucket.next_chunk(connection)
        if following > number:
            connection.rollback()
            return
        assert following == number, (self._bucket, number, following)
        for batch in undo.batches(chunk, CHUNK_ROWS, BATCH_BYTES):
            differing = self._differing(batch, _LOCK)
            for statement in undo.statements(batch, STATEMENT_BYTES_MAX) if not differing else ():
                if statement.drift(execute(connection, self._target, statement, STATEMENT_BYTES_MAX)):
                    differing.append(f"{batch[0].target.label}: a statement met other rows than it should")
            if differing:
                connection.rollback()
                raise Drifted(differing, f"stopped after {number * CHUNK_ROWS} rows that are restored")
        self._bucket.advance(connection, number, len(chunk), 0)
        connection.commit()

    def _differing(self, batch: list[Undo], lock: bytes) -> list[str]:
        if all(self._answer(question + lock) == expected for question, expected in undo.questions(batch)):
            return []
        if len(batch) == 1:
            return [f"{batch[0].shown} {self._what(batch[0])}"]
        middle = len(batch) // 2
        return self._differing(batch[:middle], lock) + self._differing(batch[middle:], lock)

    def _what(self, row_undo: Undo) -> str:
        if row_undo.kind is UndoKind.INSERT:
            return "is there again"
        if not row_undo.target.keyed:
            return f"is not there {row_undo.times} times" if row_undo.times > 1 else "is not there"
        absent = replace(row_undo, now=None, then=row_undo.now)
        is_there = any(self._answer(question) != expected for question, expected in undo.questions([absent]))
        return "has other values" if is_there else "is gone"

    def _answer(self, question: bytes) -> int:
        ((count,),) = self._connection.rows(question)
        return int(count)

    def _refused(self, error: SessionError, chunk: list[Undo]) -> Exception:
        if error.number == DUPLICATE:
            self._connection.rollback()
            return Drifted([f"{chunk[0].target.label}: {safe_text(error)}"], "a row is in the way")
        if isinstance(error, StatementRefused):
            return final_error(error, "restoring rows")
        return Unavailable(
            f"downstream {self._target!r}: {safe_text(error)}",
            hint="run the same command again: it resumes where it stopped",
        )


def _chunks(undos: Iterable[Undo]) -> Iterator[list[Undo]]:
    iterator = iter(undos)
    while chunk := list(itertools.islice(iterator, CHUNK_ROWS)):
        yield chunk

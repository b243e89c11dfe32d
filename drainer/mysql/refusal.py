"""Refusal: rows that the downstream does not take, and the question whether that is final.

Out    which constraint it is, if it is one; the answer of the side that knows what the upstream has given up
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Final

from drainer.mysql.errors import WHOLE_SERVER, StatementRefused, broken_check, broken_key
from drainer.mysql.rows.change import TableTarget
from tidb_binlog.errors import DownstreamError
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.tso import Ts

_CHECK_S: Final = 0.1
CORRECT: Final = (
    "correct the downstream, then `binlogctl ddl retry JOB`; `binlogctl ddl list` shows the number"
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """`name` of the key, as the server says it, or of the CHECK; "" where it is neither: then `number` is
    that of the error, or 0 where the table as it is takes no rows. The table's rows are of this range."""

    table: TableTarget
    name: str
    is_check: bool
    first_ts: Ts
    last_ts: Ts
    number: int = 0

    @property
    def what(self) -> str | int:
        """The constraint, or else the kind of error."""
        return self.name or self.number

    def is_about(self, key: str) -> bool:
        """Whether the server's text names this key: with its table's name before it, or without."""
        table = self.table.version.downstream[1]
        return bool(key) and self.name.lower() in (key.lower(), f"{table}.{key}".lower())


class RowsRefused(DownstreamError):
    """Rows of a table are refused for good. `lane`: nothing of the table is applied from its position on."""

    def __init__(self, message: str, *, hint: str, lane: int, refusal: Refusal) -> None:
        super().__init__(message, hint=hint)
        self.lane = lane
        self.refusal = refusal


Ask = Callable[[Refusal], "Future[bool]"]
"""From any thread. True: the constraint is gone now, the rows may be tried once more."""


def refusal_of(error: BaseException, table: TableTarget | None, first_ts: Ts, last_ts: Ts) -> Refusal | None:
    """None for what is not the table's: the session, the account or the server is at fault."""
    if table is None or not isinstance(error, StatementRefused) or error.number in {0, *WHOLE_SERVER}:
        return None
    key, check = broken_key(error), broken_check(error)
    return Refusal(table, key or check, bool(check), first_ts, last_ts, error.number)


def not_as_upstream(what: str, table: TableTarget, rows: int) -> DownstreamError:
    """`what` met so many rows that were there and should not, or the reverse."""
    return DownstreamError(
        f"{what}: table {table.label} is not as upstream's: {rows} rows that a statement should touch were"
        " not there, or were there already",
        hint="compare the table with upstream's, or set syncer.strict = false to count such rows only",
    )


def answer(asked: Future[bool], abandoned: threading.Event) -> bool:
    """Wait for it, on a lane's thread; false when the lane is to end first."""
    while not wait((asked,), _CHECK_S).done:
        if abandoned.is_set():
            asked.cancel()
            return False
    return asked.result()

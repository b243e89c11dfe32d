"""Stall report: when to report which open prewrite holds the watermark, and what to say of it.

Out    `Stalled(prewrite, age_s)` once it is older than `first_s`, then with growing pauses; `Settled` at the
       end
Why    one open transaction keeps its pump's watermark, and with it the replication of the whole cluster. That
       is what order demands; an operator need not guess which transaction it is
Never  shows rows: a table's id, a DDL's beginning, timestamps
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.message import DecodeError

from pump.index.sorter import OpenPrewrite
from pump.watermark.resolve_schedule import Heard, TxnAnswer
from tidb_binlog import binlog
from tidb_binlog.errors import Rejected
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.tso import Ts
from tidb_binlog.wire import binlog_pb2

DDL_CHARS_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class Stalled:
    """This prewrite holds the watermark, since `age_s` seconds. `turn`: 1 when it is reported first."""

    prewrite: OpenPrewrite
    age_s: float
    turn: int


@dataclass(frozen=True, slots=True)
class Settled:
    """A prewrite that was reported is settled; it had been open for `held_s` seconds."""

    start_ts: Ts
    held_s: float


class StallReport:
    """Seconds on the caller's clock. `reported`: the prewrite that was reported and is open still."""

    def __init__(self, *, first_s: float = 10.0, pause_max_s: float = 600.0) -> None:
        self._first_s = first_s
        self._pause_max_s = pause_max_s
        self._next_s = 0.0
        self._pause_s = 0.0
        self._turn = 0
        self.reported: OpenPrewrite | None = None

    def observe(self, oldest: OpenPrewrite | None, now_s: float) -> list[Stalled | Settled]:
        """`oldest`: the longest open prewrite as of now, None if there is none."""
        effects: list[Stalled | Settled] = []
        reported = self.reported
        if reported is not None and (oldest is None or oldest.start_ts != reported.start_ts):
            effects.append(Settled(reported.start_ts, now_s - reported.since_s))
            self.reported = reported = None
        if oldest is None or now_s - oldest.since_s < self._first_s:
            return effects
        if reported is None:
            self.reported, self._turn, self._pause_s = oldest, 0, self._first_s
        elif now_s < self._next_s:
            return effects
        else:
            self._pause_s = min(self._pause_s * 2, self._pause_max_s)
        self._next_s = now_s + self._pause_s
        self._turn += 1
        effects.append(Stalled(oldest, now_s - oldest.since_s, self._turn))
        return effects


@dataclass(frozen=True, slots=True)
class Subject:
    """What a transaction is about. Rows: the first table's id and how many tables; a DDL: its job."""

    table_id: int = 0
    tables: int = 0
    ddl_job_id: int = 0
    ddl_query: str = ""

    def fields(self) -> dict[str, Any]:
        """What is known, for a log line or `/status`."""
        if self.ddl_job_id:
            return {"ddl_job_id": self.ddl_job_id, "ddl_query": self.ddl_query}
        return {"table_id": self.table_id, "tables": self.tables} if self.tables else {}


def subject_of(payload: bytes) -> Subject:
    """What a stored prewrite is about; empty if its value cannot be read."""
    try:
        message = binlog.parse(payload)
        if message.ddl_job_id:
            query = message.ddl_query.decode(errors="replace")
            return Subject(ddl_job_id=message.ddl_job_id, ddl_query=query[:DDL_CHARS_MAX])
        mutations = binlog_pb2.PrewriteValue.FromString(message.prewrite_value).mutations
    except (Rejected, DecodeError):
        return Subject()
    return Subject(mutations[0].table_id if mutations else 0, len({change.table_id for change in mutations}))


_NEXT: Final = {
    TxnAnswer.NONE: "wait: the upstream is asked soon",
    TxnAnswer.ALIVE: "find start_ts {start_ts} among the upstream's transactions, end it if it hangs",
    TxnAnswer.UNAVAILABLE: "nothing can be decided without the upstream: see to it that it answers",
    TxnAnswer.DAMAGED: "restore the file from a backup; its end may still come from the client",
    TxnAnswer.ODD: "the upstream contradicts itself: find the transaction there",
    TxnAnswer.UNKNOWN: "find out whether its rows were there upstream, then: binlogctl decide {start_ts} "
    "rolled-back, or binlogctl decide {start_ts} COMMIT_TS",
    TxnAnswer.NOT_WRITTEN: "free or repair the disk, then restart the pump",
    TxnAnswer.ENDED: "wait for the index; if it does not move, see what /status says about it",
}


def next_step(start_ts: Ts, heard: Heard) -> str:
    """What an operator does about it; the upstream knows best what there is to do with it."""
    return (heard.hint or _NEXT[heard.answer]).replace("{start_ts}", str(start_ts))


def latest_answer(heard: Heard) -> str:
    """In a line."""
    return f"{heard.answer.value}: {heard.detail}" if heard.detail else heard.answer.value

"""Summary: what a run of reparo has done, in words or as one JSON object, and how far it is meanwhile.

Out    lines; on a terminal one line of progress that is written over, elsewhere a line every ten seconds
Tests  tests/drainer/reparo/test_process.py
"""

from __future__ import annotations

import asyncio
import datetime
import json
import sys
from collections.abc import Callable
from typing import Any, Final

from drainer.reparo.ordered_records import Seen
from tidb_binlog import tso
from tidb_binlog.late_dataclass import asdict, dataclass, field
from tidb_binlog.observe.show import TerminalLine, print_warning
from tidb_binlog.tso import Ts


@dataclass(slots=True)
class Summary:
    """Of this run; `first_ts` and `last_ts` of what it read. The destination has all up to `upto_ts`.

    `finished`: the range is done. `rows_by_table`: of a dry run. Of all runs of the job: `drift`, rows that
    were not at the destination as they should have been, by table; `texts`, values that a column's character
    set does not have, by column; `missing`, what the destination lacks of DDL.
    """

    dest: str
    job: str = ""
    finished: bool = False
    resumed_after_ts: Ts = 0
    first_ts: Ts = 0
    last_ts: Ts = 0
    upto_ts: Ts = 0
    transactions: int = 0
    rows: int = 0
    ddl: int = 0
    seconds: float = 0.0
    drift: dict[str, int] = field(default_factory=dict)
    texts: dict[str, int] = field(default_factory=dict)
    rows_by_table: dict[str, int] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    @property
    def document(self) -> dict[str, Any]:
        """Put all of it into one object."""
        report = asdict(self)
        report["first_time"], report["last_time"] = shown_time(self.first_ts), shown_time(self.last_ts)
        return report

    def to_json(self) -> str:
        """Write it for programs."""
        return json.dumps(self.document, ensure_ascii=False)

    def lines(self) -> list[str]:
        """Write it for people."""
        rate = f", {self.rows / self.seconds:,.0f} row changes/s" if self.seconds > 0 and self.rows else ""
        text = [
            f"{self.transactions:,} transactions, {self.rows:,} row changes, {self.ddl:,} DDL in"
            f" {self.seconds:.1f} s{rate}"
        ]
        if self.last_ts:
            text.append(
                f"from commit_ts {self.first_ts} ({shown_time(self.first_ts)})"
                f" to {self.last_ts} ({shown_time(self.last_ts)})"
            )
        else:
            text.append(
                f"nothing is left to do: all up to commit_ts {self.resumed_after_ts} was done before"
                if self.resumed_after_ts
                else "the archive has nothing in this range"
            )
        text += [f"{name}: {count:,} row changes" for name, count in sorted(self.rows_by_table.items())]
        text += [
            f"{name}: {count:,} rows were not there as they should have been"
            for name, count in sorted(self.drift.items())
        ]
        text += [
            f"{name}: {count:,} values are not in its character set"
            for name, count in sorted(self.texts.items())
        ]
        text += [f"missing at the destination {line}" for line in self.missing]
        if not self.finished:
            text.append("stopped before the end: the same command goes on from here")
        return text


def shown_time(ts: Ts) -> str:
    """In UTC; "" for none."""
    if not ts:
        return ""
    moment = datetime.datetime.fromtimestamp(tso.physical_s(ts), datetime.UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03d}Z"


PACE_S: Final = 0.5
LINE_EVERY_S: Final = 10.0
_MIB: Final = 1 << 20


def shown(seen: Seen, rows: int, rate: float) -> str:
    """One line."""
    share = f"{100 * seen.bytes // seen.bytes_all} %, " if seen.bytes_all else ""
    return (
        f"reparo: {share}{seen.bytes / _MIB:,.0f} of {seen.bytes_all / _MIB:,.0f} MiB read, {rows:,}"
        f" row changes ({rate:,.0f}/s), at {shown_time(seen.last_ts) or 'the beginning'}"
    )


async def show_progress(seen: Seen, rows: Callable[[], int], monotonic_s: Callable[[], float]) -> None:
    """Until it is cancelled."""
    is_terminal = sys.stderr.isatty()
    line = TerminalLine() if is_terminal else None
    said_s, before = monotonic_s(), 0
    last_s = said_s
    try:
        while True:
            await asyncio.sleep(PACE_S)
            now_s = monotonic_s()
            if line is not None:
                line.show(shown(seen, rows(), (rows() - before) / max(now_s - last_s, PACE_S)))
                before, last_s = rows(), now_s
            elif now_s - said_s >= LINE_EVERY_S:
                print_warning(shown(seen, rows(), (rows() - before) / (now_s - said_s)))
                before, said_s = rows(), now_s
    finally:
        if line is not None:
            line.clear()

"""Shows a run while it goes on: a table on a terminal, plain lines otherwise, nothing with `--json`.

Only shows; what is shown is collected by others.

Tests  tests/deploy/binlog_playground/test_options.py
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.tso import Ts

LINE_EVERY_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A run at one time. Rates per second, lags in ms; `checkpoint_ts` is the Drainer's."""

    phase: str
    elapsed_s: float
    transactions_per_s: float = 0.0
    rows_per_s: float = 0.0
    transactions: int = 0
    rows: int = 0
    ddl: int = 0
    lag_p50_ms: float = 0.0
    lag_p99_ms: float = 0.0
    checkpoint_ts: Ts = 0
    checkpoint_age_s: float = 0.0
    processes: Mapping[str, str] = field(default_factory=dict)

    def line(self) -> str:
        """Everything in one plain line."""
        states = " ".join(f"{name}:{state}" for name, state in self.processes.items() if state != "running")
        return (
            f"[{self.elapsed_s:6.1f} s] {self.phase}: {self.transactions_per_s:.0f} txn/s"
            f" {self.rows_per_s:.0f} rows/s, {self.transactions} txn, {self.ddl} DDL,"
            f" lag p50 {self.lag_p50_ms:.0f} ms p99 {self.lag_p99_ms:.0f} ms,"
            f" checkpoint {self.checkpoint_ts} ({self.checkpoint_age_s:.1f} s ago)"
            f", {states or 'all processes running'}"
        )

    def table(self) -> Table:
        """Everything as a table."""
        table = Table(title=f"binlog-playground · {self.phase} · {self.elapsed_s:.0f} s", min_width=64)
        table.add_column("what")
        table.add_column("now", justify="right")
        table.add_column("total", justify="right")
        table.add_row("transactions/s", f"{self.transactions_per_s:.0f}", f"{self.transactions}")
        table.add_row("rows/s", f"{self.rows_per_s:.0f}", f"{self.rows}")
        table.add_row("DDL", "", f"{self.ddl}")
        table.add_row("lag p50 / p99", f"{self.lag_p50_ms:.0f} / {self.lag_p99_ms:.0f} ms", "")
        table.add_row("checkpoint", f"{self.checkpoint_age_s:.1f} s ago", f"{self.checkpoint_ts}")
        for name, state in self.processes.items():
            colour = "green" if state == "running" else "red"
            table.add_row(name, f"[{colour}]{state}[/{colour}]", "")
        return table


class LiveView:
    """A context manager; `show` as often as you like, `say` for lines that stay."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._console = Console(file=sys.stdout, highlight=False)
        self._live: Live | None = None
        self._last_line_s = 0.0

    def __enter__(self) -> Self:
        if not self._quiet and self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def show(self, snapshot: Snapshot) -> None:
        """Redraw, or every two seconds print a line."""
        if self._live is not None:
            self._live.update(snapshot.table(), refresh=True)
        elif not self._quiet and snapshot.elapsed_s >= self._last_line_s + LINE_EVERY_S:
            self._last_line_s = snapshot.elapsed_s
            print(snapshot.line(), flush=True)

    def say(self, text: str) -> None:
        """A line that stays."""
        if self._quiet:
            return
        if self._live is not None:
            self._console.print(text, markup=False, soft_wrap=True)
        else:
            print(text, flush=True)

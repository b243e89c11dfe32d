"""Shown changes: a few rows of the run as `binlogctl tail` shows them.

Tests  tests/deploy/binlog_playground/test_run.py
"""

from __future__ import annotations

import asyncio
import itertools
from typing import Final

from binlogctl.cluster.change_line import ChangeLines, LineStyle
from drainer.changes.model import Transaction
from drainer.reading.subscribe.subscription import subscribe

LINES: Final = 3
SINCE: Final = "-5s"
DEADLINE_S: Final = 20.0
_VALUE_CHARS: Final = 12
_LINE_CHARS: Final = 150


async def changes_of(endpoint: str, schema: str) -> list[str]:
    """The first rows of the last seconds, each in at most a line; fewer where fewer were written."""
    lines = ChangeLines(LineStyle(_VALUE_CHARS))
    shown: list[str] = []
    async with asyncio.timeout(DEADLINE_S):
        async with subscribe(endpoint, tables=[f"{schema}.*"], start=SINCE, stop="now") as stream:
            async for change in stream:
                if isinstance(change, Transaction):
                    shown += itertools.islice(lines.rows(change.commit_ts, change.rows), LINES - len(shown))
                if len(shown) == LINES:
                    break
    return [line if len(line) <= _LINE_CHARS else f"{line[: _LINE_CHARS - 3]}..." for line in shown]

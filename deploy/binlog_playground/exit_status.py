"""Exit status of a playground, the signals that end one, and how a failure becomes text and a status.

Tests  tests/deploy/binlog_playground/test_run.py
"""

from __future__ import annotations

import signal
import sys
import traceback
from typing import Final

from tidb_binlog.errors import BinlogError

EQUAL: Final = 0
DIFFERENT: Final = 1
COULD_NOT_RUN: Final = 2
INTERRUPTED: Final = 130
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def first_cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error of ours inside a group of failures; the first one if there is none."""
    causes: list[BaseException] = []
    pending: list[BaseException] = [group]
    while pending:
        error = pending.pop(0)
        if isinstance(error, BaseExceptionGroup):
            pending.extend(error.exceptions)
        else:
            causes.append(error)
    return next((cause for cause in causes if isinstance(cause, BinlogError)), causes[0])


def report_failure(error: Exception) -> int:
    """Print why; the exit status."""
    if not isinstance(error, BinlogError | OSError):  # our own mistake, not a difference
        traceback.print_exception(error)
    print(f"binlog-playground: {error}", file=sys.stderr)
    return COULD_NOT_RUN

"""Findings: what a stream brings to light of its downstream, for the status, kept for the next process.

    early rows   DDL that makes something of rows that did not come with them
    missing      what the downstream lacks of DDL
    drift        rows that were not as they should be, and texts that a column cannot have

Holds   one for a process, however often its stream is built anew; the next process goes on from what was kept
Never   ends the stream: where nothing can be kept, the log says so

Tests   tests/drainer/sink/test_findings.py
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from drainer.sink.early_rows import EarlyRows
from drainer.sink.row_mismatch import Drift
from tidb_binlog.clock import Clock
from tidb_binlog.errors import BinlogError
from tidb_binlog.observe import log
from tidb_binlog.status.codec import plain, read
from tidb_binlog.status.drainer import FindingsKept, LackStatus

_MISSING_KEPT: Final = 200
logger = log.get("drainer.findings")


class Lacks(deque[LackStatus]):
    """What a downstream lacks of DDL, the last ones, each DDL once. `keep` is called with each before the DDL
    counts as done; what it raises comes through, and the DDL is run again."""

    def __init__(self, keep: Callable[[LackStatus], None], maxlen: int | None = None) -> None:
        super().__init__(maxlen=maxlen)
        self._keep = keep

    def append(self, lack: LackStatus) -> None:
        """A DDL that a death made run twice may find less the second time."""
        for earlier in list(self):
            if (earlier.job_id, earlier.commit_ts) == (lack.job_id, lack.commit_ts):
                lack.missing = list(dict.fromkeys((*earlier.missing, *lack.missing)))
                self.remove(earlier)
        super().append(lack)
        self._keep(lack)


class Findings:
    """Used by all that works for the stream, from any thread."""

    def __init__(self, clock: Clock) -> None:
        self.early_rows = EarlyRows(clock, self._keep)
        self.missing = Lacks(lambda _lack: self._keep(), _MISSING_KEPT)
        self.drift = Drift(clock, self._keep)
        self._store: Callable[[bytes], None] = lambda _document: None
        self._lock = threading.Lock()  # what is stored last is the newest

    def keep_in(self, load: Callable[[], object], store: Callable[[bytes], None]) -> None:
        """Go on from what the process before has kept, whose document `load` gives. Raises what it does."""
        self.load(load())
        self._store = store

    def load(self, document: object) -> None:
        """What another process has found; what is known already is told once."""
        kept = read(document, FindingsKept)
        self.early_rows.load(kept.early_rows)
        self.missing.extend([lack for lack in kept.missing if lack not in self.missing])
        self.drift.load(kept.drift)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to tell."""
        return self._kept() == FindingsKept()

    def document(self) -> bytes:
        """All of it, for `load`."""
        return json.dumps(plain(self._kept())).encode()

    def _kept(self) -> FindingsKept:
        return FindingsKept(self.early_rows.kept(), list(self.missing), self.drift.status())

    def _keep(self) -> None:
        with self._lock:
            try:
                self._store(self.document())
            except (OSError, BinlogError) as error:  # no reason to end: rows go on
                logger.warning("what is told of the downstream is not kept over a restart", reason=error)

"""Stall monitor: checks once a second where the pump stands, and logs what holds it up.

Does    names the open prewrite that holds the watermark, in the log; keeps what `/status` and the gauges show
        of it and of the stages. A prewrite is read and decoded only when it is reported
Why     a pump whose watermark stands looks like one that is idle
Tests   tests/pump/watermark/test_stall_report.py
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final

from pump import metrics
from pump.index.sorter import OpenPrewrite
from pump.storage.stages import bytes_between
from pump.storage.storage import Storage
from pump.watermark.resolver import Resolver
from pump.watermark.stall_report import Settled, StallReport, Subject, latest_answer, next_step, subject_of
from tidb_binlog import tso
from tidb_binlog.clock import Clock, look_later
from tidb_binlog.errors import BinlogError
from tidb_binlog.observe import log
from tidb_binlog.status.pump import OpenPrewriteStatus, StagesStatus, StageStatus

_PERIOD_S: Final = 1.0
OLDEST_SHOWN: Final = 10

_logger = log.get("watch")


class StallMonitor:
    """Beside the storage of one pump. `resolver` knows what the questions about a prewrite have brought."""

    def __init__(
        self, storage: Storage, resolver: Resolver, clock: Clock, report: StallReport | None = None
    ) -> None:
        self._storage = storage
        self._arrivals = resolver.arrivals
        self.resolver = resolver
        self._clock = clock
        self._report = report or StallReport()
        self._subject = Subject()

    async def run(self) -> None:
        """Observe again and again; until cancelled."""
        while True:
            await self.observe()
            await look_later(_PERIOD_S)

    async def observe(self) -> None:
        """Observe once."""
        storage, now_s = self._storage, self._clock.monotonic_s()
        self._arrivals.note(storage.places.written, now_s)
        for effect in self._report.observe(next(storage.open_prewrites(), None), now_s):
            if isinstance(effect, Settled):
                _logger.info(
                    "the prewrite that held the watermark is settled",
                    start_ts=effect.start_ts,
                    held_s=round(effect.held_s, 3),
                    watermark=storage.watermark,
                )
                self._subject = Subject()
                continue
            if effect.turn == 1:
                self._subject = await self._read(effect.prewrite)
            start_ts = effect.prewrite.start_ts
            heard = self.resolver.heard(start_ts)
            _logger.warning(
                "an open prewrite holds the watermark: drainers get nothing that was committed after it",
                start_ts=start_ts,
                age_s=round(effect.age_s, 3),
                **self._subject.fields(),
                upstream=latest_answer(heard),
                asked=heard.asked,
                open=storage.open_count,
                next=next_step(start_ts, heard),
            )

    async def _read(self, prewrite: OpenPrewrite) -> Subject:
        """What it is about; nothing if it cannot be read, which the resolver reports."""
        stored = self._storage.value_log
        try:
            return await self._storage.in_thread(lambda: subject_of(stored.read(prewrite.place)))
        except (BinlogError, OSError):
            return Subject()

    # -- shown -----------------------------------------------------------------------------------

    @property
    def oldest_open_s(self) -> float:
        """How long the longest open prewrite has been open; 0 if none is."""
        oldest = next(self._storage.open_prewrites(), None)
        return 0.0 if oldest is None else self._clock.monotonic_s() - oldest.since_s

    @property
    def stuck_table_id(self) -> int:
        """Table of the prewrite that was reported; 0 if there is none, or it is a DDL."""
        return self._subject.table_id

    def oldest(self) -> list[OpenPrewriteStatus]:
        """The longest open prewrites, at most `OLDEST_SHOWN`."""
        now_s, reported = self._clock.monotonic_s(), self._report.reported
        shown = []
        for prewrite in islice(self._storage.open_prewrites(), OLDEST_SHOWN):
            start_ts, heard = prewrite.start_ts, self.resolver.heard(prewrite.start_ts)
            about = self._subject.fields() if reported is not None and reported.start_ts == start_ts else {}
            shown.append(
                OpenPrewriteStatus(
                    start_ts=start_ts,
                    started_s=tso.physical_s(start_ts),
                    age_s=round(now_s - prewrite.since_s, 3),
                    **about,
                    asked=heard.asked,
                    upstream=latest_answer(heard),
                    next=next_step(start_ts, heard),
                )
            )
        return shown

    def stages(self) -> StagesStatus:
        """What waits in front of each stage: bytes, and for how many seconds."""
        storage, now_s = self._storage, self._clock.monotonic_s()
        places, end_of = storage.places, storage.value_log.end_of
        self._arrivals.note(places.written, now_s)

        unread_s = self._arrivals.age_s(places.indexed, now_s)
        return StagesStatus(
            accepted=StageStatus(lag_bytes=storage.write_queue_bytes),
            written=StageStatus(records=storage.stored_total),
            indexed=StageStatus(
                lag_bytes=bytes_between(places.indexed, places.written, end_of), lag_s=round(unread_s, 3)
            ),
            sorted=StageStatus(
                lag_bytes=bytes_between(places.sorted, places.written, end_of),
                lag_s=round(max(self.oldest_open_s, unread_s), 3),
                open_prewrites=storage.open_count,
            ),
            published=StageStatus(watermark=storage.watermark),
        )

    def bind_gauges(self) -> None:
        """Let the gauges read the state whenever they are scraped."""

        def lag_s(name: str) -> Callable[[], float]:
            return lambda: float(getattr(self.stages(), name).lag_s)

        def lag_bytes(name: str) -> Callable[[], float]:
            return lambda: float(getattr(self.stages(), name).lag_bytes)

        for name in ("indexed", "sorted"):
            metrics.STAGE_LAG_SECONDS.labels(name).set_function(lag_s(name))
        for name in ("accepted", "indexed", "sorted"):
            metrics.STAGE_LAG_BYTES.labels(name).set_function(lag_bytes(name))
        metrics.OLDEST_OPEN_SECONDS.set_function(lambda: self.oldest_open_s)
        metrics.UPSTREAM_SILENT_SECONDS.set_function(lambda: self.resolver.unavailable_s)
        metrics.STUCK_TABLE_ID.set_function(lambda: float(self.stuck_table_id))

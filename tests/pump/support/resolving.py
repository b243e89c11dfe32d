"""Open prewrites whose end never came: a real storage, a scripted upstream, a clock that is told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pump.storage.storage import Storage
from pump.watermark.resolve_schedule import ResolveSchedule
from pump.watermark.resolver import Resolver
from tests.pump.support.payloads import opened, pull, put
from tests.pump.support.scripted import ScriptedTransactions
from tests.waiting import until
from tidb_binlog import binlog
from tidb_binlog.clock import ManualClock
from tidb_binlog.wire import binlog_pb2


@dataclass
class Scene:
    storage: Storage
    clock: ManualClock
    upstream: ScriptedTransactions = field(default_factory=ScriptedTransactions)
    waits: bool = False
    answer_deadline_s: float = 10.0

    def __post_init__(self) -> None:
        self.resolver = Resolver(
            self.storage,
            self.upstream,
            ResolveSchedule(waited_after_s=0.1),
            self.clock,
            lambda: self.waits,
            answer_deadline_s=self.answer_deadline_s,
        )

    async def prewrite(self, *start_tss: int) -> None:
        """Prewrites whose clients are never heard of again, sorted."""
        for start_ts in start_tss:
            await put(self.storage, binlog.prewrite(start_ts, b"key%d" % start_ts, b"value"))
        await until(lambda: all(map(self.storage.is_open, start_tss)))

    async def round(self) -> list[int]:
        """One round of the resolver, as of now; who was asked about."""
        await until(lambda: self.storage.places.indexed == self.storage.places.written)
        due = self.resolver.due()
        if due:
            await self.resolver.ask(due)
        return [prewrite.start_ts for prewrite in due]

    async def commits(self) -> list[int]:
        return [delivery.commit_ts for delivery in await pull(self.storage)]

    async def settled(self) -> None:
        await until(lambda: self.storage.open_count == 0)


@asynccontextmanager
async def scene(path: Path, *, answer_deadline_s: float = 10.0, **options: Any) -> AsyncIterator[Scene]:
    clock = ManualClock()
    async with opened(path, clock=clock, **options) as storage:
        yield Scene(storage, clock, answer_deadline_s=answer_deadline_s)


SECRET = b"a row that nobody may see"


def rows(start_ts: int, *tables: int) -> bytes:
    value = binlog_pb2.PrewriteValue(schema_version=1)
    for table_id in tables:
        value.mutations.add(table_id=table_id).inserted_rows.append(SECRET)
    return binlog.prewrite(start_ts, b"key%d" % start_ts, value.SerializeToString())

"""Other rules for an archive while it is written: between two transactions, when all before is in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from drainer.checkpoint.savepoint import Savepoint
from drainer.ddl.policy import Policy
from drainer.operate.control.pause_and_reload import Control
from drainer.sink.file.archive import Archive
from drainer.sink.file.file_sink import ArchiveStart, FileSink
from drainer.sink.runner import Runner
from drainer.stream.pull.merged import Merged, MergedBatch
from drainer.stream.rules.rule_history import RuleChange
from drainer.stream.schema.tracker import SchemaTracker
from drainer.stream.translate.translator import Translator
from tests.drainer.support.archive_life import payloads
from tests.drainer.support.basis_world import Upstream, keyed, routes
from tests.waiting import PATIENCE_S, until
from tidb_binlog.clock import SystemClock


async def test_rules_change_when_all_before_is_in_the_archive(tmp_path: Path) -> None:
    """While nothing comes, and while an operator holds what comes; the answer says from where on."""
    upstream = Upstream(keyed(7, "t"))
    upstream.rows("t", [1, 2, 3])
    archive = Archive.open(str(tmp_path), SystemClock(), cluster_id=1, stored_ts=0, max_file_size=1 << 20)
    savepoint, control = Savepoint(str(tmp_path)), Control(SystemClock())
    translator = Translator(SchemaTracker.from_history(upstream.recording.jobs, schema_version=0), routes())
    sink = FileSink(ArchiveStart(0), archive, savepoint, translator.route, Policy(), SystemClock())
    runner = Runner(sink, translator, control, rules=RuleChange(translator, routes(), None))
    given: asyncio.Queue[MergedBatch | None] = asyncio.Queue()

    async def batches() -> AsyncIterator[MergedBatch]:
        while (batch := await given.get()) is not None:
            yield batch

    def give(entries: list[Merged]) -> None:
        given.put_nowait(MergedBatch(entries, entries[-1].commit_ts))

    running = asyncio.create_task(runner.run(batches()))
    give(upstream.recording.entries[:])
    await until(lambda: runner.handed_over_ts >= 1030)
    runner.rules.check(routes(("d", "t", "shop", "moved")))
    assert await runner.rules.change(routes(("d", "t", "shop", "moved"))) == 1030
    stored = savepoint.load()
    assert stored is not None
    assert stored.commit_ts == 1030
    control.pause()
    upstream.rows("t", [4])
    give(upstream.recording.entries[-1:])
    await until(lambda: runner.doing.startswith("held back"))
    assert await runner.rules.change(routes(("d", "t", "shop", "again"))) == 1030
    control.resume()
    given.put_nowait(None)
    await running
    assert await runner.stop(PATIENCE_S)
    rows = payloads(tmp_path)[-4:]
    assert [b"moved" in one or b"again" in one for one in rows] == [False, False, False, True]
    assert b"again" in rows[-1]

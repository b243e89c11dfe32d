"""Export: the value logs of pumps become a file archive, in commit order, as a drainer would have written it.

In     data directories of pumps, the DDL history
Out    an archive (`db-type = "file"`) with its savepoint, from which a drainer can continue
Holds  transactions of all pumps are in one order, each once. Done again it continues after what is there:
       so nothing is written after what a pump that runs may still end or add
Why    a value log is in the order in which transactions began, so no range of it can be read. What
       replays, streams and audits archives then does so for pumps too
Never  writes into a pump's directory, or needs the pump

Blocks; one process and no Spark. Of every transaction 16 bytes are in memory, besides those of one file.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final

from drainer.checkpoint.savepoint import Savepoint
from drainer.ddl.policy import Policy
from drainer.places.place import Place
from drainer.reading.archive.decode.definitions import Definitions
from drainer.reading.archive.decode.value_log import PumpLogs
from drainer.sink.file.archive import Archive
from drainer.sink.file.file_sink import FileSink, where_to_go_on
from drainer.sink.runner import Runner
from drainer.stream.pull.merged import Merged, MergedBatch
from drainer.stream.rules.rule_set import Rules
from drainer.stream.schema.tracker import SchemaTracker
from drainer.stream.translate.translator import Translator
from tidb_binlog.clock import Clock
from tidb_binlog.errors import ConfigError
from tidb_binlog.tso import TS_MAX, Ts

_BATCH_ROWS: Final = 512
_BATCH_BYTES: Final = 4 << 20
_STOP_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class Exported:
    """`transactions` and `rows` that were written now; `unfinished`: prewrites without an end in the logs;
    `held_back`: transactions that wait for what may come before them."""

    files: int
    transactions: int
    rows: int
    unfinished: int
    held_back: int
    last_ts: Ts


async def _batches(logs: PumpLogs, after_ts: Ts, stop_ts: Ts) -> AsyncIterator[MergedBatch]:
    """What lies after the one commit_ts, up to the other."""
    entries: list[Merged] = []
    size = 0
    for entry in logs.merged(after_ts, stop_ts):
        entries.append(entry)
        size += len(entry.payload)
        if len(entries) >= _BATCH_ROWS or size >= _BATCH_BYTES:
            yield MergedBatch(entries, entry.commit_ts)
            entries, size = [], 0
    if entries:
        yield MergedBatch(entries, entries[-1].commit_ts)


async def export(
    pumps: Sequence[Place],
    history: Sequence[bytes],
    directory: str,
    clock: Clock,
    *,
    finished: bool = False,
) -> Exported:
    """`finished`: the pumps will not add to these logs, so all is written that is in them.

    Raises `ConfigError`, `Corruption`, and what writing an archive raises.
    """
    if not history:
        raise ConfigError(
            "value logs have no definitions of tables",
            hint="give the file with the DDL history (--ddl-history): one job of the history a line",
        )
    logs = PumpLogs(pumps, Definitions(history=history))
    stop_ts = TS_MAX if finished else logs.complete_ts
    savepoint = Savepoint(directory)
    stored = savepoint.load()
    archive = Archive.open(directory, clock, cluster_id=0, stored_ts=stored.commit_ts if stored else 0)
    start = where_to_go_on(archive.last_ts, stored, 0)
    tracker = SchemaTracker.from_history(history, finished_ts=start.commit_ts or max(logs.first_ts - 1, 0))
    translator = Translator(tracker, Rules())
    sink = FileSink(start, archive, savepoint, translator.route, Policy(), clock)
    runner = Runner(sink, translator)
    try:
        await runner.run(_batches(logs, start.commit_ts, stop_ts))
    finally:
        await runner.stop(_STOP_S)
    return Exported(
        logs.files,
        runner.transactions,
        runner.rows,
        logs.unfinished,
        logs.after(max(stop_ts, start.commit_ts)),
        runner.stored_ts,
    )

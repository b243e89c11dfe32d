"""Export: the value logs of pumps become a file archive, in commit order, as a drainer would have written it.

Out    an archive (`db-type = "file"`) with its savepoint, from which a drainer can continue
Holds  transactions of all pumps are in one order, each once. Done again it continues after what is there:
       so nothing is written after what a pump that runs may still end or add
Why    a value log is in the order in which transactions began, so no range of it can be read. What
       replays, streams and audits archives then does so for pumps too
Never  writes into a pump's directory, or needs the pump

Blocks; one process and no Spark. Of every transaction 16 bytes are in memory, besides those of one file.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from drainer.checkpoint.savepoint import Savepoint
from drainer.config.sink_options import REMOTE_FILE_SIZE
from drainer.ddl.policy import Policy
from drainer.places.place import CREATE, READ, WRITE, Place
from drainer.reading.archive.decode.definitions import Definitions
from drainer.reading.archive.decode.value_log import PumpLogs
from drainer.sink.file.archive import Archive
from drainer.sink.file.file_sink import FileSink, where_to_go_on
from drainer.sink.file.remote_files import OWNER, open_remote
from drainer.sink.runner import Runner
from drainer.stream.pull.merged import Merged, MergedBatch
from drainer.stream.rules.rule_set import Rules
from drainer.stream.schema.tracker import SchemaTracker
from drainer.stream.translate.translator import Translator
from tidb_binlog.clock import Clock
from tidb_binlog.errors import ConfigError, Unavailable
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.tso import TS_MAX, Ts

_BATCH_ROWS: Final = 512
_BATCH_BYTES: Final = 4 << 20
_STOP_S: Final = 600.0
NEEDS: Final = READ | WRITE | CREATE
_NODE_ID: Final = "binlog-spark export"


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

    `directory`: or a URI. Raises `ConfigError`, `Corruption`, and what writing an archive raises.
    """
    if not history:
        raise ConfigError(
            "value logs have no definitions of tables",
            hint="give the file with the DDL history (--ddl-history): one job of the history a line",
        )
    logs = PumpLogs(pumps, Definitions(history=history))
    stop_ts = TS_MAX if finished else logs.complete_ts
    with contextlib.ExitStack() as ends:
        place = Place(directory)
        here = place.local or ends.enter_context(tempfile.TemporaryDirectory(prefix="binlog-export-"))
        savepoint = Savepoint(here)
        stored = savepoint.load()
        given: dict[str, Any] = {"cluster_id": 0, "stored_ts": stored.commit_ts if stored else 0}
        if place.local is not None:
            archive = Archive.open(here, clock, **given)
        else:
            given["max_file_size"] = REMOTE_FILE_SIZE
            archive = open_remote(place, os.path.join(here, "archive"), clock, node_id=_NODE_ID, **given)
        start = where_to_go_on(archive.last_ts, stored, 0)
        tracker = SchemaTracker.from_history(
            history, finished_ts=start.commit_ts or max(logs.first_ts - 1, 0)
        )
        translator = Translator(tracker, Rules())
        sink = FileSink(start, archive, savepoint, translator.route, Policy(), clock)
        runner = Runner(sink, translator)
        try:
            await runner.run(_batches(logs, start.commit_ts, stop_ts))
        finally:
            is_whole = await runner.stop(_STOP_S)
        if not is_whole:
            raise Unavailable(
                f"{place.shown} does not take what is left: {archive.waiting_for or 'it takes too long'}",
                hint="the same command goes on",
            )
        if place.local is None:
            place.delete(OWNER)  # a Drainer may go on from there
    return Exported(
        logs.files,
        runner.transactions,
        runner.rows,
        logs.unfinished,
        logs.after(max(stop_ts, start.commit_ts)),
        runner.stored_ts,
    )

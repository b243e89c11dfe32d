"""Mutants: faults that are planted in the product to see whether a world finds them.

    python -m tests.sim --mutant NAME --seeds 50      says after how many seeds it is found

Each takes the place of one text, which stands once in its module. `install` before the module is imported.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import CodeType, ModuleType
from typing import Final

READERS, TIDB, DRAINER, ARCHIVE = "readers", "tidb", "drainer", "archive"
"""Kinds of worlds."""


@dataclass(frozen=True)
class Mutant:
    """`fault` in words. `world`: the kind in which it may show."""

    module: str
    before: str
    after: str
    fault: str
    world: str = READERS


MUTANTS: Final = {
    "ack-before-sync": Mutant(
        "pump.log.writer", "max_ts, sync=self._sync)", "max_ts, sync=False)", "an fdatasync is left out"
    ),
    "new-file-not-in-directory": Mutant(
        "pump.log.log_file",
        "            sync_directory(self._path)\n        except",
        "        except",
        "a new log file's entry is not synced",
    ),
    "mark-passes-open-prewrites": Mutant(
        "pump.index.sorter",
        "        self._pass(ts, None)\n        return",
        "        self.watermark = max(self.watermark, ts)\n        return",
        "a drawn timestamp is the watermark although prewrites before it are open",
    ),
    "mark-passes-the-queue": Mutant(
        "pump.index.indexer",
        "if self.cursor == self.durable and not self._marks:",
        "if not self._marks:",
        "a drawn timestamp is the watermark although what is durable is not sorted yet",
    ),
    "decided-too-far": Mutant(
        "pump.index.indexer",
        "watermark, decided = self._sorter.watermark, self._sorter.decided",
        "watermark, decided = self._sorter.watermark, head",
        "a restart begins behind prewrites that are open",
    ),
    "undecided-is-rolled-back": Mutant(
        "pump.watermark.resolver",
        "elif isinstance(answer, RolledBack):",
        "elif isinstance(answer, RolledBack | Undecided):",
        "a lease that still runs is taken for a rollback",
    ),
    "online-before-confirmed": Mutant(
        "pump.membership.registration",
        "            await notices.until_confirmed()\n",
        "",
        "a Pump takes prewrites before the readers know it",
    ),
    "notice-answered-at-once": Mutant(
        "drainer.reading.subscribe.named_reader",
        "        await notify()\n",
        "",
        "a reader answers a Pump that joins before it waits for it",
    ),
    "any-source-is-enough": Mutant(
        "drainer.stream.pull.merger",
        "            return min(live)",
        "            return max(live)",
        "the merger waits for the fastest Pump alone",
    ),
    "stream-begins-at-what-it-asks": Mutant(
        "drainer.stream.pull.pump_source",
        "            after_ts=self.position,\n            credit_bytes=max",
        "            after_ts=max(self.position, self._wanted_ts),\n            credit_bytes=max",
        "a connection that is made anew begins at the watermark that was asked for",
    ),
    "lease-is-believed": Mutant(
        "drainer.reading.subscribe.named_reader",
        "        return self._heartbeat.unbroken\n",
        "        return 0\n",
        "a reader does not look for what it was not told while its lease had run out",
    ),
    "page-covers-too-much": Mutant(
        "pump.storage.storage",
        "            whole = not recent or total < bytes_max\n",
        "            whole = True\n",
        "a page that is full says that it reaches up to the watermark",
    ),
    "client-takes-silence-for-yes": Mutant(
        "pumpclient.send.batch_stream",
        "                future.set_result((failure, text))\n        self._tasks",
        "                future.set_result(None)\n        self._tasks",
        "what was unanswered when a connection broke counts as stored",
    ),
    "given-up-is-rolled-back": Mutant(
        "pump.index.sorter",
        "elif not commit_ts and tp == ROLLBACK and not self.clients_know:",
        "elif not commit_ts and tp == ROLLBACK and not self.clients_know and False:",
        "what TiDB gives up counts as rolled back, and TiKV is not asked",
        TIDB,
    ),
    "no-trace-is-a-rollback": Mutant(
        "tidb_binlog.upstream.tidb.tikv.transactions",
        "        return Undecided(min(",
        "        return RolledBack() if lock is None else Undecided(min(",
        "a transaction whose locks are still on their way is taken for rolled back",
        TIDB,
    ),
    "recent-begins-at-the-watermark": Mutant(
        "pump.storage.storage",
        "RecentCommits(max(self.watermark, filed_ts),",
        "RecentCommits(self.watermark,",
        "after a start, memory claims commits above the watermark that were settled before",
    ),
    "purge-goes-by-the-fastest-reader": Mutant(
        "pump.retention.policy",
        "        return min((entry.checkpoint - MARGIN_TS for entry in holding), default=TS_MAX)",
        "        return max((entry.checkpoint - MARGIN_TS for entry in holding), default=TS_MAX)",
        "retention waits for the fastest reader alone",
    ),
    "purge-forgets-the-files": Mutant(
        "pump.log.value_log",
        "            self._directory.remove(segment.name_of(fid))\n",
        "",
        "purged files stay on the disk",
    ),
    "a-failed-sync-is-tried-again": Mutant(
        "pump.log.log_file",
        "            os.fdatasync(held.number)\n",
        "            try:\n                os.fdatasync(held.number)\n"
        "            except OSError:\n                os.fdatasync(held.number)\n",
        "after a failed sync the next one is believed",
    ),
    "a-read-error-is-an-end": Mutant(
        "tidb_binlog.filesystem",
        "    data = os.pread(descriptor, size, offset)\n    if",
        "    try:\n        data = os.pread(descriptor, size, offset)\n"
        '    except OSError:\n        data = b""\n    if',
        "a file that cannot be read is taken for one that ends",
    ),
    "doubt-is-applied-again": Mutant(
        "drainer.sink.mysql.lane",
        "if work.in_doubt and self._table",
        "if False and self._table",
        "a batch whose COMMIT got no answer is applied again",
        DRAINER,
    ),
    "doubt-is-taken-for-yes": Mutant(
        "drainer.sink.mysql.lane",
        "lock=True) == work.position:",
        "lock=True) is not None:",
        "a batch whose COMMIT got no answer is taken for applied",
        DRAINER,
    ),
    "checkpoint-of-what-is-sent": Mutant(
        "drainer.sink.mysql.progress",
        "            if waiting:\n                floor",
        "            if False:\n                floor",
        "the checkpoint covers what lanes have been given",
        DRAINER,
    ),
    "ddl-does-not-wait-for-lanes": Mutant(
        "drainer.sink.background",
        "        while not condition():\n",
        "        while False and not condition():\n",
        "a DDL runs while lanes have rows of before it",
        DRAINER,
    ),
    "ddl-runs-twice": Mutant(
        "drainer.sink.mysql.ddl_barrier",
        "if await call(runner.had_run, intent, ddl, text):",
        "if False:",
        "a DDL that ran before the process died is run once more",
        DRAINER,
    ),
    "ddl-is-believed-to-have-run": Mutant(
        "drainer.sink.mysql.ddl_barrier",
        "if await call(runner.had_run, intent, ddl, text):",
        "if True:",
        "a DDL with an intent is taken for done",
        DRAINER,
    ),
    "relay-is-not-synced": Mutant(
        "drainer.relay.relay_log",
        "        writer.write(records.take())\n        writer.sync()\n",
        "        writer.write(records.take())\n",
        "rows go downstream before their records are on the relay log's disk",
        DRAINER,
    ),
    "archive-is-not-synced": Mutant(
        "drainer.sink.file.archive",
        "        self._writer.sync()\n",
        "",
        "the savepoint moves before its records are on the disk",
        ARCHIVE,
    ),
    "new-segment-not-in-directory": Mutant(
        "drainer.formats.binlog_directory",
        "            sync_directory(self.path)\n            # So a mark",
        "            # So a mark",
        "a new segment's entry is not synced",
        ARCHIVE,
    ),
    "archived-is-archived-again": Mutant(
        "drainer.sink.file.file_sink",
        "    return ArchiveStart(archive_ts or initial_ts)",
        "    return ArchiveStart(stored.commit_ts if stored else initial_ts)",
        "a start goes on from the savepoint, which is behind the last record",
        ARCHIVE,
    ),
    "damage-is-read": Mutant(
        "pump.storage.readers",
        "                self.fid = -1\n",
        "                at = offset - self.base + VALUE_HEADER_SIZE\n"
        "                return self.block[at : at + self._log.segment(fid).head(offset)[0]]\n",
        "a Pump sends what its log has, whatever the checksum says",
    ),
    "damage-of-the-index-is-an-end": Mutant(
        "pump.index.index",
        "            self._check_end(last)\n",
        "",
        "an index that cannot be read is taken for one that ends",
    ),
    "trace-is-not-held": Mutant(
        "pump.watermark.trace_hold",
        "        return max(oldest - 1, 0)\n",
        "        return 0\n",
        "garbage is collected of transactions that a Pump has open",
        TIDB,
    ),
    "mark-is-one-too-high": Mutant(
        "pump.index.sorter",
        "            if ts > self.watermark:\n                self.watermark = ts\n",
        "            if ts > self.watermark:\n                self.watermark = ts + 1\n",
        "the watermark is one above the timestamp that was drawn",
    ),
    "index-is-before-the-log": Mutant(
        "pump.log.writer",
        "        self._log.commit(places, len(payloads[-1]), max_ts, sync=self._sync)\n",
        "        self._log.commit(places, len(payloads[-1]), max_ts, sync=False)\n"
        "        early = [_new(LogRecord, (*head, place)) for head, place in zip(heads, places)]\n"
        "        self._call(self._on_group, WrittenGroup(early, payloads, self._log.end, 0.0, 0.0, 0.0))\n"
        "        self._log.active.file.sync()\n",
        "records are filed before they are synced",
    ),
    "a-checksum-is-not-looked-at": Mutant(
        "pump.log.record_scan",
        "        if checksum_of(data[body:after]) != checksum:\n",
        "        if False:\n",
        "a record that a power cut has torn is believed",
    ),
    "a-page-begins-at-its-position": Mutant(
        "pump.index.recent_commits",
        "at = bisect_right(self._timestamps, position, self._dropped)",
        "at = bisect_left(self._timestamps, position, self._dropped)",
        "a page has the commit at its reader's position once more",
    ),
    "purge-goes-one-file-too-far": Mutant(
        "pump.retention.policy",
        "    upto_fid = going[-1].file.fid\n",
        "    upto_fid = going[-1].file.fid + 1\n",
        "the file after the last one that may go is purged, too",
    ),
    "nobody-hears-of-the-watermark": Mutant(
        "pump.storage.storage",
        "        for event in self._listeners:\n            event.set()\n",
        "",
        "a rise of the watermark wakes nobody",
    ),
    "commit-overtakes-its-prewrite": Mutant(
        "pumpclient.publish.transaction",
        "            stored = await self._steps.client.write_prewrite(\n"
        "                self.start_ts, self._key, self._value.SerializeToString()\n            )\n",
        "            import asyncio\n            stored = True\n"
        "            asyncio.ensure_future(self._steps.client.write_prewrite(\n"
        "                self.start_ts, self._key, self._value.SerializeToString()\n            ))\n",
        "a transaction commits before a Pump has its rows",
    ),
    "an-end-is-forgotten-unheard": Mutant(
        "pumpclient.publish.outcome_delivery",
        "        if sending is None or await sending:\n            await self._forget(start_ts)\n",
        "        await self._forget(start_ts)\n        if sending is not None:\n            await sending\n",
        "the upstream drops a decision that no Pump has yet",
    ),
    "no-answer-is-taken-for-no": Mutant(
        "pumpclient.publish.transaction_steps",
        "DECIDE_PAUSE_S > give_up_s:\n                    raise\n",
        'DECIDE_PAUSE_S:\n                    raise Conflict("no answer", hint="run it again") from error\n',
        "a commit without an answer is taken for a rollback",
    ),
    "a-decision-replaces-another": Mutant(
        "tidb_binlog.upstream.standalone.transactions",
        "            compare = [etcd.mod_is(key, current.revision)]\n",
        "            compare = []\n",
        "a commit does not look whether others have rolled back meanwhile",
    ),
    "clocks-are-believed": Mutant(
        "tidb_binlog.upstream.standalone.transactions",
        "        if isinstance(entry, Open):\n            return left_s\n",
        "        if isinstance(entry, Open):\n"
        "            return entry.deadline_ms / 1000 - self._clock.wall_s()\n",
        "a lease ends by the clock of who looks",
    ),
    "silence-is-an-end": Mutant(
        "drainer.stream.pull.collector",
        "            gone = entry.status.state == node.OFFLINE\n",
        "            gone = entry.status.state == node.OFFLINE or entry.alive is False\n",
        "a Pump whose lease has run out is not waited for",
    ),
    "closing-is-closed": Mutant(
        "drainer.stream.pull.collector",
        "            gone = entry.status.state == node.OFFLINE\n",
        "            gone = entry.status.state in (node.OFFLINE, node.CLOSING)\n",
        "a Pump that is about to leave is not waited for",
    ),
    "given-is-done": Mutant(
        "drainer.reading.subscribe.reader_position",
        "        return self._passed if self._done >= self._given else self._done\n",
        "        return self._passed\n",
        "a reader's position is what it was given",
    ),
    "a-repetition-is-known-by-start-ts": Mutant(
        "pump.retention.policy",
        "is None and start_ts > self._earlier_ts\n",
        "is None\n",
        "retention takes a repeated prewrite for the first one with its start_ts",
    ),
    "position-before-rows": Mutant(
        "drainer.sink.mysql.lane",
        "        work.drift.clear()\n        for statement in prepared:\n",
        "        work.drift.clear()\n"
        "        self._table.advance(connection, self.number, work.position)\n"
        "        connection.commit()\n"
        "        self._table.committed.note(self.number, work.position)\n"
        "        for statement in prepared:\n",
        "a lane's position is committed before its rows",
        DRAINER,
    ),
    "a-newer-epoch-is-not-looked-at": Mutant(
        "drainer.checkpoint.fencing",
        "        if stored is not None and stored > self.epoch:\n            raise self.taken_over()\n",
        "",
        "a Drainer that was replaced does not end",
        DRAINER,
    ),
    "unique-keys-are-not-looked-at": Mutant(
        "drainer.mysql.rows.causality",
        "    return KeyFacts(Spread.BY_TABLE if others else _SPREADS[equality], others, unique)",
        "    return KeyFacts(_SPREADS[equality], others, unique)",
        "rows that compete for a unique value go to different lanes",
        DRAINER,
    ),
    "what-lanes-had-comes-again": Mutant(
        "drainer.sink.mysql.dispatcher",
        "                if applied.covers(commit_ts, ordinal):\n",
        "                if False:\n",
        "a start applies from its slowest lane to all lanes",
        DRAINER,
    ),
    "only-lanes-mark": Mutant(
        "drainer.mysql.connection",
        "        if self.mark is not None and changes_rows(sql):\n",
        "        if self.mark is not None and self.mark.lane is not None and changes_rows(sql):\n",
        "what a DDL changes in rows comes back from the other side of a two-way replication",
        DRAINER,
    ),
    "a-mark-is-for-its-first-transaction": Mutant(
        "drainer.mysql.connection",
        "            self._write_mark(mark)\n",
        "            if not hasattr(self, '_once'):\n                self._write_mark(mark)\n"
        "            self._once = True\n",
        "a session marks once",
        DRAINER,
    ),
    "a-mark-is-not-seen": Mutant(
        "drainer.stream.translate.row_filter",
        "        return self.mark is not None and self.mark.is_ours(kinds, rows, commit_ts)\n",
        "        return False\n",
        "rows come back to where they were written",
        DRAINER,
    ),
}


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self._mutant.module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        assert spec is not None
        assert spec.origin is not None
        spec.loader = _Planted(self._mutant, spec.origin)
        return spec


class _Planted(importlib.machinery.SourceFileLoader):
    def __init__(self, mutant: Mutant, path: str) -> None:
        super().__init__(mutant.module, path)
        self._mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        source = self.get_source(fullname)
        assert source is not None
        assert source.count(self._mutant.before) == 1, f"{self._mutant} does not fit"
        code: CodeType = self.source_to_code(
            source.replace(self._mutant.before, self._mutant.after).encode(), self.path
        )
        return code


def plant(name: str) -> None:
    """In this process."""
    mutant = MUTANTS[name]
    assert mutant.module not in sys.modules
    sys.meta_path.insert(0, _Finder(mutant))  # first: its package may import it
    assert isinstance(importlib.import_module(mutant.module).__loader__, _Planted)

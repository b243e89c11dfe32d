"""The cores whose mutants are tried, their tests, and the mutants that no test can see."""

from __future__ import annotations

from typing import Final

HTTP2: Final = "common/door/http2/test_"
CONNECTION: Final = tuple(f"{HTTP2}{name}.py" for name in ("connection_rules", "connection_windows", "abuse"))
CORES: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "group_commit": ("pump.log.group_commit", ("pump/log/test_group_commit.py",)),
    "safe_mode": ("drainer.checkpoint.safe_mode", ("drainer/checkpoint/test_safe_mode.py",)),
    "queue_state": ("drainer.ddl.quarantine.queue_state", ("drainer/ddl/quarantine/test_queue_state.py",)),
    "keeper": ("drainer.checkpoint.keeper", ("drainer/checkpoint/test_keeper_stored.py",)),
    "fencing": (
        "drainer.checkpoint.fencing",
        ("drainer/checkpoint/test_fencing.py",),
    ),
    "resume": (
        "drainer.checkpoint.resume",
        ("drainer/checkpoint/test_resume.py",),
    ),
    "ran_before": (
        "drainer.ddl.run.ran_before",
        ("drainer/ddl/run/test_ran_before.py",),
    ),
    "row_fold": (
        "drainer.mysql.rows.row_fold",
        ("drainer/mysql/rows/test_row_fold.py", "drainer/sink/mysql/test_lane_exhaustive.py"),
    ),
    "causality": (
        "drainer.mysql.rows.causality",
        (
            "drainer/mysql/rows/test_causality.py",
            "drainer/mysql/rows/test_column_match.py",
            "drainer/mysql/rows/test_key_equality.py",
        ),
    ),
    "sorter": ("pump.index.sorter", ("pump/index/test_sorter.py", "pump/index/test_sorter_future.py")),
    "merger": (
        "drainer.stream.pull.merger",
        ("drainer/stream/pull/test_merger.py", "drainer/stream/pull/test_merger_scenarios.py"),
    ),
    "progress": ("drainer.sink.mysql.progress", ("drainer/sink/mysql/test_progress.py",)),
    "lane": (
        "drainer.sink.mysql.lane",
        ("drainer/sink/mysql/test_lane.py", "drainer/sink/mysql/test_lane_refusals.py"),
    ),
    "lane_basis": ("drainer.checkpoint.lane_basis", ("drainer/checkpoint/test_lane_basis.py",)),
    "hpack": ("tidb_binlog.http2.hpack", ("common/http2/test_hpack.py",)),
    "rpc_headers": ("tidb_binlog.rpc.call_headers", ("common/rpc/test_call_headers.py",)),
    "rpc_connection": ("tidb_binlog.rpc.connection", ("common/rpc/test_connection.py",)),
    "http2_streams": ("tidb_binlog.door.http2.streams", (f"{HTTP2}streams.py", *CONNECTION)),
    "http2_frames": ("tidb_binlog.http2.frames", CONNECTION),
    "http2_control": ("tidb_binlog.door.http2.control_frames", CONNECTION),
    "http2_outbound": ("tidb_binlog.door.http2.outbound", CONNECTION),
    "http2_connection": (
        "tidb_binlog.door.http2.connection",
        (*CONNECTION, f"{HTTP2}lifetime.py", f"{HTTP2}connection_splits.py"),
    ),
    "http2_abuse": ("tidb_binlog.door.http2.abuse", (f"{HTTP2}abuse.py",)),
    "http2_lifetime": ("tidb_binlog.door.http2.lifetime", (f"{HTTP2}lifetime.py",)),
    "admission": ("pump.write.admission", ("pump/write/test_admission.py",)),
    "recovery": ("pump.log.recovery", ("pump/log/test_recovery.py",)),
    "stages": ("pump.storage.stages", ("pump/storage/test_stages.py",)),
    "hold_state": ("drainer.operate.control.hold_state", ("drainer/operate/control/test_hold_state.py",)),
    "failover": ("drainer.operate.control.failover", ("drainer/operate/control/test_failover.py",)),
    "rate_limit": ("drainer.operate.control.rate_limit", ("drainer/operate/control/test_rate_limit.py",)),
    "kafka_window": ("drainer.sink.kafka.window", ("drainer/sink/kafka/test_window.py",)),
    "kafka_position": ("drainer.sink.kafka.position", ("drainer/sink/kafka/test_position.py",)),
    "dispatcher": (
        "drainer.sink.mysql.dispatcher",
        ("drainer/sink/mysql/test_dispatcher.py",),
    ),
    "decisions": ("drainer.ddl.quarantine.decisions", ("drainer/ddl/quarantine/test_decisions.py",)),
    "waiting_tables": (
        "drainer.ddl.quarantine.waiting_tables",
        (
            "drainer/ddl/quarantine/test_load_entry.py",
            "drainer/ddl/quarantine/test_shards.py",
            "drainer/ddl/quarantine/test_waiting_tables_model.py",
        ),
    ),
    "controller": (
        "drainer.ddl.quarantine.controller",
        ("drainer/ddl/quarantine/test_controller_steps.py",),
    ),
    "release": ("drainer.ddl.quarantine.release", ("drainer/ddl/quarantine/test_release.py",)),
    "shards": ("drainer.ddl.quarantine.shards", ("drainer/ddl/quarantine/test_shards.py",)),
    **{
        name: (f"drainer.ddl.derive.{name}", ("drainer/ddl/derive/test_derive.py",))
        for name in ("derive", "alter_table", "compare", "constraints", "create_table", "partition", "render")
    },
    "lane_feed": ("drainer.sink.mysql.lane_feed", ("drainer/sink/mysql/test_lane_feed.py",)),
    "ddl_barrier": ("drainer.sink.mysql.ddl_barrier", ("drainer/sink/mysql/test_ddl_barrier.py",)),
    "translator": (
        "drainer.stream.translate.translator",
        (
            "drainer/stream/translate/test_translator.py",
            "drainer/stream/translate/test_translator_schema.py",
            "drainer/stream/pull/test_large_txn.py",
        ),
    ),
    "relay_log": (
        "drainer.relay.relay_log",
        (
            "drainer/relay/test_relay_log.py",
            "drainer/relay/test_relay_log_page.py",
            "drainer/relay/test_relay_log_marks.py",
        ),
    ),
    "pull_session": (
        "pump.pull.session",
        ("pump/pull/test_session.py", "pump/pull/test_parts.py", "pump/pull/test_ranges.py"),
    ),
    "recent_commits": ("pump.index.recent_commits", ("pump/index/test_recent_commits.py",)),
    "idle": ("pump.watermark.idle", ("pump/watermark/test_idle.py", "pump/watermark/test_idle_activity.py")),
    "close_conditions": ("pump.membership.close_conditions", ("pump/membership/test_close_conditions.py",)),
    "retention": (
        "pump.retention.policy",
        ("pump/retention/test_policy.py", "pump/retention/test_policy_clocks.py"),
    ),
}
_ENDED: Final = "nobody asks for the floor of a source that has ended"
_ONE: Final = "of one entry nothing is out of order"
_END: Final = "the search finds the end as well"
_MEMORY: Final = "decides when what has left is let go, and nothing else"
_SAME: Final = "what is put there is what stands there"
_EXACT: Final = "ages of what is long ago are told a little more, or less, exactly"
_ABOVE_ALL: Final = "any number above all timestamps"
_ASKED: Final = "whoever asks for a hold sets it before it is looked at"
_ASKED_RUN: Final = "each run sets it before it is looked at"
_FIRST_TS: Final = "no timestamp is 1"
_OCTET: Final = "a frame is completed by an octet at least"
_LONGER: Final = "the longer way does the same"
_TOLD: Final = "is told to people, and decides nothing"
_LENGTHS: Final = "both have the same length"
_SHORTCUT: Final = "the loop below cuts such a list into the same one part"
_REPEATED: Final = "what follows leaves it out, too"
EQUIVALENT: Final[dict[str, dict[str, str]]] = {
    "pull_session": {
        "PullSession.page: 4  ->  5": "says how soon pages grow, not to what",
    },
    "recent_commits": {
        "RecentCommits.record: True  ->  False": _LENGTHS,
        "RecentCommits.record: 0  ->  1": _FIRST_TS,
        "RecentCommits.record: self._prewrite_bytes > self._bytes_max  ->  "
        "self._prewrite_bytes >= self._bytes_max": _MEMORY,
        "RecentCommits.record: commit_ts <= self.floor  ->  commit_ts < self.floor": _REPEATED,
        "RecentCommits.record: 1  ->  2": "that it grows counts, not by what",
        "RecentCommits.record: NINE_OCTETS <= start_ts < commit_ts  ->  NINE_OCTETS < start_ts < commit_ts": (
            _LONGER
        ),
        "RecentCommits.record: NINE_OCTETS <= start_ts < commit_ts  ->  "
        "NINE_OCTETS <= start_ts <= commit_ts": "equal ones are a time mark",
        "RecentCommits.record: size > self._bytes_max  ->  size >= self._bytes_max": _MEMORY,
        "RecentCommits.record: self._pending_bytes + size > self._bytes_max  ->  "
        "self._pending_bytes + size >= self._bytes_max": _MEMORY,
        "RecentCommits._drop_prewrites: self._bytes_max // 8  ->  self._bytes_max * 8": _MEMORY,
        "RecentCommits._drop_prewrites: 8  ->  9": _MEMORY,
    },
    "merger": {
        "_Source.take_to: entries[-1].commit_ts <= limit  ->  entries[-1].commit_ts < limit": _MEMORY,
        "_Source.take_to: self.head > len(entries) // 2  ->  self.head >= len(entries) // 2": _MEMORY,
        "_Source.take_to: len(entries) // 2  ->  len(entries) * 2": _MEMORY,
        "_Source.take_to: 2  ->  3": _MEMORY,
        "Merger.end: source.floor = _ENDED_FLOOR  ->  pass": _ENDED,
        "Merger._check_order: len(entries) > 1  ->  len(entries) >= 1": _ONE,
        "Merger.pop: totals[-1] - gone > bytes_max  ->  totals[-1] - gone >= bytes_max": _END,
        "Merger.pop: totals[-1] - gone  ->  totals[-1] + gone": _END,
        "Merger._merge: limit <= self._merged_ts  ->  limit < self._merged_ts": "no source has more there",
    },
    "hpack": {
        "Decoder.decode: fields.clear()  ->  pass": _MEMORY,
        "Decoder.decode: pos > fields_max  ->  pos >= fields_max": _LONGER,
        "Decoder._skim: 189 < octet < 255  ->  189 <= octet < 255": "189 is of the branch above",
    },
    "group_commit": {
        "GroupCommit.cut: len(sizes) <= self.records_max  ->  len(sizes) < self.records_max": _SHORTCUT,
        "GroupCommit.cut: sum(sizes) <= self.bytes_max  ->  sum(sizes) < self.bytes_max": _SHORTCUT,
    },
    "sorter": {
        "<module>: 1024  ->  1025": _MEMORY,
        "Sorter.feed: continue  ->  pass": "whose prewrite is the last of the queue stands there already",
        "Sorter._pass: ts > self.watermark  ->  ts >= self.watermark": _SAME,
        "Sorter._pass: ts > last.max_ts  ->  ts >= last.max_ts": _SAME,
        "Sorter._pass: entry.max_ts > self.watermark  ->  entry.max_ts >= self.watermark": _SAME,
        "Sorter._compact: self._front > _SLACK  ->  self._front >= _SLACK": _MEMORY,
        "Sorter._compact: self._settled_inside <= len(self._open) + _SLACK  ->  "
        "self._settled_inside < len(self._open) + _SLACK": _MEMORY,
        "Sorter._compact: len(self._open) + _SLACK  ->  len(self._open) - _SLACK": _MEMORY,
    },
    "admission": {
        "are_drawn: 1  ->  2": "whether there is one counts, not what",
    },
    "stages": {
        "<module>: 2048  ->  2049": _MEMORY,
        "<module>: 64  ->  65": _EXACT,
        "bytes_between: start >= stop  ->  start > stop": "between equal places is nothing",
        "Arrivals.note: end <= ends[-1]  ->  end < ends[-1]": "of equal ends the first is found",
        "Arrivals._thin: True  ->  False": _LENGTHS,
        "Arrivals._thin: (at_s - self._times[-1]) * _EXACTNESS < now_s - at_s  ->  "
        "(at_s - self._times[-1]) * _EXACTNESS <= now_s - at_s": _EXACT,
    },
    "hold_state": {
        "<module>: 1  ->  2": _ABOVE_ALL,
        "<module>: 63  ->  64": _ABOVE_ALL,
        "HoldState.__init__: self._at_ts = 0  ->  pass": _ASKED,
        "HoldState.__init__: 0  ->  1": _ASKED,
        "HoldState.__init__: self._limit_s = 0.0  ->  pass": _ASKED,
        "HoldState.__init__: self._ends_s = 0.0  ->  pass": _ASKED,
        "HoldState.__init__: self._stands_for = NEVER  ->  pass": _ASKED,
        "HoldState.__init__: False  ->  True": "a hold without a name is never asked about",
    },
    "rate_limit": {
        "RateLimit.wait_s: True  ->  False": _LENGTHS,
    },
    "dispatcher": {
        "_Cut.of: is_exact or coarse is not None  ->  is_exact and coarse is not None": _LONGER,
        "Dispatcher._cut: len(rows) >= self._cut_rows  ->  len(rows) > self._cut_rows": "so many rows are "
        "one chunk in either case",
        "Dispatcher._cut: True  ->  False": _LENGTHS,
        "Dispatcher._cut_carefully: True  ->  False": _LENGTHS,
    },
    "keeper": {
        "CheckpointKeeper.close: False  ->  True": "nothing runs there any more",
        "CheckpointKeeper.call: if not backoff.attempts:  ->  if backoff.attempts:": _TOLD,
        "CheckpointKeeper.call: await asyncio.sleep(backoff.next_s())  ->  pass": "decides when, not what",
    },
    "release": {
        "Release.__init__: self._paused = False  ->  pass": _ASKED_RUN,
        "Release._drain: lanes is None or self._reached is None  ->  "
        "lanes is None and self._reached is None": "both are there, or none",
        "Release.__init__: 1  ->  2": "each job is waited for before the next one is given",
    },
    "controller": {
        "QuarantineController.judge: self._count()  ->  pass": _TOLD,
        "QuarantineController._begin: self._count()  ->  pass": _TOLD,
        "QuarantineController._close: self._count()  ->  pass": _TOLD,
        "QuarantineController.run: queue.state is QueueState.READY and (not queue.loading)  ->  "
        "queue.state is QueueState.READY or not queue.loading": _LONGER,
    },
    "lane": {
        "Lane._take: return []  ->  return None": "both say that it is to end",
        "Lane._ask: refusal.name or 'the keys'  ->  refusal.name and 'the keys'": _TOLD,
        "Lane._wait: trouble is not Trouble.LOCK  ->  trouble is Trouble.LOCK": _TOLD,
        "Lane._ask: self._wait(Trouble.INTERRUPTED, f'asking the upstream about {what} of "
        "{refusal.table.label}')  ->  pass": _TOLD,
        "Lane.abandon: self._settings.logged.wake()  ->  pass": "it looks within a second anyway",
    },
    "ddl_barrier": {
        "DdlBarrier.apply: self.doing = f'running DDL job {ddl.job_id}'  ->  pass": _TOLD,
        "DdlBarrier._note_progress: self.progress = said  ->  pass": _TOLD,
    },
    "lane_feed": {
        "LaneFeed.log_large: False  ->  True": "without a piece there are no tables",
        "LaneFeed.settled: self._under_way = None  ->  pass": "what has ended is waited for at once",
    },
    "translator": {
        "Translator.placed: self._placed.clear()  ->  pass": _MEMORY,
        "Translator.placed: len(self._placed) >= _PLACED_MAX  ->  len(self._placed) > _PLACED_MAX": _MEMORY,
        "Translator._tables: schema_version < row_filter.version  ->  schema_version <= row_filter.version": (
            _LONGER
        ),
        "Translator.row_filter: self._filters[table_id] = row_filter  ->  pass": _LONGER,
        "Translator.row_filter: schema_version >= table.version or row_filter is CLOSED  ->  "
        "schema_version >= table.version and row_filter is CLOSED": _LONGER,
        "Translator.row_filter: schema_version >= table.version  ->  schema_version > table.version": _LONGER,
        "Translator._ddl: 0  ->  1": "of the first schema version nothing is pending",
        "Translator.catch_up: self._generation = schema.generation  ->  pass": _LONGER,
        "Translator.row_filter: self._filters[table_id] = CLOSED  ->  pass": _LONGER,
        "Translator._note_version: 0  ->  1": "the first version has no table yet",
        "Translator._had_early_rows: 0  ->  1": _FIRST_TS,
        "Translator._note_version: schema_version > self._row_versions.get(table_id, 0)  ->  "
        "schema_version >= self._row_versions.get(table_id, 0)": _SAME,
    },
    "waiting_tables": {
        "Quarantine.begin_load: self._reindex()  ->  pass": "the last queue of a name is its owner",
        "Quarantine._touched: entry.tables[key] <= ddl.commit_ts  ->  entry.tables[key] < ddl.commit_ts": (
            "of the entry that a DDL began its names are touched already"
        ),
        "Quarantine.joins: len(self._queues) > 1  ->  len(self._queues) >= 1": _LONGER,
    },
    "relay_log": {
        "RelayFiles._surveyed: directory.places.clear()  ->  pass": _MEMORY,
        "RelayFiles._surveyed: False  ->  True": "there is a file always",
        "RelayFiles._surveyed: min(place.size, HEAD_BYTES)  ->  max(place.size, HEAD_BYTES)": _LONGER,
        "RelayFiles._surveyed: 0  ->  1": _FIRST_TS,
        "RelayFiles._surveyed: any(map(is_payload_record, heads))  ->  all(map(is_payload_record, heads))": (
            "a file has one format"
        ),
        "RelayFiles.sync: records.waiting >= WRITE_BYTES  ->  records.waiting > WRITE_BYTES": _MEMORY,
        "RelayLog._patiently: if not self.waiting_for:  ->  if self.waiting_for:": _TOLD,
        "RelayLog.append_large: 0  ->  1": _MEMORY,
        "RelayLog._remove: 0  ->  1": _FIRST_TS,
        "RelayLog._give: 1  ->  2": "that it grows counts, not by what",
    },
    "failover": {
        "<module>: 0  ->  1": "any revision that stays the same",
        "FailoverRule.__init__: 1  ->  2": "no revision is negative",
    },
    "http2_lifetime": {
        "Lifetime._keepalive: heard_s > self._asked_s  ->  heard_s >= self._asked_s": "of one moment either "
        "may be the first",
    },
    "http2_outbound": {
        "Outbound.reply: size > _WHOLE_MAX  ->  size >= _WHOLE_MAX": _LONGER,
        "Outbound.message: len(message) <= _JOINED_MAX  ->  len(message) < _JOINED_MAX": "one piece or two, "
        "the octets are the same",
        "Outbound.drop: 0  ->  1": "a stream is dropped once",
    },
    "http2_connection": {
        "Connection.receive: at < 0  ->  at <= 0": _OCTET,
        "Connection._split_frame: missing > 0  ->  missing >= 0": "of nothing missing nothing is taken",
        "Connection._split_frame: if not isinstance(tail, bytearray):  ->  if isinstance(tail, bytearray):": (
            "says how it grows, not to what"
        ),
        "Connection._frames: flags & _UNUSUAL_HEADERS  ->  flags | _UNUSUAL_HEADERS": _LONGER,
        "Connection._headers: flags & (PADDED | HAS_PRIORITY)  ->  flags | (PADDED | HAS_PRIORITY)": _LONGER,
        "Connection._frames: kind < CONTINUATION  ->  kind <= CONTINUATION": "that one was asked for before",
        "Connection._check_order: raise self.fault  ->  pass": "what follows raises, too; the first fault "
        "stands",
        "Connection._headers: raise ConnectionFault(frames.PROTOCOL_ERROR, 'HEADERS on stream 0 (R6.2)')"
        "  ->  pass": "0 is no id above the last",
        "Connection.wake_at: moment_s < self.next_tick_s  ->  moment_s <= self.next_tick_s": _SAME,
        "Connection.finished: stream.call = None  ->  pass": "the garbage collector finds them later",
    },
    "http2_control": {
        "_settings: 1  ->  2": "lengths here are multiples of 6",
    },
    "retention": {
        "Situation.free_of_drainers: 1  ->  2": "of what is below zero nothing is free",
        "<module>: 1  ->  2": _MEMORY,
        "<module>: 16  ->  17": _MEMORY,
        "Survey.feed: ts > self.max_ts  ->  ts >= self.max_ts": _SAME,
        "Survey.feed: 0 < ts < self.min_ts  ->  0 < ts <= self.min_ts": _SAME,
        "Survey.feed: False  ->  True": "any value says that it was open",
        "Survey.feed: len(self._ended) >= _ENDED_MAX  ->  len(self._ended) > _ENDED_MAX": _MEMORY,
        "decide: min(too_late)  ->  max(too_late)": "ceilings rise: what is too late for one file is found "
        "again for those before it",
        "outlook: left < left_s  ->  left <= left_s": "of limits that are equally near any may be told",
    },
}
"""By core, the mutants that do what the core does, with why. Each text is that of one mutant alone."""

"""A recorded scenario's DDL as TiDB's meta keys: every step of every job at the time of its commit.

The recordings hold finished jobs only. Their steps in between are made up as TiDB makes them: as many as
schema versions were used, new columns and indexes in states that nobody may see yet, those on their way out
moved to the end. Everything else (ids, versions, definitions, times) is as recorded.
"""

from __future__ import annotations

import copy
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from drainer.mysql.sql_tokens import rename_pairs
from tests.drainer.support import recorded
from tests.fakes.cluster import FakeCluster
from tidb_binlog.rowcodec.keys import put_comparable_int, record_key
from tidb_binlog.upstream.tidb.meta import meta_keys

Job = dict[str, Any]
INTERNAL = [(1 << 48) - 1 - number for number in range(1, 5)]
WRITE_ONLY, DELETE_ONLY, DELETE_REORG, WRITE_REORG = 2, 1, 4, 3
RUNNING, DONE, QUEUEING = 1, 4, 8


@dataclass(frozen=True)
class Kind:
    """How a cluster keeps jobs: in tables since 6.2 (rows in either format), in a list before."""

    tables: bool = True
    row_format: int = 2


def load_history(cluster: FakeCluster, scenario: str, kind: Kind | None = None) -> None:
    """Put a scenario's schema, with its past, into a cluster."""
    writer = MetaWriter(cluster.put, kind or Kind())
    writer.found_cluster()
    for job, commit_ts in committed_jobs(scenario):
        writer.run(job, commit_ts)


def committed_jobs(scenario: str) -> list[tuple[Job, int]]:
    """Jobs with the commit_ts of their last step, in its order; without a binlog just before its end."""
    ends: dict[int, int] = {}
    for path in sorted((recorded.ROOT / scenario).glob("pulled*.jsonl.gz")):
        for line in recorded.lines(path):
            if job_id := line["ddl_job_id"]:
                ends[job_id] = max(line["commit_ts"], ends.get(job_id, 0))
    jobs = [json.loads(job) for job in recorded.jobs(scenario)]
    found = [(job, ends.get(job["id"], job["binlog"]["FinishedTS"] - 5)) for job in jobs]
    return sorted(found, key=lambda one: one[1])


def row_value(columns: dict[int, bytes | int], row_format: int) -> bytes:
    """A row as TiKV keeps it; integers are made one byte, readers skip them."""
    if row_format == 1:
        return b"".join(
            b"\x08" + _varint(number * 2) + (_compact(value) if isinstance(value, bytes) else b"\x08\x02")
            for number, value in columns.items()
        )
    values = [value if isinstance(value, bytes) else bytes((value,)) for _, value in sorted(columns.items())]
    large = sum(map(len, values)) > 0xFFFF
    ids = struct.pack(f"<{len(values)}{'I' if large else 'B'}", *sorted(columns))
    ends = [sum(map(len, values[: number + 1])) for number in range(len(values))]
    offsets = struct.pack(f"<{len(values)}{'I' if large else 'H'}", *ends)
    return bytes((0x80, large)) + struct.pack("<HH", len(values), 0) + ids + offsets + b"".join(values)


def _compact(value: bytes) -> bytes:
    return b"\x02" + _varint(len(value) * 2) + value


def _varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


class MetaWriter:
    """Makes the changes; `put(key, value or None, commit_ts)` takes them."""

    def __init__(self, put: Callable[[bytes, bytes | None, int], object], kind: Kind) -> None:
        self._take = put
        self._kind = kind
        self._writes: dict[tuple[bytes, int], bytes | None] = {}
        self._version = 0
        self._homes: dict[int, int] = {}  # table id -> database id
        self._tables: dict[int, dict[str, Any]] = {}
        self._databases: dict[int, dict[str, Any]] = {}

    def found_cluster(self) -> None:
        """What is there before the first job: `mysql`, and the tables of the DDL framework."""
        self._database(1, {"id": 1, "db_name": {"O": "mysql", "L": "mysql"}, "charset": "utf8mb4"}, 2)
        for number in INTERNAL:
            self._table(1, number, {"id": number, "name": {"O": f"tidb_{number}", "L": "x"}}, 2)
        self._flush()

    def run(self, job: Job, commit_ts: int) -> None:
        """All steps of a job, and its way into the history."""
        began_ts, finished_ts = job["real_start_ts"], job["binlog"]["FinishedTS"]
        self._put(meta_keys.NEXT_GLOBAL_ID, b"%d" % job["id"], job["start_ts"])
        self._running({**job, "binlog": None, "state": QUEUEING, "real_start_ts": 0}, job["start_ts"] + 1)
        running = {**job, "binlog": None, "state": RUNNING}
        steps = self._between(job)
        versions = range(self._version + 1, job["binlog"]["SchemaVersion"] + 1)
        is_multi = job["type"] == 61  # its last version is used a step before its end
        count = len(versions) if is_multi else len(versions) - 1
        for number in range(count):
            at_ts = began_ts + (commit_ts - began_ts) * (number + 1) // (count + 1)
            self._raise(versions[number], at_ts)
            self._running(running, at_ts)
            if is_multi and number == count - 1:
                self._change(job, at_ts)
            elif steps is not None:
                steps(number, at_ts)
        if not is_multi:
            if versions:
                self._raise(versions[-1], commit_ts)
            self._change(job, commit_ts)
        self._running({**job, "state": DONE if job["state"] == 6 else job["state"]}, commit_ts)
        text = json.dumps(job, separators=(",", ":")).encode()
        self._put(meta_keys.job_key(job["id"]), text, finished_ts + 1)
        if self._kind.tables:
            row = row_value({2: text, 3: b"d", 4: b"t"}, self._kind.row_format)
            self._put(meta_keys.history_row_key(job["id"]), row, finished_ts + 1)
        self._put(self._running_key(job["id"]), None, finished_ts + 1)
        self._flush()

    def _put(self, key: bytes, value: bytes | None, commit_ts: int) -> None:
        self._writes[key, commit_ts] = value

    def _flush(self) -> None:
        """Of several changes of a key in one transaction the last one counts."""
        for (key, commit_ts), value in self._writes.items():
            self._take(key, value, commit_ts)
        self._writes.clear()

    def _raise(self, version: int, commit_ts: int) -> None:
        """A version is drawn in a transaction of its own, right before the one that uses it."""
        self._version = version
        self._put(meta_keys.SCHEMA_VERSION, b"%d" % version, commit_ts - 1)
        self._put(meta_keys.diff_key(version), b"{}", commit_ts)

    def _running_key(self, job_id: int) -> bytes:
        if self._kind.tables:
            return record_key(meta_keys.JOB_TABLE, job_id)
        return meta_keys.JOB_LISTS[0][0] + put_comparable_int(job_id)

    def _running(self, job: Job, commit_ts: int) -> None:
        text = json.dumps(job).encode()
        if self._kind.tables:
            text = row_value({2: 0, 3: b"1", 4: b"2", 5: text, 6: 1, 7: 0}, self._kind.row_format)
        self._put(self._running_key(job["id"]), text, commit_ts)

    # -- steps in between ------------------------------------------------------------------------------

    def _between(self, job: Job) -> Callable[[int, int], None] | None:
        """What happens in a step before the last, if anything."""
        schema_id, table_id = job["schema_id"], job["table_id"]
        if job["type"] == 2:
            database = self._databases[schema_id]
            return lambda number, ts: self._database(
                schema_id, {**database, "state": (WRITE_ONLY, DELETE_ONLY)[min(number, 1)]}, ts
            )
        before, after = self._tables.get(table_id), job["binlog"]["TableInfo"]
        if before is None or after is None:
            return None
        home = self._homes[table_id]
        if job["type"] in (4, 24, 36):
            return lambda number, ts: self._table(
                home, table_id, {**before, "state": (WRITE_ONLY, DELETE_ONLY)[min(number, 1)]}, ts
            )
        if after["id"] != table_id:
            return None
        return lambda number, ts: self._table(home, table_id, half_way(before, after, number), ts)

    # -- the last step ---------------------------------------------------------------------------------

    def _change(self, job: Job, commit_ts: int) -> None:
        action, history = job["type"], job["binlog"]
        if job["state"] not in (4, 6):
            if job["table_id"] in self._tables:  # rolled back: as it was
                home = self._homes[job["table_id"]]
                self._table(home, job["table_id"], self._tables[job["table_id"]], commit_ts)
        elif action in (1, 26, 55, 63):
            self._put_database(history["DBInfo"], commit_ts)
            if action == 63:
                for table in job["raw_args"][0]["RecoverTabsInfo"]:
                    self._put_table(history["DBInfo"]["id"], table["TableInfo"], commit_ts)
        elif action == 2:
            for table_id in [one for one, home in self._homes.items() if home == job["schema_id"]]:
                self._drop(table_id, commit_ts)
            del self._databases[job["schema_id"]]
            self._put(meta_keys.database_key(job["schema_id"]), None, commit_ts)
        elif action in (4, 24, 36):
            self._drop(job["table_id"], commit_ts)
        else:
            self._change_tables(job, history, commit_ts)

    def _change_tables(self, job: Job, history: dict[str, Any], commit_ts: int) -> None:
        action, schema_id = job["type"], job["schema_id"]
        tables = history.get("MultipleTableInfos") or [history["TableInfo"]]
        if action == 47:
            for home, table in zip(self._new_homes(job), tables, strict=True):
                self._move(home, table, commit_ts)
        elif action == 14:
            self._move(schema_id, tables[0], commit_ts)
        elif action == 42:
            self._exchange(job, tables[0], commit_ts)
        elif tables[0] is not None:
            for table in tables:
                home = self._homes.get(table["id"], schema_id)
                if action == 11:
                    self._drop(job["table_id"], commit_ts)
                if action == 21:
                    self._replace_view(home, table, commit_ts)
                self._put_table(home, table, commit_ts)

    def _new_homes(self, job: Job) -> list[int]:
        """Jobs of this version do not say it: names without a database belong to the session's."""
        ids = {database["db_name"]["L"]: schema_id for schema_id, database in self._databases.items()}
        return [
            ids[pair.new_schema.lower()] if pair.new_schema else job["schema_id"]
            for pair in rename_pairs(job["query"])
        ]

    def _replace_view(self, home: int, view: dict[str, Any], commit_ts: int) -> None:
        for table_id, table in list(self._tables.items()):
            if self._homes[table_id] == home and table["name"] == view["name"]:
                self._drop(table_id, commit_ts)

    def _exchange(self, job: Job, partitioned: dict[str, Any], commit_ts: int) -> None:
        before = {one["id"] for one in self._tables[partitioned["id"]]["partition"]["definitions"]}
        now = {one["id"] for one in partitioned["partition"]["definitions"]}
        plain, home = self._tables[job["table_id"]], self._homes[job["table_id"]]
        (new_id,) = before - now
        self._drop(job["table_id"], commit_ts)
        self._put_table(home, {**plain, "id": new_id}, commit_ts)
        self._put_table(self._homes[partitioned["id"]], partitioned, commit_ts)

    def _move(self, home: int, table: dict[str, Any], commit_ts: int) -> None:
        if self._homes[table["id"]] != home:
            self._drop(table["id"], commit_ts)
        self._put_table(home, table, commit_ts)

    def _put_database(self, info: dict[str, Any], commit_ts: int) -> None:
        self._databases[info["id"]] = info
        self._database(info["id"], info, commit_ts)

    def _put_table(self, home: int, info: dict[str, Any], commit_ts: int) -> None:
        self._homes[info["id"]] = home
        self._tables[info["id"]] = info
        self._table(home, info["id"], info, commit_ts)

    def _drop(self, table_id: int, commit_ts: int) -> None:
        home = self._homes.pop(table_id)
        del self._tables[table_id]
        self._put(meta_keys.table_key(home, table_id), None, commit_ts)
        self._put(meta_keys.hash_key(b"DB:%d" % home, b"TID:%d" % table_id), None, commit_ts)

    def _database(self, schema_id: int, info: dict[str, Any], commit_ts: int) -> None:
        self._put(meta_keys.database_key(schema_id), _text(info), commit_ts)

    def _table(self, home: int, table_id: int, info: dict[str, Any], commit_ts: int) -> None:
        self._put(meta_keys.table_key(home, table_id), _text(info), commit_ts)
        self._put(meta_keys.hash_key(b"DB:%d" % home, b"TID:%d" % table_id), b"30001", commit_ts)


def _text(info: dict[str, Any]) -> bytes:
    return json.dumps(info, separators=(",", ":"), ensure_ascii=False).encode()


def half_way(before: dict[str, Any], after: dict[str, Any], number: int) -> dict[str, Any]:
    """A definition between two: what is new not there for everybody, what goes not there for everybody."""
    found = copy.deepcopy(before)
    coming = (DELETE_ONLY, WRITE_ONLY, WRITE_REORG)[min(number, 2)]
    going = (WRITE_ONLY, DELETE_ONLY, DELETE_REORG)[min(number, 2)]
    for part in ("cols", "index_info"):
        old, new = before.get(part) or [], after.get(part) or []
        kept = {one["id"] for one in old} & {one["id"] for one in new}
        stay = [one for one in copy.deepcopy(old) if one["id"] in kept]
        go = [{**one, "state": going} for one in old if one["id"] not in kept]
        come = [{**one, "state": coming} for one in new if one["id"] not in kept]
        found[part] = [*stay, *go, *come]
        if part == "cols":
            for offset, column in enumerate(found[part]):
                column["offset"] = offset
    return found

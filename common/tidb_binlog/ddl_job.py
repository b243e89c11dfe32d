"""DDL job: what TiDB writes into its DDL history, read into a value and written from one.

The JSON is `model.Job` of TiDB's parser: lower-case keys, except in `binlog` (the history part), whose keys
are Go's field names. Only what a drainer uses is read; `document` keeps the rest. A job says exactly what a
statement did; the statement's text is only consulted for what jobs leave out.

A long history is read by the heads of its jobs: a few numbers, and where the definitions are in the text.

Action codes are data: a code that `ActionType` does not have is still a job.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final

import msgspec

from tidb_binlog.errors import Corruption
from tidb_binlog.foreign_document import UNREADABLE
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.table_info import SchemaState
from tidb_binlog.tso import Ts


class ActionType(IntEnum):
    """What a job does: TiDB's code and name, what `ADMIN SHOW DDL JOBS` calls it, and the groups of kinds
    that it belongs to in `[[syncer.ddl-rule]]`."""

    words: str
    groups: tuple[str, ...]

    def __new__(cls, code: int, words: str = "", *groups: str) -> ActionType:
        member = int.__new__(cls, code)
        member._value_ = code
        member.words = words
        member.groups = groups
        return member

    NONE = 0, "none"
    CREATE_SCHEMA = 1, "create schema", "database"
    DROP_SCHEMA = 2, "drop schema", "database"
    CREATE_TABLE = 3, "create table", "table"
    DROP_TABLE = 4, "drop table", "table"
    ADD_COLUMN = 5, "add column", "column"
    DROP_COLUMN = 6, "drop column", "column"
    ADD_INDEX = 7, "add index", "index"
    DROP_INDEX = 8, "drop index", "index"
    ADD_FOREIGN_KEY = 9, "add foreign key", "foreign key"
    DROP_FOREIGN_KEY = 10, "drop foreign key", "foreign key"
    TRUNCATE_TABLE = 11, "truncate table", "table"
    MODIFY_COLUMN = 12, "modify column", "column"
    REBASE_AUTO_ID = 13, "rebase auto_increment id", "auto id"
    RENAME_TABLE = 14, "rename table", "table"
    SET_DEFAULT_VALUE = 15, "set default value", "column"
    SHARD_ROW_ID = 16, "shard row id", "auto id"
    MODIFY_TABLE_COMMENT = 17, "modify table comment", "table"
    RENAME_INDEX = 18, "rename index", "index"
    ADD_TABLE_PARTITION = 19, "add partition", "partition"
    DROP_TABLE_PARTITION = 20, "drop partition", "partition"
    CREATE_VIEW = 21, "create view", "view"
    MODIFY_TABLE_CHARSET_AND_COLLATE = 22, "modify table charset and collate", "table"
    TRUNCATE_TABLE_PARTITION = 23, "truncate partition", "partition"
    DROP_VIEW = 24, "drop view", "view"
    RECOVER_TABLE = 25, "recover table", "table", "flashback"
    MODIFY_SCHEMA_CHARSET_AND_COLLATE = 26, "modify schema charset and collate", "database"
    LOCK_TABLE = 27, "lock table", "lock"
    UNLOCK_TABLE = 28, "unlock table", "lock"
    REPAIR_TABLE = 29, "repair table", "table"
    SET_TIFLASH_REPLICA = 30, "set tiflash replica", "tiflash"
    UPDATE_TIFLASH_REPLICA_STATUS = 31, "update tiflash replica status", "tiflash"
    ADD_PRIMARY_KEY = 32, "add primary key", "index"
    DROP_PRIMARY_KEY = 33, "drop primary key", "index"
    CREATE_SEQUENCE = 34, "create sequence", "sequence"
    ALTER_SEQUENCE = 35, "alter sequence", "sequence"
    DROP_SEQUENCE = 36, "drop sequence", "sequence"
    ADD_COLUMNS = 37, "add columns", "column"
    DROP_COLUMNS = 38, "drop columns", "column"
    MODIFY_TABLE_AUTO_ID_CACHE = 39, "modify auto id cache", "auto id"
    REBASE_AUTO_RANDOM_BASE = 40, "rebase auto_random id", "auto id"
    ALTER_INDEX_VISIBILITY = 41, "alter index visibility", "index"
    EXCHANGE_TABLE_PARTITION = 42, "exchange partition", "partition"
    ADD_CHECK_CONSTRAINT = 43, "add check constraint", "check"
    DROP_CHECK_CONSTRAINT = 44, "drop check constraint", "check"
    ALTER_CHECK_CONSTRAINT = 45, "alter check constraint", "check"
    RENAME_TABLES = 47, "rename tables", "table"
    DROP_INDEXES = 48, "drop indexes", "index"
    ALTER_TABLE_ATTRIBUTES = 49, "alter table attributes", "attributes"
    ALTER_TABLE_PARTITION_ATTRIBUTES = 50, "alter table partition attributes", "attributes"
    CREATE_PLACEMENT_POLICY = 51, "create placement policy", "placement"
    ALTER_PLACEMENT_POLICY = 52, "alter placement policy", "placement"
    DROP_PLACEMENT_POLICY = 53, "drop placement policy", "placement"
    ALTER_TABLE_PARTITION_PLACEMENT = 54, "alter table partition placement", "placement"
    MODIFY_SCHEMA_DEFAULT_PLACEMENT = 55, "alter schema placement", "placement"
    ALTER_TABLE_PLACEMENT = 56, "alter table placement", "placement"
    ALTER_CACHE_TABLE = 57, "alter table cache", "cache"
    ALTER_TABLE_STATS_OPTIONS = 58, "alter table stats options"
    ALTER_NO_CACHE_TABLE = 59, "alter table nocache", "cache"
    CREATE_TABLES = 60, "create tables", "table"
    MULTI_SCHEMA_CHANGE = 61, "multi-schema change"
    FLASHBACK_CLUSTER = 62, "flashback cluster", "flashback"
    RECOVER_SCHEMA = 63, "flashback schema", "database", "flashback"
    REORGANIZE_PARTITION = 64, "reorganize partition", "partition"
    ALTER_TTL_INFO = 65, "alter table ttl", "ttl"
    ALTER_TTL_REMOVE = 67, "remove table ttl", "ttl"
    CREATE_RESOURCE_GROUP = 68, "create resource group", "resource group"
    ALTER_RESOURCE_GROUP = 69, "alter resource group", "resource group"
    DROP_RESOURCE_GROUP = 70, "drop resource group", "resource group"
    ALTER_TABLE_PARTITIONING = 71, "alter table partition by", "partition"
    REMOVE_PARTITIONING = 72, "remove partitioning", "partition"
    ADD_COLUMNAR_INDEX = 73, "add columnar index", "index"


ACTION_NAMES: Final[Mapping[int, str]] = {action: action.words for action in ActionType}
"""Words by action code."""


class JobState(IntEnum):
    """How far a job has come."""

    words: str

    def __new__(cls, code: int, words: str = "") -> JobState:
        member = int.__new__(cls, code)
        member._value_ = code
        member.words = words
        return member

    NONE = 0, "none"
    RUNNING = 1, "running"
    ROLLINGBACK = 2, "rolling back"
    ROLLBACK_DONE = 3, "rolled back"
    DONE = 4, "done"
    CANCELLED = 5, "cancelled"
    SYNCED = 6, "synced"
    CANCELLING = 7, "cancelling"
    QUEUEING = 8, "queueing"
    PAUSED = 9, "paused"
    PAUSING = 10, "pausing"


_STATE_NAMES: Final[Mapping[int, str]] = {state: state.words for state in JobState}
_FINISHED: Final = frozenset({JobState.DONE, JobState.SYNCED})
_REMOVALS: Final = frozenset(
    {ActionType.DROP_SCHEMA, ActionType.DROP_TABLE, ActionType.DROP_COLUMN, ActionType.DROP_INDEX}
)


def action_name(action: int) -> str:
    """Words for an action code; the number itself for one that is not known."""
    return ACTION_NAMES.get(action, f"DDL of type {action}")


def state_after(action: int) -> SchemaState:
    """The state, when a job is finished, of the thing that its action is about."""
    return SchemaState.NONE if action in _REMOVALS else SchemaState.PUBLIC


@dataclass(frozen=True, slots=True)
class DdlJob:
    """One job of the history. `table_infos` are those of actions on several tables, in statement order.

    `table_info` is the definition after it, or the dropped one of a DROP TABLE; `table_id` is the table's
    before it.
    """

    id: int
    action: int
    state: int = JobState.SYNCED
    schema_state: int = SchemaState.PUBLIC
    schema_id: int = 0
    table_id: int = 0
    schema_name: str = ""
    table_name: str = ""
    query: str = ""
    schema_version: int = 0
    finished_ts: Ts = 0
    db_info: dict[str, Any] | None = field(default=None, repr=False, hash=False)
    table_info: dict[str, Any] | None = field(default=None, repr=False, hash=False)
    table_infos: tuple[dict[str, Any], ...] = field(default=(), repr=False, hash=False)
    raw_args: Any = field(default=None, repr=False, hash=False)
    document: dict[str, Any] = field(default_factory=dict, repr=False, hash=False)

    @property
    def took_effect(self) -> bool:
        """Whether the schema is different because of it; false for jobs rolled back or cancelled."""
        return self.state in _FINISHED and self.schema_version > 0

    @property
    def may_have_binlog(self) -> bool:
        """Whether a committed binlog can be this job's: TiDB writes one when it is done, or rolled back."""
        return self.state in _FINISHED or self.state == JobState.ROLLBACK_DONE

    @property
    def effective_version(self) -> int:
        """The schema version that it made; 0 if nothing is different because of it."""
        return self.schema_version if self.took_effect else 0

    @property
    def state_name(self) -> str:
        return _STATE_NAMES.get(self.state, f"state {self.state}")

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> DdlJob:
        """Read a decoded job. Missing keys read as Go's zero; raises `Corruption` on wrong types."""
        try:
            history = document.get("binlog") or {}
            return cls(
                id=int(document["id"]),
                action=int(document["type"]),
                state=int(document.get("state") or 0),
                schema_state=int(document.get("schema_state") or 0),
                schema_id=int(document.get("schema_id") or 0),
                table_id=int(document.get("table_id") or 0),
                schema_name=document.get("schema_name") or "",
                table_name=document.get("table_name") or "",
                query=document.get("query") or "",
                schema_version=int(history.get("SchemaVersion") or 0),
                finished_ts=int(history.get("FinishedTS") or 0),
                db_info=history.get("DBInfo"),
                table_info=history.get("TableInfo"),
                table_infos=tuple(history.get("MultipleTableInfos") or ()),
                raw_args=document.get("raw_args"),
                document=document,
            )
        except UNREADABLE as error:
            number = document.get("id", "?") if isinstance(document, dict) else "?"
            raise Corruption(
                f"DDL job {number} cannot be read: missing or wrong {error}",
                hint="compare the job with `ADMIN SHOW DDL JOBS` of the upstream",
            ) from None

    def to_json(self, finished_ts: Ts = 0) -> bytes:
        """As `to_document`, as text."""
        return encode(self.to_document(finished_ts))

    def to_document(self, finished_ts: Ts = 0) -> dict[str, Any]:
        """A finished job about one table or database; `finished_ts` is its commit_ts, 0 if not known yet."""
        table = self.table_info
        if table is not None and self.action == ActionType.DROP_TABLE:
            table = {**table, "state": SchemaState.NONE}
        history = {
            "SchemaVersion": self.schema_version,
            "DBInfo": self.db_info,
            "TableInfo": table,
            "FinishedTS": finished_ts,
        }
        return {
            "id": self.id,
            "type": self.action,
            "schema_id": self.schema_id,
            "table_id": self.table_id,
            "schema_name": self.schema_name,
            "table_name": self.table_name,
            "state": self.state,
            "schema_state": state_after(self.action),
            "query": self.query,
            "binlog": history,
            "version": 1,
        }


def database_info(schema_id: int, schema: str) -> dict[str, Any]:
    """A database's definition; character set utf8mb4, collation utf8mb4_bin."""
    return {
        "id": schema_id,
        "db_name": {"O": schema, "L": schema.lower()},
        "charset": "utf8mb4",
        "collate": "utf8mb4_bin",
        "state": SchemaState.PUBLIC,
    }


# Heads -------------------------------------------------------------------------------------------------

_ABSENT: Final = msgspec.Raw(b"null")


class _HeadHistory(msgspec.Struct, gc=False):
    SchemaVersion: int = 0
    FinishedTS: int = 0
    TableInfo: msgspec.Raw = _ABSENT


class JobHead(msgspec.Struct, gc=False):
    """What a job is about, read at a tenth of the price of all of it."""

    id: int
    action: int = msgspec.field(name="type")
    state: int = 0
    schema_id: int = 0
    table_id: int = 0
    history: _HeadHistory | None = msgspec.field(name="binlog", default=None)

    @property
    def finished_ts(self) -> Ts:
        return self.history.FinishedTS if self.history else 0

    @property
    def definition(self) -> Any:
        """JSON of its table's definition, a part of the job's bytes; `null` without one."""
        return self.history.TableInfo if self.history else _ABSENT

    @property
    def effective_version(self) -> int:
        """The schema version that it made; 0 if nothing is different because of it."""
        history = self.history
        return history.SchemaVersion if history and self.state in _FINISHED else 0


_read_head: Final = msgspec.json.Decoder(JobHead).decode


def head(data: bytes) -> JobHead | None:
    """The head of a job; None for one that has to be read as a whole to be understood, or cannot be."""
    try:
        return _read_head(data)
    except UNREADABLE:
        return None


# Bytes -------------------------------------------------------------------------------------------------


def encode(document: dict[str, Any]) -> bytes:
    """A job's document as JSON bytes."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def decode(data: bytes) -> dict[str, Any]:
    """JSON bytes of a job as a document; raises `Corruption` if they are not a JSON object."""
    try:
        document = json.loads(data)
    except UNREADABLE as error:
        raise Corruption(f"DDL job of {len(data)} bytes is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise Corruption(f"DDL job of {len(data)} bytes is not a JSON object")
    return document


def parse(data: bytes) -> DdlJob:
    """JSON bytes of a job as a value; raises `Corruption`."""
    return DdlJob.from_document(decode(data))

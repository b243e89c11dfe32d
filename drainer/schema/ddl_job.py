"""DDL job: what TiDB writes into its DDL history, read into a value.

The JSON is `model.Job` of TiDB's parser: lower-case keys, except in `binlog` (the history part), whose keys
are Go's field names. Only what the drainer uses is read; `document` keeps the rest. A job says exactly what
a statement did; the statement's text is only consulted for what jobs leave out, the database that an
unqualified name of a RENAME belongs to.

A long history is read by the heads of its jobs: a few numbers, and where the definitions are in the text.

Action codes are data: a code without a name here is still a job, and what becomes of it is decided by
whoever reads `action`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from common.errors import Corruption
from common.foreign_document import UNREADABLE
from drainer.schema import sql_tokens as ddl_text
from drainer.schema.sql_tokens import unquote

CREATE_SCHEMA: Final = 1
DROP_SCHEMA: Final = 2
CREATE_TABLE: Final = 3
DROP_TABLE: Final = 4
DROP_COLUMN: Final = 6
TRUNCATE_TABLE: Final = 11
RENAME_TABLE: Final = 14
CREATE_VIEW: Final = 21
DROP_VIEW: Final = 24
RECOVER_TABLE: Final = 25
MODIFY_SCHEMA_CHARSET: Final = 26
CREATE_SEQUENCE: Final = 34
DROP_SEQUENCE: Final = 36
EXCHANGE_PARTITION: Final = 42
RENAME_TABLES: Final = 47
MODIFY_SCHEMA_PLACEMENT: Final = 55
CREATE_TABLES: Final = 60
MULTI_SCHEMA_CHANGE: Final = 61
FLASHBACK_CLUSTER: Final = 62
RECOVER_SCHEMA: Final = 63

ACTION_NAMES: Final[dict[int, str]] = {
    0: "none",
    1: "create schema",
    2: "drop schema",
    3: "create table",
    4: "drop table",
    5: "add column",
    6: "drop column",
    7: "add index",
    8: "drop index",
    9: "add foreign key",
    10: "drop foreign key",
    11: "truncate table",
    12: "modify column",
    13: "rebase auto_increment id",
    14: "rename table",
    15: "set default value",
    16: "shard row id",
    17: "modify table comment",
    18: "rename index",
    19: "add partition",
    20: "drop partition",
    21: "create view",
    22: "modify table charset and collate",
    23: "truncate partition",
    24: "drop view",
    25: "recover table",
    26: "modify schema charset and collate",
    27: "lock table",
    28: "unlock table",
    29: "repair table",
    30: "set tiflash replica",
    31: "update tiflash replica status",
    32: "add primary key",
    33: "drop primary key",
    34: "create sequence",
    35: "alter sequence",
    36: "drop sequence",
    37: "add columns",
    38: "drop columns",
    39: "modify auto id cache",
    40: "rebase auto_random id",
    41: "alter index visibility",
    42: "exchange partition",
    43: "add check constraint",
    44: "drop check constraint",
    45: "alter check constraint",
    47: "rename tables",
    48: "drop indexes",
    49: "alter table attributes",
    50: "alter table partition attributes",
    51: "create placement policy",
    52: "alter placement policy",
    53: "drop placement policy",
    54: "alter table partition placement",
    55: "alter schema placement",
    56: "alter table placement",
    57: "alter table cache",
    58: "alter table stats options",
    59: "alter table nocache",
    60: "create tables",
    61: "multi-schema change",
    62: "flashback cluster",
    63: "flashback schema",
    64: "reorganize partition",
    65: "alter table ttl",
    67: "remove table ttl",
    68: "create resource group",
    69: "alter resource group",
    70: "drop resource group",
    71: "alter table partition by",
    72: "remove partitioning",
    73: "add columnar index",
}

_STATE_NAMES: Final[dict[int, str]] = {
    0: "none",
    1: "running",
    2: "rolling back",
    3: "rolled back",
    4: "done",
    5: "cancelled",
    6: "synced",
    7: "cancelling",
    8: "queueing",
    9: "paused",
    10: "pausing",
}
_DONE: Final = 4
_SYNCED: Final = 6


def action_name(action: int) -> str:
    """Words for an action code; the number itself for one that is not known."""
    return ACTION_NAMES.get(action, f"DDL of type {action}")


@dataclass(frozen=True, slots=True)
class DdlJob:
    """One job of the history. `table_infos` are those of actions on several tables, in statement order."""

    id: int
    action: int
    state: int
    schema_state: int
    schema_id: int
    table_id: int
    schema_name: str
    table_name: str
    query: str
    schema_version: int
    finished_ts: int
    db_info: dict[str, Any] | None = field(default=None, repr=False, hash=False)
    table_info: dict[str, Any] | None = field(default=None, repr=False, hash=False)
    table_infos: tuple[dict[str, Any], ...] = field(default=(), repr=False, hash=False)
    raw_args: Any = field(default=None, repr=False, hash=False)
    document: dict[str, Any] = field(default_factory=dict, repr=False, hash=False)

    @property
    def took_effect(self) -> bool:
        """Whether the schema is different because of it; false for jobs rolled back or cancelled."""
        return self.state in (_DONE, _SYNCED) and self.schema_version > 0

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
    def finished_ts(self) -> int:
        return self.history.FinishedTS if self.history else 0

    @property
    def definition(self) -> Any:
        """JSON of its table's definition, a part of the job's bytes; `null` without one."""
        return self.history.TableInfo if self.history else _ABSENT

    @property
    def effective_version(self) -> int:
        """The schema version that it made; 0 if nothing is different because of it."""
        history = self.history
        return history.SchemaVersion if history and (self.state == _SYNCED or self.state == _DONE) else 0


_read_head: Final = msgspec.json.Decoder(JobHead).decode


def head(data: bytes) -> JobHead | None:
    """The head of a job; None for one that has to be read as a whole to be understood, or cannot be."""
    try:
        return _read_head(data)
    except UNREADABLE:
        return None


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


# Definitions in a job -----------------------------------------------------------------------------------


def partition_ids(document: dict[str, Any]) -> set[int]:
    """Of a table's definition."""
    partition = document.get("partition") or {}
    return {int(definition["id"]) for definition in partition.get("definitions") or ()}


def kind_of(document: dict[str, Any]) -> str:
    """`table`, `view` or `sequence`."""
    if document.get("view") is not None:
        return "view"
    return "sequence" if document.get("sequence") is not None else "table"


def required(document: dict[str, Any] | None, job: DdlJob) -> dict[str, Any]:
    """The definition that a job must have. Raises `Corruption`."""
    if document is None:
        raise Corruption(
            f"DDL job {job.id} ({action_name(job.action)}) has no definition of what it changed",
            hint="compare the job with `ADMIN SHOW DDL JOBS` of the upstream",
        )
    return document


# Names in a RENAME statement -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RenamePair:
    """One `old TO new` of a RENAME; a schema is "" where the statement does not name one."""

    old_schema: str
    old_table: str
    new_schema: str
    new_table: str


def _take_name(tokens: list[str], at: int) -> tuple[str, str, int]:
    """(schema or "", name, index behind it); raises IndexError where the tokens end too early."""
    first = tokens[at]
    if at + 2 < len(tokens) and tokens[at + 1] == ".":
        return unquote(first), unquote(tokens[at + 2]), at + 3
    return "", unquote(first), at + 1


def rename_pairs(query: str) -> tuple[RenamePair, ...]:
    """Pairs of `RENAME TABLE a TO b, ...` or `ALTER TABLE a RENAME [TO|AS|=] b`; () for anything else."""
    tokens = [token for token in ddl_text.tokens(query) if token != "="]
    words = [token.upper() for token in tokens]
    pairs: list[RenamePair] = []
    try:
        if words[0] == "RENAME" and words[1] in ("TABLE", "TABLES"):
            at = 2
            while True:
                old_schema, old_table, at = _take_name(tokens, at)
                new_schema, new_table, at = _take_name(tokens, at + 1)  # over TO
                pairs.append(RenamePair(old_schema, old_table, new_schema, new_table))
                if at >= len(tokens) or tokens[at] != ",":
                    return tuple(pairs)
                at += 1
        if words[0] == "ALTER" and words[1] == "TABLE":
            old_schema, old_table, at = _take_name(tokens, 2)
            at = words.index("RENAME", at) + 1
            at += words[at] in ("TO", "AS")
            new_schema, new_table, at = _take_name(tokens, at)
            return (RenamePair(old_schema, old_table, new_schema, new_table),)
    except (IndexError, ValueError):
        pass
    return ()

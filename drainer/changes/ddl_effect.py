"""DDL effect: what one DDL does to databases, tables and columns. Decided here; everybody else asks.

Out    `DdlEffect`: its kind, what it is about, the names and definitions before and after it
Holds  every action has one kind (`KINDS`; all others, those of the future too, alter a table or a database)
Why    the tracker, filters, derivation, the runner, the recycle bin, archives and Spark's programs must
       agree on what becomes of tables and their rows
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum, auto
from typing import Any, Final

from drainer.txn import Tracked
from tidb_binlog.ddl_job import ActionType, DdlJob, action_name
from tidb_binlog.errors import Corruption
from tidb_binlog.late_dataclass import dataclass, field

Name = tuple[str, str]
Names = tuple[Name, ...]

TABLE: Final = "table"
VIEW: Final = "view"
SEQUENCE: Final = "sequence"
_RANGE: Final = 1
_VERSIONS_OF_DROP: Final = 3
"""Of the schema, that TiDB makes of one DROP PARTITION; the last comes with its binlog."""


class EffectKind(Enum):
    """What becomes of the databases and tables that a DDL is about."""

    CREATE_DATABASE = auto()
    ALTER_DATABASE = auto()
    DROP_DATABASE = auto()
    RECOVER_DATABASE = auto()  # it is back, with tables and rows that the binlog does not have
    CREATE = auto()  # empty; a view may take the place of another one
    RESTORE = auto()  # several tables, which a restore fills without row changes
    RECOVER = auto()  # a dropped table is back, with rows that the binlog does not have
    DROP = auto()
    TRUNCATE = auto()  # an empty table with another id takes its place
    RENAME = auto()
    EXCHANGE = auto()  # a table and a partition of another one swap their rows
    REWIND = auto()  # the rows of every table go back in time
    ALTER = auto()  # the definition changes under its name


KINDS: Final[Mapping[int, EffectKind]] = {
    ActionType.CREATE_SCHEMA: EffectKind.CREATE_DATABASE,
    ActionType.MODIFY_SCHEMA_CHARSET_AND_COLLATE: EffectKind.ALTER_DATABASE,
    ActionType.MODIFY_SCHEMA_DEFAULT_PLACEMENT: EffectKind.ALTER_DATABASE,
    ActionType.DROP_SCHEMA: EffectKind.DROP_DATABASE,
    ActionType.RECOVER_SCHEMA: EffectKind.RECOVER_DATABASE,
    ActionType.CREATE_TABLE: EffectKind.CREATE,
    ActionType.CREATE_VIEW: EffectKind.CREATE,
    ActionType.CREATE_SEQUENCE: EffectKind.CREATE,
    ActionType.CREATE_TABLES: EffectKind.RESTORE,
    ActionType.RECOVER_TABLE: EffectKind.RECOVER,
    ActionType.DROP_TABLE: EffectKind.DROP,
    ActionType.DROP_VIEW: EffectKind.DROP,
    ActionType.DROP_SEQUENCE: EffectKind.DROP,
    ActionType.TRUNCATE_TABLE: EffectKind.TRUNCATE,
    ActionType.RENAME_TABLE: EffectKind.RENAME,
    ActionType.RENAME_TABLES: EffectKind.RENAME,
    ActionType.EXCHANGE_TABLE_PARTITION: EffectKind.EXCHANGE,
    ActionType.FLASHBACK_CLUSTER: EffectKind.REWIND,
}
"""Actions that do more than alter what they are about."""
_OBJECTS: Final[Mapping[int, str]] = {
    action: group for action in ActionType for group in (VIEW, SEQUENCE) if group in action.groups
}
_REPLACES: Final = frozenset(
    {
        EffectKind.RECOVER_DATABASE,
        EffectKind.RESTORE,
        EffectKind.RECOVER,
        EffectKind.EXCHANGE,
        EffectKind.REWIND,
    }
)


def effect_kind(action: int) -> EffectKind:
    """What an action does, also one that is not known."""
    return KINDS.get(action, EffectKind.ALTER)


_OF_COLUMNS: Final = frozenset(
    {
        ActionType.ADD_COLUMN,
        ActionType.ADD_COLUMNS,
        ActionType.DROP_COLUMN,
        ActionType.DROP_COLUMNS,
        ActionType.MODIFY_COLUMN,
    }
)


@dataclass(frozen=True, slots=True)
class DdlEffect:
    """What a DDL does. Names are (schema, table) upstream, old and new; ("db", "") is a database.

    `object` is what it is about: TABLE, VIEW or SEQUENCE. `actions`: its own, and those that it consists of.
    `schema` is the database its statement ran in. `renamed` are the (old, new) names of a rename in statement
    order; `inside` the tables that went with a dropped database, as (schema, table, object). `before` and
    `after` are the definitions of the tables that it changed, where they existed.
    """

    kind: EffectKind = EffectKind.ALTER
    object: str = TABLE
    actions: frozenset[int] = frozenset()
    schema: str = ""
    tables: Names = ()
    renamed: tuple[tuple[Name, Name], ...] = ()
    inside: tuple[tuple[str, str, str], ...] = ()
    before: tuple[Tracked, ...] = field(default=(), repr=False)
    after: tuple[Tracked, ...] = field(default=(), repr=False)

    @property
    def takes_rows_away(self) -> bool:
        """Whether the rows of a table are gone afterwards."""
        return self.object == TABLE and self.kind in (EffectKind.DROP, EffectKind.TRUNCATE)

    @property
    def replaces_rows(self) -> bool:
        """Whether rows come or go without row changes, other than all of a table's by DROP or TRUNCATE."""
        return self.kind in _REPLACES or self.empties_partitions or self.drops_partitions

    @property
    def modifies_columns(self) -> bool:
        """Whether columns may have another type, and then another id."""
        return ActionType.MODIFY_COLUMN in self.actions

    @property
    def changes_columns(self) -> bool:
        """Tell whether there are other columns afterwards, of other names or types."""
        return not _OF_COLUMNS.isdisjoint(self.actions)

    @property
    def rebases_auto_id(self) -> bool:
        """Tell whether the next number of AUTO_INCREMENT is another one."""
        return ActionType.REBASE_AUTO_ID in self.actions

    @property
    def empties_partitions(self) -> bool:
        """Tell whether rows of partitions go."""
        return ActionType.TRUNCATE_TABLE_PARTITION in self.actions

    @property
    def drops_partitions(self) -> bool:
        """Tell whether partitions go with their rows."""
        return ActionType.DROP_TABLE_PARTITION in self.actions


def effect(action: int, parts: tuple[int, ...] = ()) -> DdlEffect:
    """Of an action, without names; `parts` are those that it consists of."""
    return DdlEffect(effect_kind(action), _OBJECTS.get(action, TABLE), frozenset((action, *parts)))


def sub_actions(job: Mapping[str, Any] | None) -> tuple[int, ...]:
    """What a multi-schema change consists of."""
    return tuple(int(sub_job.get("type") or 0) for sub_job in _sub_jobs(job))


def early_version(job: Mapping[str, Any] | None, others: Iterable[tuple[int, int]] = ()) -> int:
    """The schema version from which on rows are as they are after the job, whose binlog comes at its end:
    with columns that a multi-schema change adds before it does more, or in the next range, since DROP
    PARTITION takes theirs away first. 0: there are none. `others`: commit_ts and version of other DDL."""
    history = (job or {}).get("binlog") or {}
    partition = (history.get("TableInfo") or {}).get("partition") or {}
    if job and job.get("type") == ActionType.DROP_TABLE_PARTITION and partition.get("type") == _RANGE:
        before = int(history.get("SchemaVersion") or 0) - _VERSIONS_OF_DROP
        # Versions of others may have come between those of its own, of which old releases make less.
        ended = (version for commit_ts, version in others if commit_ts < int(job.get("start_ts") or 0))
        return max(ended, default=before) + 1
    versions = (
        int(sub_job.get("schema_version") or 0)
        for sub_job in _sub_jobs(job)
        if sub_job.get("type") == ActionType.ADD_COLUMN
    )
    return min(filter(None, versions), default=0)


def forces_auto_id(job: Mapping[str, Any] | None) -> bool:
    """Whether the next number of AUTO_INCREMENT may be a lower one."""
    for part in (job or {}, *_sub_jobs(job)):
        match part:
            case {"type": ActionType.REBASE_AUTO_ID, "raw_args": [_, True, *_]}:
                return True
    return False


def columns_apart(job: Mapping[str, Any] | None) -> frozenset[str]:
    """Columns, in lower case, that a multi-schema change adds or drops: none of them became another one."""
    names = []
    for sub_job in _sub_jobs(job):
        match sub_job:
            case {"type": ActionType.ADD_COLUMN, "raw_args": [{"name": {"L": str(name)}}, *_]}:
                names.append(name)
            case {"type": ActionType.DROP_COLUMN, "raw_args": [{"L": str(name)}, *_]}:
                names.append(name)
    return frozenset(names)


def _sub_jobs(job: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    return ((job or {}).get("multi_schema_info") or {}).get("sub_jobs") or []


# Definitions in a job -----------------------------------------------------------------------------------


def partition_ids(document: dict[str, Any]) -> set[int]:
    """Of a table's definition."""
    partition = document.get("partition") or {}
    return {int(definition["id"]) for definition in partition.get("definitions") or ()}


def object_of(document: dict[str, Any]) -> str:
    """TABLE, VIEW or SEQUENCE, by a definition."""
    if document.get("view") is not None:
        return VIEW
    return SEQUENCE if document.get("sequence") is not None else TABLE


def required(document: dict[str, Any] | None, job: DdlJob) -> dict[str, Any]:
    """The definition that a job must have. Raises `Corruption`."""
    if document is None:
        raise Corruption(
            f"DDL job {job.id} ({action_name(job.action)}) has no definition of what it changed",
            hint="compare the job with `ADMIN SHOW DDL JOBS` of the upstream",
        )
    return document

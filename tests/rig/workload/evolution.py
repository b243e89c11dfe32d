"""Evolution: random DDL: which statement comes next, what it does to the definition and to the rows. Pure.

The tables for every kind of key keep their definition; `evolving` and short-lived tables change so that
every value stays (columns are widened, never narrowed). Columns of `recasting` and of the shards get any
other type: their values become what TiDB's cast makes of them. A shard has a DDL before the other one does.

Tests  tests/rig/workload/test_model.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import cycle
from random import Random
from typing import Final

from tests.rig.workload import kinds, recast, tables
from tests.rig.workload.kinds import Kind, Value
from tests.rig.workload.model import Model, Row, TableState, unique_keys
from tests.rig.workload.tables import RECASTING, SHARDS, Table
from tests.rig.workload.values import shown
from tidb_binlog.ddl_job import ActionType

EVOLVING: Final = "evolving"
SHORT_LIVED_MAX: Final = 3
EXTRA_COLUMNS_MAX: Final = 6
EXTRA_INDEXES_MAX: Final = 3

# Columns to add: type, NOT NULL, default as text, and the value that older rows get.
ADDABLE: Final[tuple[tuple[Kind, bool, str | None, Value], ...]] = (
    (kinds.INT, False, None, None),
    (kinds.INT, True, "7", 7),
    (kinds.varchar(20), True, "new", "new"),
    (kinds.varchar(20), False, None, None),
    (kinds.DECIMAL, False, "1.500000", "1.500000"),
    (kinds.DATETIME, False, None, None),
    (kinds.ENUM, False, "big", "big"),
    (kinds.JSON, False, None, None),
    (kinds.VARBINARY, False, None, None),
)
WIDER: Final = {"INT": kinds.BIGINT, "VARCHAR(20)": kinds.varchar(60)}


@dataclass(frozen=True, slots=True)
class Ddl:
    """One statement: what runs, and the definition before and after it (None: there is none)."""

    kind: int
    query: str
    before: Table | None
    after: Table | None
    rewrite: Callable[[Row], Row] | None = None  # None: the table ends up empty


def creation(table: Table) -> Ddl:
    """CREATE TABLE."""
    return Ddl(ActionType.CREATE_TABLE, table.create_sql(), None, table)


ROUND: Final = (
    ActionType.CREATE_TABLE,
    ActionType.ADD_COLUMN,
    ActionType.ADD_INDEX,
    ActionType.MODIFY_COLUMN,
    ActionType.RENAME_INDEX,
    ActionType.RENAME_TABLE,
    ActionType.DROP_INDEX,
    ActionType.TRUNCATE_TABLE,
    ActionType.DROP_COLUMN,
    ActionType.DROP_TABLE,
)
SHARD_FORMS: Final = (*ROUND[1:4], *ROUND[6:9])


class Evolution:
    """Chooses DDL: every kind once in a round, on a random table that allows it.

    Ids for tables come from `ids`, which the whole demo shares.
    """

    def __init__(self, random: Random, model: Model, ids: Iterator[int]) -> None:
        self._random = random
        self._model = model
        self._ids = ids
        self._made = 0
        self._kinds = cycle(ROUND)
        self._kind = ActionType.CREATE_TABLE
        self._turns_to_recast, self._shard_forms = cycle((True, False)), cycle(SHARD_FORMS)

    def choose(self) -> str:
        """Name of the table that the next statement changes, "" when it makes a new one.

        The caller closes that table, waits until it has no open transaction, and then asks for the `plan`.
        """
        if RECASTING in self._model.tables and next(self._turns_to_recast):
            added = sum(column.added for column in self._state(RECASTING).table.columns)
            self._kind = ActionType.MODIFY_COLUMN  # of a column that was added
            if not added or (added < EXTRA_COLUMNS_MAX and self._random.random() < 0.5):
                self._kind = ActionType.ADD_COLUMN
            return RECASTING
        names = [name for name in self._model.tables if name.startswith("temp_")]
        self._kind = next(self._kinds)
        if self._kind == ActionType.CREATE_TABLE:
            if len(names) < SHORT_LIVED_MAX:
                return ""
            self._kind = next(self._kinds)
        if self._kind in (ActionType.RENAME_TABLE, ActionType.DROP_TABLE):
            return self._random.choice(names) if names else ""  # where those that were to come were refused
        able = [name for name in (*names, EVOLVING) if self._form(name) is not None]
        return self._random.choice(able or [EVOLVING])

    def plan(self, name: str) -> Ddl:
        """A statement for the table as it is now."""
        if not name:
            return self._create()
        return self._form(name) or self._truncate(name)

    def of_shards(self) -> Iterator[Ddl]:
        """A statement for one of the two, then for the other one, unless it takes rows away."""
        self._kind = next(self._shard_forms)
        name, other = self._random.sample(SHARDS, 2)
        ddl = self._form(name) or self._truncate(name)
        yield ddl
        if ddl.after is not None and ddl.kind != ActionType.TRUNCATE_TABLE:
            before = self._state(other).table
            query = ddl.query.replace(f"`{name}`", f"`{other}`")
            yield replace(ddl, query=query, before=before, after=replace(ddl.after, id=before.id, name=other))

    def gained_and_lost(self, name: str) -> tuple[tuple[Ddl, Ddl], Ddl]:
        """Statements that empty a table and give it a unique key, and the one that drops that key."""
        empty = self._truncate(name)
        assert empty.after is not None
        key = f"u{empty.after.max_index_id + 1}"
        keyed = empty.after.with_index(key, (("code", -1),), unique=True)
        gain = Ddl(
            ActionType.ADD_INDEX,
            f"ALTER TABLE `{name}` ADD UNIQUE INDEX `{key}` (`code`)",
            empty.after,
            keyed,
            lambda row: row,
        )
        query = f"ALTER TABLE `{name}` DROP INDEX `{key}`"
        lose = Ddl(ActionType.DROP_INDEX, query, keyed, keyed.without_index(key), lambda row: row)
        return (empty, gain), lose

    def _form(self, name: str) -> Ddl | None:
        """The statement of the kind whose turn it is, None if this table does not allow it."""
        table = self._state(name).table
        match self._kind:
            case ActionType.ADD_COLUMN:
                return self._add_column(table)
            case ActionType.ADD_INDEX:
                return self._add_index(table)
            case ActionType.MODIFY_COLUMN:
                return self._modify(table, lossy=name in (RECASTING, *SHARDS))
            case ActionType.DROP_INDEX:
                return self._drop_index(table)
            case ActionType.DROP_COLUMN:
                return self._drop_column(table)
            case ActionType.RENAME_INDEX:
                return self._rename_index(table)
            case ActionType.RENAME_TABLE:
                return self._rename(table)
            case ActionType.DROP_TABLE:
                return Ddl(ActionType.DROP_TABLE, f"DROP TABLE `{name}`", table, None)
            case _:
                return self._truncate(name)

    def _state(self, name: str) -> TableState:
        return self._model.tables[name]

    def _create(self) -> Ddl:
        self._made += 1
        name, table_id = f"temp_{self._made}", next(self._ids)
        columns = (("id", kinds.INT), ("a", kinds.INT), ("b", kinds.varchar(20)))
        if self._random.random() < 0.3:
            table = tables.new_table(table_id, self._model.schema, name, columns[1:])
        else:
            table = tables.new_table(
                table_id, self._model.schema, name, columns, primary=("id",), storage=tables.HANDLE
            )
        return creation(table)

    def _rename(self, table: Table) -> Ddl:
        self._made += 1
        after = replace(table, name=f"temp_{self._made}")
        text = self._random.choice(
            (
                f"RENAME TABLE `{table.name}` TO `{after.name}`",
                f"ALTER TABLE `{table.name}` RENAME `{after.name}`",
            )
        )
        return Ddl(ActionType.RENAME_TABLE, text, table, after, lambda row: row)

    def _truncate(self, name: str) -> Ddl:
        table = self._state(name).table
        return Ddl(
            ActionType.TRUNCATE_TABLE,
            f"TRUNCATE TABLE `{name}`",
            table,
            replace(table, id=next(self._ids)),
            None,
        )

    def _add_column(self, table: Table) -> Ddl | None:
        if sum(column.added for column in table.columns) >= EXTRA_COLUMNS_MAX:
            return None
        kind, not_null, default, value = self._random.choice(ADDABLE)
        name = f"x{table.max_column_id + 1}"
        after = self._random.choice(["", *table.column_names])
        changed = table.with_column(name, kind, not_null=not_null, default=default, after=after)
        at = changed.position(name)
        place = f"AFTER `{after}`" if after else "FIRST"
        query = f"ALTER TABLE `{table.name}` ADD COLUMN {changed.columns[at].definition()} {place}"
        return Ddl(ActionType.ADD_COLUMN, query, table, changed, lambda row: (*row[:at], value, *row[at:]))

    def _drop_column(self, table: Table) -> Ddl | None:
        indexed = {name for index in table.indexes for name, _ in index.parts}
        candidates = [c.name for c in table.columns if c.added and c.name not in indexed]
        if not candidates:
            return None
        name = self._random.choice(candidates)
        at = table.position(name)
        query = f"ALTER TABLE `{table.name}` DROP COLUMN `{name}`"
        return Ddl(
            ActionType.DROP_COLUMN,
            query,
            table,
            table.without_column(name),
            lambda row: (*row[:at], *row[at + 1 :]),
        )

    def _modify(self, table: Table, *, lossy: bool) -> Ddl | None:
        indexed = {name for index in table.indexes for name, _ in index.parts}
        plain = [c for c in table.columns if c.kind.sql in WIDER and c.name not in table.primary]
        candidates = [c for c in table.columns if c.added] if lossy else plain
        if not candidates:
            return None
        old = self._random.choice(candidates)
        at, kinds_then = table.position(old.name), recast.targets(old.kind, indexed=old.name in indexed)
        kind = self._random.choice(kinds_then) if lossy else WIDER[old.kind.sql]
        changed = table.with_kind(old.name, kind, anew=lossy)

        def rewrite(row: Row) -> Row:
            value = recast.value_of(kind, recast.recast(old.kind, kind, shown(old.kind, row[at])))
            return (*row[:at], value, *row[at + 1 :])

        query = f"ALTER TABLE `{table.name}` MODIFY COLUMN {changed.columns[at].definition()}"
        return Ddl(ActionType.MODIFY_COLUMN, query, table, changed, rewrite)

    def _add_index(self, table: Table) -> Ddl | None:
        if len(table.indexes) >= EXTRA_INDEXES_MAX:
            return None
        candidates = [c.name for c in table.columns if c.kind.repr in ("int", "dec") or "CHAR(" in c.kind.sql]
        if not candidates:
            return None
        column = self._random.choice(candidates)
        name = f"k{table.max_index_id + 1}"
        # A key of both shards has the one that is unique already: no row of the other can break it.
        names = (*table.primary, column) if table.name in SHARDS else (column,)
        parts = tuple((each, -1) for each in dict.fromkeys(names))
        keyed = table.with_index(name, parts, unique=True)
        unique = (
            table.name != RECASTING and self._random.random() < 0.5 and self._is_unique(table.name, keyed)
        )
        changed = table.with_index(name, parts, unique=unique)
        word = "UNIQUE INDEX" if unique else "INDEX"
        listed = ", ".join(f"`{each}`" for each, _ in parts)
        query = f"ALTER TABLE `{table.name}` ADD {word} `{name}` ({listed})"
        return Ddl(ActionType.ADD_INDEX, query, table, changed, lambda row: row)

    def _rename_index(self, table: Table) -> Ddl | None:
        name = self._own_index(table)
        if not name:
            return None
        indexes = (replace(each, name=f"{name}r") if each.name == name else each for each in table.indexes)
        query = f"ALTER TABLE `{table.name}` RENAME INDEX `{name}` TO `{name}r`"
        changed = replace(table, indexes=tuple(indexes))
        return Ddl(ActionType.RENAME_INDEX, query, table, changed, lambda row: row)

    def _own_index(self, table: Table) -> str:
        names = [index.name for index in table.indexes if index.name.startswith("k")]
        return self._random.choice(names) if names else ""

    def _drop_index(self, table: Table) -> Ddl | None:
        name = self._own_index(table)
        if not name:
            return None
        query = f"ALTER TABLE `{table.name}` DROP INDEX `{name}`"
        return Ddl(ActionType.DROP_INDEX, query, table, table.without_index(name), lambda row: row)

    def _is_unique(self, name: str, wanted: Table) -> bool:
        keys = [key for row in self._state(name).rows.values() for key in unique_keys(wanted, row)]
        return len(keys) == len(set(keys))


def apply(model: Model, ddl: Ddl) -> None:
    """Make the model's tables what they are after the statement; the table has no open transaction."""
    if ddl.before is None:
        assert ddl.after is not None
        model.add(ddl.after)
    elif ddl.after is None:
        model.drop(ddl.before.name)
    else:
        if ddl.after.name != ddl.before.name:
            model.rename(ddl.before.name, ddl.after)
        model.tables[ddl.after.name].become(ddl.after, ddl.rewrite)

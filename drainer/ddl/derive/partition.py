"""Partition: partitions of a table brought from one tracked definition to the next.

Out    steps; where the downstream has no partitions, statements that do to the rows what the job did
Why    a downstream that could not partition the table still has to lose the rows of a dropped partition,
       and to swap those of an exchanged one; so has one whose partition of that name holds other rows
Never  guesses which rows a KEY partition holds: `NotDerivable`
Tests  tests/drainer/ddl/derive/test_derive.py
"""

from __future__ import annotations

from drainer.ddl.derive.compare import same_partitions
from drainer.ddl.derive.definition import Column, Definition, Partition, Partitioning
from drainer.ddl.derive.render import NotDerivable, name_of, partition_by, partition_clause, partition_list
from drainer.ddl.derive.values import Alteration, Derived, Step, of, step
from drainer.mysql.rows.dialect import Dialect
from tidb_binlog.table_info import PARTITION_HASH, PARTITION_LIST, PARTITION_RANGE


def alter_partitions(change: Alteration, *, emptied: bool, dropped: bool) -> Derived:
    """`emptied`: the job truncated the partitions that have new ids; `dropped`: rows went with partitions."""
    before = change.before.partitioning if change.before else None
    after = change.after.partitioning
    if before == after:
        return Derived()
    table = name_of(*change.table)
    if after is None:
        return of([step(f"ALTER TABLE {table} REMOVE PARTITIONING")] if change.present.partitions else [])
    if before is None:
        whole = f"ALTER TABLE {table} {partition_clause(after)}"
        return of([] if same_partitions(after, change.present) else [step(whole, lacks="partitions")])
    steps: list[Step] = []
    if emptied:
        steps += _rows_of(change, _emptied(before, after), "TRUNCATE PARTITION")
    gone = tuple(partition for partition in before.partitions if partition.name not in names(after))
    if gone and dropped:
        steps += _rows_of(change, gone, "DROP PARTITION")
    if change.present.partitions:
        steps += _layout(change, before, after, gone if dropped and holds_same_rows(change) else ())
    return of(steps)


def holds_same_rows(change: Alteration) -> bool:
    """Whether each partition downstream has the rows that the one of its name had upstream.

    All hash numbers as signed ones. NULL is 0 to TiDB, and the least number to servers of MySQL's kind. What
    they make of KEY has nothing in common.
    """
    before = change.before
    partitioning = before.partitioning if before else None
    if before is None or partitioning is None or not same_partitions(partitioning, change.present):
        return False
    if change.server.dialect is Dialect.TIDB or partitioning.kind in (PARTITION_RANGE, PARTITION_LIST):
        return True
    column = before.column(partitioning.expression.strip("`"))
    return partitioning.kind == PARTITION_HASH and column is not None and not column.nullable


def names(partitioning: Partitioning) -> tuple[str, ...]:
    return tuple(partition.name for partition in partitioning.partitions)


def _emptied(before: Partitioning, after: Partitioning) -> tuple[Partition, ...]:
    old = {partition.name: partition for partition in before.partitions}
    return tuple(
        partition
        for partition in after.partitions
        if partition.name in old and partition.id != old[partition.name].id
    )


def _rows_of(change: Alteration, gone: tuple[Partition, ...], verb: str) -> list[Step]:
    """Take the rows of some partitions away, by the partition or by what it says."""
    assert change.before is not None
    table = name_of(*change.table)
    if gone and holds_same_rows(change):
        which = ",".join(name_of(partition.name) for partition in gone)
        return [step(f"ALTER TABLE {table} {verb} {which}")]
    conditions = [condition_of(change.before, partition) for partition in gone]
    return (
        [step(f"DELETE FROM {table} WHERE {' OR '.join(f'({text})' for text in conditions)}")] if gone else []
    )


def _layout(
    change: Alteration, before: Partitioning, after: Partitioning, dropped: tuple[Partition, ...]
) -> list[Step]:
    """ADD PARTITION where only some were added after the last; else everything anew."""
    table, names_after = name_of(*change.table), names(after)
    left = {partition.name for partition in dropped}
    have = tuple(name for name in change.present.partitions if name not in left)
    other = partition_by(before) != partition_by(after)
    moved = names(before) == names_after and (other or _bounds(before) != _bounds(after))
    if have == names_after and (not moved or same_partitions(after, change.present)):
        return []
    if not other and after.kind in (PARTITION_RANGE, PARTITION_LIST) and names_after[: len(have)] == have:
        old = {partition.name: partition for partition in before.partitions}
        kept = after.partitions[: len(have)]
        if all(
            partition.name in old and _says(old[partition.name]) == _says(partition) for partition in kept
        ):
            added = partition_list(after, after.partitions[len(have) :])
            return [step(f"ALTER TABLE {table} ADD PARTITION ({added})")]
    anew = step(f"ALTER TABLE {table} {partition_clause(after)}")
    gone, new = _between(before.partitions, after.partitions)
    ordered = not other and after.kind in (PARTITION_RANGE, PARTITION_LIST)
    if not ordered or have != names(before) or not (gone and new):
        return [anew]
    which = ",".join(name_of(partition.name) for partition in gone)
    text = f"ALTER TABLE {table} REORGANIZE PARTITION {which} INTO ({partition_list(after, new)})"
    return [Step((text,), instead=(anew,))]


def _between(
    before: tuple[Partition, ...], after: tuple[Partition, ...]
) -> tuple[tuple[Partition, ...], tuple[Partition, ...]]:
    """Both without the partitions at either end that are alike: those keep their rows."""
    while before and after and _alike(before[0], after[0]):
        before, after = before[1:], after[1:]
    # The last ones are alike only from where those before them end.
    while before and after and _alike(before[-1], after[-1]) and _end(before[:-1]) == _end(after[:-1]):
        before, after = before[:-1], after[:-1]
    return before, after


def _alike(left: Partition, right: Partition) -> bool:
    return (left.name, _says(left)) == (right.name, _says(right))


def _end(partitions: tuple[Partition, ...]) -> tuple[str, ...]:
    return partitions[-1].less_than if partitions else ()


def _says(partition: Partition) -> tuple[object, ...]:
    return partition.less_than, partition.values


def _bounds(partitioning: Partitioning) -> list[tuple[object, ...]]:
    return [_says(partition) for partition in partitioning.partitions]


# Rows of a partition -------------------------------------------------------------------------------------


def condition_of(definition: Definition, partition: Partition) -> str:
    """The condition that holds for the rows of a partition; raises `NotDerivable` for KEY partitions."""
    partitioning = definition.partitioning
    if partitioning is None:
        raise NotDerivable("the table had no partitions")
    by = partitioning.expression or ",".join(map(name_of, partitioning.columns))
    number = [part.name for part in partitioning.partitions].index(partition.name)
    if partitioning.kind == PARTITION_HASH:
        return f"IFNULL(ABS(MOD(CAST(({by}) AS SIGNED),{len(partitioning.partitions)})),0)={number}"
    if len(partitioning.columns) > 1 or partitioning.kind not in (PARTITION_RANGE, PARTITION_LIST):
        raise NotDerivable(f"which rows belong to partition {partition.name} cannot be said in a condition")
    if partitioning.kind == PARTITION_RANGE:
        return _range(by, partitioning.partitions, number)
    if partition.values in ((), (("DEFAULT",),)):
        raise NotDerivable(f"which rows belong to the default partition {partition.name} cannot be said")
    values = [bounds[0] for bounds in partition.values]
    plain = ",".join(value for value in values if value.upper() != "NULL")
    texts = [f"({by}) IN ({plain})"] if plain else []
    if any(value.upper() == "NULL" for value in values):
        texts.append(f"({by}) IS NULL")
    return " OR ".join(texts)


def _range(by: str, partitions: tuple[Partition, ...], number: int) -> str:
    texts = []
    if number:
        texts.append(f"({by})>={partitions[number - 1].less_than[0]}")
    limit = partitions[number].less_than[0]
    if limit.upper() != "MAXVALUE":
        texts.append(f"({by})<{limit}")
    text = " AND ".join(texts) or "TRUE"
    return text if number else f"({text}) OR ({by}) IS NULL"


# Exchange ------------------------------------------------------------------------------------------------


def exchange(partitioned: Alteration, plain: tuple[str, str], columns: tuple[Column, ...]) -> Step:
    """Swap the rows of a partition and a table: as one DDL, else row by row in one transaction."""
    before, after = partitioned.before, partitioned.after
    old = before.partitioning if before else None
    if old is None or after.partitioning is None:
        raise NotDerivable("the definition of the partitioned table before the exchange is not known")
    ids = {partition.name: partition.id for partition in after.partitioning.partitions}
    swapped = [partition for partition in old.partitions if ids.get(partition.name) != partition.id]
    if len(swapped) != 1 or before is None:
        raise NotDerivable("it is not known which partition was exchanged")
    table, other, spare = name_of(*partitioned.table), name_of(*plain), name_of(plain[0], _spare_name(after))
    rows: Step | None
    as_ddl = holds_same_rows(partitioned)
    try:
        where = condition_of(before, swapped[0])
        listed = ",".join(name_of(column.name) for column in columns if not column.generated)
        rows = step(
            f"CREATE TEMPORARY TABLE {spare} AS SELECT {listed} FROM {other}",
            f"DELETE FROM {other}",
            f"INSERT INTO {other} ({listed}) SELECT {listed} FROM {table} WHERE {where}",
            f"DELETE FROM {table} WHERE {where}",
            f"INSERT INTO {table} ({listed}) SELECT {listed} FROM {spare}",
            f"DROP TEMPORARY TABLE {spare}",
        )
    except NotDerivable:
        if not as_ddl:
            raise
        rows = None
    if not as_ddl:
        assert rows is not None
        return rows
    ddl = f"ALTER TABLE {table} EXCHANGE PARTITION {name_of(swapped[0].name)} WITH TABLE {other}"
    if (
        partitioned.server.dialect is Dialect.TIDB
    ):  # it has the rows where the upstream has them, and no CREATE AS
        return Step((ddl,), instead=(step(f"{ddl} WITHOUT VALIDATION"),))
    return Step((ddl,), instead=(rows,) if rows else ())


def _spare_name(definition: Definition) -> str:
    return f"tidb_binlog_exchange_{definition.id}"

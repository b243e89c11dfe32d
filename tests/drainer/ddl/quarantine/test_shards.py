"""Shards: several tables upstream that are one downstream, and DDL of one of them."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import pytest

from drainer.config.options import BESIDE_ROWS
from drainer.ddl.quarantine.entry import SHARED, Entry, Floor
from drainer.ddl.quarantine.queue_state import QueueState
from drainer.ddl.quarantine.shards import Shards, changes_of, holds, other_fates, unfit
from drainer.ddl.quarantine.waiting_tables import Quarantine
from drainer.ddl.rules import REWRITE, SKIP
from drainer.mysql.connection import Target
from drainer.mysql.rows.change import Position
from drainer.sink.mysql.mysql_sink import MysqlSink
from drainer.stream.rules.rule_set import Rules
from drainer.txn import INSERT, Ddl, TableEvents, TableVersion, Tracked, Transaction
from tests.crash.small_run import Statement
from tests.drainer.ddl.quarantine.shards import (
    ADD_E,
    BEGIN,
    COLUMNS,
    DATABASE,
    DROP_C,
    MERGES,
    N1,
    REQUIRED,
    ROUTES,
    T1,
    T2,
    W1,
    W2,
    C,
    create,
    statement,
    table,
    typed,
)
from tests.drainer.support.apply_life import Life, Recording, column, run
from tests.drainer.support.made_recording import inserts, recording
from tests.drainer.support.waiting_life import Document
from tidb_binlog.ddl_job import ActionType
from tidb_binlog.table_info import (
    DATE,
    DATETIME,
    DECIMAL,
    DOUBLE,
    ENUM,
    FLAG_NOT_NULL,
    FLAG_UNSIGNED,
    FLOAT,
    LONG,
    LONGLONG,
    STRING,
    VARCHAR,
    Column,
    FieldType,
    Index,
    IndexColumn,
    TableInfo,
)

# -- what fits -----------------------------------------------------------------------------------------

D = typed("d", VARCHAR)
ADDED = replace(C, default="7", origin_default="7")
ZERO = replace(C, type=replace(C.type, flag=FLAG_NOT_NULL))

UNIQUE = Index(1, "u", (IndexColumn("v", 1),), unique=True, primary=False)


@pytest.mark.parametrize(
    ("before", "after", "other", "says"),
    [
        ((C,), (replace(C, default="x"),), (typed("c", VARCHAR, flen=99),), "has column c of another type"),
        ((C,), (replace(C, default="x"),), (C,), ""),
        ((C,), (replace(C, generated="`v`"),), (C,), "writes column c, which is generated"),
        ((C, D), (replace(D, id=3, name="d"), replace(C, id=4, name="c")), (C, D), "has both column c and d"),
        ((), (ADDED,), (ADDED,), ""),
        ((), (ADDED,), (replace(ADDED, origin_default=None),), ""),
        ((), (ADDED,), (replace(ADDED, default="8"),), "has column c with another default"),
        ((), (ADDED,), (replace(ADDED, origin_default="8"),), "has column c with another default"),
        ((), (ADDED,), (replace(ADDED, default=None, origin_default=None),), "with another default"),
        (
            (),
            (replace(ADDED, origin_default="2026-01-01 00:00:00", default="CURRENT_TIMESTAMP"),),
            (replace(ADDED, origin_default="2026-01-02 00:00:00", default="CURRENT_TIMESTAMP"),),
            "another default",
        ),
        ((), (ZERO,), (ZERO,), ""),
        ((), (replace(ZERO, origin_default="0"),), (ZERO,), ""),
        ((), (replace(ZERO, default="7", origin_default="7"),), (ZERO,), "with another default"),
        ((), (replace(C, origin_default="7"),), (C,), "with another default"),
        ((C,), (), (C,), "d.t2 still has column c"),
        ((C,), (), (), ""),
        ((), (C,), (), ""),
        ((), (replace(C, type=replace(C.type, flag=REQUIRED)),), (), "has no column c, which is NOT NULL"),
        ((), (replace(C, type=replace(C.type, flag=FLAG_NOT_NULL)),), (), ""),
        ((C,), (replace(C, name="d"),), (C,), "still has column c"),
        ((C,), (replace(C, name="d"),), (replace(C, name="D"),), ""),
        ((C,), (replace(C, type=replace(C.type, flag=FLAG_NOT_NULL)),), (C,), "has column c with NULL"),
        ((C,), (typed("c", VARCHAR, flen=10),), (C,), "has column c of another type"),
        ((C,), (typed("c", VARCHAR, flen=100),), (C,), ""),
        ((C,), (typed("c", LONG),), (C,), "has column c of another type"),
        ((C,), (C,), (typed("c", LONG),), ""),
    ],
)
def test_what_a_ddl_takes_away_from_another_table(
    before: tuple[Column, ...], after: tuple[Column, ...], other: tuple[Column, ...], says: str
) -> None:
    ddl = Ddl(
        5, 5, 5, "d", "", (("d", "t1"),), 5,
        before=(Tracked("d", "t1", table(1, *before).to_json()),),
        after=(Tracked("d", "t1", table(1, *after).to_json()),),
    )  # fmt: skip
    assert says in "; ".join(unfit(changes_of(ddl), Tracked("d", "t2", table(2, *other).to_json())))
    assert bool(says) is bool(list(unfit(changes_of(ddl), Tracked("d", "t2", table(2, *other).to_json()))))


def altered(number: int, before: tuple[Column, ...], after: tuple[Column, ...], **fields: Any) -> Ddl:
    return replace(shard_ddl(number, table(number, *before), table(number, *after)), **fields)


def test_which_columns_a_ddl_converts_and_which_table_it_was() -> None:
    number = typed("c", LONG)
    for before, after, expected in (
        ((C,), (number,), {"c"}), ((C,), (C,), set()), ((C,), (replace(number, name="x"),), set()),
        ((C,), (C, typed("n", LONG)), set()), ((), (C,), set()),
    ):  # fmt: skip
        (change,) = changes_of(altered(1, before, after))
        assert change.converted == expected
    changed = altered(1, (), (number,))
    other = Tracked("d", "t2", table(2, C).to_json())
    assert list(unfit(changes_of(changed), other))
    assert not list(unfit(changes_of(changed), other, {"c"}))
    both = tuple(Tracked("d", one.name, one.to_json()) for one in (table(2), table(1, C)))
    for now in (replace(table(1), name="t9"), replace(table(1), id=99)):  # renamed, truncated
        ddl = replace(changed, before=both, after=(Tracked("d", now.name, now.to_json()),))
        (change,) = changes_of(ddl)
        assert change.before is not None
        assert "c" in change.before.by_name


def test_a_new_unique_key_waits_for_those_that_do_not_have_it() -> None:
    ddl = Ddl(
        5, 5, 7, "d", "", (("d", "t1"),), 5,
        before=(Tracked("d", "t1", table(1).to_json()),),
        after=(Tracked("d", "t1", table(1, indexes=(UNIQUE,)).to_json()),),
    )  # fmt: skip
    assert list(unfit(changes_of(ddl), Tracked("d", "t2", table(2).to_json()))) == [
        "d.t2 has no unique key (v)"
    ]
    assert not list(unfit(changes_of(ddl), Tracked("d", "t2", table(2, indexes=(UNIQUE,)).to_json())))


def test_a_check_and_partitions_wait_for_those_that_do_not_have_them() -> None:
    plain = table(1).to_json()
    checked = {**plain, "constraint_info": [{"constraint_name": {"O": "k"}, "expr_string": "`v` > 0"}]}
    of = {"name": {"O": "p", "L": "p"}, "id": 9, "less_than": ["9"]}
    parted = {**plain, "partition": {"type": 1, "expr": "`id`", "enable": True, "definitions": [of]}}
    for after, says in ((checked, "d.t2 has no check `v` > 0"), (parted, "d.t2 has no partitions")):
        ddl = Ddl(
            5, 5, 7, "d", "", (("d", "t1"),), 5,
            before=(Tracked("d", "t1", plain),), after=(Tracked("d", "t1", after),),
        )  # fmt: skip
        assert list(unfit(changes_of(ddl), Tracked("d", "t2", table(2).to_json()))) == [says]
        assert not list(unfit(changes_of(ddl), Tracked("d", "t2", after)))


def test_a_column_that_stays_is_not_looked_at_unless_it_moves() -> None:
    wide = replace(
        table(2, C), columns=(COLUMNS[0], typed("c", VARCHAR), replace(typed("v", LONGLONG), id=2))
    )
    before, key = table(1, C), replace(table(1, C), indexes=(replace(UNIQUE, unique=False),))
    ddl = Ddl(
        5, 5, 7, "d", "", (("d", "t1"),), 5,
        before=(Tracked("d", "t1", before.to_json()),), after=(Tracked("d", "t1", key.to_json()),),
    )  # fmt: skip
    in_order = replace(wide, columns=(COLUMNS[0], replace(wide.columns[2], offset=1), replace(C, offset=2)))
    assert not list(unfit(changes_of(ddl), Tracked("d", "t2", in_order.to_json())))
    moved = replace(wide, columns=tuple(replace(one, offset=at) for at, one in enumerate(wide.columns)))
    other = Tracked("d", "t2", moved.to_json())
    assert not list(unfit(changes_of(ddl), other))
    longer = replace(ddl, after=(Tracked("d", "t1", table(1, C, typed("n", LONG)).to_json()),))
    assert not list(unfit(changes_of(longer), Tracked("d", "t2", in_order.to_json())))
    assert list(unfit(changes_of(longer), other)) == ["d.t2 has column v of another type"]


def test_a_column_goes_for_all_or_has_one_new_name() -> None:
    def ddl(number: int, *after: Column) -> Ddl:
        return Ddl(
            number, number, 5, "d", "", (("d", f"t{number}"),), 5,
            before=(Tracked("d", f"t{number}", table(number, C).to_json()),),
            after=(Tracked("d", f"t{number}", table(number, *after).to_json()),),
        )  # fmt: skip

    drop, rename, again = (), (replace(C, name="x"),), (replace(C, name="y"),)
    for one, other, alike in (
        (drop, drop, True), (rename, rename, True), (drop, rename, False), (rename, drop, False),
        (rename, again, False), (drop, (C,), False), ((C,), drop, True),
    ):  # fmt: skip
        found = list(other_fates(changes_of(ddl(1, *one)), ddl(2, *other)))
        assert bool(found) is not alike


def test_which_types_hold_others() -> None:
    decimals = [FieldType(DECIMAL, flen=size, decimal=of) for size in (1, 2, 3) for of in range(size + 1)]
    values = {one: {Fraction(n, 10**one.decimal) for n in range(10**one.flen)} for one in decimals}
    for wide, narrow in product(decimals, repeat=2):
        assert holds(wide, narrow) is (values[narrow] <= values[wide])
    for one, other in product(range(4), repeat=2):
        assert holds(FieldType(DATETIME, decimal=one), FieldType(DATETIME, decimal=other)) is (one >= other)
        enums = (FieldType(ENUM, elems=tuple("abc"[:size])) for size in (one, other))
        assert holds(*enums) is (one >= other)
    assert not holds(FieldType(ENUM, elems=("a", "b")), FieldType(ENUM, elems=("b",)))
    assert holds(FieldType(DATE), FieldType(DATE))
    assert not holds(FieldType(DOUBLE), FieldType(FLOAT)), "0.1 is another number"
    fixed = {"charset": "binary", "collate": "binary"}
    assert not holds(FieldType(STRING, flen=9, **fixed), FieldType(STRING, flen=8, **fixed)), "padded with 0"
    assert holds(FieldType(STRING, flen=9), FieldType(STRING, flen=8))
    assert holds(FieldType(LONGLONG), FieldType(LONG))
    assert not holds(FieldType(LONG), FieldType(LONGLONG))
    assert not holds(FieldType(LONGLONG, FLAG_UNSIGNED), FieldType(LONG))
    assert not holds(FieldType(VARCHAR, flen=9, charset="latin1"), FieldType(VARCHAR, flen=9))


def shard_ddl(number: int, before: TableInfo, after: TableInfo) -> Ddl:
    name = before.name
    return Ddl(
        number, number, ActionType.MODIFY_COLUMN, "d", "", (("d", name),), number,
        before=(Tracked("d", name, before.to_json()),), after=(Tracked("d", name, after.to_json()),),
        shared=(Tracked("d", "other", before.to_json()),), apart=True,
    )  # fmt: skip


def test_nothing_is_said_before_the_stream_is_where_it_was() -> None:
    """A table may be gone and come again with the column until then, and its rows are downstream."""
    quarantine = Quarantine((), highest_ts=9)
    shards, ddl = Shards(quarantine, lambda names: ()), shard_ddl(5, table(1, C), table(1))
    assert "has yet to come to where it was" in shards.in_the_way(ddl)
    quarantine.saw(9)
    assert shards.in_the_way(ddl) == ""


def test_a_ddl_of_another_one_that_waits_comes_before_what_that_one_is_now() -> None:
    """Values that become numbers first and then others are not what they become at once."""
    number, text, later = (table(2, typed("c", tp)) for tp in (LONG, VARCHAR, DOUBLE))
    quarantine = Quarantine()
    waits = shard_ddl(5, text, number)
    quarantine.begin(Entry(5, 5, Floor(4, 1), {("d", "t2"): 5}, Position(4), "", "refused"), waits)
    shards = Shards(quarantine, lambda names: (Tracked("d", "t2", later.to_json()),))
    ddl = shard_ddl(7, table(1, typed("c", VARCHAR)), table(1, typed("c", DOUBLE)))
    assert "d.t2 has column c of another type" in shards.in_the_way(ddl)
    (queue,) = quarantine.queues
    quarantine.advance(queue, Position(5))
    assert shards.in_the_way(ddl) == ""


def test_what_waits_for_others_is_looked_at_again_but_where_rows_were_refused() -> None:
    quarantine = Quarantine()
    waits = shard_ddl(5, table(2, C), table(2))
    entry = Entry(5, 5, Floor(4, 1), {("d", "t2"): 5}, Position(4), "", f"{SHARED} d.t1 still has column c")
    queue = quarantine.begin(entry, waits)
    queue.state = QueueState.HALTED
    quarantine.shards_changed()
    assert not queue.wants_pause, "nothing is tried until an operator decides"
    queue.state = QueueState.WAITING
    quarantine.shards_changed()
    assert queue.wants_pause
    for ddl, wants in ((shard_ddl(6, T1, N1), True), (Ddl(7, 7, 5, "d", "", (("d", "x"),), 7), False)):
        queue.wants_pause = False
        quarantine.classify(ddl)
        assert queue.wants_pause is wants
    later = Quarantine((entry,), highest_ts=9)
    for ts, wants in ((8, False), (9, True), (10, False)):  # where a start comes to what is new, once
        later.queues[0].wants_pause = False
        later.saw(ts)
        assert (later.queues[0].wants_pause, later.seen_ts) == (wants, ts)


def test_rows_count_that_wait_though_another_table_of_their_queue_is_further() -> None:
    behind, further = (
        Entry(number, 5, Floor(4, 1), {("d", f"t{number}"): 5}, Position(at_ts), "", "refused")
        for number, at_ts in ((2, 6), (3, 9))
    )
    quarantine = Quarantine((further, behind))
    version = TableVersion(table(2, C), "d", "t2", 1, ("d", "t1"))
    quarantine.divert(Transaction(7, 8, (TableEvents(version, [INSERT], [b"row"], 0),), 1))
    quarantine.classify(Ddl(9, 9, 5, "d", "", (("d", "t2"), ("d", "t3")), 9))
    (queue,) = quarantine.queues
    shards = Shards(quarantine, lambda names: (Tracked("d", "t2", table(2).to_json()),))
    ddl = shard_ddl(10, table(1, C), table(1))
    assert "d.t2 still has column c" in shards.in_the_way(ddl)
    key = replace(ddl, after=(Tracked("d", "t1", table(1, C, indexes=(UNIQUE,)).to_json()),))
    with_key = table(2, C, indexes=(UNIQUE,)).to_json()
    keyed = Shards(quarantine, lambda names: (Tracked("d", "t2", with_key),))
    assert keyed.in_the_way(key) == "", "they would be refused, and are not lost"
    quarantine.advance(queue, Position(8))
    assert shards.in_the_way(ddl) == ""


def test_of_many_tables_some_are_named() -> None:
    others = tuple(Tracked("d", f"t{number}", table(number, C).to_json()) for number in range(2, 30))
    drop = altered(1, (C,), ())
    said = Shards(Quarantine(), lambda names: others).in_the_way(drop)
    assert said.endswith("; and 18 more")
    assert "more" not in Shards(Quarantine(), lambda names: others[:10]).in_the_way(drop)
    for of in ({"shared": ()}, {"skip": "a rule"}, {"refused": "a key"}):
        assert Shards(Quarantine(), lambda names: others).in_the_way(replace(drop, **of)) == ""
    key = replace(drop, after=(Tracked("d", "t1", table(1, C, indexes=(UNIQUE,)).to_json()),))
    assert "d.t29 has no unique key" in Shards(Quarantine(), lambda names: others[-1:]).in_the_way(key)


def test_a_ddl_of_another_table_that_waits_is_in_the_way_of_what_makes_something_else_of_the_target() -> None:
    rename, drop = altered(2, (C,), (replace(C, name="x"),)), altered(2, (C,), ())
    number, alone = typed("c", LONG), Tracked("d", "alone", table(9).to_json())
    others = tuple(Tracked("d", f"t{name}", table(name).to_json()) for name in (2, 3))
    with_c = tuple(Tracked("d", f"t{name}", table(name, number).to_json()) for name in (2, 3))
    for waits, ddl, says in (
        (rename, altered(1, (C,), ()), "DDL job 2, which waits, makes something else of column c"),
        (replace(rename, before=(*rename.before, alone)), altered(1, (C,), ()), "DDL job 2, which waits"),
        (rename, altered(1, (D,), (D,)), ""),
        (drop, altered(1, (C,), ()), ""),
        (drop, replace(altered(1, (), ()), before=()), "DDL job 2 waits"),
        (drop, altered(1, (D,), (D,)), ""),
        (altered(4, (C,), (replace(C, name="x"),)), altered(1, (C,), ()), ""),
        (altered(2, (C,), (number,)), altered(1, (), (C,)), ""),
        (altered(3, (C,), (number,)), altered(1, (), (C,)), "d.t2 has column c of another type"),
    ):  # fmt: skip
        quarantine = Quarantine()
        tables = {waits.tables[0]: waits.commit_ts}
        quarantine.begin(Entry(waits.job_id, 2, Floor(1, 1), tables, Position(1), "", "refused"), waits)
        shared = with_c if waits.tables == (("d", "t3"),) else others
        said = Shards(quarantine, lambda names: shared).in_the_way(ddl)  # noqa: B023
        assert says in said
        assert bool(says) is bool(said)


# -- what becomes of it --------------------------------------------------------------------------------


async def lives(
    found: Recording,
    target: Target,
    decide: str = "",
    text: str = "",
    size: int = 1,
    rules: Rules = ROUTES,
    beside_rows: int = BESIDE_ROWS,
) -> list[Document]:
    """One life to the end; what waits then. `decide` about the first that does."""
    waiting: list[Document] = []

    async def at_end(sink: MysqlSink) -> None:
        waiting[:] = await sink.finish_waiting()
        if decide and waiting:
            await sink.quarantine.decide(waiting[0]["job_id"], decide, text, "test")
            waiting[:] = await sink.finish_waiting()

    assert await Life(found, target, rules=rules, beside_rows=beside_rows).run(size=size, at_end=at_end)
    return waiting


def rows(target: Target, columns: str = "*") -> list[tuple[Any, ...]]:
    return sorted(run(target, f"SELECT {columns} FROM d.`all`"))


def upto(found: Recording, count: int) -> Recording:
    return replace(found, entries=found.entries[:count])


@pytest.mark.integration
@pytest.mark.parametrize("name", MERGES)
@pytest.mark.parametrize("size", [1, 20])
async def test_it_waits_until_all_have_it_and_rows_of_the_others_go_on(
    target: Target, name: str, size: int
) -> None:
    """A life, and its end, after each step: what waits is the table that is ahead, and nothing is lost."""
    steps, expected = MERGES[name]
    found = recording(*BEGIN, *steps)
    assert await lives(upto(found, 4), target) == []
    assert await lives(upto(found, 5), target) != []
    for count in (6, 7):
        ((document,),) = [await lives(upto(found, count), target, size=size)]
        assert document["tables"] == ["d.t1"]
        assert document["state"].startswith("waits for other tables with the same target: d.t2 ")
        assert (4, 4) in rows(target, "id, v"), "rows of the other table go on"
        assert (3, 3) not in rows(target, "id, v")
    left = await lives(found, target, size=size)
    assert left == [], [(one["reason"], one["state"]) for one in left]
    assert rows(target) == expected


@pytest.mark.integration
@pytest.mark.parametrize("name", MERGES)
async def test_the_same_in_one_life(target: Target, name: str) -> None:
    steps, expected = MERGES[name]
    left = await lives(recording(*BEGIN, *steps), target, size=3)
    assert left == [], [(one["reason"], one["state"]) for one in left]
    assert rows(target) == expected


@pytest.mark.integration
@pytest.mark.parametrize("in_steps", [True, False])
@pytest.mark.parametrize("beside_rows", [0, BESIDE_ROWS])
async def test_values_of_all_are_converted_once_the_last_one_has_had_it(
    target: Target, in_steps: bool, beside_rows: int
) -> None:
    """As TiDB does: the server reads '1e3' as 1, and keeps 9 of '9.9'."""
    number = replace(column(7, "c", LONG), offset=2)
    x1, x2 = (replace(one, columns=(*one.columns[:2], number)) for one in (T1, T2))
    found = recording(
        DATABASE, create(T1), create(T2), [*inserts(T1, (1, 1, "1.5")), *inserts(T2, (2, 2, "2.5x"))],
        statement(ActionType.MODIFY_COLUMN, "ALTER TABLE `t1` MODIFY `c` INT", x1),
        [*inserts(x1, (3, 3, 33)), *inserts(T2, (4, 4, "1e3"))],
        [(x1, (1, 1, 2), (1, 1, 7)), (T2, (2, 2, "2.5x"), (2, 2, "9.9"))],
        statement(ActionType.MODIFY_COLUMN, "ALTER TABLE `t2` MODIFY `c` INT", x2),
        [*inserts(x1, (5, 5, 55)), *inserts(x2, (6, 6, 66))],
    )  # fmt: skip
    for count in range(5, 9 if in_steps else 5):
        await lives(upto(found, count), target, beside_rows=beside_rows)
    assert await lives(found, target, beside_rows=beside_rows) == []
    assert rows(target) == [(1, 1, 7), (2, 2, 10), (3, 3, 33), (4, 4, 1000), (5, 5, 55), (6, 6, 66)]


@pytest.mark.integration
@pytest.mark.parametrize("size", [1, 20])
async def test_it_runs_where_the_other_one_fits_and_not_when_somebody_looks(
    target: Target, size: int
) -> None:
    """Later the other one is otherwise again, and two would wait for each other for ever."""

    def c(number: int, flag: int, **more: Any) -> TableInfo:
        return table(number, replace(C, type=replace(C.type, flag=flag), **more))

    changed = c(1, REQUIRED), c(2, FLAG_NOT_NULL, default="x"), T2
    texts = ("t1` MODIFY `c` VARCHAR(64) NOT NULL", "t2` MODIFY `c` VARCHAR(64) NOT NULL DEFAULT 'x'",
             "t2` MODIFY `c` VARCHAR(64)")  # fmt: skip
    steps = [
        statement(ActionType.MODIFY_COLUMN, f"ALTER TABLE `{text}", one)
        for text, one in zip(texts, changed, strict=True)
    ]
    found = recording(
        *BEGIN, steps[0], inserts(changed[0], (3, 3, "c")), *steps[1:], inserts(T2, (4, 4, None))
    )
    assert await lives(found, target, size=size) == []
    assert rows(target) == [(1, 1, "a"), (2, 2, "b"), (3, 3, "c"), (4, 4, None)]


@pytest.mark.integration
async def test_what_the_downstream_has_already_waits_for_nobody(target: Target) -> None:
    found = recording(*BEGIN, DROP_C[0], inserts(N1, (3, 3)))
    ((document,),) = [await lives(found, target)]
    assert "still has column c" in document["state"]
    run(target, "ALTER TABLE d.`all` DROP COLUMN c")
    assert await lives(found, target) == []
    assert rows(target) == [(1, 1), (2, 2), (3, 3)]


@pytest.mark.integration
async def test_one_that_is_two_steps_ahead_waits_at_each(target: Target) -> None:
    both = [table(number, typed("e", LONG, REQUIRED)) for number in (1, 2)]
    drops = [statement(6, f"ALTER TABLE `{one.name}` DROP COLUMN `c`", one) for one in both]
    found = recording(
        *BEGIN, ADD_E[0], inserts(W1, (3, 3, "a", 9)), drops[0], inserts(both[0], (4, 4, 8)),
        inserts(T2, (5, 5, "c")), ADD_E[1], inserts(W2, (6, 6, "d", 7)), drops[1],
        inserts(both[1], (7, 7, 6)),
    )  # fmt: skip
    ((document,),) = [await lives(upto(found, 11), target)]
    assert "d.t2 still has column c" in document["state"]
    assert rows(target, "id, c, e") == [(1, "a", 0), (2, "b", 0), (3, "a", 9), (5, "c", 0), (6, "d", 7)]
    left = await lives(found, target)
    assert left == [], [(one["reason"], one["state"]) for one in left]
    assert rows(target, "id, e") == [(1, 0), (2, 0), (3, 9), (4, 8), (5, 0), (6, 7), (7, 6)]


@pytest.mark.integration
async def test_shards_that_add_a_column_and_convert_it_do_not_wait_for_each_other(target: Target) -> None:
    """Both are two steps ahead, for one waited for a decision: what they are now is of another type than what
    they add."""
    texts = [table(number, C, typed("e", VARCHAR)) for number in (1, 2)]
    numbers = [table(number, C, replace(typed("e", LONG), id=5)) for number in (1, 2)]
    adds = [statement(5, f"ALTER TABLE `{one.name}` ADD COLUMN `e` VARCHAR(64)", one) for one in texts]
    casts = [
        statement(ActionType.MODIFY_COLUMN, f"ALTER TABLE `{one.name}` MODIFY COLUMN `e` INT", one)
        for one in numbers
    ]
    refused = statement(ActionType.TRUNCATE_TABLE_PARTITION, "ALTER TABLE `t1` TRUNCATE PARTITION `p`", T1)
    found = recording(
        *BEGIN, refused, adds[1], inserts(texts[1], (3, 3, "c", "33")), adds[0],
        inserts(texts[0], (4, 4, "d", "44")), casts[1], inserts(numbers[1], (5, 5, "e", 5)), casts[0],
        inserts(numbers[0], (6, 6, "f", 6)),
    )  # fmt: skip
    left = await lives(found, target, SKIP)
    assert left == [], [(one["reason"], one["state"]) for one in left]
    assert rows(target, "id, e") == [(1, None), (2, None), (3, 33), (4, 44), (5, 5), (6, 6)]


@pytest.mark.integration
async def test_one_that_is_behind_takes_nothing_back(target: Target) -> None:
    """A wider type, a new column and a new key of one; the other changes something else afterwards."""
    wide = replace(table(1, C, column(4, "n", LONG)), columns=(
        COLUMNS[0], column(2, "v", LONGLONG), replace(C, offset=2),
        replace(column(4, "n", LONG), offset=3),
    ))  # fmt: skip
    key = Index(1, "k", (IndexColumn("c", 2),), unique=False, primary=False)
    behind = replace(T2, indexes=(key,))
    longer = replace(
        behind, columns=(*behind.columns[:2], replace(C, offset=2, type=replace(C.type, flen=99)))
    )
    big = 1 << 40
    found = recording(
        *BEGIN,
        statement(5, "ALTER TABLE `t1` MODIFY `v` BIGINT, ADD COLUMN `n` INT", wide),
        inserts(wide, (3, big, "c", 1)),
        statement(7, "ALTER TABLE `t2` ADD KEY `k` (`c`)", behind),
        inserts(behind, (4, 4, "d")),
        statement(ActionType.MODIFY_COLUMN, "ALTER TABLE `t2` MODIFY `c` VARCHAR(99)", longer),
        [*inserts(longer, (5, 5, "e")), *inserts(wide, (6, big, "f", 2))],
    )
    left = await lives(found, target)
    assert left == [], [(one["reason"], one["state"]) for one in left]
    assert rows(target) == [
        (1, 1, "a", None), (2, 2, "b", None), (3, big, "c", 1), (4, 4, "d", None), (5, 5, "e", None),
        (6, big, "f", 2),
    ]  # fmt: skip
    definition = run(target, "SHOW CREATE TABLE d.`all`")[0][1]
    assert "varchar(99)" in definition
    assert "KEY `k`" in definition


@pytest.mark.integration
async def test_what_one_has_wider_stays_when_the_other_changes_its_column_otherwise(target: Target) -> None:
    wide = replace(T1, columns=(COLUMNS[0], column(2, "v", LONGLONG), replace(C, offset=2)))
    other = replace(T2, columns=(COLUMNS[0], replace(T2.columns[1], default="5"), T2.columns[2]))
    big = 1 << 40
    found = recording(
        *BEGIN,
        statement(ActionType.MODIFY_COLUMN, "ALTER TABLE `t1` MODIFY `v` BIGINT", wide),
        inserts(wide, (3, big, "c")),
        statement(ActionType.SET_DEFAULT_VALUE, "ALTER TABLE `t2` ALTER `v` SET DEFAULT 5", other),
        inserts(wide, (4, big, "d")),
    )
    ((document,),) = [await lives(found, target)]
    assert "d.t1 has column v of another type" in document["state"]
    assert rows(target, "id, v") == [(1, 1), (2, 2), (3, big), (4, big)]


@pytest.mark.integration
async def test_what_one_drops_and_the_other_renames_is_not_lost(target: Target) -> None:
    named = table(2, replace(C, name="x"))
    found = recording(
        *BEGIN,
        statement(ActionType.MODIFY_COLUMN, "ALTER TABLE `t2` RENAME COLUMN `c` TO `x`", named),
        statement(6, "ALTER TABLE `t1` DROP COLUMN `c`", N1),
        inserts(N1, (3, 3)),
        inserts(named, (4, 4, "d")),
    )
    first, second = await lives(found, target)
    for one, other in ((first, second), (second, first)):
        assert f"DDL job {other['job_id']}, which waits, makes something else of column c" in one["state"]
    assert rows(target) == [(1, 1, "a"), (2, 2, "b")]
    assert await lives(found, target, REWRITE, "ALTER TABLE d.`all` CHANGE `c` `x` VARCHAR(64)") == []
    assert rows(target) == [(1, 1, "a"), (2, 2, "b"), (3, 3, None), (4, 4, "d")]


TOGETHER = replace(ROUTES, disjoint_shards=False)


@pytest.mark.integration
@pytest.mark.parametrize("name", MERGES)
async def test_in_the_order_of_the_stream_it_runs_where_no_row_comes_between(
    target: Target, name: str
) -> None:
    steps, _ = MERGES[name]
    ahead = [step for step in steps if isinstance(step, Statement)]
    later = [step for step in steps[-2:] if isinstance(step, list)]
    assert await lives(recording(*BEGIN, *ahead, *later), target, rules=TOGETHER, size=2) == []
    written = [row[0] for step in later for _, _, row in step]
    assert rows(target, "id") == [(number,) for number in (1, 2, *written)]


@pytest.mark.integration
@pytest.mark.parametrize(
    ("name", "decision", "text"),
    [
        ("drop column", SKIP, ""),
        ("add column, not null", REWRITE, "ALTER TABLE d.`all` ADD COLUMN `e` INT NOT NULL DEFAULT 0"),
    ],
)
async def test_in_the_order_of_the_stream_rows_that_come_between_need_a_decision(
    target: Target, name: str, decision: str, text: str
) -> None:
    steps, expected = MERGES[name]
    found = recording(*BEGIN, *steps)
    ((document,),) = [await lives(found, target, rules=TOGETHER, size=3)]
    assert document["state"].startswith("waits for other tables with the same target: d.t2 ")
    assert await lives(found, target, decision, text, rules=TOGETHER) == []
    assert rows(target) == expected


@pytest.mark.integration
async def test_in_the_order_of_the_stream_no_row_is_taken_for_another_type(target: Target) -> None:
    """A server makes '1e16' of it."""
    double, text = replace(typed("c", DOUBLE), offset=2), replace(C, offset=2)
    d1, d2 = (replace(one, columns=(*one.columns[:2], double)) for one in (T1, T2))
    t1, t2 = (replace(one, columns=(*one.columns[:2], replace(text, id=7))) for one in (T1, T2))
    found = recording(
        DATABASE, create(d1), create(d2), [*inserts(d1, (1, 1, 1e16)), *inserts(d2, (2, 2, 2.5))],
        statement(ActionType.MODIFY_COLUMN, "ALTER TABLE `t1` MODIFY `c` VARCHAR(64)", t1),
        [*inserts(t1, (3, 3, "33")), *inserts(d2, (4, 4, 1e16))],
        statement(ActionType.MODIFY_COLUMN, "ALTER TABLE `t2` MODIFY `c` VARCHAR(64)", t2),
        inserts(t2, (5, 5, "x")),
    )  # fmt: skip
    ((document,),) = [await lives(found, target, rules=TOGETHER, size=2)]
    assert document["tables"] == ["d.all", "d.t1", "d.t2"]
    assert "d.t2 has column c of another type" in document["state"]
    assert await lives(found, target, SKIP, rules=TOGETHER) == []
    assert rows(target, "id, c") == [
        (1, "10000000000000000"), (2, "2.5"), (3, "33"), (4, "10000000000000000"), (5, "x"),
    ]  # fmt: skip


@pytest.mark.integration
@pytest.mark.parametrize("decision", [SKIP, REWRITE])
async def test_an_operator_may_decide(target: Target, decision: str) -> None:
    """Skipped, rows that lack the column go into the table that has it."""
    found = recording(*BEGIN, DROP_C[0], inserts(N1, (3, 3)), inserts(T2, (4, 4, "kept")))
    text = "ALTER TABLE d.`all` MODIFY `c` VARCHAR(80)" if decision == REWRITE else ""
    assert await lives(found, target, decision, text) == []
    assert rows(target) == [(1, 1, "a"), (2, 2, "b"), (3, 3, None), (4, 4, "kept")]


@pytest.mark.integration
async def test_whatever_takes_rows_of_one_away_takes_none_of_the_others(target: Target) -> None:
    found = recording(
        *BEGIN,
        statement(ActionType.TRUNCATE_TABLE_PARTITION, "ALTER TABLE `t1` TRUNCATE PARTITION `p`", T1),
        inserts(T1, (3, 3, "c")),
        inserts(T2, (4, 4, "d")),
    )
    ((document,),) = [await lives(found, target)]
    assert document["tables"] == ["d.t1"]
    assert "d.t2 replicate into d.all too" in document["reason"]
    assert rows(target, "id") == [(1,), (2,), (4,)], "the other table goes on"
    run(target, "DELETE FROM d.`all` WHERE id=1", "SELECT 1")
    assert await lives(found, target, SKIP) == []
    assert rows(target, "id") == [(2,), (3,), (4,)]

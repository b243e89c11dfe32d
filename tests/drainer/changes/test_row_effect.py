"""What DDL does to rows, as programs see it: a mirror that goes by it has the rows of the upstream."""

from __future__ import annotations

import random

from drainer.stream.rules.name_pattern import Source
from drainer.stream.rules.table_rules import RouteRule
from tests.cases import case
from tests.drainer.changes.mirror import World
from tests.drainer.stream.schema.upstream_jobs import database, table
from tidb_binlog.ddl_job import ActionType


def test_a_mirror_that_goes_by_the_effects_has_the_rows_of_the_upstream() -> None:
    """Renames that swap, and into and out of what is read; truncates, drops, recovers, partitions."""
    for seed in range(60):
        with case(seed):
            draw, world = random.Random(seed), World()
            for _ in range(60):
                world.any_change(draw)
                assert world.mirror == world.truth()
                if world.tables:
                    world.insert(draw.choice(list(world.tables)))


def test_each_kind_has_its_word() -> None:
    world = World()
    one, parts = world.create("ra", 0), world.create("rb", 2)
    world.insert(one)
    swapped = world.rename((one, "between"), (parts, "ra"), (one, "rb"))
    assert swapped is not None
    assert swapped.kind == "rename"
    assert [(str(old), str(new)) for old, new in swapped.effect.moved] == [
        ("Db.ra", "Db.rb"),
        ("Db.rb", "Db.ra"),
    ]
    assert not (swapped.effect.emptied)
    assert not (swapped.effect.reread)
    away = world.rename((one, "xa"))
    assert away is not None
    assert [str(old) for old in away.effect.emptied] == ["Db.rb"]
    back = world.rename((one, "rc"))
    assert back is not None
    assert [str(new) for new in back.effect.reread] == ["Db.rc"]
    assert [str(new) for new in back.after] == ["Db.rc"]
    assert back.before == ()
    lost = world.lose_partition(parts, drop=True)
    assert lost is not None
    assert (lost.kind, [str(new) for new in lost.effect.reread]) == ("alter", ["Db.ra"])
    emptied = world.truncate(one)
    assert emptied is not None
    assert (emptied.kind, emptied.effect.reread) == ("truncate", ())
    gone = world.drop(parts)
    assert gone is not None
    assert (gone.kind, [str(old) for old in gone.effect.emptied]) == ("drop", ["Db.ra"])
    found = world.recover()
    assert found is not None
    assert (found.kind, str(found.effect.reread[0])) == ("recover", "Db.ra")
    rewound = world.flashback(random.Random(1))
    assert rewound is not None
    assert (rewound.kind, rewound.effect.everything) == ("rewind", True)


def test_a_table_that_others_are_routed_to_is_never_emptied() -> None:
    """Rows of the others are in it."""
    world = World(*(RouteRule(name, Source.of("Db", name), "Db", "rall") for name in ("ra", "rb")))
    one, _ = world.create("ra", 0), world.create("rb", 0)
    ddl = world.truncate(one)
    assert ddl is not None
    assert not ddl.effect.emptied
    assert [str(table) for table in ddl.effect.reread] == ["Db.rall"]


def test_a_database_goes_and_comes_back_with_its_tables() -> None:
    world = World()
    one, other = world.create("ra", 0), world.create("xa", 0)
    tables = [{"TableInfo": world.document(number)} for number in (one, other)]
    gone = world.run(world.up.job(ActionType.DROP_SCHEMA, db=database(1000, "Db")))
    assert gone is not None
    assert (gone.kind, [str(old) for old in gone.effect.emptied]) == ("drop database", ["Db.ra"])
    back = world.run(
        world.up.job(
            ActionType.RECOVER_SCHEMA, db=database(1000, "Db"), raw_args=[{"RecoverTabsInfo": tables}]
        )
    )
    assert back is not None
    assert (back.kind, [str(new) for new in back.effect.reread]) == ("recover database", ["Db.ra"])


def test_columns_keep_their_ids() -> None:
    world = World()
    one = world.create("ra", 0)
    document = table(one, "ra", "number")
    ddl = world.run(world.up.job(ActionType.MODIFY_COLUMN, table_id=one, info=document))
    assert ddl is not None
    (before,), (after,) = ddl.before, ddl.after
    assert [(column.id, column.name) for column in (*before.columns, *after.columns)] == [
        (1, "id"),
        (1, "number"),
    ]

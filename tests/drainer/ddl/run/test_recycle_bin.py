"""Recycle bin: which tables are kept, where, and until when."""

from __future__ import annotations

from drainer.ddl.derive.compare import Present
from drainer.ddl.derive.derive import Change
from drainer.ddl.run.recycle_bin import KeepDropped, bring_back, kept, outdated, recycled_name, take_away
from drainer.txn import Tracked
from tidb_binlog.ddl_job import ActionType

KEEP = KeepDropped("own", 7, 60.0)
SECOND = 1000 << 18
HERE = ("d", "t")
TABLE = Tracked("d", "t", {"id": 5})


def texts(change: Change, movable: bool = True, **known: tuple[str, str]) -> list[str]:
    places = {int(key[1:]): place for key, place in known.items()}
    found = take_away(change, KEEP, 99, frozenset({HERE} if movable else ()), places)
    return [text for one in found.steps for text in one.statements] if found else []


def test_a_dropped_table_moves_and_a_truncated_one_leaves_an_empty_one() -> None:
    drop = Change(ActionType.DROP_TABLE, (TABLE,), present={HERE: Present()})
    assert texts(drop) == ["RENAME TABLE `d`.`t` TO `own`.`dropped_7_5_99`"]
    truncate = Change(
        ActionType.TRUNCATE_TABLE, (TABLE,), (Tracked("d", "t", {"id": 6}),), present={HERE: Present()}
    )
    assert texts(truncate) == [
        "DROP TABLE IF EXISTS `own`.`new_7_5`",
        "CREATE TABLE `own`.`new_7_5` LIKE `d`.`t`",
        "RENAME TABLE `d`.`t` TO `own`.`dropped_7_5_99`, `own`.`new_7_5` TO `d`.`t`",
    ]


def test_what_other_things_hang_on_is_dropped_as_it_was() -> None:
    for there, movable in (
        (Present(), False),
        (Present(kind="view"), True),
        (Present(foreign_keys=frozenset({"f"})), True),
        (None, True),
    ):
        change = Change(ActionType.DROP_TABLE, (TABLE,), present={HERE: there})
        assert texts(change, movable) == []
    done = Change(ActionType.TRUNCATE_TABLE, (TABLE,), present={HERE: Present()})
    assert texts(done, i5=("own", "dropped_7_5_90")) == [], "its rows are kept already: a repeated TRUNCATE"


def test_tables_of_a_dropped_database_are_kept() -> None:
    change = Change(
        ActionType.DROP_SCHEMA, (TABLE,), database=("d", "utf8mb4", "utf8mb4_bin"), present={HERE: Present()}
    )
    assert texts(change) == ["RENAME TABLE `d`.`t` TO `own`.`dropped_7_5_99`", "DROP DATABASE IF EXISTS `d`"]


def test_a_recovered_table_comes_back_under_its_new_name() -> None:
    again = Tracked("d", "u", {"id": 5})
    change = Change(ActionType.RECOVER_TABLE, after=(again,), present={("d", "u"): None})
    found = bring_back(change, {5: ("own", "dropped_7_5_99")})
    assert found is not None
    assert found.steps[0].statements == ("RENAME TABLE `own`.`dropped_7_5_99` TO `d`.`u`",)
    assert bring_back(change, {}) is None


def test_only_tables_of_this_upstream_are_seen_and_only_old_ones_go() -> None:
    now = 1000 * SECOND
    old, young = recycled_name(KEEP, 5, now - 61 * SECOND), recycled_name(KEEP, 6, now - 59 * SECOND)
    names = [old[1], young[1], "dropped_8_5_1", "lanes", "dropped_7_x_1"]
    assert kept(KEEP, names) == {5: old, 6: young}
    assert outdated(KEEP, names, now) == [old]
    twice = ["dropped_7_5_9", "dropped_7_5_10"]
    assert kept(KEEP, twice) == {5: ("own", "dropped_7_5_10")}

"""Whether a DDL took effect before: by fingerprints, and by what the downstream has."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

from drainer.changes.ddl_effect import EffectKind, effect_kind
from drainer.ddl.derive.compare import Present, PresentColumn, PresentKey
from drainer.ddl.derive.derive import Change
from drainer.ddl.run.ran_before import has_run, is_seen
from drainer.txn import Tracked
from tests.cases import case
from tests.drainer.support.table_maker import kind, name
from tidb_binlog.ddl_job import ActionType

SHAPES: tuple[dict[str, str | None], ...] = (
    {},
    {"d.t": None},
    {"d.t": "a"},
    {"d.t": "b"},
    {"d.t": "a", "d.u": None},
)


def test_another_fingerprint_means_that_it_ran() -> None:
    for before, now in product(SHAPES, SHAPES):
        with case(before, now):
            assert has_run(before, now) == (before != now)


def test_of_a_database_only_its_being_there_says_it() -> None:
    for action in ActionType:
        for has_database in [False, True]:
            with case(action, has_database):
                change = Change(action, database=("d", "utf8mb4", "utf8mb4_bin"))
                wanted = {
                    EffectKind.CREATE_DATABASE: has_database,
                    EffectKind.DROP_DATABASE: not has_database,
                }
                assert is_seen(change, has_database=has_database) == wanted.get(effect_kind(action), False)


def test_what_changes_no_table_is_not_seen() -> None:
    assert not any(is_seen(Change(action), has_database=False) for action in ActionType)


def table(columns: str, keys: str = "", called: str = "t", number: int = 1, **more: Any) -> Tracked:
    """Each letter a column, or a key of the column of that name."""
    cols = [
        {"id": ord(column), "name": name(column), "offset": at, "type": kind(3), "state": 5}
        for at, column in enumerate(columns)
    ]
    index_info = [
        {
            "id": ord(key),
            "idx_name": name(f"k{key}"),
            "idx_cols": [{"name": name(key), "offset": columns.index(key), "length": -1}],
            "state": 5,
        }
        for key in keys
    ]
    document = {"id": number, "name": name(called), "cols": cols, "index_info": index_info, **more}
    return Tracked("d", called, document)


def there(columns: str, keys: str = "") -> Present:
    return Present(
        columns=tuple(PresentColumn(column, "int(11)") for column in columns),
        keys=tuple(PresentKey(f"k{key}", ((key, 0),)) for key in keys),
    )


def seen(
    action: ActionType, before: list[Tracked], after: list[Tracked], present: Mapping[str, Present]
) -> bool:
    named = {("d", called): table for called, table in present.items()}
    return is_seen(Change(action, tuple(before), tuple(after), present=named), has_database=True)


def test_what_an_alteration_leaves_says_it() -> None:
    """Whatever the downstream has besides."""
    alterations = [
        (ActionType.ADD_COLUMN, ("ab", ""), ("abc", "")),
        (ActionType.ADD_INDEX, ("ab", ""), ("ab", "b")),
        (ActionType.DROP_COLUMN, ("ab", ""), ("a", "")),
        (ActionType.DROP_INDEX, ("ab", "ab"), ("ab", "a")),
        (ActionType.MODIFY_COLUMN, ("ab", "b"), ("ac", "c")),  # another name
        (ActionType.MULTI_SCHEMA_CHANGE, ("abc", "b"), ("abd", "d")),
    ]
    for action, before, after in alterations:
        for own in [("", ""), ("x", ""), ("x", "x")]:
            with case(action.name, own):
                was, now = ((made[0] + own[0], made[1] + own[1]) for made in (before, after))
                tables = [table(*before)], [table(*after)]
                assert not seen(action, *tables, {"t": there(*was)})
                assert seen(action, *tables, {"t": there(*now)})
                assert not seen(action, *tables, {}), "the table is not there"


def test_half_of_an_alteration_is_not_all() -> None:
    tables = [table("ab")], [table("abcd")]
    assert not seen(ActionType.MULTI_SCHEMA_CHANGE, *tables, {"t": there("abc")})
    tables = [table("abcd")], [table("ab")]
    assert not seen(ActionType.MULTI_SCHEMA_CHANGE, *tables, {"t": there("abc")})
    tables = [table("ab", "ab")], [table("ab")]
    assert not seen(ActionType.DROP_INDEXES, *tables, {"t": there("ab", "b")})


def test_names_say_that_tables_were_made_dropped_or_renamed() -> None:
    one, other = table("ab"), table("ab", called="u")
    create = ActionType.CREATE_TABLE, list[Tracked](), [one]
    drop = ActionType.DROP_TABLE, [one], list[Tracked]()
    rename = ActionType.RENAME_TABLE, [one], [other]
    here, gone = {"t": there("ab")}, {"u": there("ab")}
    assert (seen(*create, here), seen(*create, {})) == (True, False)
    assert (seen(*drop, {}), seen(*drop, here)) == (True, False)
    assert (seen(*rename, gone), seen(*rename, here), seen(*rename, here | gone)) == (True, False, False)
    assert not seen(*rename, {}), "it is nowhere"
    assert not seen(*rename, {"t": there("abx"), "u": there("ab")}), "something is left under the old name"
    beside, moved = table("cd", called="v", number=2), {"u": there("ab"), "v": there("cd")}
    assert seen(ActionType.RENAME_TABLES, [one, beside], [other, beside], moved), "one is as before"
    assert not seen(ActionType.MODIFY_TABLE_COMMENT, [one], [one], {"t": there("abx")}), "it leaves no trace"


def test_tables_that_change_names_with_each_other() -> None:
    one, other = table("ab"), table("cd", called="u", number=2)
    swapped = [table("ab", called="u"), table("cd", number=2)]
    before, after = {"t": there("ab"), "u": there("cd")}, {"t": there("cd"), "u": there("ab")}
    for tables, is_done in [(before, False), (after, True), ({"u": there("ab")}, False)]:
        with case(tables):
            assert seen(ActionType.RENAME_TABLES, [one, other], swapped, tables) is is_done
    alike = [table("ab"), table("ab", called="u", number=2)]
    both = {"t": there("ab"), "u": there("ab")}
    swapped = [table("ab", called="u"), table("ab", number=2)]
    assert not seen(ActionType.RENAME_TABLES, alike, swapped, both), "nothing tells: it is run"


def partitioned(*parts: tuple[int, str], **more: Any) -> dict[str, Any]:
    definitions = [
        {"id": number, "name": name(f"p{less}"), "less_than": [less], "in_values": None}
        for number, less in parts
    ]
    return {
        "partition": {"type": 1, "expr": "`a`", "columns": None, "enable": True, "definitions": definitions}
    }


def test_what_only_takes_rows_leaves_no_trace_and_is_run() -> None:
    present = Present(
        columns=there("ab").columns, partitions=("p5", "p9"), partition_by="", bounds=("5", "9")
    )
    before = table("ab", **partitioned((11, "5"), (12, "9")))
    emptied = table("ab", **partitioned((13, "5"), (12, "9")))
    assert not seen(ActionType.TRUNCATE_TABLE_PARTITION, [before], [emptied], {"t": present})
    whole = table("ab", number=7, **partitioned((14, "5"), (15, "9")))
    assert not seen(ActionType.TRUNCATE_TABLE, [before], [whole], {"t": present})
    assert not seen(ActionType.EXCHANGE_TABLE_PARTITION, [before], [emptied], {"t": present})
    fewer = table("ab", **partitioned((12, "9")))
    assert not seen(ActionType.DROP_TABLE_PARTITION, [before], [fewer], {"t": present})

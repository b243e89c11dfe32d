"""What becomes of each table when a load begins, or goes on."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pytest

from drainer.changes.ddl_effect import TABLE, VIEW
from drainer.checkpoint.load_progress import LoadedTable, TableState
from drainer.points.load.contents import Contents, Source
from drainer.points.load.reconcile import Mode, Reconciled, There, reconcile
from drainer.txn import TableVersion, Tracked
from tidb_binlog.errors import Rejected
from tidb_binlog.table_info import LONGLONG, Column, FieldType, TableInfo

INFO = TableInfo(1, "t", (Column(1, "a", 0, FieldType(LONGLONG)),))


def source(name: str, *, to: str = "", digest: str = "d", creates: bool = True, kind: str = TABLE) -> Source:
    version = TableVersion(INFO, "shop", name, 1, ("copy", to or name))
    return Source(Tracked("shop", name, {}), version, kind, digest, creates=creates)


def stored(
    number: int, name: str, *, to: str = "", made: bool = True, state: TableState = TableState.READY
) -> LoadedTable:
    return LoadedTable(number, ("shop", name), ("copy", to or name), "d", made, state)


def decided(
    sources: Sequence[Source],
    known: Sequence[LoadedTable] = (),
    there: Mapping[str, There] | None = None,
    mode: Mode = Mode.NEW,
    *,
    same_ts: bool = True,
    keyless: Collection[str] = (),
    copied: Collection[int] = range(9),
) -> Reconciled:
    return reconcile(
        Contents(tables=tuple(sources)),
        known,
        {("copy", name): one for name, one in (there or {}).items()},
        mode,
        same_ts=same_ts,
        has_rows=copied,
        keyless={("shop", name) for name in keyless},
    )


def numbers(found: Reconciled) -> tuple[list[int], list[int], list[int]]:
    kept, begun = [one.number for _, one in found.kept], [one.number for _, one in found.begun]
    return kept, begun, [one.number for one in found.given_up]


def test_a_new_load_makes_what_is_not_there_and_takes_what_is_empty() -> None:
    found = decided([source("a"), source("b")], there={"b": There(TABLE)})
    assert [(one.target[1], one.is_new) for _, one in found.begun] == [("a", True), ("b", False)]
    assert all(one.state is TableState.PLANNED for _, one in found.begun)


def test_rows_of_others_are_refused_all_at_once() -> None:
    there = {name: There(TABLE, has_rows=True) for name in "abcdefg"}
    with pytest.raises(Rejected, match=r"rows already in copy.a, copy.b, .* and 2 more") as refused:
        decided([source(name) for name in "abcdefg"], there=there)
    assert "-replace" in refused.value.hint
    replaced = decided([source("a")], there=there, mode=Mode.REPLACE)
    assert [one.is_new for _, one in replaced.begun] == [True]
    appended = decided([source("a")], there=there, mode=Mode.APPEND)
    assert [one.is_new for _, one in appended.begun] == [False]


def test_rows_without_key_are_not_added_to_others() -> None:
    there = {"a": There(TABLE, has_rows=True)}
    with pytest.raises(Rejected, match=r"cannot be added to copy\.a"):
        decided([source("a")], there=there, mode=Mode.APPEND, keyless=["a"])


def test_a_table_that_ddl_may_not_make_has_to_be_there() -> None:
    with pytest.raises(Rejected, match=r"copy\.a is not there downstream"):
        decided([source("a", creates=False)])
    assert not decided([source("a", creates=False)], there={"a": There(TABLE)}).begun[0][1].is_new


def test_something_else_of_that_name_is_refused() -> None:
    with pytest.raises(Rejected, match="something else"):
        decided([source("a")], there={"a": There(VIEW)})


def test_at_the_same_timestamp_all_goes_on() -> None:
    known = [stored(0, "a"), stored(1, "b", made=False)]
    found = decided([source("a"), source("b")], known, {"a": There(TABLE, True), "b": There(TABLE, True)})
    assert numbers(found) == ([0, 1], [], [])


def test_at_another_timestamp_only_what_a_key_tells_apart_goes_on() -> None:
    known = [stored(0, "a"), stored(1, "b"), stored(2, "c", state=TableState.PLANNED)]
    tables = [source("a"), source("b"), source("c")]
    found = decided(tables, known, same_ts=False, keyless=["b", "c"])
    assert numbers(found) == ([0], [3, 4], [1, 2])
    found = decided(tables, known, same_ts=False, keyless=["b", "c"], copied=[0, 1])
    assert numbers(found) == ([0, 2], [3], [1]), "of c nothing had been copied"


def test_tables_with_one_target_share_its_fate() -> None:
    known = [stored(0, "a", to="all"), stored(1, "b", to="all")]
    tables = [source("a", to="all"), source("b", to="all")]
    assert numbers(decided(tables, known)) == ([0, 1], [], [])
    assert numbers(decided(tables, known, same_ts=False)) == ([], [2, 3], [0, 1])
    altered = [source("a", to="all", digest="other"), tables[1]]
    assert numbers(decided(altered, known)) == ([], [2, 3], [0, 1])
    assert numbers(decided(tables[:1], known)) == ([], [2], [1, 0]), "one of them is gone upstream"


def test_what_upstream_altered_begins_anew_and_what_it_dropped_is_given_up() -> None:
    known = [stored(0, "a"), stored(1, "b")]
    found = decided([source("a", digest="other")], known, {"a": There(TABLE, True)}, same_ts=False)
    assert numbers(found) == ([], [2], [1, 0])
    assert found.begun[0][1].is_new, "the load had made it, so it may drop it"


def test_a_table_that_was_there_before_is_never_dropped() -> None:
    known = [stored(0, "a", made=False)]
    found = decided([source("a", digest="other")], known, {"a": There(TABLE, True)}, same_ts=False)
    assert not found.begun[0][1].is_new


def test_rows_that_were_added_to_others_cannot_be_taken_back() -> None:
    known = [stored(0, "a", made=False)]
    there = {"a": There(TABLE, has_rows=True)}
    with pytest.raises(Rejected, match="cannot be added"):
        decided([source("a")], known, there, Mode.APPEND, same_ts=False)
    assert numbers(decided([source("a")], known, there, Mode.APPEND)) == ([0], [], [])
    again = decided([source("a")], known, there, Mode.APPEND, same_ts=False, copied=[])
    assert numbers(again) == ([0], [], []), "of it nothing had been copied"

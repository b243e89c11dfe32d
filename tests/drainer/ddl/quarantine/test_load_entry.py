"""Tables that join: what is kept of the stream while their rows are loaded, and what is left of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from drainer.ddl.quarantine import decisions
from drainer.ddl.quarantine.entry import LOADS, ROWS, Entry, Floor
from drainer.ddl.quarantine.load_entry import load_entry
from drainer.ddl.quarantine.queue_state import QueueState
from drainer.ddl.quarantine.waiting_tables import DdlClass, Quarantine, Queue
from drainer.mysql.rows.change import Position
from drainer.txn import INSERT, Ddl, TableEvents, TableVersion, Tracked, Transaction
from tests.drainer.support.apply_life import column
from tidb_binlog.ddl_job import ActionType
from tidb_binlog.errors import Conflict, Rejected
from tidb_binlog.status.drainer import WaitingDdl
from tidb_binlog.table_info import LONG, TableInfo

A, B = ("d", "a"), ("d", "b")
PLACE = Floor(100, 7)
NONE: frozenset[tuple[str, str]] = frozenset()
JOINS = load_entry(3, frozenset({A}), NONE, PLACE, (), 5)
WAITS = Entry(7, 90, Floor(89, 6), {A: 90}, Position(89), "ALTER TABLE a", "1062")


def version(table_id: int, name: str) -> TableVersion:
    return TableVersion(TableInfo(table_id, name, (column(1, "id", LONG),)), "d", name, 1)


IN_A, IN_B = version(1, "a"), version(2, "b")


def rows(commit_ts: int, *tables: TableVersion) -> Transaction:
    events = tuple(TableEvents(table, [INSERT], [b"row"], number) for number, table in enumerate(tables))
    return Transaction(commit_ts - 1, commit_ts, events, 10)


def ddl(job_id: int, commit_ts: int, *names: tuple[str, str], before: tuple[Tracked, ...] = ()) -> Ddl:
    return Ddl(commit_ts, job_id, ActionType.ADD_COLUMN, "d", "ALTER", names, 8, before=before)


def test_tables_wait_from_their_place_on() -> None:
    assert (JOINS.job_id, JOINS.is_load, JOINS.is_rows, JOINS.done) == (LOADS + 3, True, False, False)
    assert (JOINS.tables, JOINS.position, JOINS.floor) == ({A: 101}, Position(100), PLACE)
    assert replace(JOINS, position=Position(101)).done
    assert not Entry(ROWS, 1, PLACE, {A: 1}, Position(0), "", "").is_load


def test_what_waited_is_a_part_of_it() -> None:
    rest = replace(
        WAITS, job_id=ROWS, commit_ts=95, floor=Floor(80, 5), tables={A: 81}, position=Position(80)
    )
    queue = Queue(1, {7: WAITS, ROWS: rest}, QueueState.HALTED)
    entry = load_entry(3, frozenset({A, B}), NONE, PLACE, [queue], 5)
    assert (entry.tables, entry.position, entry.floor) == ({A: 81, B: 101}, Position(80), Floor(80, 5))
    assert entry.commit_ts == 101
    with pytest.raises(Rejected, match=r"d\.a waits together with what is to be loaded, for job 7"):
        load_entry(3, frozenset({B}), frozenset({A}), PLACE, [queue], 5)
    for changed in (
        replace(queue, state=QueueState.DECIDING),
        Queue(1, {7: replace(WAITS, intent_ts=101)}, QueueState.WAITING),
    ):
        with pytest.raises(Conflict):
            load_entry(3, frozenset({A}), NONE, PLACE, [changed], 5)


def test_a_database_and_names_that_no_table_has_come_along_unless_a_table_is_left() -> None:
    gone, whole = ("d", "gone"), ("d", "")
    queue = Queue(1, {7: replace(WAITS, tables={A: 90, gone: 80, whole: 95})}, QueueState.WAITING)
    entry = load_entry(3, frozenset({A}), frozenset({("e", "b")}), PLACE, [queue], 5)
    assert entry.tables == {A: 90, gone: 80, whole: 95}
    with pytest.raises(Rejected, match=r"^d\.b waits together"):
        load_entry(3, frozenset({A}), frozenset({B}), PLACE, [queue], 5)


def test_only_the_queues_of_these_names_are_taken_in() -> None:
    other = replace(WAITS, job_id=8, tables={("e", ""): 90})
    quarantine = Quarantine((WAITS, other))
    assert [quarantine.waits_for(*name) for name in (A, B, ("E", "T"))] == [True, False, True]
    assert [list(queue.entries) for queue in quarantine.waiting_with([A, B])] == [[7]]
    assert [list(queue.entries) for queue in quarantine.waiting_with([("e", "t")])] == [[8]]
    quarantine.begin_load(JOINS, quarantine.waiting_with([A]))
    assert [list(queue.entries) for queue in quarantine.queues] == [[8], [JOINS.job_id]]


def test_what_waited_in_its_place_is_known_of_the_load_too() -> None:
    quarantine, refused = Quarantine(), ddl(7, 90, A)
    quarantine.begin(WAITS, refused)
    routed = replace(IN_A, target=("d", "all"))
    quarantine.divert(rows(95, routed))
    queue = quarantine.begin_load(JOINS, quarantine.waiting_with([A]))
    quarantine.saw(150)
    below = quarantine.below(120)
    assert below is not None
    assert (below.ddls, queue.rows) == ((refused,), {routed: 95})


def test_rows_up_to_the_load_are_in_it_and_later_ones_are_left() -> None:
    quarantine = Quarantine()
    queue = quarantine.begin_load(JOINS, ())
    assert queue.loading is JOINS
    rest, parts = quarantine.divert(rows(110, IN_A, IN_B))
    assert [events.table for events in rest.tables] == [IN_B]
    ((_, early),) = parts
    (_, ((_, late),)) = quarantine.divert(rows(130, IN_A))
    quarantine.change(JOINS, position=Position(120))
    assert queue.loading is None
    assert quarantine.rest_of(early).tables == ()
    assert quarantine.rest_of(late) == late
    assert not quarantine.is_ripe(queue, 119), "the stream has to have come to it"
    assert quarantine.is_ripe(queue, 120)
    gone, kept = quarantine.divert(rows(115, IN_A))
    assert (gone.tables, kept) == ((), []), "after a start it comes once more"


def test_a_ddl_up_to_the_load_is_in_it_and_a_later_one_is_not() -> None:
    quarantine = Quarantine()
    quarantine.begin_load(JOINS, ())
    early, late = ddl(10, 110, A), ddl(11, 130, A)
    assert quarantine.classify(early).ddl_class is DdlClass.KEPT
    assert quarantine.classify(late).ddl_class is DdlClass.KEPT
    quarantine.change(JOINS, position=Position(120))
    assert quarantine.is_done(early)
    assert not quarantine.is_done(late)


def test_what_a_load_is_of_is_known_once_the_stream_is_there() -> None:
    quarantine = Quarantine(highest_ts=105)
    quarantine.begin_load(JOINS, ())
    quarantine.saw(104)
    assert quarantine.below(102) is None, "what an earlier life has seen comes again first"
    rename = ddl(10, 110, A, B)
    quarantine.classify(rename)
    assert quarantine.below(120) is None
    quarantine.classify(ddl(11, 130, A, ("d", "c")))
    below = quarantine.below(120)
    assert below == ({A, B}, (JOINS.job_id,), (rename,))
    assert Quarantine((WAITS,)).below(1) is None


def test_tables_that_a_ddl_has_made_wait_with_it_are_loaded_with_it() -> None:
    quarantine = Quarantine((replace(WAITS, tables={B: 90}),))
    quarantine.begin_load(JOINS, ())
    quarantine.classify(ddl(10, 110, A, B))
    quarantine.saw(150)
    below = quarantine.below(120)
    assert below is not None
    assert (below.names, sorted(below.jobs)) == ({A, B}, [7, JOINS.job_id])
    quarantine.change(quarantine.entries[0], position=Position(140))
    below = quarantine.below(120)
    assert below is not None
    assert (below.names, below.jobs) == ({A}, (JOINS.job_id,)), "release has brought it further"


def test_nothing_is_decided_meanwhile() -> None:
    queue = Queue(1, {7: WAITS, JOINS.job_id: JOINS}, QueueState.WAITING)
    for entry in queue.entries.values():
        assert decisions.possible(queue, entry) == ()
        with pytest.raises(Conflict, match=f"are loaded .{JOINS.job_id}."):
            decisions.check(queue, entry, action="retry", text="")
    assert decisions.document(queue, JOINS, doing="", kept_bytes=0)["loads"] is True


def test_nobody_is_asked_unless_rows_after_it_are_refused() -> None:
    assert WaitingDdl(loads=True).goes_on
    assert not WaitingDdl(loads=True, possible=["retry"]).goes_on
    assert not WaitingDdl().goes_on

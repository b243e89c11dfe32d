"""Tables of two databases are compared: at one moment after the other, differences more than once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.compare.verify.chunk_comparison import Part
from drainer.compare.verify.compared_table import ComparedTable
from drainer.compare.verify.result import How, Kind, State
from drainer.compare.verify.row_source import Sides
from drainer.compare.verify.table_work import Request, TableWork
from drainer.compare.verify.verifying import Stopped
from drainer.mysql.chunks.chunk import Chunk
from drainer.mysql.connection import Connection
from tests.drainer.compare.verify.world import DOWNSTREAM, QUICK, UPSTREAM, World, world
from tidb_binlog.errors import Unavailable

HUNDRED = "SELECT seq, CONCAT('n', seq) FROM mysql.seq_1_to_100"
KEYED = "id INT PRIMARY KEY, a VARCHAR(20)"


@pytest.fixture(scope="module")
def shared(mariadb: MariaDbServer) -> Iterator[World]:
    with world(mariadb) as made:
        yield made


@pytest.fixture
def both(shared: World) -> World:
    shared.moments, shared.told, shared.progress = [], [], []
    shared.make("t", KEYED, HUNDRED)
    return shared


def test_equal_sides_are_equal(both: World) -> None:
    both.make("keyless", "a INT, b TEXT", "VALUES (1, 'x'), (1, 'x'), (2, NULL)")
    found = both.verify("t", "keyless")
    assert found.state is State.EQUAL
    assert [(one.rows, one.downstream_rows, one.how) for one in found.tables] == [
        (100, 100, How.CHECKSUM),
        (3, 3, How.CHECKSUM),
    ]
    assert found.tables[0].chunks > 3
    assert (len(both.moments), both.told) == (1, [])
    assert (both.progress[-1].tables_done, both.progress[-1].rows) == (2, 103)


def test_what_differs_is_found_with_its_rows_and_columns(both: World) -> None:
    both.run(
        f"DELETE FROM {DOWNSTREAM}.t WHERE id=1",
        f"UPDATE {DOWNSTREAM}.t SET a='N40' WHERE id=40",
        f"INSERT INTO {DOWNSTREAM}.t VALUES (101, NULL)",
    )
    found = both.table("t")
    assert (found.state, found.missing, found.changed, found.extra) == (State.DIFFERS, 1, 1, 1)
    assert [(one.kind, one.key, one.upstream, one.downstream, one.columns) for one in found.differences] == [
        (Kind.MISSING, (b"1",), (b"1", b"'n1'"), None, ()),
        (Kind.CHANGED, (b"40",), (b"40", b"'n40'"), (b"40", b"'N40'"), ("a",)),
        (Kind.EXTRA, (b"101",), None, (b"101", b"NULL"), ()),
    ]
    assert sorted(both.told, key=str) == sorted(found.differences, key=str)


def test_what_is_mended_until_a_later_look_is_no_difference(both: World) -> None:
    both.run(f"DELETE FROM {DOWNSTREAM}.t WHERE id=1")

    def moment() -> Sides:
        if both.moments:
            both.run(f"INSERT INTO {DOWNSTREAM}.t VALUES (1, 'n1')")
        return both.moment()

    found = both.verifying("t", pace=replace(QUICK, retries=3), open_moment=moment).run()
    assert (found.state, found.looked_again, both.told) == (State.EQUAL, 1, [])
    assert "verify_down.t was right when it was looked at again: 1 rows differed" in found.notes
    assert (len(both.moments), found.ts) == (2, 101)


def test_what_differs_at_the_last_look_is_told_once(both: World) -> None:
    both.run(f"DELETE FROM {DOWNSTREAM}.t WHERE id=1")
    found = both.verify("t", pace=replace(QUICK, retries=2))
    assert (found.state, found.looked_again, len(both.told)) == (State.DIFFERS, 2, 1)
    assert (found.tables[0].missing, found.tables[0].rows) == (1, 100)


def test_a_moment_that_is_lost_is_followed_by_another(both: World) -> None:
    def moment() -> Sides:
        sides = both.moment()
        if len(both.moments) < 4:
            for _ in range(2):
                with sides.downstream.session() as connection:
                    connection.close()
        return sides

    found = both.verifying("t", open_moment=moment).run()
    assert found.state is State.EQUAL
    assert found.tables[0].rows == 100


def test_moments_that_are_lost_each_time_end_with_the_reason(both: World) -> None:
    def moment() -> Sides:
        sides = both.moment()
        sides.close()
        return sides

    with pytest.raises(Unavailable, match="cannot be read any more"):
        both.verifying("t", open_moment=moment).run()


def test_no_moment_lasts_longer_than_it_may(both: World) -> None:
    class Clock:
        now_s = 0.0

        def monotonic_s(self) -> float:
            self.now_s += 1.0
            return self.now_s

        wall_s = monotonic_s

    found = both.verifying("t", pace=replace(QUICK, moment_s=6.0), clock=Clock()).run()
    assert found.state is State.EQUAL
    assert (found.tables[0].rows, len(both.moments) > 1) == (100, True)
    assert "moments from 100 to" in found.notes[0]


def test_tables_that_one_side_lacks(both: World) -> None:
    both.run(
        f"CREATE OR REPLACE TABLE {UPSTREAM}.only_up (id INT)",
        f"CREATE OR REPLACE TABLE {DOWNSTREAM}.only_down (id INT)",
    )
    found = both.verify("only_up", "only_down", "nowhere")
    assert [(one.state, one.why) for one in found.tables] == [
        (State.DIFFERS, "downstream has no such table"),
        (State.DIFFERS, "upstream has no such table"),
        (
            State.NOT_COMPARABLE,
            "neither side shows it: it was dropped a moment ago, or the user has no right on it",
        ),
    ]


def test_a_column_that_the_downstream_lacks_is_a_difference(both: World) -> None:
    both.run(f"ALTER TABLE {DOWNSTREAM}.t DROP COLUMN a")
    found = both.table("t")
    assert (found.state, found.why) == (State.DIFFERS, "downstream has no column a")


def test_a_column_that_comes_a_moment_later_is_no_difference(both: World) -> None:
    both.run(f"ALTER TABLE {UPSTREAM}.t ADD b INT DEFAULT 5")

    def moment() -> Sides:
        if both.moments:
            both.run(f"ALTER TABLE {DOWNSTREAM}.t ADD b INT DEFAULT 5")
        return both.moment()

    found = both.verifying("t", pace=replace(QUICK, retries=1), open_moment=moment).run()
    assert (found.state, found.looked_again, found.tables[0].rows) == (State.EQUAL, 1, 100)
    assert found.notes[-1] == "verify_down.t was right when it was looked at again: its columns differed"


def test_a_column_of_another_kind_keeps_a_table_from_being_equal(both: World) -> None:
    both.run(f"ALTER TABLE {DOWNSTREAM}.t ADD c INT, MODIFY a BLOB")
    found = both.table("t")
    assert found.state is State.NOT_COMPARABLE
    assert found.why == "column a: values of varchar as blob are not compared"
    assert found.other_columns == ("c",)


def test_what_cannot_be_read_is_not_comparable(both: World) -> None:
    both.run(
        f"CREATE OR REPLACE FUNCTION {UPSTREAM}.refused() RETURNS INT"
        " BEGIN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT='not allowed'; RETURN 1; END",
        f"CREATE OR REPLACE VIEW {UPSTREAM}.v AS SELECT id, {UPSTREAM}.refused() AS a FROM {UPSTREAM}.t",
        f"CREATE OR REPLACE VIEW {DOWNSTREAM}.v AS SELECT id, 1 AS a FROM {DOWNSTREAM}.t",
    )
    found = both.verify("v", "t")
    assert [one.state for one in found.tables] == [State.NOT_COMPARABLE, State.EQUAL]
    assert "not allowed" in found.tables[0].why


@pytest.mark.parametrize("waits", [f"{UPSTREAM}.t", UPSTREAM])
def test_a_table_that_waits_itself_or_with_its_database_is_not_comparable(both: World, waits: str) -> None:
    both.run(f"DELETE FROM {DOWNSTREAM}.t")
    found = both.verifying(
        "t", open_moment=lambda: replace(both.moment(), waiting=frozenset([waits, "another"]))
    ).run()
    assert [one.state for one in found.tables] == [State.NOT_COMPARABLE]
    assert "binlogctl ddl list" in found.tables[0].why


def test_a_table_that_is_dropped_before_it_is_cut_leaves_the_others_alone(both: World) -> None:
    both.make("u", KEYED, HUNDRED)

    def moment() -> Sides:
        sides = both.moment()
        drops = [f"DROP TABLE {UPSTREAM}.t"]

        @contextmanager
        def session() -> Iterator[Connection]:
            while drops:  # at the first use, which is to cut it
                both.run(drops.pop())
            with sides.upstream.session() as connection:
                yield connection

        return replace(sides, upstream=replace(sides.upstream, session=session))

    found = both.verifying("t", "u", open_moment=moment).run()
    assert [one.state for one in found.tables] == [State.NOT_COMPARABLE, State.EQUAL]
    assert "doesn't exist" in found.tables[0].why


def test_tables_that_are_routed_to_one(both: World) -> None:
    both.make("u", KEYED)
    both.run(
        f"INSERT INTO {UPSTREAM}.u SELECT seq, 'u' FROM mysql.seq_200_to_250",
        f"INSERT INTO {DOWNSTREAM}.t SELECT seq, 'u' FROM mysql.seq_200_to_250",
    )
    wanted = Request(((UPSTREAM, "t"), (UPSTREAM, "u")), (DOWNSTREAM, "t"))
    (found,) = both.of([wanted]).run().tables
    assert (found.state, found.rows, found.upstream) == (State.EQUAL, 151, wanted.upstream)
    both.run(f"DELETE FROM {UPSTREAM}.u WHERE id=220")
    (found,) = both.of([wanted]).run().tables
    assert [(one.kind, one.key) for one in found.differences] == [(Kind.EXTRA, (b"220",))]


def test_rows_of_a_table_that_upstream_does_not_show_are_not_some_too_many(both: World) -> None:
    wanted = Request(((UPSTREAM, "t"), (UPSTREAM, "hidden")), (DOWNSTREAM, "t"))
    both.run(f"INSERT INTO {DOWNSTREAM}.t VALUES (999, 'of hidden')")
    (found,) = both.of([wanted]).run().tables
    assert (found.state, found.extra) == (State.NOT_COMPARABLE, 0)
    assert found.why.startswith(f"upstream does not show {UPSTREAM}.hidden")


def test_a_table_that_is_altered_between_two_looks_begins_anew(both: World) -> None:
    both.run(f"UPDATE {DOWNSTREAM}.t SET a='x' WHERE id=7")

    def moment() -> Sides:
        if both.moments:
            for schema in (UPSTREAM, DOWNSTREAM):
                both.run(f"ALTER TABLE {schema}.t MODIFY a VARCHAR(30)")
        return both.moment()

    (found,) = both.verifying("t", pace=replace(QUICK, retries=1), open_moment=moment).run().tables
    assert (found.rows, found.changed) == (100, 1)


@pytest.mark.parametrize(("retries", "state"), [(2, State.DIFFERS), (1, State.NOT_COMPARABLE)])
def test_a_difference_is_not_lost_when_its_table_gets_another_name(
    both: World, retries: int, state: State
) -> None:
    both.run(f"UPDATE {DOWNSTREAM}.t SET a='x' WHERE id=7")
    names = ["t"]

    def moment() -> Sides:
        if both.moments and names == ["t"]:
            both.run(*(f"RENAME TABLE {schema}.t TO {schema}.renamed" for schema in (UPSTREAM, DOWNSTREAM)))
            names[:] = ["renamed"]
        return both.moment()

    def listing(_: Sides) -> list[Request]:
        return [Request(((UPSTREAM, name),), (DOWNSTREAM, name)) for name in names]

    verifying = both.verifying(pace=replace(QUICK, retries=retries), open_moment=moment)
    verifying.listing = listing
    (found,) = verifying.run().tables
    assert (found.downstream, found.state) == ((DOWNSTREAM, "renamed"), state)
    assert found.changed == (state is State.DIFFERS)
    both.run(*(f"DROP TABLE {schema}.renamed" for schema in (UPSTREAM, DOWNSTREAM)))


def test_a_table_that_is_altered_before_it_is_cut_is_looked_at_again(both: World) -> None:
    class Altering:
        """What is asked between describing a table and cutting it."""

        def kept(self, work: TableWork, how: ComparedTable) -> tuple[tuple[Chunk, Part], ...]:
            both.run(f"ALTER TABLE {UPSTREAM}.named DROP PRIMARY KEY")
            return ()

        def keep(self, work: TableWork, chunk: Chunk, part: Part) -> None:
            pass

    definition = "name VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PRIMARY KEY"
    both.make("named", definition, "SELECT seq FROM mysql.seq_1_to_60")
    verifying = both.verifying("named", pace=replace(QUICK, retries=1), journal=Altering())
    (found,) = verifying.run().tables
    assert (found.state, found.rows) == (State.EQUAL, 60)
    assert verifying._look == 1


def test_it_stops_when_it_is_asked_to(both: World) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(Stopped):
        both.verifying("t", stop=stop).run()


def test_large_differences_are_read_in_parts(both: World) -> None:
    both.make("big", "a INT, b INT", "SELECT seq % 100, seq FROM mysql.seq_1_to_6000")
    both.run(f"UPDATE {DOWNSTREAM}.big SET a=a+1 WHERE b % 1000 = 0")
    found = both.table("big")
    assert (found.missing, found.extra, found.rows, found.chunks) == (6, 6, 6000, 1)


def test_a_drainer_that_falls_behind_is_given_way(both: World) -> None:
    class Clock:
        now_s = 0.0

        def monotonic_s(self) -> float:
            self.now_s += 1.0
            return self.now_s

        wall_s = monotonic_s

    told = iter([0.1, None, 60.0, 90.0])
    verifying = both.verifying(
        "t", pace=replace(QUICK, rows_a_second=1_000_000), behind=lambda: next(told, None), clock=Clock()
    )
    assert verifying.run().state is State.EQUAL
    assert verifying._budget.rows_s == 250_000

"""Equal is what was shown to be: whatever columns are called, servers limit and users may not read.

Tables are made at random; one value is changed downstream, and the comparison sees it.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.changes import canonical
from drainer.compare.report.repair.repair_file import RepairFile
from drainer.compare.verify import chunk_comparison
from drainer.compare.verify.compared_table import NOT_SHOWN
from drainer.compare.verify.result import How, State
from drainer.compare.verify.row_source import Sides, sides_at_rest
from drainer.compare.verify.table_work import Request
from drainer.mysql.connection import Connection
from drainer.mysql.rows.dialect import Dialect
from tests.drainer.compare.verify.world import DOWNSTREAM, QUICK, UPSTREAM, World, world

# Like the aliases of statements, like keywords, and like parts of statements and of formats.
_PRINTED = r"""b c h bucket seen copies rows COUNT SELECT null 1 0x1f a`b ` it's ' " \ \' -- /* ; #
    % %s %b %(x)s {x} ? @x a.b é ß İ 日本"""
NAMES = [*re.split(r"\s+", _PRINTED), 'say "a"', "x y", "a\nb", "\x01", "x" * 64]
TYPES = {  # two values that differ
    "INT": ("1", "2"),
    "INT(5) ZEROFILL": ("1", "10"),
    "BIT(3)": ("1", "2"),
    "DOUBLE": ("0.1e0", "0.2e0"),
    "DECIMAL(10,3)": ("1.5", "1.25"),
    "DATETIME(3)": ("'2024-01-01'", "'2024-01-02'"),
    "VARCHAR(3000) COLLATE utf8mb4_bin": ("'a'", "'A'"),
    "VARCHAR(3000) COLLATE utf8mb4_nopad_bin": ("REPEAT('x',2000)", "CONCAT(REPEAT('x',1999),'y')"),
    "VARCHAR(40) CHARSET latin1 COLLATE latin1_german2_ci": ("'ä'", "'ae'"),
    "VARCHAR(40) CHARSET utf8mb3 COLLATE utf8mb3_bin": ("'a '", "'a'"),
    "TEXT COLLATE utf8mb4_unicode_ci": ("REPEAT('a',3000)", "REPEAT('A',3000)"),
    "CHAR(9) CHARSET latin1 COLLATE latin1_bin": ("'é'", "'e'"),
    "VARBINARY(20)": ("x'00'", "x'0000'"),
    "BLOB": ("REPEAT(x'ff',2500)", "REPEAT(x'fe',2500)"),
    "ENUM('a','','b')": ("'a'", "''"),
    "SET('x','y')": ("'x'", "'x,y'"),
}
KEYS = [
    "PRIMARY KEY ({k})",
    "PRIMARY KEY ({k}), UNIQUE (`id2`)",
    "",
]
KEY_TYPES = ["INT", "VARCHAR(9) COLLATE utf8mb4_unicode_ci", "VARCHAR(9) COLLATE utf8mb4_bin", "BINARY(8)"]
SETTINGS = ["sql_select_limit=3", "max_join_size=5", "max_allowed_packet=1024", "sql_safe_updates=1"]


@pytest.fixture(scope="module")
def both(mariadb: MariaDbServer) -> Iterator[World]:
    with world(mariadb) as made:
        made.run("SET SESSION sql_mode='ALLOW_INVALID_DATES'")
        yield made


@contextmanager
def settings(both: World, chosen: Sequence[str]) -> Iterator[None]:
    """Global ones, which every new session gets."""
    names = [one.partition("=")[0] for one in chosen]
    before = [both.connection.rows(f"SELECT @@global.{name}".encode())[0][0] for name in names]
    try:
        both.run(*(f"SET GLOBAL {one}" for one in chosen))
        yield
    finally:
        both.run(*(f"SET GLOBAL {name}={value}" for name, value in zip(names, before, strict=True)))


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def make_at_random(both: World, number: int, chance: random.Random) -> str:
    """A table of some hundred equal rows; the statement by which one value differs downstream."""
    key, *names = chance.sample(NAMES, chance.randrange(2, 6))
    kinds = {name: chance.choice(list(TYPES)) for name in names}
    columns = [f"{quoted(key)} {chance.choice(KEY_TYPES)}", "id2 INT NOT NULL"]
    columns += [f"{quoted(name)} {kind}" for name, kind in kinds.items()]
    what = chance.choice(KEYS).format(k=quoted(key))
    rows = chance.choice([30, 30, 702])
    values = ",".join(f"IF(seq % 7 = 0, NULL, {TYPES[kind][0]})" for kind in kinds.values())
    both.make(
        f"r{number}",
        ", ".join(filter(None, [*columns, what])),
        f"SELECT seq, seq, {values} FROM mysql.seq_1_to_{rows}",
    )
    name, kind = chance.choice(list(kinds.items()))
    at = chance.choice([1, 8, rows // 2, rows])  # none of these is NULL
    value = chance.choice([TYPES[kind][1], "NULL"])
    return f"UPDATE {DOWNSTREAM}.r{number} SET {quoted(name)}={value} WHERE id2={at}"


@pytest.mark.parametrize("seed", range(3))
def test_a_planted_difference_is_seen(both: World, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    if chance.random() < 0.5:
        monkeypatch.setattr(chunk_comparison, "MEMORY_BYTES", 5000)
    done = [make_at_random(both, number, chance) for number in range(8)]
    pace = replace(QUICK, chunk_rows=chance.choice([100, 100_000]))
    names = [f"r{number}" for number in range(8)]
    with settings(both, chance.sample(SETTINGS, chance.randrange(len(SETTINGS) + 1))):
        before = both.verify(*names, pace=pace)
        assert [(one.downstream[1], one.why) for one in before.tables if one.state is not State.EQUAL] == []
        both.run(*done)
        found = both.verify(*names, pace=pace)
    for one, statement in zip(found.tables, done, strict=True):
        assert one.state is State.DIFFERS, statement
        assert one.wrong == (1 if one.key_columns else 2), statement
        assert one.chunks > 0
        assert one.downstream_rows == one.rows


@pytest.mark.parametrize("key", ["PRIMARY KEY ({k})", "UNIQUE ({k}), PRIMARY KEY (id2)", ""])
def test_the_repair_file_mends_whatever_names_are(both: World, key: str, tmp_path: Path) -> None:
    wanted = []
    for number, name in enumerate(NAMES):
        other, at = (NAMES[(number + more) % len(NAMES)] for more in (5, 11))
        columns = [f"{quoted(name)} INT NOT NULL", f"{quoted(other)} VARCHAR(30)", "id2 INT NOT NULL"]
        columns.append(f"{quoted(at)} DATETIME NULL ON UPDATE CURRENT_TIMESTAMP")
        table = f"{name[:60]}_{number}"
        both.make(
            quoted(table),
            ", ".join(filter(None, [*columns, key.format(k=quoted(name))])),
            "SELECT seq, IF(seq % 5, seq, NULL), seq, '2020-01-01' FROM mysql.seq_1_to_30",
        )
        t, kept = f"{DOWNSTREAM}.{quoted(table)}", f"{quoted(at)}={quoted(at)}"
        both.run(
            f"UPDATE {t} SET {quoted(other)}='a%s''\nb', {kept} WHERE id2=8",
            f"UPDATE {t} SET {quoted(other)}=NULL, {kept} WHERE id2=9",
            f"DELETE FROM {t} WHERE id2=11",
            f"INSERT INTO {t} SELECT 100, NULL, 100, NULL FROM {t} WHERE id2=12",
        )
        wanted.append(Request(((UPSTREAM, table),), (DOWNSTREAM, table)))
    path = tmp_path / "repair.sql"
    with RepairFile(str(path), Dialect.MARIADB) as file:
        run = both.of(wanted)
        run.on_difference = file.add
        found = run.run()
        file.finish(found)
    assert {one.wrong for one in found.tables} == {4 if key else 6}
    assert (file.rows, file.refused) == (found.wrong, [])
    applied = both.client(path)
    assert applied.returncode == 0, applied.stderr
    found = both.of(wanted).run()
    assert [(one.downstream, one.differences) for one in found.tables if one.state is not State.EQUAL] == []


def test_a_limit_that_a_session_keeps_is_an_error(both: World) -> None:
    """Of a proxy, say: what pins settings cannot know."""
    both.make("few", "id INT PRIMARY KEY, v DECIMAL(5,1)", "SELECT seq, seq FROM mysql.seq_1_to_50")
    both.run(f"ALTER TABLE {DOWNSTREAM}.few MODIFY v DECIMAL(5,2)")

    def moment() -> Sides:
        sides = both.moment()
        for side in (sides.upstream, sides.downstream):
            with side.session() as one, side.session() as other:
                for connection in (one, other):
                    connection.run(b"SET SESSION sql_select_limit=20")
        return sides

    (found,) = both.verifying("few", open_moment=moment, pace=replace(QUICK, chunk_rows=1000)).run().tables
    assert (found.state, found.how) == (State.NOT_COMPARABLE, How.VALUES)
    assert found.why.endswith("20 rows came, and the server counts 50")


@pytest.mark.parametrize(
    "hash_", [(b"SHA2(", b"no_such_function("), (b",256)", b",3)")], ids=["refused", "null"]
)
def test_a_sum_that_cannot_be_made_is_followed_by_reading(
    both: World, monkeypatch: pytest.MonkeyPatch, hash_: tuple[bytes, bytes]
) -> None:
    """A server that was built without it gives NULL."""
    both.make("t", "id INT PRIMARY KEY, v INT", "SELECT seq, seq FROM mysql.seq_1_to_50")
    queries = chunk_comparison.checksum.sum_queries
    monkeypatch.setattr(
        chunk_comparison.checksum,
        "sum_queries",
        lambda *parts: [query.replace(*hash_) for query in queries(*parts)],
    )
    found = both.verify("t")
    assert (found.state, found.rows) == (State.EQUAL, 50)
    assert found.chunks == found.read_whole > 0
    both.run(f"UPDATE {DOWNSTREAM}.t SET v=0 WHERE id=50")
    assert both.table("t").changed == 1


def test_large_rows_are_compared_in_little_memory(both: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_comparison, "MEMORY_BYTES", 1 << 16)
    both.make(
        "wide", "id INT PRIMARY KEY, v LONGTEXT", "SELECT seq, REPEAT(seq, 2000) FROM mysql.seq_1_to_200"
    )
    both.run(f"UPDATE {DOWNSTREAM}.wide SET v='' WHERE id % 2")
    most = 0
    differences = chunk_comparison.RowComparison.differences

    def counted(self: chunk_comparison.RowComparison, up, down):  # type: ignore[no-untyped-def]
        nonlocal most
        up, down = list(up), list(down)
        most = max(most, sum(len(value or b"") for row in (*up, *down) for value in row))
        return differences(self, up, down)

    monkeypatch.setattr(chunk_comparison.RowComparison, "differences", counted)
    found = both.table("wide", chunk_rows=1000)
    assert (found.changed, found.chunks, found.read_whole) == (100, 1, 1)
    assert len(both.told) >= 100
    assert most < 1 << 18, "of two megabytes"


def test_each_row_is_read_once(both: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """By value, too, and however little memory there is: time grows with the rows alone."""
    both.make("once", "id INT PRIMARY KEY, v DECIMAL(9,1)", "SELECT seq, seq FROM mysql.seq_1_to_2000")
    both.run(f"ALTER TABLE {DOWNSTREAM}.once MODIFY v DECIMAL(9,2)")
    monkeypatch.setattr(chunk_comparison, "MEMORY_BYTES", 10_000)
    read = 0
    stream = Connection.stream_printed

    def counted(self: Connection, query: bytes) -> Iterator[tuple[bytes | None, ...]]:
        nonlocal read
        for row in stream(self, query):
            read += 1
            yield row

    monkeypatch.setattr(Connection, "stream_printed", counted)
    found = both.table("once", chunk_rows=10_000)
    assert (found.state, found.how, found.rows, read) == (State.EQUAL, How.VALUES, 2000, 4000)


def test_all_differences_are_told_and_few_are_kept(both: World) -> None:
    both.make("all_wrong", "id INT PRIMARY KEY, v INT", "SELECT seq, 1 FROM mysql.seq_1_to_3000")
    both.run(f"UPDATE {DOWNSTREAM}.all_wrong SET v=2")
    both.told.clear()
    (found,) = both.verify("all_wrong", pace=replace(QUICK, chunk_rows=10_000)).tables
    assert (found.changed, len(found.differences), len(both.told)) == (3000, 100, 3000)
    assert len({one.key for one in both.told}) == 3000


def test_a_column_that_the_user_may_not_read_is_no_column_that_upstream_lacks(both: World) -> None:
    both.make("secret", "id INT PRIMARY KEY, v INT, s INT", "VALUES (1, 1, 1)")
    both.run(
        f"UPDATE {DOWNSTREAM}.secret SET s=2",
        "CREATE OR REPLACE USER half@'%' IDENTIFIED BY 'x'",
        f"GRANT SELECT (id, v) ON {UPSTREAM}.secret TO half@'%'",
    )
    try:
        half = replace(both.target, user="half", password="x")
        wanted = Request(
            ((UPSTREAM, "secret"),), (DOWNSTREAM, "secret"), published=(frozenset({"id", "v", "s"}),)
        )
        hidden = Request(((UPSTREAM, "hidden"),), (DOWNSTREAM, "hidden"))
        both.make("hidden", "id INT PRIMARY KEY", "VALUES (1)")

        def moment() -> Sides:
            return sides_at_rest(100, half, both.target, sessions=2)

        found, other = both.of([wanted, hidden], open_moment=moment).run().tables
        assert found.state is State.NOT_COMPARABLE
        assert found.why == f"column s: {UPSTREAM}.secret upstream does not show it: {NOT_SHOWN}"
        assert found.other_columns == ()
        assert (other.state, other.why) == (
            State.NOT_COMPARABLE,
            f"upstream does not show it: {NOT_SHOWN}",
        )
    finally:
        both.run("DROP USER half@'%'")


def test_what_the_downstream_does_not_show_is_not_lacking(both: World) -> None:
    both.make("narrow", "id INT PRIMARY KEY, v INT, s INT", "VALUES (1, 1, 1)")
    both.make("hidden", "id INT PRIMARY KEY", "VALUES (1)")
    both.make("shorter", "id INT PRIMARY KEY, s INT", "VALUES (1, 1)")
    both.run(
        f"ALTER TABLE {DOWNSTREAM}.shorter DROP s",
        "CREATE OR REPLACE USER half@'%' IDENTIFIED BY 'x'",
        f"GRANT SELECT (id, v) ON {DOWNSTREAM}.narrow TO half@'%'",
        f"GRANT SELECT ON {DOWNSTREAM}.shorter TO half@'%'",
    )
    half = replace(both.target, user="half", password="x")
    try:
        names = ("narrow", "hidden", "shorter")
        moment = partial(sides_at_rest, 100, both.target, half, sessions=2)
        found = both.verifying(*names, open_moment=moment).run().tables
    finally:
        both.run("DROP USER half@'%'")
    assert [(one.state, one.why) for one in found] == [
        (State.NOT_COMPARABLE, f"downstream does not show column s: {NOT_SHOWN}"),
        (State.NOT_COMPARABLE, f"downstream does not show it: {NOT_SHOWN}"),
        (State.DIFFERS, "downstream has no column s"),
    ]


def test_types_that_are_printed_in_two_ways_keep_to_their_table(both: World) -> None:
    both.make("flag", "id INT PRIMARY KEY, v TINYINT(1)", "VALUES (1, 1), (2, 0)")
    both.make("next", "id INT PRIMARY KEY", "VALUES (1)")
    both.run(f"ALTER TABLE {DOWNSTREAM}.flag MODIFY v BIT(1)")
    assert [one.state for one in both.verify("flag", "next").tables] == [State.EQUAL, State.EQUAL]
    both.run(f"UPDATE {DOWNSTREAM}.flag SET v=1")
    assert both.table("flag").changed == 1


def test_a_value_that_makes_no_sense_keeps_its_own_table_from_being_compared(
    both: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    both.make("flag", "id INT PRIMARY KEY, v TINYINT(1)", "VALUES (1, 1), (2, 0)")
    both.make("next", "id INT PRIMARY KEY", "VALUES (1)")
    both.run(f"ALTER TABLE {DOWNSTREAM}.flag MODIFY v BIT(1)", f"UPDATE {DOWNSTREAM}.flag SET v=1")
    monkeypatch.setattr(canonical, "expression", lambda name, form, **_: name)  # a BIT is bytes
    found, other = both.verify("flag", "next").tables
    assert (found.state, other.state) == (State.NOT_COMPARABLE, State.EQUAL)
    assert found.why.startswith("the database shows")


def test_sets_in_another_order_are_equal_and_no_name_is_nothing(both: World) -> None:
    both.make("kinds", "id INT PRIMARY KEY, s SET('x','y','z')", "VALUES (1, 'x,z'), (2, ''), (3, 'y')")
    both.run(f"ALTER TABLE {DOWNSTREAM}.kinds MODIFY s SET('z','y','x')")
    assert both.table("kinds").state is State.EQUAL
    both.run(f"UPDATE {DOWNSTREAM}.kinds SET s='x' WHERE id=1")
    assert both.table("kinds").changed == 1
    both.make("nothing", "id INT PRIMARY KEY, e ENUM('a','')", "VALUES (1, 0)")
    both.run(
        f"ALTER TABLE {DOWNSTREAM}.nothing MODIFY e ENUM('a','','b')",
        f"UPDATE {DOWNSTREAM}.nothing SET e=''",
    )
    assert both.table("nothing").state is State.NOT_COMPARABLE


def test_what_only_the_servers_compute_is_said_to_differ(both: World) -> None:
    both.make(
        "computed", "id INT PRIMARY KEY, v INT, g INT AS (v + 1) STORED", "(id, v) VALUES (1, 1), (2, 2)"
    )
    both.run(f"ALTER TABLE {DOWNSTREAM}.computed MODIFY g INT AS (v + 2) STORED")
    found = both.table("computed")
    assert (found.changed, found.computed) == (2, 2)
    assert found.why == "2 rows differ only in what each server computes by itself (g)"
    both.run(f"UPDATE {DOWNSTREAM}.computed SET v=9 WHERE id=1")
    assert both.table("computed").computed == 1

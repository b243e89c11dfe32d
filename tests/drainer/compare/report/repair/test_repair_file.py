"""Repair file: run against a server it makes the rows right, once and twice, and touches nothing else."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from drainer.compare.report.repair.repair_file import RepairFile
from drainer.compare.verify.result import ComparedColumn, Kind, RowDifference, State, TableResult
from drainer.mysql.connection import Connection, Target, connect
from drainer.mysql.rows.dialect import Dialect
from drainer.mysql.session_mode import DEFAULT
from tests.drainer.compare.report.results import FAULTY, SOUND, WAITING
from tidb_binlog.errors import ConfigError

DATABASE = "mended"
# Of each type: the column's definition, what the downstream has, what it should have.
TYPES = {
    "tinyint": ("tinyint", b"-1", b"0"),
    "bigint": ("bigint unsigned", b"0", b"18446744073709551615"),
    "bit": ("bit(64)", b"1", b"9223372036854775809"),
    "float": ("float", b"1.100000023841858", b"3.3999999521443642e38"),
    "double": ("double", b"1.1", b"-1e-300"),
    "decimal": ("decimal(30,10)", b"1.0000000000", b"-1.5000000001"),
    "year": ("year", b"2023", b"0"),
    "date": ("date", b"'2023-01-02'", b"'0000-00-00'"),
    "datetime": ("datetime(6)", b"'2023-01-02 03:04:05.000006'", b"'2023-01-02 03:04:05.000007'"),
    "timestamp": ("timestamp(3) null", b"'2023-01-02 03:04:05.006'", b"'2023-01-02 03:04:05.007'"),
    "time": ("time(2)", b"'-01:02:03.04'", b"'838:59:59.00'"),
    "char": ("char(9)", b"'A'", b"'a'"),
    "varchar": ("varchar(99) character set latin1", "'é'".encode(), b"'e'"),
    "text": ("text collate utf8mb4_general_ci", b"''", b"'a\0b\r\n;\\\\''\x1a'"),
    "enum": ("enum('a','b;')", b"'b;'", b"0/*enum*/"),
    "set": ("set('a','b')", b"3", b"0"),
    "binary": ("binary(3)", b"x'000000'", b"x'00ff0a'"),
    "blob": ("blob", b"x''", b"_binary'\0\xff\\\\\r'''"),
    "json": ("json", b"""'{"a": 1}'""", b"""'{"a": [1, "x"]}'"""),
}


@pytest.fixture(scope="module")
def session(server: Target) -> Iterator[Connection]:
    connection = connect(server)
    connection.autocommit(True)
    for statement in (f"DROP DATABASE IF EXISTS {DATABASE}", f"CREATE DATABASE {DATABASE} CHARSET utf8mb4"):
        connection.run(statement.encode())
    yield connection
    connection.run(f"DROP DATABASE {DATABASE}".encode())
    connection.close()


def result(table: str, columns: Iterable[ComparedColumn]) -> TableResult:
    name = (DATABASE, table)
    return TableResult((name,), name, State.DIFFERS, columns=tuple(columns))


def repaired(
    connection: Connection, path: Path, table: TableResult, *found: RowDifference, times: int = 1
) -> str:
    """Write the file and run it, statement by statement, each of which is a line; what it says."""
    with RepairFile(str(path), connection.dialect) as file:
        for one in found:
            file.add(table, one)
        file.finish(replace(FAULTY, tables=(table,)))
    lines = path.read_bytes().split(b"\n")
    for _ in range(times):
        for line in lines:
            if line and not line.startswith(b"--"):
                connection.run(line.removesuffix(b";"))
    return path.read_text("utf-8", "backslashreplace")


@pytest.mark.integration
@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "keyless"])
def test_every_type_is_found_as_it_was_and_written_as_it_should_be(
    session: Connection, tmp_path: Path, name: str, *, keyed: bool
) -> None:
    kind, wrong, right = TYPES[name]
    key = b"id int primary key, " if keyed else b"id int, "
    session.run(b"DROP TABLE IF EXISTS mended.t")
    session.run(b"CREATE TABLE mended.t (%b v %b)" % (key, kind.encode()))
    session.run(b"SET SESSION sql_mode=''")
    session.run(b"INSERT INTO mended.t VALUES (1,%b),(2,NULL),(3,%b)" % (wrong, wrong))
    session.run(b"DROP TABLE IF EXISTS mended.wanted")
    session.run(b"CREATE TABLE mended.wanted LIKE mended.t")
    session.run(b"INSERT INTO mended.wanted VALUES (1,%b),(2,%b),(4,%b)" % (right, right, right))
    table = result("t", (ComparedColumn("id", is_key=keyed, type="int"), ComparedColumn("v", type=name)))
    changes = [
        (b"1", (b"1", right), (b"1", wrong)),
        (b"2", (b"2", right), (b"2", b"NULL")),
        (b"3", None, (b"3", wrong)),
        (b"4", (b"4", right), None),
    ]
    found = []
    for number, up, down in changes:
        if keyed:
            what = Kind.EXTRA if up is None else Kind.MISSING if down is None else Kind.CHANGED
            found.append(RowDifference((number,), what, up, down, ("v",) if up and down else ()))
            continue
        if up:
            found.append(RowDifference((), Kind.MISSING, up, None, copies=(1, 0)))
        if down:
            found.append(RowDifference((), Kind.EXTRA, None, down, copies=(0, 1)))
    repaired(session, tmp_path / "repair.sql", table, *found, times=2)
    shown = b"SELECT id, HEX(v), v IS NULL FROM mended.%b ORDER BY id"
    assert session.rows(shown % b"t") == session.rows(shown % b"wanted")


@pytest.mark.integration
def test_rows_that_exchanged_the_values_of_a_unique_key(session: Connection, tmp_path: Path) -> None:
    session.run(b"DROP TABLE IF EXISTS mended.u")
    session.run(b"CREATE TABLE mended.u (id int primary key, code varchar(9) unique)")
    session.run(b"INSERT INTO mended.u VALUES (1,'b'),(2,'a'),(3,'c')")
    columns = (
        ComparedColumn("id", is_key=True, type="int"),
        ComparedColumn("code", is_unique=True, type="varchar"),
    )
    found = [
        RowDifference((n,), Kind.CHANGED, (n, up), (n, down), ("code",))
        for n, up, down in ((b"1", b"'a'", b"'b'"), (b"2", b"'b'", b"'a'"))
    ]
    repaired(session, tmp_path / "repair.sql", result("u", columns), *found, times=2)
    assert session.rows(b"SELECT * FROM mended.u ORDER BY id") == [(1, "a"), (2, "b"), (3, "c")]


@pytest.mark.integration
def test_a_key_that_differs_in_case_only(session: Connection, tmp_path: Path) -> None:
    session.run(b"DROP TABLE IF EXISTS mended.k")
    session.run(b"CREATE TABLE mended.k (code varchar(9) collate utf8mb4_general_ci primary key)")
    session.run(b"INSERT INTO mended.k VALUES ('A')")
    table = result("k", (ComparedColumn("code", is_key=True, type="varchar"),))
    found = (
        RowDifference((b"'a'",), Kind.MISSING, (b"'a'",), None),
        RowDifference((b"'A'",), Kind.EXTRA, None, (b"'A'",)),
    )
    repaired(session, tmp_path / "repair.sql", table, *found, times=2)
    assert session.rows(b"SELECT HEX(code) FROM mended.k") == [("61",)]


@pytest.mark.integration
def test_what_was_changed_since_stays(session: Connection, tmp_path: Path) -> None:
    session.run(b"DROP TABLE IF EXISTS mended.s")
    session.run(b"CREATE TABLE mended.s (id int primary key, v int)")
    session.run(b"INSERT INTO mended.s VALUES (1,11),(2,22),(3,33)")
    table = result("s", (ComparedColumn("id", is_key=True, type="int"), ComparedColumn("v", type="int")))
    found = (
        RowDifference((b"1",), Kind.CHANGED, (b"1", b"0"), (b"1", b"1"), ("v",)),
        RowDifference((b"2",), Kind.EXTRA, None, (b"2", b"2")),
        RowDifference((b"3",), Kind.MISSING, (b"3", b"3"), None),
    )
    repaired(session, tmp_path / "repair.sql", table, *found)
    assert session.rows(b"SELECT * FROM mended.s ORDER BY id") == [(1, 11), (2, 22), (3, 33)]


@pytest.mark.integration
def test_so_many_copies_are_added_or_taken_away(session: Connection, tmp_path: Path) -> None:
    session.run(b"DROP TABLE IF EXISTS mended.m")
    session.run(b"CREATE TABLE mended.m (v int, w int generated always as (v + 1) stored)")
    session.run(b"INSERT INTO mended.m (v) VALUES (1),(1),(1),(2)")
    columns = (ComparedColumn("v", type="int"), ComparedColumn("w", type="int", is_generated=True))
    found = (
        RowDifference((), Kind.EXTRA, None, (b"1", b"2"), copies=(1, 3)),
        RowDifference((), Kind.MISSING, (b"2", b"3"), None, copies=(4, 1)),
    )
    repaired(session, tmp_path / "repair.sql", result("m", columns), *found, times=2)
    assert session.rows(b"SELECT * FROM mended.m ORDER BY v") == [(1, 2), *[(2, 3)] * 4]


def test_the_file_says_what_it_is_for_and_what_it_leaves(tmp_path: Path) -> None:
    path = tmp_path / "repair.sql"
    table = result("t", (ComparedColumn("id", is_key=True), ComparedColumn("g", is_generated=True)))
    with RepairFile(str(path), Dialect.TIDB) as file:
        file.add(table, RowDifference((b"1",), Kind.CHANGED, (b"1", b"2"), (b"1", b"3"), ("g",)))
        assert not path.exists()
        file.finish(replace(FAULTY, tables=(table, WAITING), upstream="up\nDROP TABLE t;"))
    assert file.rows == 0
    assert len(file.refused) == 1
    lines = path.read_text().splitlines()
    assert "as it was at 2023-11-14T22:13:20.000Z" in lines[0]
    assert not any(line.startswith("DROP") for line in lines)
    assert "-- not compared: shop.w: it waits: a DDL was refused" in lines
    assert any(line.startswith("-- not mended: 1 x the downstream computes g") for line in lines)
    assert "SET SESSION allow_auto_random_explicit_insert=1;" in lines


@pytest.mark.parametrize("dialect", [Dialect.TIDB, Dialect.MARIADB])
def test_rows_are_looked_for_by_a_lax_tidb_which_finds_all(tmp_path: Path, dialect: Dialect) -> None:
    path = tmp_path / "repair.sql"
    table = result("t", (ComparedColumn("on", is_key=True, type="date"),))
    day = (b"'2020-00-01'",)
    with RepairFile(str(path), dialect) as file:
        file.add(table, RowDifference(day, Kind.EXTRA, None, day))
        file.add(table, RowDifference(day, Kind.MISSING, day, None))
        file.finish(replace(FAULTY, tables=(table,)))
    lines = path.read_text().splitlines()
    body = [line.split(" FROM ")[0] for line in lines[lines.index("START TRANSACTION;") + 1 :]]
    modes = [f"SET SESSION sql_mode='{mode}';" for mode in (DEFAULT.lax, DEFAULT.strict)]
    insert = "INSERT INTO `mended`.`t` (`on`) SELECT '2020-00-01'"
    expected = ["DELETE", insert, "COMMIT;"]
    if dialect is Dialect.TIDB:
        expected = [modes[0], "DELETE", modes[1], modes[0], insert, modes[1], "COMMIT;"]
    assert body[: len(expected)] == expected


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(BytesIO):
        def writelines(self, _: Any) -> None:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "SpooledTemporaryFile", lambda _: Full())
    table = next(one for one in FAULTY.tables if one.differences)
    with (
        RepairFile(str(tmp_path / "r.sql"), Dialect.MARIADB) as file,
        pytest.raises(ConfigError, match=r"cannot be kept in .*No space left"),
    ):
        file.add(table, table.differences[0])


def test_nothing_to_mend_is_said(tmp_path: Path) -> None:
    path = tmp_path / "repair.sql"
    with RepairFile(str(path), Dialect.MARIADB) as file:
        file.finish(SOUND)
    assert "nothing to mend" in path.read_text()


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_compared(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="-repair"):
        RepairFile(str(tmp_path / "none" / "repair.sql"), Dialect.MARIADB)
    with pytest.raises(ConfigError, match="-repair"):
        RepairFile(str(tmp_path), Dialect.MARIADB)

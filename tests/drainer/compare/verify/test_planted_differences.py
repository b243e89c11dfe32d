"""Every kind of difference is found as what it is, and the repair file makes both sides equal again.

One run compares all tables: each has a difference, and differs in nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.compare.report.repair.repair_file import RepairFile
from drainer.compare.verify.result import Kind, RowDifference, State, TableResult, Verification
from drainer.mysql.rows.dialect import Dialect
from tests.drainer.compare.verify.world import DOWNSTREAM, QUICK, World, world

CHUNK_ROWS = 10
CHANGED, EXTRA, MISSING = Kind.CHANGED, Kind.EXTRA, Kind.MISSING
# A row of each type (upstream), and what the downstream has instead.
TYPES = {
    "t_tinyint": ("TINYINT", "-1", "1"),
    "t_bool": ("BOOL", "1", "0"),
    "t_int_null": ("INT", "0", "NULL"),
    "t_bigint": ("BIGINT UNSIGNED", "18446744073709551615", "18446744073709551614"),
    "t_zerofill": ("INT(8) ZEROFILL", "42", "43"),
    "t_bit": ("BIT(64)", "b'1'", "b'0'"),
    "t_float": ("FLOAT", "1.1", "1.1000001"),
    "t_double": ("DOUBLE", "0.1", "0.1e0 + 1e-17 * 2"),
    "t_decimal": ("DECIMAL(40,20)", "1.00000000000000000001", "1"),
    "t_year": ("YEAR", "0", "2000"),
    "t_date": ("DATE", "'0000-00-00'", "NULL"),
    "t_datetime": ("DATETIME(6)", "'2024-02-29 23:59:59.999999'", "'2024-02-29 23:59:59.999998'"),
    "t_timestamp": ("TIMESTAMP(3) NULL", "'2024-01-01 00:00:00.001'", "'2024-01-01 01:00:00.001'"),
    "t_time": ("TIME(2)", "'-838:59:59'", "'838:59:59'"),
    "t_char": ("CHAR(9) COLLATE utf8mb4_general_ci", "'é'", "'e'"),
    "t_blanks": ("VARCHAR(9)", "'a '", "'a'"),
    "t_latin1": ("VARCHAR(9) CHARSET latin1", "'Ä'", "'ä'"),
    "t_text": ("LONGTEXT", "CONCAT(REPEAT('x', 70000), 'a')", "CONCAT(REPEAT('x', 70000), 'b')"),
    "t_enum": ("ENUM('a','b','A ')", "'a'", "'b'"),
    "t_enum_zero": ("ENUM('a','b')", "0", "'b'"),
    "t_enum_empty": ("ENUM('a','','b')", "0", "''"),
    "t_enum_number": ("ENUM('a','','b')", "''", "0"),
    "t_set": ("SET('a','b')", "'a,b'", "''"),
    "t_binary": ("BINARY(4)", "x'00'", "x'01'"),
    "t_blob": ("BLOB", "x'ff0027'", "x'ff5c27'"),
    "t_json": ("JSON", """'{"a": [1, null]}'""", """'{"a": [1, 0]}'"""),
}


@dataclass(frozen=True)
class Plant:
    """What is done downstream to a table `{t}` of `columns` and `rows`, and the rows that differ then: kind,
    key, columns; of a table without key the copies on both sides."""

    columns: str
    rows: str
    done: tuple[str, ...]
    found: tuple[tuple[object, ...], ...]


HUNDRED = "SELECT seq, CONCAT('n', seq) FROM mysql.seq_1_to_100"
NUMBERED = "id INT PRIMARY KEY, v VARCHAR(20)"
PLANTS = {
    "first_row": Plant(NUMBERED, HUNDRED, ("DELETE FROM {t} WHERE id=1",), ((MISSING, b"1", ()),)),
    "last_row": Plant(
        NUMBERED, HUNDRED, ("UPDATE {t} SET v='z' WHERE id=100",), ((CHANGED, b"100", ("v",)),)
    ),
    "before_all": Plant(NUMBERED, HUNDRED, ("INSERT INTO {t} VALUES (-1,'')",), ((EXTRA, b"-1", ()),)),
    "after_all": Plant(NUMBERED, HUNDRED, ("INSERT INTO {t} VALUES (101,'')",), ((EXTRA, b"101", ()),)),
    "every_row": Plant(
        NUMBERED,
        HUNDRED,
        ("UPDATE {t} SET v=CONCAT(v,'')", "UPDATE {t} SET v=UPPER(v)"),
        tuple((CHANGED, b"%d" % number, ("v",)) for number in range(1, 101)),
    ),
    "null_for_empty": Plant(
        NUMBERED, "VALUES (1,''),(2,NULL)", ("UPDATE {t} SET v=IF(v IS NULL,'',NULL)",),
        ((CHANGED, b"1", ("v",)), (CHANGED, b"2", ("v",))),
    ),
    "the_text_null": Plant(
        NUMBERED, "VALUES (1,NULL)", ("UPDATE {t} SET v='NULL'",), ((CHANGED, b"1", ("v",)),)
    ),
    "equal_by_collation": Plant(
        "id INT PRIMARY KEY, v VARCHAR(20) COLLATE utf8mb4_unicode_ci", "VALUES (1,'straße'),(2,'a')",
        ("UPDATE {t} SET v='STRASSE' WHERE id=1",), ((CHANGED, b"1", ("v",)),),
    ),
    "key_equal_by_collation": Plant(
        "v VARCHAR(20) COLLATE utf8mb4_general_ci PRIMARY KEY", "VALUES ('a'),('b')",
        ("UPDATE {t} SET v='A' WHERE v='a'",), ((MISSING, b"'a'", ()), (EXTRA, b"'A'", ())),
    ),
    "values_moved_between_columns": Plant(
        "id INT PRIMARY KEY, a VARCHAR(9), b VARCHAR(9)", "VALUES (1,'x,y','z'),(2,'','1')",
        ("UPDATE {t} SET a='x', b='y,z' WHERE id=1", "UPDATE {t} SET a='1', b='' WHERE id=2"),
        ((CHANGED, b"1", ("a", "b")), (CHANGED, b"2", ("a", "b"))),
    ),
    "rows_exchanged": Plant(
        "id INT PRIMARY KEY, v INT UNIQUE", "VALUES (1,10),(2,20),(3,30)",
        ("UPDATE {t} SET v=0 WHERE id=1", "UPDATE {t} SET v=10 WHERE id=2", "UPDATE {t} SET v=20 WHERE id=1"),
        ((CHANGED, b"1", ("v",)), (CHANGED, b"2", ("v",))),
    ),
    "duplicate": Plant(
        "v VARCHAR(9), n INT", "VALUES ('a',1),('a',1),('b',NULL)", ("INSERT INTO {t} VALUES ('a',1)",),
        ((EXTRA, (2, 3)),),
    ),
    "duplicate_gone": Plant(
        "v VARCHAR(9), n INT", "VALUES ('a',1),('a',1),('a',1),('b',NULL)", ("DELETE FROM {t} LIMIT 2",),
        ((MISSING, (3, 1)),),
    ),
    "keyless_changed": Plant(
        "v VARCHAR(9) COLLATE utf8mb4_general_ci, n FLOAT", "VALUES ('a',1.1),('a',NULL),('b',0)",
        ("UPDATE {t} SET v='A' WHERE n IS NULL",), ((MISSING, (1, 0)), (EXTRA, (0, 1))),
    ),
    "composite_key": Plant(
        "a VARCHAR(9), b INT, v INT, PRIMARY KEY (a, b)",
        "SELECT CHAR(97 + seq % 5), seq, seq FROM mysql.seq_1_to_60",
        ("DELETE FROM {t} WHERE b=30", "INSERT INTO {t} VALUES ('c', -5, 0)"),
        ((EXTRA, b"'c'", ()), (MISSING, b"'a'", ())),
    ),
    "twice_where_only_upstream_has_a_key": Plant(
        "id INT PRIMARY KEY, v INT", "VALUES (1,1),(2,2)",
        ("ALTER TABLE {t} DROP PRIMARY KEY", "INSERT INTO {t} VALUES (2,2),(2,2)"), ((EXTRA, (1, 3)),),
    ),
    "blank_behind_a_name": Plant(
        "id INT PRIMARY KEY, v ENUM('a','b')", "VALUES (1,'a'),(2,'b')",
        ("ALTER TABLE {t} MODIFY v VARCHAR(9)", "UPDATE {t} SET v='b ' WHERE id=2"),
        ((CHANGED, b"2", ("v",)),),
    ),
    "set_by_the_server_on_update": Plant(
        "id INT PRIMARY KEY, v INT, at DATETIME(6) DEFAULT '2020-01-01' ON UPDATE CURRENT_TIMESTAMP(6)",
        "(id, v) VALUES (1,1),(2,2)",
        ("UPDATE {t} SET v=9, at=at WHERE id=2",), ((CHANGED, b"2", ("v",)),),
    ),
    "computed_there_by_another_expression": Plant(
        "id INT PRIMARY KEY, g INT AS (id + 1) STORED", "(id) VALUES (1),(2)",
        ("ALTER TABLE {t} MODIFY g INT AS (IF(id = 2, 0, id + 1)) STORED",), ((CHANGED, b"2", ("g",)),),
    ),
}  # fmt: skip
PLANTS |= {
    name: Plant(
        f"id INT PRIMARY KEY, v {kind}",
        f"VALUES (1,{right}),(2,{right})",
        (f"UPDATE {{t}} SET v={wrong} WHERE id=2",),
        ((CHANGED, b"2", ("v",)),),
    )
    for name, (kind, right, wrong) in TYPES.items()
}
PLANTS |= {
    f"border_{number}": Plant(
        NUMBERED, HUNDRED, (f"UPDATE {{t}} SET v='' WHERE id={number}",), ((CHANGED, b"%d" % number, ("v",)),)
    )
    for number in range(CHUNK_ROWS - 1, 3 * CHUNK_ROWS + 2)
}
NOT_TO_MEND = "computed_there_by_another_expression"


@pytest.fixture(scope="module")
def planted(mariadb: MariaDbServer) -> Iterator[World]:
    with world(mariadb) as made:
        made.run("SET SESSION sql_mode='ALLOW_INVALID_DATES'")
        for name, plant in PLANTS.items():
            made.make(name, plant.columns, plant.rows)
        yield made


def compare(planted: World) -> Verification:
    planted.told.clear()
    return planted.verify(*PLANTS, pace=replace(QUICK, chunk_rows=CHUNK_ROWS))


def told(found: RowDifference) -> tuple[object, ...]:
    if found.copies is not None:
        return found.kind, found.copies
    return found.kind, found.key[0], found.columns


def test_every_planted_difference_is_found_and_mended(planted: World, tmp_path: Path) -> None:
    before = compare(planted)
    assert [one.downstream[1] for one in before.tables if one.state is not State.EQUAL] == []
    for name, plant in PLANTS.items():
        planted.run(*(statement.replace("{t}", f"{DOWNSTREAM}.{name}") for statement in plant.done))
    path = tmp_path / "repair.sql"
    with RepairFile(str(path), Dialect.MARIADB) as file:
        run = planted.verifying(*PLANTS, pace=replace(QUICK, chunk_rows=CHUNK_ROWS))
        run.on_difference = file.add
        found = run.run()
        file.finish(found)
    assert {one.downstream[1] for one in found.tables if one.state is State.DIFFERS} == set(PLANTS)
    for table in found.tables:
        check(table, PLANTS[table.downstream[1]])
    assert [line.split(":")[0] for line in file.refused] == [f"{DOWNSTREAM}.{NOT_TO_MEND}"]
    apply(planted, path)
    after = compare(planted)
    wrong = {one.downstream[1] for one in after.tables if one.state is not State.EQUAL}
    assert wrong == {NOT_TO_MEND}
    assert sum(one.wrong for one in after.tables) == 1


def check(table: TableResult, plant: Plant) -> None:
    """What was planted, and nothing else."""
    assert sorted(map(told, table.differences), key=str) == sorted(plant.found, key=str), table.downstream
    assert table.wrong == sum(one.rows for one in table.differences), table.downstream


def apply(planted: World, path: Path) -> None:
    """Statement by statement, each of which is a line."""
    for line in path.read_bytes().split(b"\n"):
        if line and not line.startswith(b"--"):
            planted.connection.run(line.removesuffix(b";"))

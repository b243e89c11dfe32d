"""Both ways of reading a chunk give the same rows: literals by the server, values by the row codec.

Every type, with the values at its ends and those that one way of writing would spoil. Rows are copied into
two tables, one for each way, and compared with the source by the server, byte by byte.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from drainer.mysql.chunks import printed, value_rows
from drainer.mysql.chunks.chunk import Chunk, RowsLost
from drainer.mysql.chunks.cut_key import WHOLE, CutKey, key_to_copy
from drainer.mysql.chunks.literal_rows import LiteralSelect, NotLiteral
from drainer.mysql.chunks.value_rows import ValueSelect
from drainer.mysql.connection import Connection, Target, connect
from drainer.mysql.literal.downstream_column import DownstreamColumn
from drainer.mysql.literal.quoting import quote_name
from drainer.mysql.rows.column_match import DownstreamTable
from drainer.mysql.rows.dialect import Dialect
from drainer.mysql.rows.table_target import target_of
from drainer.mysql.session_mode import DEFAULT
from drainer.mysql.table_reader import read_table
from drainer.txn import TableVersion
from pumpclient.schema.table_definition import column, create_text, table
from tests.drainer.mysql.chunks.column_values import JSONS, MEMBERS, VALUES
from tidb_binlog.errors import DownstreamError
from tidb_binlog.table_info import Column, TableInfo

HERE, THERE = "chunks_here", "chunks_there"
TIDB_REFUSES = {"'2023-00-00'", "'2023-00-00 23:59:59'", "'2023-00-00 00:00:00.000001'"}


class Bed:
    """A source table and its copies in one server."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.dialect = connection.dialect

    def run(self, *statements: str) -> None:
        for statement in statements:
            self.connection.run(statement.encode())

    def described(self, database: str, name: str) -> DownstreamTable:
        found = read_table(self.connection, database, name)
        assert found is not None
        return found

    def make(self, info: TableInfo, create: str, *copies: str) -> DownstreamTable:
        for database, name in ((HERE, "t"), *((THERE, name) for name in copies)):
            self.connection.select_db(database)
            self.run(f"DROP TABLE IF EXISTS {name}", create.replace("`t`", name, 1))
        return self.described(HERE, "t")

    def copy_literals(self, columns: tuple[Column, ...], name: str, chunks: list[Chunk], key: CutKey) -> None:
        here, there = self.described(HERE, "t"), self.described(THERE, name)
        select = LiteralSelect.of(columns, here, there, key)
        assert select is not None
        names = b",".join(quote_name(one.name) for one in columns)
        for chunk in chunks:
            for rows in list(select.read(self.connection, chunk)):
                head = f"INSERT INTO {THERE}.{name} (".encode() + names
                assert self.connection.run(head + b") VALUES " + rows.sql) == rows.count
        self.connection.commit()

    def copy_values(self, info: TableInfo, name: str, chunks: list[Chunk], key: CutKey) -> None:
        here, there = self.described(HERE, "t"), self.described(THERE, name)
        target = target_of(TableVersion(info, HERE, "t", 1, (THERE, name)), 1, there)
        select = ValueSelect.of(info, here, key)
        for chunk in chunks:
            for rows in list(select.read(self.connection, chunk)):
                literals = b",".join(target.sql.insert_literals(row) for row in rows)
                head = b"INSERT INTO %b (%b) VALUES " % (target.name, target.sql.column_list)
                assert self.connection.run(head + literals) == len(rows)
        self.connection.commit()

    def differing(self, columns: tuple[Column, ...], name: str) -> list[str]:
        """Columns in which rows of a copy are not those of the source."""
        found = []
        for one in columns:
            at = f"`{one.name}`"
            text = one.type.charset not in ("", "binary") or one.type.is_binary_string
            same = f"BINARY a.{at}<=>BINARY b.{at}" if text else f"a.{at}<=>b.{at}"
            join = f"FROM {HERE}.t a LEFT JOIN {THERE}.{name} b ON a.id=b.id WHERE NOT ({same})"
            if self.connection.rows(f"SELECT 1 {join} LIMIT 1".encode()):
                found.append(one.name)
        return found

    def count(self, name: str) -> int:
        ((count,),) = self.connection.rows(f"SELECT COUNT(*) FROM {name}".encode())
        return int(count)


@pytest.fixture(scope="module")
def bed(server: Target) -> Iterator[Bed]:
    connection = connect(server)
    made = Bed(connection)
    databases = (HERE, THERE)
    made.run(*(f"DROP DATABASE IF EXISTS {name}" for name in databases))
    made.run(*(f"CREATE DATABASE {name} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin" for name in databases))
    yield made
    connection.rollback()
    made.run(*(f"DROP DATABASE {name}" for name in databases))
    connection.close()


def every_type(bed: Bed) -> tuple[TableInfo, str, list[str]]:
    """A table with a column of each type, its statement, and rows: every value once, in random company."""
    chance = random.Random(19)
    values = dict(VALUES)
    if bed.dialect is Dialect.TIDB:
        values = {kind: [one for one in found if one not in TIDB_REFUSES] for kind, found in values.items()}
        values["json"] = JSONS
    columns = [column("id", "int", nullable=False)]
    columns += [column(f"c{number}", kind) for number, kind in enumerate(values)]
    info = replace(table("t", columns, ("id",)), id=7)
    rows = []
    most = max(map(len, values.values()))
    for number in range(most * 3):
        shown = [
            "NULL" if chance.random() < 0.1 else found[(number + shift) % len(found)]
            for shift, found in enumerate(values.values())
        ]
        rows.append(f"({number},{','.join(shown)})")
    return info, create_text(info, columns, ("id",)), rows


def test_every_type(bed: Bed) -> None:
    info, create, rows = every_type(bed)
    here = bed.make(info, create, "fast", "slow")
    bed.run(f"INSERT INTO {HERE}.t VALUES {','.join(rows)}")
    bed.connection.commit()
    key = key_to_copy(here)
    ends = [(), (b"7",), (b"20",), ()]
    chunks = [Chunk(n, ("id",), low, high) for n, (low, high) in enumerate(itertools.pairwise(ends))]
    bed.copy_literals(info.columns, "fast", chunks, key)
    bed.copy_values(info, "slow", chunks, key)
    for name in ("fast", "slow"):
        assert bed.count(f"{THERE}.{name}") == len(rows)
        assert bed.differing(info.columns, name) == []


def small(bed: Bed, kind: str, *values: str, charset: str = "") -> TableInfo:
    """A table with one column; `charset` is what the servers have instead of utf8mb4."""
    columns = [column("id", "int", nullable=False), column("c", kind)]
    info = replace(table("t", columns, ("id",)), id=8)
    create = create_text(info, columns, ("id",))
    if charset:
        create = create.replace(kind.upper(), f"{kind} CHARACTER SET {charset}")
    bed.make(info, create, "fast", "slow")
    for number, value in enumerate(values):
        bed.run(f"INSERT INTO {HERE}.t VALUES ({number},{value})")
    bed.connection.commit()
    return info


def test_a_value_that_reaches_its_limit_is_not_used(bed: Bed) -> None:
    """GROUP_CONCAT cuts off without an error: such rows come one by one, and all of them."""
    info = small(bed, "text", *(f"REPEAT('é',{n * 10})" for n in range(60)))
    here, there = bed.described(HERE, "t"), bed.described(THERE, "fast")
    select = LiteralSelect.of(info.columns, here, there, key_to_copy(here))
    assert select is not None
    whole = b",".join(rows.sql for rows in select.read(bed.connection, Chunk(0)))
    for limit in (1024, 4096, len(whole), len(whole) + 10, len(whole) + 17):
        parts = list(select.read(bed.connection, Chunk(0), limit))
        assert b",".join(rows.sql for rows in parts) == whole
        assert sum(rows.count for rows in parts) == 60
        assert (len(parts) > 1) == (limit <= len(whole) + 16)


def test_a_row_is_not_cut_off_to_the_width_it_is_thought_to_have(bed: Bed) -> None:
    """MySQL does that to QUOTE of a text full of quotes, and to long doubles; a TiDB would make the space."""
    info = small(bed, "char(30)", "REPEAT(CHAR(39 USING utf8mb4),30)")
    here, there = bed.described(HERE, "t"), bed.described(THERE, "fast")
    for dialect in Dialect:
        select = LiteralSelect.of(info.columns, replace(here, dialect=dialect), there, WHOLE)
        assert select is not None
        assert (b"SPACE(" in select.row) == (dialect is not Dialect.TIDB)
    select = LiteralSelect.of(info.columns, here, there, WHOLE)
    assert select is not None
    (rows,) = select.read(bed.connection, Chunk(0))
    assert rows.sql == b"(0,'%b')" % (b"\\'" * 30)


def test_an_enum_without_element_is_told(bed: Bed) -> None:
    info = small(bed, "enum('a','b')", "'a'", "NULL")
    bed.run(f"SET SESSION sql_mode='{DEFAULT.lax}'", f"INSERT IGNORE INTO {HERE}.t VALUES (9,'none')")
    bed.connection.commit()
    here, there = bed.described(HERE, "t"), bed.described(THERE, "fast")
    select = LiteralSelect.of(info.columns, here, there, WHOLE)
    assert select is not None
    (rows,) = select.read(bed.connection, Chunk(0))
    assert rows.lax
    bed.copy_literals(info.columns, "fast", [Chunk(0)], WHOLE)
    bed.copy_values(info, "slow", [Chunk(0)], WHOLE)
    bed.run(f"SET SESSION sql_mode='{DEFAULT.strict}'")
    for name in ("fast", "slow"):
        assert bed.differing(info.columns, name) == []


@pytest.mark.parametrize("charset", ["latin1", "ascii", "utf8", "gbk", "utf16"])
def test_other_character_sets(bed: Bed, charset: str) -> None:
    values = ["'it''s'", "''", "'é'"] if charset in ("latin1", "utf8", "utf16") else ["'it''s'", "''"]
    if bed.dialect is Dialect.TIDB and charset == "utf16":
        return  # it has none
    info = small(bed, "varchar(20)", *values, charset=charset)
    here, there = bed.described(HERE, "t"), bed.described(THERE, "fast")
    ways: list[Callable[[], None]] = [lambda: bed.copy_values(info, "slow", [Chunk(0)], WHOLE)]
    if LiteralSelect.of(info.columns, here, there, WHOLE) is not None:
        ways.append(lambda: bed.copy_literals(info.columns, "fast", [Chunk(0)], WHOLE))
    for way, name in zip(ways, ("slow", "fast"), strict=False):
        way()
        assert bed.differing(info.columns, name) == []


def test_what_is_not_exact_has_no_literals(bed: Bed) -> None:
    def exact(info: TableInfo) -> bool:
        here, there = bed.described(HERE, "t"), bed.described(THERE, "fast")
        return LiteralSelect.of(info.columns, here, there, WHOLE) is not None

    assert exact(small(bed, "varchar(20)"))
    info = small(bed, "varchar(20)")
    if bed.dialect is not Dialect.TIDB:
        bed.run(f"ALTER TABLE {THERE}.fast MODIFY c VARCHAR(20) CHARACTER SET latin1")
        assert not exact(info), "text that latin1 has not"
        assert not exact(small(bed, "json")), "each server prints JSON in its own way"
        assert exact(info := small(bed, "int"))
        bed.run(f"ALTER TABLE {THERE}.fast MODIFY c INT AUTO_INCREMENT, ADD KEY (c)")
        assert not exact(info), "a NULL that would become a number"
        info = small(bed, "varchar(20)")
    bed.run(f"ALTER TABLE {THERE}.fast DROP COLUMN c")
    assert not exact(info), "a column that is not there"
    info = small(bed, "double")
    bed.run(f"ALTER TABLE {HERE}.t MODIFY c VARCHAR(20)")
    assert not exact(info), "a column that is not what its definition says"


def test_json_goes_as_a_drainer_writes_it(bed: Bed) -> None:
    info = small(bed, "json", *JSONS)
    bed.copy_values(info, "slow", [Chunk(0)], WHOLE)
    found = dict(bed.connection.rows(f"SELECT id, CAST(c AS CHAR) FROM {THERE}.slow".encode()))
    assert found == {0: "1", 1: '{"a": "it\'s", "b": [1, 2.5, null]}', 2: '"é"', 3: "[]", 4: str(2**64 - 1)}


def test_a_text_that_is_none_is_refused_as_a_literal(bed: Bed) -> None:
    """Such text exists in a TiDB; MariaDB shows it of a column of bytes."""
    info = small(bed, "varchar(20)", "'a'")
    here, there = bed.described(HERE, "t"), bed.described(THERE, "fast")
    select = LiteralSelect.of(info.columns, here, there, WHOLE)
    assert select is not None
    for row in (b"x'28ff29'", b"x'28efbfbd29'"):  # QUOTE of a TiDB writes U+FFFD instead
        broken = replace(select, row=row)
        with pytest.raises(NotLiteral):
            list(broken.read(bed.connection, Chunk(0)))


def test_octets_that_are_no_text_come_as_they_are(bed: Bed) -> None:
    """A TiDB takes any in a latin1 column."""
    if bed.dialect is not Dialect.TIDB:
        assert printed.value(bed.described(HERE, small(bed, "text").name).columns[1]) == b"`c`"
        return
    info = small(bed, "varchar(20)", "x'e9'", "'é'", "x'ff27'", charset="latin1")
    here, there = bed.described(HERE, "t"), bed.described(THERE, "fast")
    select = LiteralSelect.of(info.columns, here, there, WHOLE)
    assert select is not None
    with pytest.raises(NotLiteral):
        list(select.read(bed.connection, Chunk(0)))
    bed.copy_values(info, "slow", [Chunk(0)], WHOLE)
    assert bed.differing(info.columns, "slow") == []


@pytest.mark.parametrize(("count", "by_names"), [(53, False), (54, True)])
def test_a_set_that_a_double_does_not_hold_comes_by_its_names(count: int, *, by_names: bool) -> None:
    members = ",".join(map(repr, MEMBERS[:count]))
    column = DownstreamColumn("c", "set", nullable=False, full_type=f"set({members})")
    number = b"CAST(`c` AS UNSIGNED)"
    assert printed.value(column) == (b"`c`" if by_names else number)
    quoted = b"QUOTE(CONVERT(`c` USING utf8mb4))"
    assert printed.literal(column, Dialect.TIDB) == (quoted if by_names else number)


def test_a_column_that_upstream_lacks_is_named(bed: Bed) -> None:
    info = small(bed, "varchar(20)")
    bed.run(f"ALTER TABLE {HERE}.t DROP COLUMN c")
    with pytest.raises(DownstreamError, match=rf"upstream table {HERE}\.t shows no column c"):
        ValueSelect.of(info, bed.described(HERE, "t"), WHOLE)


def test_large_rows_come_a_few_at_a_time(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    info = small(bed, "varchar(2000)", *["REPEAT('x',1000)"] * 30)
    select = ValueSelect.of(info, bed.described(HERE, "t"), WHOLE)
    assert [len(some) for some in select.read(bed.connection, Chunk(0))] == [30]
    monkeypatch.setattr(value_rows, "BYTES_MAX", 2500)
    assert [len(some) for some in select.read(bed.connection, Chunk(0))] == [3] * 10


def test_rows_that_a_server_keeps_back_are_missed(bed: Bed) -> None:
    info = small(bed, "varchar(2000)", *["REPEAT('x',1000)"] * 30)
    here, there = bed.described(HERE, "t"), bed.described(THERE, "fast")
    literals = LiteralSelect.of(info.columns, here, there, WHOLE)
    assert literals is not None
    values = ValueSelect.of(info, here, WHOLE)
    bed.run("SET SESSION sql_select_limit=10")
    try:
        with pytest.raises(RowsLost, match="10 rows came, and the server counts 30"):
            list(literals.read(bed.connection, Chunk(0), 4096))
        with pytest.raises(RowsLost, match="10 rows came, and the server counts 30"):
            list(values.read(bed.connection, Chunk(0)))
    finally:
        bed.run("SET SESSION sql_select_limit=DEFAULT")


def test_collations_that_do_not_go_together_have_literals(bed: Bed) -> None:
    if bed.dialect is not Dialect.MARIADB:
        return  # the others have one *_bin for a character set
    info = table("t", [column("a", "varchar(9)"), column("b", "varchar(9)")])
    collated = "a VARCHAR(9) COLLATE utf8mb4_bin, b VARCHAR(9) COLLATE utf8mb4_nopad_bin"
    here = bed.make(info, f"CREATE TABLE `t` ({collated})", "fast")
    bed.run(f"INSERT INTO {HERE}.t VALUES ('é', 'x ')")
    bed.connection.commit()
    select = LiteralSelect.of(info.columns, here, bed.described(THERE, "fast"), WHOLE)
    assert select is not None
    (rows,) = select.read(bed.connection, Chunk(0))
    assert rows.sql.decode() == "('é','x ')"

"""Type changes through the DDL runner on a real MariaDB: each value becomes what TiDB made of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC
from itertools import groupby
from typing import Any

import pytest

from drainer.checkpoint.value import Intent
from drainer.ddl.convert import columns
from drainer.ddl.convert.cast import Moments, Value, cast
from drainer.ddl.derive.compare import PresentColumn
from drainer.ddl.run.runner import DdlRunner, Refused
from drainer.mysql.connection import Connection, Target, connect
from drainer.mysql.errors import StatementRefused
from drainer.txn import Tracked
from tests.drainer.ddl.convert.schema import ID, Schema, column, contents, create, ddl, table
from tests.drainer.ddl.convert.schema import session as session
from tests.drainer.support import conversions
from tests.drainer.support.conversions import Case, field_type
from tidb_binlog import table_info as ti
from tidb_binlog.table_info import Column, FieldType, Index, IndexColumn

pytestmark = pytest.mark.integration

JOB = Moments(UTC, conversions.DAY)
PAIRS = {
    pair: list(cases)
    for pair, cases in groupby(conversions.cases(), key=lambda case: (case.source, case.target))
}
UNLIKE = {  # what TiDB stores and no other server can
    ("double", "tinyint unsigned"),
    ("double", "int unsigned"),
    ("float", "tinyint unsigned"),
    ("float", "int unsigned"),
    ("date", "timestamp"),
    ("datetime(3)", "timestamp"),
}


@pytest.fixture
def runner(target: Target) -> Iterator[DdlRunner]:
    runner = DdlRunner(target, Schema())
    yield runner
    runner.close()


def changed(runner: DdlRunner, was: FieldType, kind: FieldType, **more: Any) -> Any:
    return runner.run(ddl(table(ID, column(2, was), **more), table(ID, column(3, kind), **more)))


@pytest.mark.parametrize("source", sorted({case.source for case in conversions.cases()}))
def test_each_recorded_pair(source: str, session: Connection, runner: DdlRunner) -> None:
    wrong = []
    for (was, text), cases in PAIRS.items():
        if was != source:
            continue
        session.run(b"DROP TABLE IF EXISTS d.t")
        wrong += _differences(session, runner, was, text, cases)
    assert not wrong, "\n".join(wrong)


def _differences(
    session: Connection, runner: DdlRunner, source: str, target: str, cases: list[Case]
) -> list[str]:
    was, kind = field_type(source), field_type(target)
    before = [*map(conversions.value_before, cases), None]
    create(session, was, before, key=" PRIMARY KEY")
    ran = changed(runner, was, kind)
    wanted = [cast(value, was, kind, JOB) for value in before]
    have = contents(session, kind)
    unlike = [pair for pair in zip(before, wanted, have, strict=True) if pair[1] != pair[2]]
    if (source, target) in UNLIKE:
        return [] if unlike and ran.missing else [f"{source} to {target}: nothing is said to be missing"]
    lines = [f"{source} to {target}: {one}" for one in unlike]
    return lines + [f"{source} to {target}: {line}" for line in ran.missing]


class Killed(BaseException):
    """The drainer is gone."""


DOUBLE, TEXT = field_type("double"), field_type("varchar(60)")
LATER = {0.5: b"0.5", 1e16: b"10000000000000000", 1.5: b"1.5", 2.0: b"2"}


def _kill(monkeypatch: pytest.MonkeyPatch, number: int, *, behind: bool) -> list[int]:
    """The first statement with that number that writes is the last one."""
    real = Connection.run
    seen = [0]

    def killing(self: Connection, statement: bytes) -> Any:
        writes = statement.startswith((b"ALTER", b"UPDATE"))
        seen[0] += writes
        if writes and seen[0] == number and not behind:
            raise Killed
        result = real(self, statement)
        if writes and seen[0] == number:
            raise Killed
        return result

    monkeypatch.setattr(Connection, "run", killing)
    return seen


def test_killed_around_every_statement(
    session: Connection, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two columns, one of which gets another name: the next life finds from the table what is left."""
    v, other = column(2, DOUBLE), column(4, field_type("datetime(3)"), "w", 2)
    after = column(3, TEXT), column(5, field_type("datetime"), "z", 2)
    one = ddl(table(ID, v, other), table(ID, *after))
    number, behind, alive = 0, False, False
    while not alive:
        number, behind = (number, True) if not behind and number else (number + 1, False)
        session.run(b"DROP TABLE IF EXISTS d.t")
        create(session, DOUBLE, [*LATER, None], key=" PRIMARY KEY")
        session.run(b"ALTER TABLE d.t ADD COLUMN w DATETIME(3) DEFAULT '2020-12-31 23:59:59.500'")
        life = DdlRunner(target, Schema())
        intent = Intent(one.commit_ts, one.job_id, one.query, life.before(one))
        with monkeypatch.context() as patch:
            seen = _kill(patch, number, behind=behind)
            try:
                life.run(one)
                alive = seen[0] < number
            except Killed:
                pass
        life.close()
        again = DdlRunner(target, Schema())
        if not again.had_run(intent, one, None):
            again.run(one)
        again.close()
        assert contents(session, TEXT) == [*LATER.values(), None], number
        assert session.rows(b"SELECT DISTINCT CAST(z AS CHAR) FROM d.t") == [("2021-01-01 00:00:00",)]
        names = [row[0] for row in session.rows(b"SHOW COLUMNS FROM d.t")]
        assert names == ["id", "v", "z"], number
    assert number > 4


@pytest.mark.parametrize("key", [" PRIMARY KEY", ""])
def test_many_rows_in_chunks(key: str, session: Connection, runner: DdlRunner) -> None:
    """With a key by its ranges; without one by distinct values."""
    values: list[Value] = [(number % 1500) / 4 for number in range(4000)]
    create(session, DOUBLE, values, key=key)
    changed(runner, DOUBLE, TEXT, keyed=bool(key))
    assert contents(session, TEXT) == [cast(value, DOUBLE, TEXT, JOB) for value in values]


def test_columns_with_on_update_keep_their_time(session: Connection, runner: DdlRunner) -> None:
    session.run(
        b"CREATE TABLE d.t (id INT PRIMARY KEY, v DOUBLE,"
        b" ts TIMESTAMP NULL DEFAULT NULL ON UPDATE CURRENT_TIMESTAMP)"
    )
    session.run(b"INSERT INTO d.t VALUES (1, 1e16, '2001-01-01 00:00:00'), (2, 3, NULL)")
    kind = FieldType(ti.TIMESTAMP, flag=ti.FLAG_ON_UPDATE_NOW)
    ts = column(4, kind, "ts", 2)
    runner.run(ddl(table(ID, column(2, DOUBLE), ts), table(ID, column(3, TEXT), ts)))
    assert contents(session, TEXT) == [b"10000000000000000", b"3"]
    assert session.rows(b"SELECT YEAR(ts) FROM d.t ORDER BY id") == [(2001,), (None,)]


def test_keys_and_places_stay(session: Connection, runner: DdlRunner) -> None:
    """A primary key, a unique one of two columns and one with a prefix hang on the column."""
    session.run(
        b"CREATE TABLE d.t (v DOUBLE NOT NULL DEFAULT 7, id INT NOT NULL, t VARCHAR(40) COLLATE utf8mb4_bin,"
        b" PRIMARY KEY (v), UNIQUE KEY u (id, v), KEY k (v, t(5)))"
    )
    session.run(b"INSERT INTO d.t VALUES (1e16, 1, 'a'), (0.5, 2, 'b')")
    t = column(4, field_type("varchar(40)"), "t", 2)
    identity = replace(ID, offset=1, type=FieldType(ti.LONG, flag=ti.FLAG_NOT_NULL))

    def side(number: int, kind: FieldType) -> Tracked:
        v = Column(number, "v", 0, replace(kind, flag=ti.FLAG_NOT_NULL), default="7")
        keys = (
            Index(1, "PRIMARY", (IndexColumn("v", 0),), unique=True, primary=True),
            Index(2, "u", (IndexColumn("id", 1), IndexColumn("v", 0)), unique=True, primary=False),
            Index(3, "k", (IndexColumn("v", 0), IndexColumn("t", 2, 5)), unique=False, primary=False),
        )
        return table(v, identity, t, indexes=keys, keyed=False)

    ran = runner.run(ddl(side(2, DOUBLE), side(3, TEXT)))
    assert not ran.missing
    assert session.rows(b"SELECT v FROM d.t ORDER BY id") == [("10000000000000000",), ("0.5",)]
    ((_, text),) = session.rows(b"SHOW CREATE TABLE d.t")
    lines = [line.strip() for line in text.splitlines()]
    assert lines[1].startswith("`v` varchar(60)")
    assert "NOT NULL DEFAULT '7'" in lines[1]
    assert "PRIMARY KEY (`v`)," in lines
    assert "UNIQUE KEY `u` (`id`,`v`)," in lines
    assert "KEY `k` (`v`,`t`(5))" in lines


def test_what_another_life_left_is_no_obstacle(session: Connection, runner: DdlRunner) -> None:
    create(session, DOUBLE, [1e16], key=" PRIMARY KEY")
    session.run(b"ALTER TABLE d.t ADD COLUMN tidb_binlog_cast_3 INT DEFAULT 5")
    changed(runner, DOUBLE, TEXT)
    assert contents(session, TEXT) == [b"10000000000000000"]
    assert len(session.rows(b"SHOW COLUMNS FROM d.t")) == 2


def test_a_timestamp_is_converted_in_the_zone_of_its_job(session: Connection, runner: DdlRunner) -> None:
    was, kind = field_type("timestamp(3)"), field_type("datetime")
    create(session, was, ["2020-06-01 12:00:00.500", "2020-12-31 23:30:00.000"], key=" PRIMARY KEY")
    job = {"reorg_meta": {"location": {"name": "Europe/Berlin", "offset": 3600}}}
    runner.run(ddl(table(ID, column(2, was)), table(ID, column(3, kind)), job))
    assert contents(session, kind) == ["2020-06-01 14:00:01", "2021-01-01 00:30:00"]


def test_the_option_decides(session: Connection, target: Target) -> None:
    create(session, DOUBLE, [1e16], key=" PRIMARY KEY")
    waits = DdlRunner(target, Schema(), conversions=columns.WAIT)
    with pytest.raises(Refused, match=r"column v from double to varchar\(60\).*ddl-conversions"):
        changed(waits, DOUBLE, TEXT)
    waits.close()
    assert contents(session, DOUBLE) == [1e16]
    servers = DdlRunner(target, Schema(), conversions=columns.DOWNSTREAM)
    ran = changed(servers, DOUBLE, TEXT)
    servers.close()
    assert contents(session, TEXT) == [b"1e16"]
    (line,) = ran.missing
    assert line.startswith("column v from double to varchar(60): values are what the downstream's own")


def test_what_has_no_cast_waits(session: Connection, runner: DdlRunner) -> None:
    """A clock time that the zone of the job leaves out: TiDB's value is not known."""
    was, kind = field_type("datetime(3)"), field_type("timestamp")
    create(session, was, ["2020-03-29 02:30:00.000"], key=" PRIMARY KEY")
    job = {"reorg_meta": {"location": {"name": "Europe/Berlin", "offset": 3600}}}
    with pytest.raises(
        Refused, match="cannot be converted: a time that the clock of Europe/Berlin leaves out"
    ):
        runner.run(ddl(table(ID, column(2, was)), table(ID, column(3, kind)), job))
    assert contents(session, was) == ["2020-03-29 02:30:00.000"]
    assert len(session.rows(b"SHOW COLUMNS FROM d.t")) == 2


def test_a_generated_column_hangs_on_the_new_one(session: Connection, runner: DdlRunner) -> None:
    create(session, DOUBLE, [1e16], key=" PRIMARY KEY")
    session.run(b"ALTER TABLE d.t ADD COLUMN g VARCHAR(20) AS (LEFT(v, 3)) VIRTUAL")
    changed(runner, DOUBLE, TEXT)
    assert session.rows(b"SELECT v, g FROM d.t") == [("10000000000000000", "100")]


def test_a_stored_column_that_only_the_downstream_has_waits(session: Connection, runner: DdlRunner) -> None:
    """Servers do not compute it anew."""
    create(session, DOUBLE, [1e16], key=" PRIMARY KEY")
    session.run(b"ALTER TABLE d.t ADD COLUMN g VARCHAR(20) AS (LEFT(v, 3)) STORED")
    with pytest.raises(Refused, match="own stored column g may hang on"):
        changed(runner, DOUBLE, TEXT)
    assert session.rows(b"SELECT g FROM d.t") == [("1e1",)]


def test_a_column_of_another_type_waits(session: Connection, runner: DdlRunner) -> None:
    """Somebody changed it downstream; one that was only made wider is converted."""
    create(session, TEXT, [b"secret"], key=" PRIMARY KEY")
    with pytest.raises(Refused, match=r"is varchar\(60\) downstream and was double upstream") as raised:
        changed(runner, DOUBLE, field_type("bigint"))
    assert "secret" not in str(raised.value)
    session.run(b"DROP TABLE d.t")
    create(session, field_type("bigint"), [1 << 40], key=" PRIMARY KEY")
    changed(runner, field_type("int"), TEXT)
    assert contents(session, TEXT) == [b"1099511627776"]


def test_a_server_that_refuses_the_swap_refuses_the_ddl(session: Connection, runner: DdlRunner) -> None:
    """A CHECK of the downstream that the new column cannot have; the old one is as it was."""
    create(session, DOUBLE, [1.0], key=" PRIMARY KEY")
    session.run(b"ALTER TABLE d.t ADD CONSTRAINT c CHECK (v > 0 OR id > 5)")
    with pytest.raises(Refused):
        changed(runner, DOUBLE, field_type("json"))
    assert contents(session, DOUBLE) == [1.0]
    assert len(session.rows(b"SHOW COLUMNS FROM d.t")) == 2


@pytest.mark.parametrize("key", [" PRIMARY KEY", ""])
def test_long_values_that_begin_alike(key: str, session: Connection, runner: DdlRunner) -> None:
    """A server sorts by the first `max_sort_length` bytes alone."""
    was, kind = field_type("text"), field_type("varchar(4000)")
    values: list[Value] = [b"x" * 2000 + b"%04d" % (number * 7919 % 1000) for number in range(130)]
    create(session, was, values, key=key)
    changed(runner, was, kind, keyed=bool(key))
    assert contents(session, kind) == values


def test_a_column_of_the_users_with_the_name_of_the_one_beside(
    session: Connection, runner: DdlRunner
) -> None:
    create(session, DOUBLE, [1e16], key=" PRIMARY KEY")
    session.run(b"ALTER TABLE d.t ADD COLUMN Tidb_binlog_cast_3 INT DEFAULT 5")
    own = column(4, field_type("int"), "Tidb_binlog_cast_3", 2)
    runner.run(ddl(table(ID, column(2, DOUBLE), own), table(ID, column(3, TEXT), own)))
    assert contents(session, TEXT) == [b"10000000000000000"]
    assert session.rows(b"SELECT * FROM d.t") == [(0, "10000000000000000", 5)]


def test_a_key_of_another_kind_stays(session: Connection, runner: DdlRunner) -> None:
    """FULLTEXT of the downstream's own."""
    was, kind = field_type("varchar(60)"), field_type("varchar(20)")
    create(session, was, [b"red green"], key=" PRIMARY KEY")
    session.run(b"ALTER TABLE d.t ADD FULLTEXT KEY f (v)")
    changed(runner, was, kind)
    assert session.rows(b"SELECT id FROM d.t WHERE MATCH(v) AGAINST ('green' IN BOOLEAN MODE)") == [(0,)]


def test_a_value_that_a_statement_cannot_hold_lets_the_table_wait(
    session: Connection, target: Target
) -> None:
    """One that fits is converted, though a statement with the old and the new one would not hold both."""
    was = field_type("text")
    ((size,),) = session.rows(b"SELECT @@global.max_allowed_packet")
    session.run(b"CREATE TABLE d.t (id INT PRIMARY KEY, v MEDIUMTEXT COLLATE utf8mb4_bin)")
    session.run(b"INSERT INTO d.t VALUES (1, REPEAT('x', 900000))")
    session.run(b"SET GLOBAL max_allowed_packet = 1048576")
    try:
        runner = DdlRunner(target, Schema())
        medium = replace(was, tp=ti.MEDIUM_BLOB)
        changed(runner, medium, replace(was, tp=ti.BLOB))
        assert session.rows(b"SELECT LENGTH(v) FROM d.t") == [(65535,)]
        session.run(b"ALTER TABLE d.t MODIFY v LONGTEXT COLLATE utf8mb4_bin")
        session.run(b"UPDATE d.t SET v = REPEAT('x', 900000)")
        with pytest.raises(Refused, match="max_allowed_packet"):
            changed(runner, replace(was, tp=ti.LONG_BLOB), medium)
        runner.close()
        assert session.rows(b"SELECT LENGTH(v) FROM d.t") == [(900000,)]
        assert len(session.rows(b"SHOW COLUMNS FROM d.t")) == 2
    finally:
        session.run(b"SET GLOBAL max_allowed_packet = %d" % size)


def of_several(*subs: dict[str, Any]) -> dict[str, Any]:
    return {"multi_schema_info": {"sub_jobs": [{"type": 12, "raw_args": [None, []]}, *subs]}}


def test_a_column_that_comes_is_not_the_one_that_goes(session: Connection, runner: DdlRunner) -> None:
    """MODIFY v, DROP a, ADD b: by the definitions alone, `a` could have been renamed."""
    create(session, DOUBLE, [1e16], key=" PRIMARY KEY")
    session.run(b"ALTER TABLE d.t ADD COLUMN a INT DEFAULT 77")
    a, b = (column(number, field_type("int"), name, 2) for number, name in ((4, "a"), (5, "b")))
    job = of_several(
        {"type": 6, "raw_args": [{"O": "a", "L": "a"}, False]},
        {"type": 5, "raw_args": [{"id": 5, "name": {"O": "b", "L": "b"}}, {"Tp": 0}]},
    )
    runner.run(ddl(table(ID, column(2, DOUBLE), a), table(ID, column(3, TEXT), replace(b, default="5")), job))
    assert session.rows(b"SELECT id, v, b FROM d.t") == [(0, "10000000000000000", 5)]


def test_a_key_that_the_same_ddl_drops(session: Connection, runner: DdlRunner) -> None:
    """A server could not make it again: no key of JSON is unique."""
    was, kind = field_type("varchar(60)"), field_type("json")
    create(session, was, [b"[1]"], key=" PRIMARY KEY")
    session.run(b"ALTER TABLE d.t ADD UNIQUE KEY k (v)")
    keys = (Index(3, "k", (IndexColumn("v", 1),), unique=True, primary=False),)
    job = of_several({"type": 8, "raw_args": [{"O": "k", "L": "k"}, False, 3, []]})
    ran = runner.run(ddl(table(ID, column(2, was), indexes=keys), table(ID, column(3, kind)), job))
    assert not ran.missing
    assert contents(session, kind) == [b"[1]"]


LONG_TEXT = replace(field_type("text"), tp=ti.LONG_BLOB)


def test_text_becomes_json_where_both_are_one_type(session: Connection, runner: DdlRunner) -> None:
    """In MariaDB JSON is a LONGTEXT with a CHECK."""
    session.run(b"CREATE TABLE d.t (id INT PRIMARY KEY, v LONGTEXT COLLATE utf8mb4_bin NULL)")
    session.run(b"""INSERT INTO d.t VALUES (1, '{"a":1,"a":2}'), (2, 'x'), (3, '[1,2]')""")
    kind = field_type("json")
    for _ in range(2):  # the second time as after a death behind the first
        changed(runner, LONG_TEXT, kind)
        assert contents(session, kind) == [b'{"a": 2}', None, b"[1, 2]"]
    changed(runner, kind, LONG_TEXT)
    session.run(b"INSERT INTO d.t VALUES (4, 'no JSON')")
    assert contents(session, LONG_TEXT) == [b'{"a": 2}', None, b"[1, 2]", b"no JSON"]


@pytest.mark.parametrize(("source", "becomes"), [("json", "time"), ("time", "json")])
def test_what_is_converted_is_done(source: str, becomes: str, session: Connection, runner: DdlRunner) -> None:
    """The second time as after a death behind the first."""
    was, kind = field_type(source), field_type(becomes)
    create(session, was, [b"1" if source == "json" else "00:00:01"], key=" PRIMARY KEY")
    for _ in range(2):
        assert not changed(runner, was, kind).missing


def test_null_in_a_column_without_it_waits(session: Connection, runner: DdlRunner) -> None:
    """A server would make an empty text of it."""
    was = field_type("varchar(60)")
    create(session, was, [b"no JSON"], key=" PRIMARY KEY")
    with pytest.raises(Refused, match="one becomes NULL"):
        changed(runner, was, replace(field_type("json"), flag=ti.FLAG_NOT_NULL))
    assert contents(session, was) == [b"no JSON"]


def test_the_times_that_take_the_place_of_null_are_named(session: Connection, runner: DdlRunner) -> None:
    was, kind = field_type("bigint"), replace(field_type("timestamp(3)"), flag=ti.FLAG_NOT_NULL)
    create(session, was, [20200601, None, None], key=" PRIMARY KEY")
    (said,) = changed(runner, was, kind).missing
    assert "2 values that the downstream cannot have" in said
    assert None not in contents(session, kind)


def test_a_key_that_queries_do_not_use_stays_so(session: Connection, runner: DdlRunner) -> None:
    create(session, DOUBLE, [1e16], key=" PRIMARY KEY")
    session.run(b"ALTER TABLE d.t ADD KEY k (v) IGNORED")
    changed(runner, DOUBLE, TEXT)
    ((_, text),) = session.rows(b"SHOW CREATE TABLE d.t")
    assert "KEY `k` (`v`) IGNORED" in text


def test_names_that_are_hard_to_quote(session: Connection, runner: DdlRunner) -> None:
    name, key = "a`'%s\"\\é", "k`'%"
    quoted, of_key = (f"`{one.replace('`', '``')}`" for one in (name, key))
    session.run(f"CREATE TABLE d.t (id INT PRIMARY KEY, {quoted} DOUBLE, KEY {of_key} ({quoted}))".encode())
    session.run(b"INSERT INTO d.t VALUES (1, 1e16)")
    keys = (Index(3, key, (IndexColumn(name, 1),), unique=False, primary=False),)
    before, after = (
        table(ID, column(number, kind, name), indexes=keys) for number, kind in ((2, DOUBLE), (3, TEXT))
    )
    assert not runner.run(ddl(before, after)).missing
    assert session.rows(b"SELECT * FROM d.t") == [(1, "10000000000000000")]


def test_a_check_stays(session: Connection, runner: DdlRunner) -> None:
    """Servers drop a CHECK with its column."""
    create(session, DOUBLE, [3.5], key=" PRIMARY KEY")
    session.run(b"ALTER TABLE d.t ADD CONSTRAINT c CHECK (v > 0), ADD CONSTRAINT b CHECK (v < 9 OR id > 0)")
    checks = [
        {"constraint_name": {"O": name, "L": name}, "expr_string": text, "enforced": True, "state": 5}
        for name, text in (("c", "`v` > 0"), ("b", "`v` < 9 or `id` > 0"))
    ]
    before, after = (
        replace(one, document={**one.document, "constraint_info": checks})
        for one in (table(ID, column(2, DOUBLE)), table(ID, column(3, field_type("decimal(10,2)"))))
    )
    assert not runner.run(ddl(before, after)).missing
    for row in ("9, -1", "0, 9"):
        with pytest.raises(StatementRefused, match="4025"):
            session.run(f"REPLACE INTO d.t VALUES ({row})".encode())
    own = [column(3, field_type("decimal(10,2)")), column(4, DOUBLE)]
    with pytest.raises(Refused, match="own CHECK b may hang on"):
        runner.run(ddl(*(table(ID, one) for one in own)))


@pytest.mark.parametrize("mode", [columns.WAIT, columns.DOWNSTREAM])
def test_what_another_life_left_goes_under_another_option(
    mode: str, session: Connection, target: Target
) -> None:
    create(session, DOUBLE, [1e16], key=" PRIMARY KEY")
    session.run(b"ALTER TABLE d.t ADD COLUMN tidb_binlog_cast_3 VARCHAR(60)")
    runner = DdlRunner(target, Schema(), conversions=mode)
    with contextlib.suppress(Refused):
        changed(runner, DOUBLE, TEXT)
    runner.close()
    assert [row[0] for row in session.rows(b"SHOW COLUMNS FROM d.t")] == ["id", "v"]


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        ("double", "-1.2345678901234567e-10"),
        ("double", "-2.2250738585072014e-308"),
        ("double", "2.2250738585072014e-308"),
        ("float", "-1.1754943508222875e-38"),
    ],
)
def test_a_number_keeps_all_digits_in_a_text(server: Target, kind: str, number: str) -> None:
    """MySQL rounds what is computed to 22 characters there."""
    connection = connect(server)
    connection.run(b"DROP DATABASE IF EXISTS digits")
    connection.run(b"CREATE DATABASE digits")
    connection.run(f"CREATE TABLE digits.t (v {kind})".encode())
    connection.run(f"INSERT INTO digits.t VALUES ({number})".encode())
    present = PresentColumn("v", kind)
    conversion = columns.Conversion(present, "w", column(2, field_type(kind)), column(3, TEXT))
    ((shown,),) = connection.printed(b"SELECT %b FROM digits.t" % columns._form(conversion))
    connection.run(b"DROP DATABASE digits")
    connection.close()
    assert shown is not None
    assert float(shown) == float(number)

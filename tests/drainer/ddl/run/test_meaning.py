"""A DDL means downstream what it meant to TiDB, whatever else its text says or means elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.checkpoint.value import Intent
from drainer.ddl.convert import columns
from drainer.ddl.run import execution
from drainer.ddl.run.connection import run_ddl
from drainer.ddl.run.recycle_bin import KeepDropped
from drainer.ddl.run.runner import DdlRunner, Refused
from drainer.ddl.run.takes_long import Beside
from drainer.mysql import pinned_settings, table_reader
from drainer.mysql.connection import Connection, Target, connect
from drainer.mysql.literal.charset import Charset
from drainer.relay import downstream_definitions
from drainer.txn import Ddl, Tracked
from tests.drainer.support.apply_life import run
from tidb_binlog.ddl_job import ActionType
from tidb_binlog.table_info import (
    DATETIME,
    DOUBLE,
    FLAG_NOT_NULL,
    FLAG_PRIMARY,
    FLAG_UNSIGNED,
    LONG,
    LONGLONG,
    PARTITION_LIST,
    PARTITION_RANGE,
    TIMESTAMP,
    VARCHAR,
    YEAR,
    Column,
    FieldType,
    TableInfo,
)

pytestmark = pytest.mark.integration

ID = Column(1, "id", 0, FieldType(LONG, FLAG_NOT_NULL | FLAG_PRIMARY, 11))
AT = Column(2, "at", 1, FieldType(TIMESTAMP, 0, 19, 0))
SHANGHAI = {"reorg_meta": {"sql_mode": 0, "location": {"name": "", "offset": 8 * 3600}}}


class Schema:
    def database_collation(self, schema: str) -> tuple[str, str] | None:
        return ("utf8mb4", "utf8mb4_bin")


def table(*columns: Column, name: str = "t", table_id: int = 1, **document: Any) -> Tracked:
    info = TableInfo(table_id, name, columns, (), pk_is_handle=True)
    return Tracked("d", name, {**info.to_json(), **document})


def partition(
    kind: int, *definitions: dict[str, Any], enable: bool = True, by: str = "`id`"
) -> dict[str, Any]:
    listed = [
        {"id": number, "name": {"O": f"p{number}", "L": f"p{number}"}, **one}
        for number, one in enumerate(definitions)
    ]
    return {"partition": {"type": kind, "expr": by, "enable": enable, "definitions": listed}}


def ddl(
    query: str,
    action: int,
    *after: Tracked,
    before: tuple[Tracked, ...] = (),
    job: dict[str, Any] | None = None,
    names: tuple[tuple[str, str], ...] = (),
) -> Ddl:
    found = names or tuple(dict.fromkeys((one.schema, one.name) for one in (*before, *after)))
    return Ddl(100, 7, action, "d", query, found, 5, job=job, before=before, after=after)


@pytest.fixture
def runner(target: Target) -> Iterator[DdlRunner]:
    run(target, "CREATE DATABASE d", "SELECT 1")
    runner = DdlRunner(target, Schema())
    yield runner
    runner.close()


def old(mariadb: MariaDbServer, value: str) -> None:
    root = mariadb.connect()
    root.run(f"SET GLOBAL explicit_defaults_for_timestamp={value}".encode())
    root.close()


class TestTimestamps:
    @pytest.fixture(autouse=True)
    def implicit_defaults(self, mariadb: MariaDbServer) -> Iterator[None]:
        old(mariadb, "OFF")
        yield
        old(mariadb, "ON")

    @pytest.mark.parametrize("can_be_set", [True, False])
    @pytest.mark.parametrize("flag", [0, FLAG_NOT_NULL])
    def test_a_server_gives_them_no_time_of_its_own(
        self,
        target: Target,
        runner: DdlRunner,
        monkeypatch: pytest.MonkeyPatch,
        flag: int,
        *,
        can_be_set: bool,
    ) -> None:
        if not can_be_set:  # MySQL 5.6, MariaDB before 10.8
            monkeypatch.delitem(pinned_settings.PINNED, "explicit_defaults_for_timestamp")
        at = replace(AT, type=FieldType(TIMESTAMP, flag, 19, 0))
        run(target, "CREATE TABLE d.t (id INT PRIMARY KEY)", "INSERT INTO d.t VALUES (1)", "SELECT 1")
        nulls = "NOT NULL" if flag else ""
        ran = runner.run(
            ddl(f"ALTER TABLE t ADD COLUMN `at` TIMESTAMP {nulls}", 5, table(ID, at), before=(table(ID),))
        )
        lacks = ("column at has another default",) if flag and not can_be_set else ()
        assert ran.missing == lacks
        made = runner.run(ddl("CREATE TABLE n ..", 3, table(ID, at, name="n", table_id=2)))
        assert made.missing == lacks
        found = run(
            target,
            "SELECT IS_NULLABLE, COLUMN_DEFAULT, EXTRA FROM information_schema.COLUMNS"
            " WHERE TABLE_SCHEMA='d' AND COLUMN_NAME='at'",
        )
        default = ("'0000-00-00 00:00:00'" if lacks else None) if flag else "NULL"
        assert found == [("NO" if flag else "YES", default, "")] * 2
        value = "0000-00-00 00:00:00" if flag else None
        assert run(target, "SELECT CAST(`at` AS CHAR) FROM d.t") == [(value,)]


class TestTexts:
    def test_an_engine_of_the_text_is_none_of_the_tables(self, target: Target, runner: DdlRunner) -> None:
        runner.run(ddl("CREATE TABLE t (id INT PRIMARY KEY) ENGINE=MEMORY", 3, table(ID)))
        query = "SELECT ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA='d'"
        assert run(target, query) == [("InnoDB",)]

    def test_an_engine_without_transactions_is_named(self, target: Target) -> None:
        strange = replace(target, variables=(("default_storage_engine", "MEMORY"),))
        runner = DdlRunner(strange, Schema())
        ran = runner.run(ddl("CREATE TABLE t (id INT PRIMARY KEY)", 3, table(ID)))
        assert ran.missing == ("engine is MEMORY, which has no transactions",)
        runner.close()

    def test_a_check_that_was_read_past_refuses_no_row(self, target: Target, runner: DdlRunner) -> None:
        runner.run(ddl("CREATE TABLE t (id INT PRIMARY KEY CHECK (id > 0))", 3, table(ID)))
        assert run(target, "INSERT INTO d.t VALUES (-1)", "SELECT id FROM d.t") == [(-1,)]

    def test_checks_come_and_go_with_the_definition(self, target: Target, runner: DdlRunner) -> None:
        def checked(**checks: str) -> Tracked:
            listed = [
                {"constraint_name": {"O": name, "L": name}, "expr_string": text, "enforced": True, "state": 5}
                for name, text in checks.items()
            ]
            return table(ID, constraint_info=listed)

        a, b, none = checked(a="`id` > 0"), checked(a="`id` > 5", b="`id` < 9"), table(ID)
        assert not runner.run(ddl("CREATE TABLE ..", 3, a)).missing
        assert not runner.run(ddl("ALTER TABLE ..", ActionType.ADD_CHECK_CONSTRAINT, b, before=(a,))).missing
        query = (
            "SELECT CONSTRAINT_NAME, CHECK_CLAUSE FROM information_schema.CHECK_CONSTRAINTS"
            " WHERE CONSTRAINT_SCHEMA='d' ORDER BY 1"
        )
        assert run(target, query) == [("a", "`id` > 5"), ("b", "`id` < 9")]
        runner.run(ddl("ALTER TABLE ..", ActionType.DROP_CHECK_CONSTRAINT, none, before=(b,)))
        assert run(target, query) == []

    def test_partitions_that_were_not_made(self, target: Target, runner: DdlRunner) -> None:
        """`tidb_enable_list_partition = OFF`: TiDB keeps what was written, and makes a plain table."""
        query = "CREATE TABLE t (id INT PRIMARY KEY) PARTITION BY LIST (id) (PARTITION p0 VALUES IN (1))"
        runner.run(
            ddl(query, 3, table(ID, **partition(PARTITION_LIST, {"in_values": [["1"]]}, enable=False)))
        )
        assert run(target, "INSERT INTO d.t VALUES (7)", "SELECT id FROM d.t") == [(7,)]

    def test_a_database_of_which_only_the_text_is_there(self, target: Target, runner: DdlRunner) -> None:
        """An archive that the Go Drainer wrote has no jobs; the tables inside may be there all the same."""
        drop = Ddl(
            100, 7, ActionType.DROP_SCHEMA, "d", "DROP DATABASE d", (("d", ""),), 5, before=(table(ID),)
        )
        assert runner.run(drop).statements == ("DROP DATABASE d",)
        assert not run(target, "SHOW DATABASES LIKE 'd'")

    def test_a_kind_that_is_not_known_runs_as_text_where_nothing_shows(
        self, target: Target, runner: DdlRunner
    ) -> None:
        runner.run(ddl("CREATE TABLE t (id INT PRIMARY KEY)", 3, table(ID)))
        known = ddl("ALTER TABLE t COMMENT='x'", 251, table(ID), before=(table(ID),))
        assert runner.run(known).statements == (known.query,)
        wide = ddl("FROB t", 251, table(ID, AT), before=(table(ID),))
        assert "ADD COLUMN" in runner.run(wide).statements[0]
        (line,) = runner.run(ddl("FROB t", 251, table(ID), before=(table(ID),))).missing
        assert line.startswith("what DDL of type 251 did (1064")


class TestPartitions:
    YEARS = tuple({"less_than": [str(number)]} for number in (1577808000, 1609430400))

    def test_bounds_are_instants(self, target: Target, runner: DdlRunner) -> None:
        """2020 and 2021 begin at +08:00; the job of a new table does not say in which zone it was."""
        key = replace(AT, type=FieldType(TIMESTAMP, FLAG_NOT_NULL, 19, 0))
        document = partition(PARTITION_RANGE, *self.YEARS, by="UNIX_TIMESTAMP(`at`)")
        plain = {**table(key).document, "pk_is_handle": False, **document}
        query = (
            "CREATE TABLE t (`at` TIMESTAMP NOT NULL) PARTITION BY RANGE (UNIX_TIMESTAMP(`at`)) (PARTITION p0"
            " VALUES LESS THAN (UNIX_TIMESTAMP('2020-01-01')), PARTITION p1 VALUES LESS THAN"
            " (UNIX_TIMESTAMP('2021-01-01')))"
        )
        assert not runner.run(ddl(query, 3, Tracked("d", "t", plain))).missing
        insert = "INSERT INTO d.t VALUES ('2019-12-31 15:59:59'), ('2019-12-31 16:00:00')"
        assert run(target, insert, "SELECT COUNT(*) FROM d.t PARTITION (p0)") == [(1,)]

    def test_bounds_are_compared(self, target: Target, runner: DdlRunner) -> None:
        """Names alone would be equal: the downstream's partitions were made before, with other bounds."""
        run(
            target,
            "CREATE TABLE d.t (id INT NOT NULL PRIMARY KEY) PARTITION BY RANGE (id)"
            " (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20))",
            "SELECT 1",
        )
        bounds = ({"less_than": ["5"]}, {"less_than": ["MAXVALUE"]})
        ran = runner.run(ddl("CREATE TABLE ..", 3, table(ID, **partition(PARTITION_RANGE, *bounds))))
        ((_, text),) = run(target, "SHOW CREATE TABLE d.t")
        assert "LESS THAN (5)" in str(text)
        assert "MAXVALUE" in str(text)
        assert not ran.missing


class TestZones:
    ROWS = "INSERT INTO d.t VALUES (1, '2020-01-01 00:00:00'), (2, NULL)"

    @pytest.mark.parametrize("conversions", [columns.CONVERT, columns.DOWNSTREAM])
    @pytest.mark.parametrize("routed", [False, True])
    def test_an_instant_becomes_the_local_time_of_the_job(
        self, target: Target, conversions: str, *, routed: bool
    ) -> None:
        run(
            target,
            "CREATE DATABASE d",
            "CREATE TABLE d.t (id INT PRIMARY KEY, `at` TIMESTAMP NULL)",
            "SELECT 1",
        )
        run(target, self.ROWS, "SELECT 1")
        if routed:
            run(target, "RENAME TABLE d.t TO d.t_copy", "SELECT 1")
        route = (lambda schema, name: (schema, name and f"{name}_copy")) if routed else (lambda *name: name)
        runner = DdlRunner(target, Schema(), route, conversions=conversions)
        place = "d.t_copy" if routed else "d.t"
        was = table(ID, AT)
        local = table(ID, replace(AT, id=3, type=FieldType(DATETIME, 0, 19, 0)))
        text = replace(AT, id=4, type=FieldType(VARCHAR, 0, 40, 0, "utf8mb4", "utf8mb4_bin"))
        query, modify = f"SELECT CAST(`at` AS CHAR) FROM {place} ORDER BY id", ActionType.MODIFY_COLUMN
        runner.run(ddl("ALTER TABLE t MODIFY `at` DATETIME", modify, local, before=(was,), job=SHANGHAI))
        assert run(target, query) == [("2020-01-01 08:00:00",), (None,)]
        runner.run(ddl("ALTER TABLE t MODIFY `at` TIMESTAMP", modify, was, before=(local,), job=SHANGHAI))
        assert run(target, query) == [("2020-01-01 00:00:00",), (None,)]
        runner.run(ddl("ALTER TABLE t MODIFY `at` ..", modify, table(ID, text), before=(was,), job=SHANGHAI))
        assert run(target, query) == [("2020-01-01 08:00:00",), (None,)]
        runner.close()

    def test_a_cut_between_its_steps(self, target: Target, runner: DdlRunner) -> None:
        """The type is there, its default is not: the rest is done, and no value is turned a second time."""
        run(target, "CREATE TABLE d.t (id INT PRIMARY KEY, `at` TIMESTAMP NULL)", self.ROWS, "SELECT 1")
        run(target, self.ROWS.replace("(1,", "(3,").replace("(2,", "(4,"), "SELECT 1")
        kind = FieldType(DATETIME, 0, 19, 0)
        local = table(ID, replace(AT, id=3, type=kind, default="2021-01-01 00:00:00"))
        asked = ddl("ALTER ..", ActionType.MODIFY_COLUMN, local, before=(table(ID, AT),), job=SHANGHAI)
        intent = Intent(100, 7, asked.query, runner.before(asked))
        zone = "SET SESSION time_zone='+08:00'"
        run(target, zone, "ALTER TABLE d.t MODIFY COLUMN `at` datetime NULL", "SELECT 1")
        assert runner.had_run(intent, asked, None)
        rows = run(
            target, "INSERT INTO d.t (id) VALUES (5)", "SELECT CAST(`at` AS CHAR) FROM d.t ORDER BY id"
        )
        assert [row[0] for row in rows][2:] == ["2020-01-01 08:00:00", None, "2021-01-01 00:00:00"]

    def test_a_cut_before_a_step_that_is_refused(self, target: Target, runner: DdlRunner) -> None:
        """A drainer that comes back says so as of any refusal; it must not end at each start."""
        run(target, "CREATE TABLE d.t (id INT PRIMARY KEY, `at` TIMESTAMP NULL)", "SELECT 1")
        run(target, self.ROWS, "SELECT 1")
        strict = table(ID, replace(AT, id=3, type=FieldType(DATETIME, FLAG_NOT_NULL, 19, 0)))
        job = {"reorg_meta": {"sql_mode": 1436549152, "location": {"name": "UTC", "offset": 0}}}
        asked = ddl("ALTER ..", ActionType.MODIFY_COLUMN, strict, before=(table(ID, AT),), job=job)
        intent = Intent(100, 7, asked.query, runner.before(asked))
        run(target, "ALTER TABLE d.t MODIFY COLUMN `at` datetime NULL", "SELECT 1")
        assert not runner.had_run(intent, asked, None)
        with pytest.raises(Refused, match="1265"):
            runner.run(asked)

    def test_fractions_are_rounded(self, target: Target, runner: DdlRunner) -> None:
        fine, whole = (replace(AT, type=FieldType(DATETIME, 0, 23, fsp)) for fsp in (3, 0))
        run(target, "CREATE TABLE d.t (id INT PRIMARY KEY, `at` DATETIME(3))", "SELECT 1")
        run(target, "INSERT INTO d.t VALUES (1, '2020-12-31 23:59:59.500')", "SELECT 1")
        runner.run(ddl("ALTER ..", ActionType.MODIFY_COLUMN, table(ID, whole), before=(table(ID, fine),)))
        assert run(target, "SELECT CAST(`at` AS CHAR) FROM d.t") == [("2021-01-01 00:00:00",)]


class TestGenerated:
    @pytest.mark.parametrize(
        ("text", "differs"),
        [
            ("`id` + 1", False),
            ("concat(`name`, 'a/b.5')", False),
            ("`id` / 3", True),
            ("concat(`n`)", True),
            ("sqrt(`id`)", True),
            ("`id` * 1.5", True),
            ("concat(x'e9', `id`)", True),
            ("concat('x', `id`)", False),
        ],
    )
    def test_what_the_downstream_computes_in_its_own_way_is_named_once(
        self, target: Target, runner: DdlRunner, text: str, *, differs: bool
    ) -> None:
        name = Column(2, "name", 1, FieldType(VARCHAR, 0, 40, 0, "utf8mb4", "utf8mb4_bin"))
        number = Column(3, "n", 2, FieldType(DOUBLE, 0, 22))
        made = Column(4, "g", 3, FieldType(VARCHAR, 0, 40, 0, "utf8mb4", "utf8mb4_bin"), generated=text)
        asked = table(ID, name, number, made)
        lines = ("column g is computed by the downstream's own rules: its values can differ",)
        assert runner.run(ddl("CREATE ..", 3, asked)).missing == (lines if differs else ())
        wider = table(ID, name, number, made, Column(5, "x", 4, FieldType(LONG)))
        assert not runner.run(ddl("ALTER ..", 5, wider, before=(asked,))).missing

    @pytest.mark.parametrize(("text", "shown"), [("`id` + 1", 8), ("sleep(`id`)", None)])
    def test_a_generated_column_in_a_primary_key_keeps_no_row_away(
        self, target: Target, runner: DdlRunner, text: str, shown: int | None
    ) -> None:
        """MariaDB has none in a primary key, and takes this function in no generated column."""
        key = Column(
            2,
            "g",
            1,
            FieldType(LONG, FLAG_NOT_NULL | FLAG_PRIMARY, 11),
            generated=text,
            generated_stored=True,
        )
        parts = [{"name": {"O": "g", "L": "g"}, "offset": 1, "length": -1}]
        primary = {
            "id": 1,
            "idx_name": {"O": "PRIMARY", "L": "primary"},
            "is_primary": True,
            "is_unique": True,
        }
        plain = replace(ID, type=FieldType(LONG, FLAG_NOT_NULL, 11))
        index = {**primary, "idx_cols": parts, "state": 5}
        asked = table(plain, key, pk_is_handle=False, index_info=[index])
        missing = runner.run(ddl("CREATE ..", 3, asked)).missing
        assert "primary key, which has a generated column: a unique key" in missing
        assert run(target, "INSERT INTO d.t (id) VALUES (7)", "SELECT g FROM d.t") == [(shown,)]

    @pytest.mark.parametrize(("text", "differs"), [("concat('a', `id`)", False), ("concat('é', `id`)", True)])
    def test_text_that_the_character_set_lacks_is_named(
        self, target: Target, runner: DdlRunner, text: str, *, differs: bool
    ) -> None:
        """A lax session stores a question mark, a strict one refuses the row, or a TiDB keeps the text."""
        narrow = Column(2, "g", 1, FieldType(VARCHAR, 0, 40, 0, "ascii", "ascii_bin"), generated=text)
        lines = ("column g is computed by the downstream's own rules: its values can differ",)
        assert runner.run(ddl("CREATE ..", 3, table(ID, narrow))).missing == (lines if differs else ())

    def test_a_year_of_what_is_none_is_named(self, target: Target, runner: DdlRunner) -> None:
        """Of 9999 TiDB makes 2155, and MariaDB 0."""
        year, of_year, of_number = (
            Column(number, name, number - 1, FieldType(YEAR, 0, 4), generated=text)
            for number, name, text in ((2, "y", ""), (3, "same", "`y`"), (4, "turned", "`id`"))
        )
        asked = ddl("CREATE ..", 3, table(ID, year, of_year, of_number))
        told = ("column turned is computed by the downstream's own rules: its values can differ",)
        assert runner.run(asked).missing == told

    def test_what_is_unsigned_of_what_may_be_negative_is_named(
        self, target: Target, runner: DdlRunner
    ) -> None:
        """Of -1 a virtual column has 2**64 - 1 in a TiDB, and 0 elsewhere."""
        number = Column(2, "v", 1, FieldType(LONGLONG, 0, 20))
        texts = ["`v`", "`v` + 1", "`u` - 1", "`u`", "`v` & 7", "`v` > 3", "length(`v`)"]
        kind = FieldType(LONGLONG, FLAG_UNSIGNED, 20)
        columns = [Column(at, f"g{at}", at - 1, kind, generated=text) for at, text in enumerate(texts, 4)]
        asked = ddl("CREATE ..", 3, table(ID, number, Column(3, "u", 2, kind), *columns))
        rules = "is computed by the downstream's own rules: its values can differ"
        assert runner.run(asked).missing == tuple(f"column {name} {rules}" for name in ("g4", "g5", "g6"))


DATABASE = {
    "binlog": {"DBInfo": {"db_name": {"O": "d", "L": "d"}, "charset": "utf8mb4", "collate": "utf8mb4_bin"}}
}


def run_and_die(connection: Connection, statement: bytes) -> None:
    """A drainer that is killed after its first statement."""
    run_ddl(connection, statement)
    raise KeyboardInterrupt


class TestRecycleBin:
    @pytest.mark.parametrize("action", [ActionType.RECOVER_SCHEMA, ActionType.RECOVER_TABLE])
    def test_a_flashback_that_was_cut_brings_every_table_back(
        self, target: Target, action: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        keep = KeepDropped("tidb_binlog", 7, 600.0)
        run(target, "CREATE DATABASE d", "CREATE DATABASE tidb_binlog", "SELECT 1")
        tables = tuple(table(ID, name=name, table_id=number) for number, name in enumerate("tuv", 1))
        for one in tables:
            run(target, f"CREATE TABLE d.{one.name} (id INT PRIMARY KEY)", "SELECT 1")
            run(target, f"INSERT INTO d.{one.name} VALUES ({one.id})", "SELECT 1")
        drop = Ddl(
            90,
            6,
            ActionType.DROP_SCHEMA,
            "d",
            "DROP DATABASE d",
            (("d", ""),),
            4,
            job=DATABASE,
            before=tables,
        )
        DdlRunner(target, Schema(), keep=keep).run(drop)
        assert not run(target, "SHOW DATABASES LIKE 'd'")
        back = Ddl(
            100, 7, action, "d", "FLASHBACK DATABASE d",
            (("d", ""),), 5, job=DATABASE, after=tables,
        )  # fmt: skip
        first = DdlRunner(target, Schema(), keep=keep)
        intent = Intent(100, 7, back.query, first.before(back))
        with monkeypatch.context() as patched:
            patched.setattr(execution, "run_ddl", run_and_die)
            with pytest.raises(KeyboardInterrupt):
                first.run(back)
        second = DdlRunner(target, Schema(), keep=keep)
        if not second.had_run(intent, back, None):
            second.run(back)
        assert not second.missing
        for one in tables:
            assert run(target, f"SELECT id FROM d.{one.name}") == [(one.id,)]


def test_a_release_that_does_not_show_checks(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """MariaDB before 10.2.22 has no such view."""
    run(target, "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, j JSON)", "SELECT 1")
    with connect(target) as connection:
        assert [one.checks_json for one in read(connection).columns] == [False, True]
        for module in (table_reader, downstream_definitions):
            query = module.JSON_CHECKS.replace("CHECK_CONSTRAINTS", "NO_SUCH_VIEW")
            monkeypatch.setattr(module, "JSON_CHECKS", query)
        assert [one.checks_json for one in read(connection).columns] == [False, False]
        assert len(downstream_definitions.read(connection, lambda schema, name: schema == "d")) == 1


def read(connection: Any) -> Any:
    return table_reader.read_table(connection, "d", "t")


LACKED = ["日本", "é", "Ã©", "a", "", "Ж\u0081", "€", "Ð", "😀", "\u0081", "Ã\u0081"]


def of_texts(charset: str, kind: int = VARCHAR, size: int = 10, **values: Any) -> Column:
    collate = charset if charset == "binary" else f"{charset}_bin"
    return Column(2, "v", 1, FieldType(kind, 0, size, charset=charset, collate=collate), **values)


def with_lacked(target: Target, runner: DdlRunner, column: Column, *, there: str = "") -> Tracked:
    """A table of such texts, as rows are written there."""
    latin1 = table(ID, column)
    runner.run(ddl("CREATE TABLE t ..", ActionType.CREATE_TABLE, latin1))
    if there:
        run(target, f"ALTER TABLE d.t MODIFY v {there}")
    with closing(connect(target)) as connection:
        for number, text in enumerate(LACKED):
            literal = text if "utf8" in there else Charset("latin1", 10).literal(text.encode()).decode()
            literal = f"'{text}'" if literal == text else literal
            connection.run(f"INSERT INTO d.t VALUES ({number}, {literal})".encode())
        connection.run(b"INSERT INTO d.t VALUES (99, NULL)")
        connection.commit()
    return latin1


@pytest.mark.parametrize("action", [ActionType.MODIFY_COLUMN, ActionType.MODIFY_TABLE_CHARSET_AND_COLLATE])
@pytest.mark.parametrize("there", ["", "VARCHAR(40) CHARACTER SET latin1"])
@pytest.mark.parametrize(("kind", "size"), [(VARCHAR, 10), (0xFC, 65535)])
def test_texts_that_latin1_lacks_are_texts_once_their_column_can_have_them(
    target: Target, runner: DdlRunner, kind: int, size: int, there: str, action: ActionType
) -> None:
    latin1 = with_lacked(target, runner, of_texts("latin1", kind, size), there=there)
    convert = ddl("ALTER TABLE t ..", action, table(ID, of_texts("utf8mb4", kind, size)), before=(latin1,))
    for _ in range(2):
        assert runner.run(convert).missing == ()
        assert run(target, "SELECT v FROM d.t ORDER BY id") == [(text,) for text in (*LACKED, None)]


def test_texts_of_a_column_that_had_all_characters_stay(target: Target, runner: DdlRunner) -> None:
    there = "VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
    latin1 = with_lacked(target, runner, of_texts("latin1"), there=there)
    run(target, "INSERT INTO d.t VALUES (100, 'æ—¥')")
    runner.run(ddl("ALTER TABLE t ..", 22, table(ID, of_texts("utf8mb4")), before=(latin1,)))
    texts = [*LACKED, None, "æ—¥"]
    assert run(target, "SELECT v FROM d.t ORDER BY id") == [(text,) for text in texts]


@pytest.mark.parametrize(
    ("charset", "kind"), [("binary", VARCHAR), ("binary", 0xFC), ("utf8mb4", 0xFC), ("latin1", 0xFE)]
)
def test_texts_that_latin1_lacks_are_converted_as_texts(
    target: Target, runner: DdlRunner, charset: str, kind: int
) -> None:
    latin1 = with_lacked(target, runner, of_texts("latin1", size=40))
    size = 65535 if kind == 0xFC else 12
    new = of_texts(charset, kind, size)
    ran = runner.run(ddl("ALTER TABLE t ..", 12, table(ID, new), before=(latin1,)))
    assert ran.missing == ()
    expected = [Charset("latin1", 12).literal(text.encode()).decode() for text in LACKED]
    for number, literal in enumerate(expected if charset == "latin1" else LACKED):
        if charset == "binary":
            literal = f"x'{literal.encode().hex()}'"
        elif charset == "utf8mb4":
            literal = f"'{literal}'"
        assert run(target, f"SELECT id FROM d.t WHERE v={literal}")[0] == (number,)


def test_a_text_that_does_not_fit_any_more_is_told(target: Target, runner: DdlRunner) -> None:
    there = "VARCHAR(40) CHARACTER SET latin1"
    latin1 = with_lacked(target, runner, of_texts("latin1"), there=there)
    run(target, "INSERT INTO d.t VALUES (100, _latin1 x'E697A5E69CACE697A5E69CACE697A5')")
    longer = table(ID, of_texts("latin1", size=12))
    ran = runner.run(ddl("ALTER TABLE t ..", ActionType.MODIFY_COLUMN, longer, before=(latin1,)))
    assert [line.partition(": ")[2] for line in ran.missing] == ["1 values that the downstream cannot have"]
    assert run(target, "SELECT v FROM d.t WHERE id=100") == [("?????",)]


@pytest.mark.parametrize(
    ("there", "text"),
    [
        ("VARCHAR(40) CHARACTER SET latin1 COLLATE latin1_bin", "æ—¥æœ¬æ—¥æœ¬"),
        ("VARCHAR(10) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", "日本😀"),
        ("VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci", "a" * 40),
        ("MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", "日本" * 20),
    ],
)
@pytest.mark.parametrize("change", ["default", "name"])
def test_a_type_that_the_downstream_was_given_stays_where_a_ddl_changes_something_else(
    target: Target, runner: DdlRunner, there: str, text: str, change: str
) -> None:
    latin1 = table(ID, of_texts("latin1"))
    runner.run(ddl("CREATE TABLE t ..", ActionType.CREATE_TABLE, latin1))
    run(target, f"ALTER TABLE d.t MODIFY v {there}")
    run(target, f"INSERT INTO d.t VALUES (1, '{text}')")
    other = replace(latin1, document=table(ID, of_texts("latin1", default="x")).document)
    if change == "name":
        other = table(ID, replace_name(of_texts("latin1"), "w"))
    ran = runner.run(ddl("ALTER TABLE t ..", ActionType.MODIFY_COLUMN, other, before=(latin1,)))
    name = "w" if change == "name" else "v"
    assert run(target, f"SELECT {name} FROM d.t") == [(text,)]
    ((_, text),) = run(target, "SHOW CREATE TABLE d.t")
    assert there.partition(" ")[0].lower() in text
    assert [line for line in ran.missing if f"column {name} is {there.partition(' ')[0].lower()}" in line]


def replace_name(column: Column, name: str) -> Column:
    return Column(column.id, name, column.offset, column.type)


@pytest.mark.parametrize("query", ["CREATE TABLE `😀` ..", "ALTER TABLE `😀` ADD ..", "DROP TABLE `😀`"])
def test_a_table_whose_name_only_tidb_can_have_is_asked_for_and_not_there(
    target: Target, runner: DdlRunner, query: str
) -> None:
    """Others refuse to look for it: characters outside the BMP are in none of their names."""
    it = table(ID, name="😀")
    action = {"C": 3, "A": 5, "D": 4}[query[0]]
    item = ddl(query, action, it, before=() if action == 3 else (it,), names=(("d", "😀"),))
    assert set(runner.before(item).values()) == {None}
    assert not runner.already_done(item)
    assert not runner.takes_long(item, Beside(1, ("d", "spare")))
    with connect(target) as connection:
        assert table_reader.is_absent(connection, "d", "😀")
        assert table_reader.is_absent(connection, "d", "t", "😀")


def test_a_name_that_only_tidb_can_have_is_none_that_another_server_makes_of_it(
    target: Target, runner: DdlRunner
) -> None:
    """MySQL makes, and drops, `?` in its place."""
    run(target, "CREATE TABLE d.`?` (id INT PRIMARY KEY)", "CREATE TABLE d.t (id INT PRIMARY KEY)")
    it, t = table(ID, name="😀"), table(ID)
    other = Column(2, "😀", 1, FieldType(LONG))
    for item in (
        ddl("CREATE TABLE ..", 3, it),
        ddl("ALTER TABLE t ADD ..", 5, table(ID, other), before=(t,)),
        ddl("RENAME TABLE t TO ..", 14, it, before=(t,)),
        ddl("CREATE DATABASE 😀", 1, names=(("😀", ""),)),
    ):
        with pytest.raises(Refused, match="only a TiDB has names with characters outside the BMP"):
            runner.run(item)
    assert not runner.run(ddl("DROP TABLE ..", 4, before=(it,))).statements
    assert not runner.run(ddl("ALTER TABLE t COMMENT ..", 17, table(ID, comment="😀"), before=(t,))).missing
    assert run(target, "SHOW TABLES FROM d") == [("?",), ("t",)]

"""A load from a publisher's database into MariaDB: all rows at T, the checkpoint there; resumed."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.checkpoint.store import CheckpointStore
from drainer.mysql.chunks.literal_rows import LiteralSelect, NotLiteral
from drainer.mysql.errors import SessionError
from drainer.mysql.mark import NAME
from drainer.mysql.session_lock import Claims, claim
from drainer.operate.control.rate_limit import BURST_S
from drainer.points.load import copier, table_copy
from drainer.points.load.counters import Counters
from drainer.points.load.load import estimate
from drainer.points.load.reconcile import Mode
from drainer.points.load.table_copy import NotAsPublished
from tests.drainer.points.load.load_bed import CLUSTER, COPY, SCHEMA, Bed
from tidb_binlog.cluster.node import NodeStatus
from tidb_binlog.cluster.registry import NodeEntry
from tidb_binlog.ddl_job import ActionType
from tidb_binlog.errors import Conflict, DownstreamError, Rejected

pytestmark = pytest.mark.integration


@pytest.fixture
def bed(mariadb: MariaDbServer) -> Iterator[Bed]:
    bed = Bed(mariadb)
    yield bed
    bed.clean()


def fill(bed: Bed) -> None:
    """A table with a key, one without, one of text."""
    bed.publish("orders", [("id", "bigint"), ("item", "varchar(40)"), ("price", "decimal(10,2)")], ("id",))
    bed.publish("log", [("a", "int"), ("b", "varchar(20)")])
    bed.publish("names", [("name", "varchar(40)"), ("born", "datetime(3)")], ("name",))
    bed.run(
        f"CREATE TABLE {SCHEMA}.orders (id BIGINT PRIMARY KEY, item VARCHAR(40), price DECIMAL(10,2))",
        f"CREATE TABLE {SCHEMA}.log (a INT, b VARCHAR(20))",
        f"CREATE TABLE {SCHEMA}.names (name VARCHAR(40) COLLATE utf8mb4_bin PRIMARY KEY, born DATETIME(3))",
        f"INSERT INTO {SCHEMA}.orders SELECT seq, CONCAT('it''em\\\\', seq), seq / 7 FROM seq_1_to_5000",
        f"INSERT INTO {SCHEMA}.log SELECT seq DIV 3, 'x' FROM seq_1_to_3000",
        f"INSERT INTO {SCHEMA}.names SELECT CONCAT('ü', seq), '2024-01-01 00:00:00.125' FROM seq_1_to_300",
    )


async def test_what_is_upstream_at_t_is_downstream_and_the_checkpoint_stands_there(bed: Bed) -> None:
    fill(bed)
    done = await bed.load()
    assert (done.tables, done.rows, done.missing) == (3, 8300, ())
    assert bed.is_equal("orders", "log", "names")
    ((text,),) = bed.rows(f"SELECT checkPoint FROM tidb_binlog.checkpoint WHERE clusterID={CLUSTER}")
    stored = json.loads(text)
    assert (stored["consistent"], stored["commitTS"], stored["schema-version"]) == (True, done.ts, 4)
    assert bed.rows("SELECT COUNT(*) FROM tidb_binlog.load_chunks") == [(0,)]
    assert bed.rows("SELECT phase FROM tidb_binlog.load_state") == [("done",)]
    lanes = bed.rows("SELECT DISTINCT applied_ts FROM tidb_binlog.lanes WHERE lane < 65536")
    assert lanes == [(done.ts,)]
    entry = bed.nodes.drainers["load-test"].status
    assert (entry.state, entry.max_commit_ts) == ("paused", done.ts)
    assert bed.rows(f"SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA='{COPY}'") == [(3,)]


async def test_rows_of_a_load_are_marked_for_two_way_replication(bed: Bed) -> None:
    """Or the other direction's Drainer brings them back, over what is newer there."""
    fill(bed)
    bed.options |= {"loopback_control": True, "channel_id": 7}
    await bed.load()
    ((marks,),) = bed.rows(f"SELECT SUM(val) FROM {NAME.decode()} WHERE channel_id=7")
    assert marks >= 3, "a transaction for each table at least"
    assert bed.is_equal("orders", "log", "names")


class Killed(Exception):
    """As good as kill -9: nothing is done after it."""


class KillingCounters(Counters):
    """Ends the load after so many chunks; `meanwhile` runs once, after the first one."""

    def __init__(self, after: int = -1, meanwhile: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self._after, self._meanwhile = after, meanwhile
        self._done = 0

    def copied(self, table: str, rows: int, size_bytes: int, *, compared: bool) -> None:
        super().copied(table, rows, size_bytes, compared=compared)
        self._done += 1
        if self._done == self._after:
            raise Killed
        if self._done == 1:
            self._meanwhile()


async def test_what_the_downstream_lacks_is_said_by_every_run_after_one_that_was_killed(
    bed: Bed,
) -> None:
    bed.publish("names", [("name", "varchar(40) COLLATE utf8mb4_0900_ai_ci"), ("born", "int")], ("name",))
    bed.run(
        f"CREATE TABLE {SCHEMA}.names (name VARCHAR(40) COLLATE utf8mb4_bin PRIMARY KEY, born INT)",
        f"INSERT INTO {SCHEMA}.names VALUES ('a', 1)",
    )
    with pytest.raises(Killed):
        await bed.load(counters=KillingCounters(1))
    for was_done in (False, True):
        done = await bed.load()
        assert done.before == was_done
        assert [line for line in done.missing if line.startswith(f"{SCHEMA}.names: ")] == list(done.missing)
        assert any("utf8mb4_0900_ai_ci" in line for line in done.missing)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_copy, "CHUNK_ROWS_MAX", 500)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("after", [4, 12])
async def test_a_load_that_was_killed_goes_on_though_rows_have_changed_since(bed: Bed, after: int) -> None:
    fill(bed)
    with pytest.raises(Killed):
        await bed.load(counters=KillingCounters(after))
    assert bed.rows("SELECT phase FROM tidb_binlog.load_state") == [("loading",)]
    bed.run(
        f"UPDATE {SCHEMA}.orders SET item='later' WHERE id IN (1, 250, 4999)",
        f"DELETE FROM {SCHEMA}.orders WHERE id=300",
        f"INSERT INTO {SCHEMA}.orders VALUES (-5, 'first', 1), (99999, 'last', 1)",
        f"DELETE FROM {SCHEMA}.log WHERE a < 5",
        f"INSERT INTO {SCHEMA}.log VALUES (1, 'again')",
        f"DELETE FROM {SCHEMA}.names WHERE name='ü7'",
    )
    counters = Counters()
    done = await bed.load(counters=counters)
    assert bed.is_equal("orders", "log", "names")
    assert done.compared, "what was copied and is equal is not copied again"
    assert bed.rows("SELECT phase, ts FROM tidb_binlog.load_state") == [("done", done.ts)]


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize(
    "hash_", [(b"SHA2(", b"no_such_function("), (b",256)", b",3)")], ids=["refused", "null"]
)
async def test_what_cannot_be_compared_is_copied_again(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, hash_: tuple[bytes, bytes]
) -> None:
    fill(bed)
    with pytest.raises(Killed):
        await bed.load(counters=KillingCounters(4))
    bed.run(f"UPDATE {SCHEMA}.orders SET item='later' WHERE id IN (1, 250, 4999)")
    summed = copier.summed
    monkeypatch.setattr(copier, "summed", lambda *parts: summed(*parts).replace(*hash_))
    done = await bed.load()
    assert done.compared == 0
    assert bed.is_equal("orders", "log", "names")


@pytest.mark.usefixtures("small_chunks")
async def test_unique_values_that_rows_of_other_chunks_had_before_the_kill_stand_in_no_ones_way(
    bed: Bed,
) -> None:
    bed.publish("users", [("id", "bigint"), ("mail", "varchar(40)")], ("id",))
    definition = "(id BIGINT PRIMARY KEY, mail VARCHAR(40), UNIQUE KEY mail (mail))"
    bed.run(
        f"CREATE DATABASE {COPY}",
        *(f"CREATE TABLE {schema}.users {definition}" for schema in (SCHEMA, COPY)),
        f"INSERT INTO {SCHEMA}.users SELECT seq, seq FROM seq_1_to_5000",
    )
    with pytest.raises(Killed):
        await bed.load(counters=KillingCounters(5))
    bed.run(
        f"UPDATE {SCHEMA}.users SET mail=NULL WHERE id IN (1, 2500, 4999)",
        f"UPDATE {SCHEMA}.users SET mail='2500' WHERE id=1",
        f"UPDATE {SCHEMA}.users SET mail='4999' WHERE id=2500",
        f"UPDATE {SCHEMA}.users SET mail='1' WHERE id=4999",
        f"DELETE FROM {SCHEMA}.users WHERE id=3000",
        f"INSERT INTO {SCHEMA}.users VALUES (-7, '3000')",
    )
    await bed.load()
    assert bed.is_equal("users")


async def test_rows_of_others_are_refused_and_removed_where_that_is_said(bed: Bed) -> None:
    fill(bed)
    bed.run(
        f"CREATE DATABASE {COPY}",
        f"CREATE TABLE {COPY}.orders (id BIGINT PRIMARY KEY, item TEXT, price DECIMAL(10,2), mine INT)",
        f"INSERT INTO {COPY}.orders VALUES (77777, 'other', 1, 2)",
    )
    with pytest.raises(Rejected, match=f"rows already in {COPY}.orders"):
        await bed.load()
    assert bed.rows("SELECT COUNT(*) FROM tidb_binlog.load_state") == [(0,)], "nothing has begun"
    await bed.load(Mode.REPLACE)
    assert bed.is_equal("orders", "log", "names")


async def test_rows_are_added_to_those_of_others(bed: Bed) -> None:
    fill(bed)
    bed.run(
        f"CREATE DATABASE {COPY}",
        f"CREATE TABLE {COPY}.orders (id BIGINT PRIMARY KEY, item VARCHAR(40), price DECIMAL(10,2))",
        f"INSERT INTO {COPY}.orders VALUES (77777, 'other', 1)",
    )
    await bed.load(Mode.APPEND)
    assert bed.rows(f"SELECT COUNT(*) FROM {COPY}.orders") == [(5001,)]


async def test_rows_of_others_stay_where_a_table_that_no_key_cuts_is_tried_again(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise NotLiteral

    bed.publish("rates", [("rate", "double")], ("rate",))
    bed.run(
        f"CREATE DATABASE {COPY}",
        *(f"CREATE TABLE {schema}.rates (rate DOUBLE PRIMARY KEY)" for schema in (SCHEMA, COPY)),
        f"INSERT INTO {SCHEMA}.rates VALUES (0.5), (1.5)",
        f"INSERT INTO {COPY}.rates VALUES (7.5)",
    )
    monkeypatch.setattr(LiteralSelect, "read", refuse)
    await bed.load(Mode.APPEND)
    assert bed.rows(f"SELECT rate FROM {COPY}.rates ORDER BY rate") == [(0.5,), (1.5,), (7.5,)]


async def test_a_row_that_is_there_under_the_same_key_is_not_written_over(bed: Bed) -> None:
    fill(bed)
    bed.run(
        f"CREATE DATABASE {COPY}",
        f"CREATE TABLE {COPY}.orders (id BIGINT PRIMARY KEY, item VARCHAR(40), price DECIMAL(10,2))",
        f"INSERT INTO {COPY}.orders VALUES (5, 'other', 1)",
    )
    with pytest.raises(DownstreamError, match=r"rows of load_app\.orders: downstream says 1062"):
        await bed.load(Mode.APPEND)
    bed.run(f"DELETE FROM {COPY}.orders")
    await bed.load()
    assert bed.is_equal("orders", "names")


async def test_a_load_that_is_done_has_nothing_left_to_do_when_it_is_called_again(bed: Bed) -> None:
    fill(bed)
    first = await bed.load()
    again = await bed.load()
    assert (again.ts, again.rows, again.before) == (first.ts, 0, True)
    assert not (await estimate(bed.settings(), bed.upstream, bed.nodes, mode=Mode.NEW)).tables
    assert bed.is_equal("orders", "log", "names")


async def test_where_a_drainer_has_been_a_load_needs_to_be_told(bed: Bed) -> None:
    fill(bed)
    first = await bed.load()
    drainer = CheckpointStore(bed.target, CLUSTER)
    drainer.start(2, first.ts, first.ts + 1)
    drainer.close()
    refused = f"has a checkpoint of cluster {CLUSTER} at {first.ts}"
    with pytest.raises(Rejected, match=refused):
        await bed.load()
    with pytest.raises(Rejected, match=refused):
        await estimate(bed.settings(), bed.upstream, bed.nodes, mode=Mode.NEW)
    second = await bed.load(Mode.REPLACE)
    assert second.ts > first.ts
    assert bed.is_equal("orders", "log", "names")


async def test_two_loads_at_once_are_one_too_many(bed: Bed) -> None:
    fill(bed)
    other = bed.connect()
    name = Claims("tidb_binlog", CLUSTER).name("load")
    assert claim(other, name)
    with pytest.raises(Conflict, match="another load into this downstream runs"):
        await bed.load()
    other.close()
    await bed.load()


async def test_beside_a_running_drainer_nothing_is_loaded(bed: Bed) -> None:
    fill(bed)
    bed.nodes.drainers["load-test"] = NodeEntry(NodeStatus("load-test", "h:1", "online"), 5, True)
    with pytest.raises(Rejected, match="drainer load-test is running"):
        await bed.load()
    assert bed.rows("SELECT COUNT(*) FROM tidb_binlog.load_state") == [(0,)]


async def test_a_table_that_lacks_a_column_is_a_clear_line_and_the_same_command_goes_on(bed: Bed) -> None:
    fill(bed)
    bed.run(
        f"CREATE DATABASE {COPY}", f"CREATE TABLE {COPY}.orders (id BIGINT PRIMARY KEY, item VARCHAR(40))"
    )
    with pytest.raises(DownstreamError, match=f"table {COPY}.orders has no column price downstream"):
        await bed.load()
    bed.run(f"ALTER TABLE {COPY}.orders ADD price DECIMAL(10,2)")
    await bed.load()
    assert bed.is_equal("orders", "log", "names")


async def test_what_was_published_and_not_done_yet_is_waited_for(bed: Bed) -> None:
    fill(bed)
    bed.publish("late", [("id", "int")], ("id",))
    done = asyncio.create_task(bed.load())
    await asyncio.sleep(0.1)
    bed.run(f"CREATE TABLE {SCHEMA}.late (id INT PRIMARY KEY)", f"INSERT INTO {SCHEMA}.late VALUES (1)")
    await done
    assert bed.is_equal("late", "orders")


@dataclass(frozen=True)
class Alteration:
    """What a program does to a table in its database, and what it publishes of it."""

    statements: tuple[str, ...]
    action: ActionType | None = ActionType.MODIFY_COLUMN
    columns: tuple[tuple[str, str], ...] = (("id", "int"), ("v", "varchar(20)"))


_PLAIN = (("id", "int"), ("v", "varchar(20)"))
ALTERATIONS = {
    "add_instant": Alteration(("ALTER TABLE {} ADD w INT DEFAULT 7",), columns=(*_PLAIN, ("w", "int"))),
    "add_copied": Alteration(
        ("ALTER TABLE {} ADD w INT DEFAULT 7, ALGORITHM=COPY",), columns=(*_PLAIN, ("w", "int"))
    ),
    "drop_column": Alteration(("ALTER TABLE {} DROP v",), columns=(("id", "int"),)),
    "modify": Alteration(
        ("ALTER TABLE {} MODIFY v VARBINARY(40)",), columns=(("id", "int"), ("v", "varbinary(40)"))
    ),
    "add_index": Alteration(("ALTER TABLE {} ADD KEY k (v)",)),
    "drop_key": Alteration(("ALTER TABLE {} DROP PRIMARY KEY",)),
    "rename": Alteration(("RENAME TABLE {} TO {}_2",), ActionType.RENAME_TABLE),
    "truncate": Alteration(
        ("TRUNCATE TABLE {}", "INSERT INTO {} VALUES (5, 'new')"), ActionType.TRUNCATE_TABLE
    ),
    "dropped": Alteration(("DROP TABLE {}",), ActionType.DROP_TABLE),
    "recreated": Alteration(
        (
            "DROP TABLE {}",
            "CREATE TABLE {} (id INT PRIMARY KEY, v VARCHAR(20))",
            "INSERT INTO {} VALUES (1, 'b')",
        ),
        ActionType.TRUNCATE_TABLE,
    ),
    "unpublished": Alteration(("ALTER TABLE {} ADD KEY k (v), ALGORITHM=COPY",), None),
}


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("names", [list(ALTERATIONS), ["truncate"]], ids=["all", "truncate"])
async def test_tables_that_are_altered_while_they_are_copied_are_as_at_the_loads_moment(
    bed: Bed, names: list[str]
) -> None:
    for name in names:
        bed.publish(name, _PLAIN, ("id",))
        bed.run(
            f"CREATE TABLE {SCHEMA}.`{name}` (id INT PRIMARY KEY, v VARCHAR(20))",
            f"INSERT INTO {SCHEMA}.`{name}` SELECT seq, 'a' FROM seq_1_to_1500",
        )
    before = {name: bed.contents(SCHEMA, name) for name in names}
    version = len(bed.history.jobs)

    def alter() -> None:
        for name in names:
            alteration = ALTERATIONS[name]
            bed.run(*(text.format(*[f"{SCHEMA}.{name}"] * 2) for text in alteration.statements))
            if alteration.action is not None:
                bed.alter(alteration.action, name, alteration.columns, key=name != "drop_key")

    await bed.load(counters=KillingCounters(meanwhile=alter))
    ((text,),) = bed.rows("SELECT checkPoint FROM tidb_binlog.checkpoint")
    found = {name for (name,) in bed.rows(f"SHOW TABLES FROM {COPY}")}
    if json.loads(text)["schema-version"] == version:
        assert {name: bed.contents(COPY, name) for name in found} == before, (
            "all as before, the stream has the rest"
        )
        return
    assert found == {name for (name,) in bed.rows(f"SHOW TABLES FROM {SCHEMA}")} - {"binlog_outcome"}
    assert bed.is_equal(*found)


async def test_a_table_of_no_moment_is_refused_by_name(bed: Bed) -> None:
    bed.publish("hits", [("id", "int"), ("n", "int")], ("id",))
    bed.run(f"CREATE TABLE {SCHEMA}.hits (id INT PRIMARY KEY, n INT) ENGINE=MyISAM")
    with pytest.raises(
        Rejected, match=r"load_app\.hits is in engine MyISAM, which has no snapshots"
    ) as raised:
        await bed.load()
    assert "ENGINE=InnoDB" in raised.value.hint
    bed.run(f"ALTER TABLE {SCHEMA}.hits ENGINE=InnoDB", f"INSERT INTO {SCHEMA}.hits VALUES (1, 2)")
    await bed.load()
    assert bed.is_equal("hits")


async def test_filters_routes_and_rules_count_as_for_the_drainer(bed: Bed) -> None:
    fill(bed)
    route = {"schema": SCHEMA, "table": "orders"}
    bed.options = {
        "ignore_table": ({"db-name": SCHEMA, "tbl-name": "log"},),
        "table_migrate_rule": ({"source": route, "target": {"schema": COPY, "table": "o2"}},),
        "replicate_do_table": ({"db-name": SCHEMA, "tbl-name": "~^(orders|log)$"},),
        "column_rule": ({"db-name": SCHEMA, "tbl-name": "orders", "ignore-columns": ["price"]},),
        "row_rule": (
            {
                "db-name": SCHEMA,
                "tbl-name": "orders",
                "where": "id > 10 AND id <= 4000",
                "mask": {"item": "null"},
            },
        ),
    }
    done = await bed.load()
    assert (done.tables, bed.rows(f"SHOW TABLES FROM {COPY}")) == (1, [("o2",)])
    assert bed.rows(f"SELECT COUNT(*), MIN(id), MAX(id), COUNT(item), COUNT(price) FROM {COPY}.o2") == [
        (3990, 11, 4000, 0, 0)
    ]


async def test_several_tables_go_into_one(bed: Bed) -> None:
    for number, table in enumerate(("a", "b")):
        bed.publish(table, [("id", "int"), ("v", "varchar(9)")], ("id",))
        bed.run(
            f"CREATE TABLE {SCHEMA}.{table} (id INT PRIMARY KEY, v VARCHAR(9))",
            f"INSERT INTO {SCHEMA}.{table} SELECT seq + {number * 1000}, '{table}' FROM seq_1_to_500",
        )
    source = {"schema": SCHEMA, "table": "?"}
    bed.options = {"table_migrate_rule": ({"source": source, "target": {"schema": COPY, "table": "all"}},)}
    with pytest.raises(Killed):
        await bed.load(counters=KillingCounters(1))
    bed.run(f"DELETE FROM {SCHEMA}.a WHERE id < 50")
    await bed.load()
    both = f"SELECT * FROM {SCHEMA}.a UNION ALL SELECT * FROM {SCHEMA}.b ORDER BY id"
    assert bed.rows(both) == bed.rows(f"SELECT * FROM {COPY}.`all` ORDER BY id")


async def test_rows_a_second_are_limited(bed: Bed) -> None:
    fill(bed)
    done = await bed.load(rate_rows=20_000)
    assert done.seconds > 8300 / 20_000 - BURST_S - 0.1


async def test_a_dry_run_writes_nothing(bed: Bed) -> None:
    fill(bed)
    found = await estimate(bed.settings(), bed.upstream, bed.nodes, mode=Mode.NEW)
    assert [(one.name, one.target) for one in found.tables] == [
        (f"{SCHEMA}.{name}", f"{COPY}.{name}") for name in ("log", "names", "orders")
    ]
    assert sum(one.rows for one in found.tables) > 5000
    assert bed.rows("SHOW DATABASES LIKE 'tidb_binlog'") == []


@pytest.mark.usefixtures("small_chunks")
async def test_sessions_that_are_lost_are_opened_again_and_no_row_is_there_twice(bed: Bed) -> None:
    fill(bed)

    def kill() -> None:
        own = bed.connect()
        found = own.rows(b"SELECT ID FROM information_schema.PROCESSLIST WHERE ID<>CONNECTION_ID()")
        for (number,) in found:
            with contextlib.suppress(SessionError):
                own.run(b"KILL CONNECTION %d" % number)
        own.close()

    await bed.load(counters=KillingCounters(meanwhile=kill))
    assert bed.rows("SELECT phase FROM tidb_binlog.load_state") == [("done",)]
    assert bed.is_equal("orders", "log", "names")


async def test_a_value_too_large_to_be_written_by_the_server_comes_by_itself(bed: Bed) -> None:
    bed.publish("large", [("id", "int"), ("b", "longblob")], ("id",))
    bed.run(
        f"CREATE TABLE {SCHEMA}.large (id INT PRIMARY KEY, b LONGBLOB)",
        f"INSERT INTO {SCHEMA}.large VALUES (1, 'small'), (2, REPEAT('x', 9000000)), (3, NULL), (4, 'a')",
    )
    done = await bed.load()
    assert done.rows == 4
    assert bed.rows(f"SELECT id, MD5(b) FROM {COPY}.large") == bed.rows(
        f"SELECT id, MD5(b) FROM {SCHEMA}.large"
    )


async def test_an_upstream_that_may_not_be_read_is_a_clear_line(bed: Bed) -> None:
    fill(bed)
    bed.run(
        "CREATE OR REPLACE USER load_reader@'%' IDENTIFIED BY 'x'",
        f"GRANT ALL ON {SCHEMA}.binlog_outcome TO load_reader@'%'",
        f"GRANT SELECT ON {SCHEMA}.orders TO load_reader@'%'",
    )
    bed.options = {"from_user": "load_reader", "from_password": "x"}
    with pytest.raises(Rejected, match=SCHEMA):
        await bed.load()
    with pytest.raises(Rejected, match=f"the upstream does not show {SCHEMA}.log to the user"):
        await estimate(bed.settings(), bed.upstream, bed.nodes, mode=Mode.NEW)
    column = bed.rows(f"SHOW COLUMNS FROM {SCHEMA}.log")[0][0]
    bed.run(
        f"GRANT SELECT ON {SCHEMA}.names TO load_reader@'%'",
        f"GRANT SELECT ({column}) ON {SCHEMA}.log TO load_reader@'%'",
    )
    with pytest.raises(NotAsPublished, match=f"upstream table {SCHEMA}.log shows no column"):
        await estimate(bed.settings(), bed.upstream, bed.nodes, mode=Mode.NEW)
    bed.run("DROP USER load_reader@'%'")


async def test_a_global_limit_on_answers_holds_no_row_back(bed: Bed) -> None:
    fill(bed)
    ((before,),) = bed.rows("SELECT @@global.sql_select_limit")
    bed.run("SET GLOBAL sql_select_limit=3, GLOBAL max_join_size=10")
    try:
        done = await bed.load()
    finally:
        bed.run(f"SET GLOBAL sql_select_limit={before}, GLOBAL max_join_size=18446744073709551615")
    assert done.rows == 8300
    assert bed.is_equal("orders", "log", "names")


async def test_a_global_limit_on_answers_holds_back_no_row_that_rules_see(bed: Bed) -> None:
    fill(bed)
    ((before,),) = bed.rows("SELECT @@global.sql_select_limit")
    bed.options["row_rule"] = ({"db-name": SCHEMA, "tbl-name": "orders", "where": "id > 0"},)
    bed.run("SET GLOBAL sql_select_limit=3")
    try:
        done = await bed.load()
    finally:
        bed.run(f"SET GLOBAL sql_select_limit={before}")
    assert done.rows == 8300
    assert bed.is_equal("orders", "log", "names")


async def test_collations_of_one_table_need_not_go_together(bed: Bed) -> None:
    bed.publish("mixed", [("id", "int"), ("a", "varchar(20)"), ("b", "varchar(20)")], ("id",))
    collated = "a VARCHAR(20) COLLATE utf8mb4_bin, b VARCHAR(20) COLLATE utf8mb4_nopad_bin"
    bed.run(
        f"CREATE TABLE {SCHEMA}.mixed (id INT PRIMARY KEY, {collated})",
        f"INSERT INTO {SCHEMA}.mixed VALUES (1, 'é', 'x '), (2, NULL, '\\\\')",
    )
    assert (await bed.load()).rows == 2
    assert bed.is_equal("mixed")


async def test_what_the_server_refuses_to_write_at_once_is_read_by_the_row(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(bed)
    of = LiteralSelect.of

    def refused(*given: Any) -> LiteralSelect | None:
        made = of(*given)
        return made and replace(made, row=b"no_such_function(" + made.row + b")")

    monkeypatch.setattr(LiteralSelect, "of", refused)
    assert (await bed.load()).rows == 8300
    assert bed.is_equal("orders", "log", "names")

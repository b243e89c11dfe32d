"""A Drainer's upstream and downstream are compared by its rules, after a load of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.compare.verify.live import LiveVerification
from drainer.compare.verify.result import State, Verification
from drainer.compare.verify.verifying import Pace
from drainer.points.snapshot.drainer_hold import DrainerHold
from drainer.reading.subscribe.table_choice import TablePattern
from tests.drainer.points.load.load_bed import COPY, SCHEMA, Bed
from tests.waiting import PATIENCE_S
from tidb_binlog.clock import SystemClock
from tidb_binlog.errors import ConfigError, Unavailable

pytestmark = pytest.mark.integration
QUICK = Pace(workers=2, retries=0, retry_pause_s=0.0, chunk_rows=20)
COLUMNS = [("id", "BIGINT"), ("name", "VARCHAR(40)"), ("price", "DECIMAL(10,2)")]


@pytest.fixture
def bed(mariadb: MariaDbServer) -> Any:
    made = Bed(mariadb)
    for name in ("t", "u"):
        made.publish(name, COLUMNS, ("id",))
        made.run(
            f"CREATE TABLE {SCHEMA}.{name} (id BIGINT PRIMARY KEY, name VARCHAR(40), price DECIMAL(10,2))",
            f"INSERT INTO {SCHEMA}.{name} SELECT seq, CONCAT('Name ', seq), seq / 4 FROM mysql.seq_1_to_100",
        )
    yield made
    made.clean()


async def compared(bed: Bed, **more: Any) -> Verification:
    return await LiveVerification(bed.settings(), bed.upstream, None, QUICK, **more).run()


def states(found: Verification) -> dict[str, State]:
    return {one.downstream[1]: one.state for one in found.tables}


async def test_what_was_loaded_is_equal(bed: Bed, tmp_path: Path) -> None:
    await bed.load()
    state = tmp_path / "state"
    found = await compared(bed, state=state)
    assert states(found) == {"t": State.EQUAL, "u": State.EQUAL}
    assert found.rows == 200
    assert not state.exists()
    assert found.tables[0].upstream == ((SCHEMA, "t"),)
    assert found.notes == ()
    bed.run(f"CREATE TABLE {COPY}.another_program (id INT)")
    found = await compared(bed)
    assert found.state is State.EQUAL
    assert found.notes == (f"the downstream has {COPY}.another_program besides: not compared",)
    chosen = await compared(bed, selected=[TablePattern.of("*.t")])
    assert states(chosen) == {"t": State.EQUAL}
    with pytest.raises(ConfigError, match="fits no table"):
        await compared(bed, selected=[TablePattern.of("*.nothing")])


async def test_rows_are_compared_as_rules_make_them(bed: Bed, tmp_path: Path) -> None:
    salt = tmp_path / "salt"
    salt.write_text("0123456789abcdef0123456789abcdef\n")
    salt.chmod(0o600)
    bed.options["row_rule"] = (
        {
            "db-name": SCHEMA,
            "tbl-name": "t",
            "where": "price > 10",
            "mask": {"name": "hash"},
            "salt-file": str(salt),
        },
    )
    bed.options["column_rule"] = ({"db-name": SCHEMA, "tbl-name": "u", "ignore-columns": ["price"]},)
    await bed.load()
    assert bed.rows(f"SELECT name FROM {COPY}.t WHERE id=41") != [("Name 41",)]
    found = await compared(bed)
    assert states(found) == {"t": State.EQUAL, "u": State.EQUAL}
    assert [one.rows for one in found.tables] == [60, 100]
    bed.run(
        f"UPDATE {COPY}.t SET name='Name 50' WHERE id=50",
        f"INSERT INTO {COPY}.t VALUES (1, 'x', 0.25)",
        f"UPDATE {COPY}.u SET price=1",
    )
    found = await compared(bed)
    assert states(found) == {"t": State.DIFFERS, "u": State.EQUAL}
    assert [(one.key, one.columns) for one in found.tables[0].differences] == [
        ((b"1",), ()),
        ((b"50",), ("name",)),
    ]
    assert [one.name for one in found.tables[1].columns if one.why] == ["price"]


async def test_tables_of_which_changes_are_left_out_are_not_comparable(bed: Bed) -> None:
    await bed.load()
    bed.options["binlog_filter_rule"] = {"no-deletes": {"ignore-event": ["delete"]}}
    rule = {"source": {"schema": SCHEMA, "table": "t"}, "binlog-filter-rule": ["no-deletes"]}
    bed.options["table_migrate_rule"] = (*bed.settings().table_migrate_rule, rule)
    found = await compared(bed)
    assert states(found) == {"t": State.NOT_COMPARABLE, "u": State.EQUAL}
    assert "leaves out changes" in found.tables[0].why


async def test_what_the_user_may_not_read_is_not_called_equal(bed: Bed) -> None:
    """Information_schema shows such a user a table without the column, and no other table."""
    await bed.load()
    bed.run(
        f"UPDATE {COPY}.t SET price=0",
        "CREATE OR REPLACE USER live_reader@'%' IDENTIFIED BY 'x'",
        f"GRANT SELECT (id, name) ON {SCHEMA}.t TO live_reader@'%'",
        f"GRANT SELECT ON {bed.settings().from_outcome_table} TO live_reader@'%'",
    )
    bed.options |= {"from_user": "live_reader", "from_password": "x"}
    try:
        found = await compared(bed)
    finally:
        bed.run("DROP USER live_reader@'%'")
    assert states(found) == {"t": State.NOT_COMPARABLE, "u": State.NOT_COMPARABLE}
    assert [one.why.partition(":")[0] for one in found.tables] == [
        "column price",
        "upstream does not show it",
    ]
    assert found.tables[0].other_columns == ()


async def test_a_run_that_waits_for_its_moment_ends_when_it_is_cancelled(bed: Bed) -> None:
    asked = asyncio.Event()

    async def locate() -> str:
        asked.set()
        raise Unavailable("no drainer is running")  # which is tried again for minutes

    hold = DrainerHold(locate, None, SystemClock())
    task = asyncio.create_task(LiveVerification(bed.settings(), bed.upstream, hold, QUICK).run())
    async with asyncio.timeout(PATIENCE_S):
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

"""Reparo on a real MariaDB: what archives and relay logs hold is there afterwards, once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from drainer.mysql import session_lock
from drainer.mysql.connection import Target, connect
from drainer.reparo import archive_source, job
from drainer.reparo.options import SCHEMA
from drainer.txn import DELETE, INSERT, Ddl, Item, TableEvents, TableVersion, Transaction
from tests.drainer.reparo.world import apply, config_for
from tests.drainer.support.apply_life import clean, column, differences, drainer_at_work, run
from tests.spark.support.growing import FIRST_TS, ArchiveWriter, RelayLogWriter
from tests.spark.support.mixed_history import TRUNCATE, MixedHistory
from tests.spark.support.replay_world import SOURCES
from tidb_binlog.errors import ConfigError, Conflict, Corruption, DownstreamError
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.table_info import FLAG_PRIMARY, LONG, VARCHAR, TableInfo

OURS = ("basic", "charset", "ddl-fk", "ddl-multischema", "ddl-rename-db", "ddl-swap", "keys", "txn", "types")
ONLY_RELAY = ("ddl", "ddl-exchange", "ddl-flashback-db")
# What other sources give is what our archive gives: archive/decode/test_reading.py has each scenario in each.
# The Go drainer wrote all of these, and wrote it right.
CASES = [
    *(("archive", name) for name in OURS),
    *(("relay", name) for name in ("types", *ONLY_RELAY)),
    ("go-events", "types"),
    ("go-relay", "charset"),
]


@pytest.mark.parametrize(("source", "scenario"), CASES)
def test_recorded_scenarios_end_equal_to_tidb(
    target: Target, tmp_path: Path, source: str, scenario: str
) -> None:
    archive = SOURCES[source](scenario, tmp_path / "archive")
    done = apply(target, archive)
    assert differences(scenario, target) == []
    assert done.finished
    assert done.drift == {}
    lacks = ["since job 111 (d1.bg): expression key kg"] if scenario == "ddl" else []
    assert done.missing[:1] == lacks
    again = apply(target, archive)
    assert (again.rows, again.ddl, again.finished) == (0, 0, True)
    assert again.resumed_after_ts == done.upto_ts


def written(directory: Path, items: Iterator[Item], *, relay: bool = False) -> str:
    writer = (RelayLogWriter if relay else ArchiveWriter)(directory / "archive", 30_000)
    writer.write(items)
    writer.close()
    return str(directory / "archive")


@pytest.mark.parametrize("relay", [False, True])
def test_a_hard_history_in_ranges_of_its_own(target: Target, tmp_path: Path, *, relay: bool) -> None:
    """Keyless rows, unique values that are exchanged, keys that differ in case: each range is a job."""
    history = MixedHistory(3)
    archive = written(tmp_path, history.items(300, 150, TRUNCATE), relay=relay)
    history.create(target)
    first = apply(target, archive, stop_tso=FIRST_TS + (70 << 20))
    assert history.downstream(target) != history.rows
    assert first.finished
    assert first.upto_ts == FIRST_TS + (70 << 20)
    second = apply(target, archive, start_tso=first.upto_ts + 1)
    assert history.downstream(target) == history.rows
    assert second.drift == {}
    assert second.first_ts > first.last_ts


def test_transactions_in_many_pieces_end_as_whole_ones(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = MixedHistory(12)
    archive = written(tmp_path, history.items(120, 60, TRUNCATE))
    history.create(target)
    monkeypatch.setattr(archive_source, "PIECE_BYTES", 150)
    done = apply(target, archive)
    assert history.downstream(target) == history.rows
    assert done.rows > done.transactions


def test_an_open_range_takes_what_has_come_since(target: Target, tmp_path: Path) -> None:
    history = MixedHistory(4)
    archive = written(tmp_path, history.items(50))
    history.create(target)
    first = apply(target, archive)
    assert apply(target, archive).rows == 0
    writer = ArchiveWriter(Path(archive), 30_000)
    writer.write(history.items(50))
    writer.close()
    second = apply(target, archive)
    assert second.resumed_after_ts == first.upto_ts
    assert history.downstream(target) == history.rows


def test_another_process_at_the_same_job_is_refused(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = MixedHistory(5)
    archive = written(tmp_path, history.items(10))
    history.create(target)
    apply(target, archive)
    monkeypatch.setattr(job, "ENDING_S", 0.0)
    other = connect(target)
    number = job.Job.of(config_for(target, archive)).number
    lock = session_lock.Claims(SCHEMA, number).name(session_lock.STORE)
    assert session_lock.claim(other, lock, wait_s=60), "the server may see late that the first one ended"
    try:
        with pytest.raises(Conflict, match=r"another reparo is at the job .* KILL"):
            apply(target, archive)
    finally:
        other.close()


def test_a_drainer_at_work_there_is_not_disturbed(target: Target, tmp_path: Path) -> None:
    history = MixedHistory(5)
    archive = written(tmp_path, history.items(10))
    history.create(target)
    with drainer_at_work(target):
        with pytest.raises(Conflict, match=r"Drainer of cluster 77 works .* -beside-drainer"):
            apply(target, archive)
        assert apply(target, archive, beside_drainer=True).finished
    assert history.downstream(target) == history.rows


def test_a_job_of_a_name_is_not_taken_for_another_range(target: Target, tmp_path: Path) -> None:
    history = MixedHistory(6)
    archive = written(tmp_path, history.items(20))
    history.create(target)
    apply(target, archive, job="friday")
    assert apply(target, archive, job="friday").rows == 0
    with pytest.raises(ConfigError, match="the job friday was begun for another archive, range or rules"):
        apply(target, archive, job="friday", start_tso=FIRST_TS)


def test_safe_mode_applies_a_range_again_under_another_name(target: Target, tmp_path: Path) -> None:
    """Keyed rows: an insert may be there already, an update may have lost its row. One table has columns now
    that its first rows had not: it is left out."""
    archive = SOURCES["archive"]("types", tmp_path / "archive")
    apply(target, archive)
    altered = {"db-name": "typ", "tbl-name": "t_nodef"}
    apply(target, archive, job="again", safe_mode=True, replicate_ignore_table=(altered,))
    assert differences("types", target) == []


# -- what is chosen --------------------------------------------------------------------------------------


def tables_of(target: Target, schema: str) -> set[str]:
    return {str(name) for (name,) in run(target, f"SHOW TABLES FROM {schema}")}


def test_filters_choose_rows_and_ddl(target: Target, tmp_path: Path) -> None:
    archive = SOURCES["archive"]("types", tmp_path / "archive")
    done = apply(
        target,
        archive,
        replicate_do_table=(
            {"db-name": "typ", "tbl-name": "T_INT"},
            {"db-name": "~^ty", "tbl-name": "~^t_d"},
        ),
        replicate_ignore_table=({"db-name": "typ", "tbl-name": "~date$"},),
        ddl_rules=(),
    )
    assert tables_of(target, "typ") == {"t_int", "t_dec", "t_def"}
    kept = [one for one in differences("types", target) if ".t_int" in one or ".t_de" in one]
    assert kept == []
    assert done.rows < 346


def test_ignored_databases_bring_nothing(target: Target, tmp_path: Path) -> None:
    archive = SOURCES["go-events"]("types", tmp_path / "archive")
    done = apply(target, archive, replicate_ignore_db=("typ",))
    assert (done.rows, done.transactions) == (0, 0)
    assert ("typ",) not in run(target, "SHOW DATABASES")


ROUTES = (
    {"source": {"schema": "typ", "table": "t_int"}, "target": {"schema": "other", "table": "numbers"}},
    {"source": {"schema": "typ"}, "target": {"schema": "moved"}},
)


def test_routes_are_followed_by_rows_and_by_ddl(target: Target, tmp_path: Path) -> None:
    """A statement has the names of before: they are replaced in its text."""
    straight, routed = tmp_path / "straight", tmp_path / "routed"
    run(target, "CREATE DATABASE other")
    apply(target, SOURCES["go-events"]("types", routed), table_migrate_rule=ROUTES)
    apply(target, SOURCES["archive"]("types", straight))
    assert tables_of(target, "moved") == tables_of(target, "typ") - {"t_int"}
    for moved, original in (("other.numbers", "typ.t_int"), ("moved.t_nodef", "typ.t_nodef")):
        rows = run(target, f"SELECT * FROM {original} ORDER BY 1")
        assert rows
        assert run(target, f"SELECT * FROM {moved} ORDER BY 1") == rows


@pytest.mark.parametrize("relay", [False, True])
def test_rows_that_moved_both_ways_between_tables_of_one_route_are_there(
    target: Target, tmp_path: Path, *, relay: bool
) -> None:
    """They were recorded table by table, without a route."""
    events, made = [], []
    for number in (1, 2):
        info = TableInfo(number, f"n{number}", (column(1, "id", LONG, FLAG_PRIMARY),), pk_is_handle=True)
        encoder, version = RowEncoder(info), TableVersion(info, "d", info.name, 1)
        rows = [encoder.insert((number,)), encoder.delete((3 - number,))]
        events.append(TableEvents(version, (INSERT, DELETE), rows, 2 * number - 2))
        made.append(f"CREATE TABLE d.n{number} (id INT PRIMARY KEY)")
    moves = Transaction(FIRST_TS, FIRST_TS + 1, tuple(events), 100)
    archive = written(tmp_path, iter((moves,)), relay=relay)
    run(target, "CREATE DATABASE d", *made, "CREATE TABLE d.n LIKE d.n1", "INSERT INTO d.n VALUES (1), (2)")
    route = {"source": {"schema": "d", "table": "n*"}, "target": {"schema": "d", "table": "n"}}
    apply(target, archive, table_migrate_rule=(route,))
    assert run(target, "SELECT id FROM d.n ORDER BY id") == [(1,), (2,)]


@pytest.mark.parametrize("source", ["archive", "relay", "go-events"])
def test_row_rules_choose_and_mask_rows(target: Target, tmp_path: Path, source: str) -> None:
    archive = SOURCES[source]("basic", tmp_path / "archive")
    apply(target, archive)
    found = run(target, "SELECT * FROM shop.customer WHERE id > 6 ORDER BY id")
    wanted = [(number, "x", *rest) for number, _, *rest in found]
    assert 0 < len(wanted) < run(target, "SELECT COUNT(*) FROM shop.customer")[0][0]
    clean(target)
    rule = {
        "db-name": "shop",
        "tbl-name": "customer",
        "where": "id > 6",
        "mask": {"name": {"value": "x"}},
    }
    apply(target, archive, row_rule=(rule,))
    assert run(target, "SELECT * FROM shop.customer ORDER BY id") == wanted


# -- what is wrong ---------------------------------------------------------------------------------------


def test_a_table_that_lacks_is_named(target: Target, tmp_path: Path) -> None:
    history = MixedHistory(7)
    archive = written(tmp_path, history.items(20))
    history.create(target)
    run(target, "DROP TABLE d.u")
    with pytest.raises(DownstreamError, match=r"table d\.u does not exist downstream"):
        apply(target, archive)


def test_a_table_that_lacks_is_named_where_only_the_downstream_knows_it(
    target: Target, tmp_path: Path
) -> None:
    archive = SOURCES["go-events"]("types", tmp_path / "archive")
    skips = {"kind": "create table", "tbl-name": "t_int", "db-name": "typ", "action": "skip"}
    with pytest.raises(DownstreamError, match=r"rows of typ.t_int \(id, ti.*no such table.*create it there"):
        apply(target, archive, ddl_rules=(skips,))


def test_a_refused_ddl_ends_it_before_the_ddl_and_a_rule_leads_on(target: Target, tmp_path: Path) -> None:
    history = MixedHistory(8)
    archive = written(tmp_path, history.items(40, 20, "ALTER TABLE d.n ADD INDEX i ((NO_SUCH(b)))"))
    history.create(target)
    with pytest.raises(DownstreamError, match=r"NO_SUCH.*syncer.ddl-rule"):
        apply(target, archive)
    done = apply(target, archive, ddl_rules=({"sql": "NO_SUCH", "action": "skip"},))
    assert done.finished
    assert done.resumed_after_ts
    assert history.downstream(target) == history.rows


@pytest.mark.parametrize("damage", ["flip", "gap"])
def test_damage_is_said_and_nothing_after_it_is_applied(target: Target, tmp_path: Path, damage: str) -> None:
    history = MixedHistory(9)
    archive = written(tmp_path, history.items(400))
    history.create(target)
    files = sorted(Path(archive).glob("binlog-*"))
    assert len(files) > 3
    if damage == "gap":
        files[1].unlink()
    else:
        data = bytearray(files[1].read_bytes())
        data[len(data) // 2] ^= 0x40
        files[1].write_bytes(data)
    with pytest.raises(Corruption, match="index 1 is missing" if damage == "gap" else "checksum|magic"):
        apply(target, archive)
    assert run(target, f"SELECT COUNT(*) FROM {SCHEMA}.lanes")[0][0] > 0


def test_a_torn_end_is_what_a_killed_drainer_leaves(target: Target, tmp_path: Path) -> None:
    archive = SOURCES["go-events"]("basic", tmp_path / "archive")
    (file,) = archive.iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[:-5])
    cut = apply(target, archive)
    assert (cut.finished, cut.transactions) == (True, 46)
    file.write_bytes(whole)
    assert apply(target, archive).transactions == 1
    assert differences("basic", target) == []


def test_a_file_that_has_lost_its_end_is_damage(target: Target, tmp_path: Path) -> None:
    """The index beside it says how long it was."""
    history = MixedHistory(11)
    archive = written(tmp_path, history.items(300))
    history.create(target)
    file = sorted(Path(archive).glob("binlog-*"))[0]
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(Corruption, match=r"has lost 5 bytes at its end"):
        apply(target, archive)


def test_a_ddl_that_a_full_copy_has_already_is_passed_over(target: Target, tmp_path: Path) -> None:
    history = MixedHistory(10)
    archive = written(tmp_path, history.items(40, 20, "CREATE TABLE d.n (id INT)"))
    history.create(target)
    run(target, "ALTER TABLE d.n ADD COLUMN more INT", "SELECT 1")
    done = apply(target, archive, sync_mode=2)
    assert done.finished
    assert [row[:2] for row in history.downstream(target)[0]] == history.rows[0]
    said = "(d.n): done already, says the destination (error 1050): CREATE TABLE d.n (id INT)"
    assert [line[-len(said) :] for line in done.missing] == [said]
    assert apply(target, archive, sync_mode=2).missing == done.missing


def test_what_a_run_that_broke_off_has_found_is_in_every_later_summary(
    target: Target, tmp_path: Path
) -> None:
    info = TableInfo(
        1, "n", (column(1, "id", LONG, FLAG_PRIMARY), column(2, "b", VARCHAR)), pk_is_handle=True
    )
    made, encoder = TableVersion(info, "d", "n", 1), RowEncoder(info)

    def transaction(commit_ts: int, *rows: tuple[int, str]) -> Transaction:
        events = TableEvents(made, (INSERT,) * len(rows), [encoder.insert(row) for row in rows], 0)
        return Transaction(commit_ts - 1, commit_ts, (events,), 100)

    refused = Ddl(FIRST_TS + 2, 1, 11, "d", "ALTER TABLE d.n ADD INDEX i ((NO_SUCH(b)))", (("d", "n"),), 2)
    stream = transaction(FIRST_TS + 1, (1, "日本"), (2, "é")), refused, transaction(FIRST_TS + 3, (3, "c"))
    archive = written(tmp_path, iter(stream))
    table = "CREATE TABLE d.n (id INT PRIMARY KEY, b VARCHAR(9)) CHARACTER SET latin1"
    run(target, "CREATE DATABASE d", table, "INSERT INTO d.n VALUES (1, 'x'), (3, 'x')", "SELECT 1")
    with pytest.raises(DownstreamError, match="NO_SUCH"):
        apply(target, archive)
    skip = ({"sql": "NO_SUCH", "action": "skip"},)
    for resumed_rows in (1, 0):
        done = apply(target, archive, ddl_rules=skip)
        assert (done.rows, done.drift, done.texts) == (resumed_rows, {"d.n": 2}, {"d.n.b": 1})
        assert done.lines()[-2:] == [
            "d.n: 2 rows were not there as they should have been",
            "d.n.b: 1 values are not in its character set",
        ]

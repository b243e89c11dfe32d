"""Relay recovery on a real MariaDB: from the checkpoint and the relay log alone to what the upstream had."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.app import recovery as relay_recovery
from drainer.app import relay_setup as relay_assembly
from drainer.app.recovery import known_cluster, stored_checkpoint
from drainer.app.start_wait import AtWork, Summary
from drainer.checkpoint.store import CheckpointStore
from drainer.checkpoint.value import Checkpoint, Intent
from drainer.config.options import DrainerConfig
from drainer.config.relay_format import FORMATS, PAYLOAD
from drainer.ddl import rules as ddl_rules
from drainer.formats.binlog_directory import BinlogDirectory
from drainer.mysql import session_lock
from drainer.mysql.connection import Target, connect
from drainer.mysql.errors import ConnectionLost
from drainer.mysql.rows.change import Position
from drainer.relay.relay_log import RelayLog
from drainer.relay.source import RelaySource
from drainer.sink.findings import Findings
from drainer.stream.rules.rule_set import read_rules
from drainer.txn import DELETE, INSERT, Ddl, Item, TableEvents, TableVersion, Transaction
from tests.drainer.support import recorded
from tests.drainer.support import relay_world as world
from tests.drainer.support.apply_life import clean
from tests.drainer.support.payloads import payload_of, sent
from tests.drainer.support.recovery import (
    KEYLESS,
    KEYLESS_TABLE,
    count,
    end_sessions,
    first_life,
    keyless_stream,
)
from tidb_binlog.clock import SystemClock
from tidb_binlog.errors import ConfigError, Conflict, Corruption, DirectoryLocked
from tidb_binlog.rowcodec.encoder import RowEncoder

pytestmark = pytest.mark.integration

# Scenarios whose relay log the Go drainer finished and got right.
GO = ("basic", "types", "keys", "ddl-fk")
# All are read in `reading/archive/test_archive.py`, and applied in `sink/mysql/test_mysql_sink_mariadb.py`;
# with recovery: `python -m tests.drainer.support.relay_world`.
OURS = [*itertools.product(GO, FORMATS), ("ddl-multischema", PAYLOAD), ("txn", PAYLOAD)]


@pytest.fixture(params=FORMATS)
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("scenario", GO)
async def test_a_go_drainers_relay_log(
    mariadb: MariaDbServer, target: Target, tmp_path: Path, scenario: str
) -> None:
    world.put_go_checkpoint(target, 1)
    summary = await world.recover(target, world.go_relay(scenario, tmp_path / "relay"))
    report = world.report(mariadb, scenario)
    assert report.equal, [str(difference) for difference in report.differences[:3]]
    assert summary.records > 1
    assert world.is_consistent(target)


@pytest.mark.parametrize(("scenario", "form"), OURS)
async def test_our_relay_log(
    mariadb: MariaDbServer, target: Target, tmp_path: Path, scenario: str, form: str
) -> None:
    world.put_go_checkpoint(target, 1)
    stream = world.items(scenario)
    summary = await world.recover(target, await world.our_relay(stream, tmp_path / "relay", form=form))
    report = world.report(mariadb, scenario)
    assert report.equal, [str(difference) for difference in report.differences[:3]]
    assert summary.to_ts == max(item.commit_ts for item in stream)
    assert str(summary.to_ts) in str(summary)
    stored = stored_checkpoint(target, world.SCHEMA)
    assert stored is not None
    assert (stored.checkpoint.consistent, stored.checkpoint.commit_ts) == (True, summary.to_ts)


async def test_a_go_drainers_relay_log_that_ours_went_on_with(
    mariadb: MariaDbServer, target: Target, tmp_path: Path, form: str
) -> None:
    """In files of its own, or after the last record of Go's; and once more in the other format."""
    path = world.go_relay("basic", tmp_path / "relay")
    last_ts = max(item.commit_ts for item in world.items("basic"))
    stream = [replace(item, commit_ts=last_ts + item.commit_ts) for item in keyless_stream(6, 3)]
    other = FORMATS[1 - FORMATS.index(form)]
    await world.our_relay(stream[:5], path, form=form)
    await world.our_relay(stream[5:], path, form=other)
    world.put_go_checkpoint(target, 1)
    summary = await world.recover(target, path)
    assert summary.to_ts == stream[-1].commit_ts
    assert count(target) == (18, 18)
    differences = world.report(mariadb, "basic").differences
    assert [str(difference) for difference in differences] == ["once.t: table exists downstream only"]


async def test_done_again_there_is_nothing_to_do(target: Target, tmp_path: Path) -> None:
    world.put_go_checkpoint(target, 1)
    path = await world.our_relay(world.items("basic"), tmp_path / "relay")
    await world.recover(target, path)
    again = await world.recover(target, path)
    assert again.nothing
    assert "nothing to do" in str(again)


async def test_without_a_checkpoint_there_is_nothing_to_do(target: Target, tmp_path: Path) -> None:
    assert (await world.recover(target, tmp_path / "relay")).nothing == "no checkpoint is stored downstream"


async def test_a_go_checkpoint_that_says_consistent_is_believed_up_to_the_relay_log(
    mariadb: MariaDbServer, target: Target, tmp_path: Path
) -> None:
    """It is cleared by the first save, so a crash before that leaves it."""
    path = world.go_relay("basic", tmp_path / "relay")
    world.put_go_checkpoint(target, 1, consistent=True)
    summary = await world.recover(target, path)
    assert not summary.nothing
    assert world.report(mariadb, "basic").equal
    clean(target)
    world.put_go_checkpoint(target, summary.to_ts, consistent=True)
    assert (await world.recover(target, path)).nothing


async def test_checkpoints_of_several_clusters_are_refused(target: Target, tmp_path: Path) -> None:
    world.put_go_checkpoint(target, 1)
    connection = connect(target)
    connection.run(b"INSERT INTO tidb_binlog.checkpoint VALUES (8, '{}')")
    connection.commit()
    connection.close()
    with pytest.raises(ConfigError, match="2 clusters"):
        stored_checkpoint(target, world.SCHEMA)
    stored = stored_checkpoint(target, world.SCHEMA, cluster_id=8)
    assert stored is not None
    assert stored.cluster_id == 8


async def test_a_damaged_relay_log_leaves_the_downstream_alone(target: Target, tmp_path: Path) -> None:
    world.put_go_checkpoint(target, 1)
    path = await world.our_relay(world.items("basic"), tmp_path / "relay", max_file_size=4000)
    first = min(path.glob("binlog-*"))
    data = bytearray(first.read_bytes())
    data[len(data) - 10] ^= 1
    first.write_bytes(data)
    with pytest.raises(Corruption, match=rf"{first.name}: offset \d+: checksum mismatch"):
        await world.recover(target, path)
    stored = stored_checkpoint(target, world.SCHEMA)
    assert stored is not None
    assert (stored.checkpoint.consistent, stored.checkpoint.commit_ts) == (False, 1)
    connection = connect(target)
    names = {name for (name,) in connection.rows(b"SHOW DATABASES")}
    connection.close()
    assert "shop" not in names


async def test_a_relay_log_in_use_is_refused(target: Target, tmp_path: Path) -> None:
    world.put_go_checkpoint(target, 1)
    directory = BinlogDirectory(str(tmp_path / "relay"), SystemClock())
    with pytest.raises(DirectoryLocked):
        await world.recover(target, tmp_path / "relay")
    directory.close()


# -- our own lanes: exactly once ------------------------------------------------------------------------


@pytest.mark.parametrize("killed_at", [3, 20])
async def test_rows_that_our_lanes_had_applied_are_not_applied_again(
    target: Target, tmp_path: Path, killed_at: int, form: str
) -> None:
    stream = keyless_stream(40, 9)
    await first_life(target, tmp_path / "relay", stream, killed_at=killed_at, form=form)
    summary = await world.recover(target, tmp_path / "relay")
    assert summary.to_ts == stream[killed_at - 1].commit_ts
    assert count(target) == ((killed_at - 2) * 9,) * 2
    assert world.is_consistent(target)


async def test_a_recovery_that_was_killed_goes_on(target: Target, tmp_path: Path) -> None:
    stream = keyless_stream(60, 50)
    world.put_go_checkpoint(target, 1)
    path = await world.our_relay(stream, tmp_path / "relay")
    for delay_s in (0.05, 0.1, 0.2):
        task = asyncio.create_task(world.recover(target, path))
        await asyncio.wait([task], timeout=delay_s)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    while True:  # what a killed process was connected with is gone, sooner or later
        try:
            await world.recovery(target, path).run()
            break
        except AtWork:
            end_sessions(target)
    assert count(target) == (3000, 3000)


async def test_a_relay_log_that_ends_before_the_downstream_is_refused(target: Target, tmp_path: Path) -> None:
    """Rows went downstream that it does not have: it was switched off, or is another one."""
    stream = keyless_stream(30, 5)
    await first_life(target, tmp_path / "relay", stream, killed_at=29, rows_min=60)
    shutil.rmtree(tmp_path / "relay")
    await world.our_relay(stream[:10], tmp_path / "relay")
    with pytest.raises(Conflict, match=r"but the relay log in .* ends at 107"):
        await world.recover(target, tmp_path / "relay")
    stored = stored_checkpoint(target, world.SCHEMA)
    assert stored is not None
    assert not stored.checkpoint.consistent


async def test_rules_are_those_of_when_a_record_was_written(target: Target, tmp_path: Path) -> None:
    """Whatever the configuration says now; what was left out then is in the log, and stays out."""
    world.put_go_checkpoint(target, 1)
    encoder, stream = RowEncoder(KEYLESS), keyless_stream(0, 0)
    settings = DrainerConfig(
        table_migrate_rule=({"source": {"schema": "once"}, "binlog-filter-rule": ["no-deletes"]},),
        binlog_filter_rule={"no-deletes": {"ignore-event": ["delete"]}},
    )
    log = RelayLog.open(str(tmp_path / "relay"), 0, SystemClock())
    await world.write(log, stream)
    hidden = TableVersion(replace(KEYLESS, id=KEYLESS.id + 1), "hidden", "t", 1)
    for number in range(4):
        insert, delete = encoder.insert((number, "x"), 1), encoder.delete((number, "x"), 1)
        both = TableEvents(KEYLESS_TABLE, (INSERT, DELETE), [insert, delete], 0)
        others = TableEvents(hidden, (INSERT,), [insert], 2)
        payload = payload_of(Transaction(0, 100 + number, (both, others), 40))
        if number == 2:
            log.rules_now = lambda: read_rules(settings).text
        left = TableEvents(KEYLESS_TABLE, (INSERT,), [insert], 0) if number > 1 else both
        log.append(Transaction(0, 100 + number, (left,), 40, payload=payload))
    await log.close()
    await world.recover(target, tmp_path / "relay")
    assert count(target) == (2, 2)


async def test_a_torn_end_is_where_the_recovery_ends(target: Target, tmp_path: Path) -> None:
    stream = keyless_stream(10, 5)
    world.put_go_checkpoint(target, 1)
    path = await world.our_relay(stream, tmp_path / "relay", max_file_size=1 << 20)
    (file,) = path.glob("binlog-*")
    (path / ".synced").unlink()
    file.write_bytes(file.read_bytes()[:-1])
    summary = await world.recover(target, path)
    assert summary.to_ts == 108
    assert count(target) == (45, 45)


async def test_a_large_transaction_comes_in_pieces(target: Target, tmp_path: Path, form: str) -> None:
    stream = keyless_stream(1, 12_000)
    world.put_go_checkpoint(target, 1)
    path = await world.our_relay(stream, tmp_path / "relay", form=form)
    summary = await world.recover(target, path)
    assert summary.rows == 12_000
    assert count(target) == (12_000, 12_000)


async def test_the_cluster_is_remembered_without_the_upstream(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    assert known_cluster(str(tmp_path / "relay"), str(tmp_path / "data")) == 0
    (tmp_path / "data" / ".cluster").write_text("6")
    assert known_cluster(str(tmp_path / "relay"), str(tmp_path / "data")) == 6
    log = RelayLog.open(str(tmp_path / "relay"), 0, SystemClock(), cluster_id=7)
    await log.close()
    assert known_cluster(str(tmp_path / "relay"), str(tmp_path / "data")) == 7


def test_what_a_summary_says() -> None:
    text = str(Summary(from_ts=5, to_ts=470607644560982029, records=3, rows=7, ddls=1, seconds=0.25))
    assert "consistent as of commit_ts 470607644560982029" in text
    assert "3 records after 5, 7 row changes, 1 DDL" in text


def test_the_recorded_relay_logs_are_those_of_the_go_drainer() -> None:
    """Every scenario has one; the last record of those that went to the end is the last transaction."""
    for scenario in GO:
        document = json.loads((recorded.ROOT / scenario / "meta.json").read_text())
        (path,) = (recorded.ROOT / scenario / "relay").iterdir()
        assert document
        assert gzip.decompress(path.read_bytes())[:4] == bytes.fromhex("04051b1c")


# -- a DDL that waits -------------------------------------------------------------------------------------


def stream_with_a_refused_ddl() -> list[Item]:
    """Rows of two tables; from the middle on one of them waits for a statement that cannot be run."""
    encoder = RowEncoder(KEYLESS)
    other = TableVersion(replace(KEYLESS, id=KEYLESS.id + 1), "once", "o", 1)
    stream: list[Item] = keyless_stream(5, 3)
    create = "CREATE TABLE o (a BIGINT, b VARCHAR(9))"
    stream.insert(2, Ddl(12, 3, 3, "once", create, (("once", "o"),), 3))
    refused = Ddl(110, 7, 5, "once", "ALTER TABLE t FROBNICATE b", (("once", "t"),), 4)
    stream.append(refused)
    for number in range(10):
        rows = [encoder.insert((1000 + number, "x"), 1)]
        events = tuple(
            TableEvents(table, [INSERT], rows, at) for at, table in enumerate((KEYLESS_TABLE, other))
        )
        stream.append(sent(Transaction(0, 120 + number, events, 40)))
    return stream


def counts(target: Target) -> tuple[int, int]:
    """Of the table that waits, and of the other one."""
    connection = connect(target)
    ((waiting,),) = connection.rows(b"SELECT COUNT(*) FROM once.t")
    ((other,),) = connection.rows(b"SELECT COUNT(*) FROM once.o")
    connection.close()
    return int(waiting), int(other)


def waiting_jobs(target: Target) -> list[int]:
    connection = connect(target)
    found = connection.rows(b"SELECT job_id FROM tidb_binlog.quarantine")
    connection.close()
    return [int(job) for (job,) in found]


RULES: dict[str, dict[str, str]] = {
    "skip": {"action": "skip", "sql": "FROBNICATE"},
    "rewrite": {
        "action": "rewrite",
        "sql": "FROBNICATE",
        "text": "ALTER TABLE {db}.{table} ADD COLUMN c INT",
    },
}


@pytest.mark.parametrize(("rule", "killed_at"), [("skip", 9), ("rewrite", 13), ("rewrite", 18)])
async def test_a_rule_decides_what_waited_when_the_upstream_was_lost(
    target: Target, tmp_path: Path, rule: str, killed_at: int
) -> None:
    stream = stream_with_a_refused_ddl()
    await first_life(target, tmp_path / "relay", stream, killed_at=killed_at)
    later = killed_at - 9
    with pytest.raises(
        Conflict, match=r"DDL job 7 at commit_ts 110 waits .*: ALTER TABLE t FROBNICATE b"
    ) as raised:
        await world.recover(target, tmp_path / "relay")
    assert "ddl-rule" in raised.value.hint
    assert counts(target) == (15, later), "other tables are there; what waits does, in order"
    assert not world.is_consistent(target)
    assert waiting_jobs(target) == [7]
    summary = await world.recover(target, tmp_path / "relay", rules=ddl_rules.parse([RULES[rule]]))
    assert summary.to_ts == stream[killed_at - 1].commit_ts
    assert counts(target) == (15 + later, later)
    assert world.is_consistent(target)
    assert waiting_jobs(target) == []
    assert (await world.recover(target, tmp_path / "relay")).nothing


async def test_what_was_decided_before_the_upstream_was_lost_is_done(target: Target, tmp_path: Path) -> None:
    stream = stream_with_a_refused_ddl()
    await first_life(target, tmp_path / "relay", stream, killed_at=18)
    connection = connect(target)
    connection.run(b"UPDATE tidb_binlog.quarantine SET decision='skip', decision_number=1")
    connection.commit()
    connection.close()
    await world.recover(target, tmp_path / "relay")
    assert counts(target) == (24, 9)
    assert world.is_consistent(target)


@pytest.mark.parametrize("moved", ["resize", "together"])
async def test_lanes_that_were_put_above_the_last_record_are_no_foreign_rows(
    target: Target, tmp_path: Path, moved: str
) -> None:
    """Another number of lanes, or a pause: at a watermark, while the checkpoint is held back below."""
    stream = keyless_stream(20, 3)
    await first_life(target, tmp_path / "relay", stream, killed_at=len(stream) - 1)
    store = CheckpointStore(target, world.CLUSTER_ID, schema=world.SCHEMA)
    store.start(2, 1, 500)
    if moved == "resize":
        store.resize(3, Position(300))
    else:
        store.together(lambda connection: None, lanes_at=300)
    store.close()
    summary = await world.recover(target, tmp_path / "relay")
    assert summary.to_ts == 300
    assert world.is_consistent(target)
    stored = stored_checkpoint(target, world.SCHEMA)
    assert stored is not None
    assert stored.checkpoint.commit_ts == 300


async def test_nobody_is_pushed_aside_who_is_connected(target: Target, tmp_path: Path) -> None:
    stream = keyless_stream(10, 3)
    await first_life(target, tmp_path / "relay", stream, killed_at=5)
    living = CheckpointStore(target, world.CLUSTER_ID, schema=world.SCHEMA)
    living.start(2, 1, 500)
    with pytest.raises(AtWork, match=f"connection ids {living.session.open().session_id}"):
        await world.recovery(target, tmp_path / "relay").run()
    living.hold()  # it goes on
    living.close()
    await world.recover(target, tmp_path / "relay")


def settings_of(target: Target, tmp_path: Path) -> DrainerConfig:
    return DrainerConfig(
        node_id="r",
        data_dir=str(tmp_path / "data"),
        relay_log_dir=str(tmp_path / "relay"),
        to_socket=target.socket,
        to_host=target.host,
        to_port=target.port,
        to_user=target.user,
        to_password=target.password,
    )


async def test_a_ddl_of_a_recovery_is_fenced(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frozen between the stored intent and the statement, while another drainer takes over."""
    world.put_go_checkpoint(target, 1)
    stream = [
        *keyless_stream(3, 1),
        Ddl(110, 7, 5, "once", "ALTER TABLE t ADD COLUMN c INT", (("once", "t"),), 4),
    ]
    await world.our_relay(stream, tmp_path / "relay")
    others: list[CheckpointStore] = []
    begin_ddl = CheckpointStore.begin_ddl

    def then_another_drainer(store: CheckpointStore, intent: Intent, *checkpoint: Checkpoint) -> None:
        begin_ddl(store, intent, *checkpoint)
        if intent.commit_ts == 110:
            others.append(CheckpointStore(target, world.CLUSTER_ID, schema=world.SCHEMA))
            others[0].start(2, 1, 1 << 62)

    monkeypatch.setattr(CheckpointStore, "begin_ddl", then_another_drainer)
    monkeypatch.setattr(relay_recovery, "QUIET_S", 0.0)
    with pytest.raises(Conflict, match="another drainer took over"):
        await relay_assembly.recover(settings_of(target, tmp_path), Findings(SystemClock()))
    connection = connect(target)
    columns = connection.rows(b"SHOW COLUMNS FROM once.t")
    connection.close()
    others[0].close()
    assert [name for name, *_ in columns] == ["a", "b"]


@pytest.mark.parametrize(
    ("where", "step"),
    [
        (relay_assembly, "seen"),
        (CheckpointStore, "start"),
        (RelaySource, "survey"),
        (relay_assembly, "load_waiting"),
    ],
)
async def test_a_connection_that_breaks_in_a_step_is_made_anew(
    where: object, step: str, target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.put_go_checkpoint(target, 1)
    await world.our_relay(keyless_stream(3, 5), tmp_path / "relay")
    whole, calls = getattr(where, step), itertools.count()

    def lost_at_first(*given: Any, **options: Any) -> object:
        if next(calls) == 0:
            raise ConnectionLost(2013, "Lost connection to MySQL server during query")
        return whole(*given, **options)

    monkeypatch.setattr(where, step, lost_at_first)
    monkeypatch.setattr(relay_recovery, "QUIET_S", 0.0)
    await relay_assembly.recover(settings_of(target, tmp_path), Findings(SystemClock()))
    assert next(calls) > 1
    assert world.is_consistent(target)


async def test_a_downstream_from_before_the_relay_log_is_refused(target: Target, tmp_path: Path) -> None:
    """It was put back: records that it needs were removed, those that are left look whole."""
    world.put_go_checkpoint(target, 1)
    path = await world.our_relay(keyless_stream(30, 5), tmp_path / "relay", max_file_size=500)
    log = RelayLog.open(str(path), 500, SystemClock())
    log.done(115)
    await log.close()
    with pytest.raises(Conflict, match=r"the downstream is at 1, but the relay log .* begins after 115"):
        await world.recover(target, path)
    connection = connect(target)
    assert connection.rows(b"SHOW TABLES FROM tidb_binlog") == (
        connection.rows(b"SHOW TABLES FROM tidb_binlog LIKE 'checkpoint'")
    ), "nothing was written"
    connection.close()


async def test_a_statement_that_a_dead_drainer_left_running_is_waited_for(
    target: Target, tmp_path: Path
) -> None:
    """Whatever its text: a derived one is in no log. Its session has the name of the room for DDL."""
    world.put_go_checkpoint(target, 1)
    path = await world.our_relay(keyless_stream(3, 1), tmp_path / "relay")
    left = connect(target)
    session_lock.claim(left, session_lock.Claims(world.SCHEMA, world.CLUSTER_ID).name(session_lock.DDL))
    with pytest.raises(AtWork, match=f"connection ids {left.session_id}"):
        await world.recovery(target, path).run()
    left.close()
    await world.recover(target, path)
    assert count(target) == (3, 3)

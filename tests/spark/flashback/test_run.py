"""Flashback of archives: a MariaDB's rows are again what they were before the range, whatever stops it."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.mysql.connection import Connection, Target
from drainer.spark.flashback import restore, run
from drainer.spark.replay.writer import execute
from drainer.txn import INSERT, UPDATE
from tests.drainer.support.apply_model import SHAPES, World
from tests.spark.support.table_history import History, contents, copy_to_downstream
from tests.waiting import PATIENCE_S
from tidb_binlog.errors import Conflict, Rejected


def no_spark() -> SparkSession:
    raise AssertionError("so little is read without Spark")


def world_of(connection: Connection, name: str) -> World:
    shape = next(shape for shape in SHAPES if shape.name == name)
    return World(connection, shape, random.Random(name))


async def test_a_range_in_the_middle_and_all_after_it(
    spark: SparkSession, connection: Connection, target: Target, tmp_path: Path
) -> None:
    """Two flashbacks, one of each way, each up to where the one before it began."""
    world = world_of(connection, "unique_extra")
    history = History(world)
    history.some(60)
    copy_to_downstream(world)
    middle, then = history.last_ts, contents(world)
    history.some(60)
    copy_to_downstream(world)
    late, before = history.last_ts, contents(world)
    history.some(60)
    await history.write(tmp_path)
    copy_to_downstream(world)

    options = {"start": str(late + 1)}
    way = run.TRANSACTIONS
    done = run.apply(spark, str(tmp_path), target, options, way=way, small_bytes=0)
    assert contents(world) == before != then
    assert done.stop == history.last_ts
    assert done.undone == sum(done.rows["m.dst"].values()) > 60
    with pytest.raises(Rejected, match="was taken back before"):
        run.apply(no_spark, str(tmp_path), target, options, way=way)
    options = {"start": str(middle + 1), "stop": str(late)}
    run.apply(spark, str(tmp_path), target, options, small_bytes=0)
    assert contents(world) == then


@pytest.mark.parametrize("shape", ["text_ci", "keyless"])
async def test_a_script_brings_rows_back(
    connection: Connection,
    mariadb: MariaDbServer,
    tmp_path: Path,
    shape: str,
) -> None:
    world = world_of(connection, shape)
    history = History(world)
    history.some(30)
    copy_to_downstream(world)
    middle, before = history.last_ts, contents(world)
    history.some(40)
    await history.write(tmp_path / "archive")
    copy_to_downstream(world)

    script = tmp_path / "undo.sql"
    done = run.write_script(
        no_spark, str(tmp_path / "archive"), str(script), {"start": str(middle + 1), "tables": "m.*"}
    )
    head = script.read_text("utf-8", "replace").partition("SET NAMES")[0]
    counts = ", ".join(f"{number} to {kind}" for kind, number in done.rows["m.dst"].items())
    assert f"-- table m.dst: {counts}\n" in head
    assert f"-- from {middle + 1} (" in head
    assert ("-- WARNING: m.dst has no key" in head) == (shape == "keyless")
    client = ["mariadb", "--binary-mode", "--default-character-set=utf8mb4", f"--socket={mariadb.socket}"]
    with script.open("rb") as statements:
        subprocess.run(
            [*client, f"--user={mariadb.user}", f"--password={mariadb.password}"],
            stdin=statements,
            check=True,
            timeout=PATIENCE_S,
        )
    assert contents(world) == before


async def test_what_was_changed_since_is_told_and_left_alone(
    connection: Connection, target: Target, tmp_path: Path
) -> None:
    world = world_of(connection, "int")
    history = History(world)
    history.some(20)
    while len(world.rows) < 2:
        history.some(1)
    await history.write(tmp_path)
    copy_to_downstream(world)
    world.run("UPDATE m.dst SET v=4711 ORDER BY id LIMIT 1")
    ((gone,),) = world.run("SELECT id FROM m.dst ORDER BY id DESC LIMIT 1")
    world.run(f"DELETE FROM m.dst WHERE id={gone}")
    ((changed,),) = world.run("SELECT id FROM m.dst WHERE v=4711")
    found = contents(world)
    with pytest.raises(restore.Drifted) as drifted:
        run.apply(no_spark, str(tmp_path), target)
    assert sorted(drifted.value.rows) == sorted(
        [f"m.dst `id` = {changed} has other values", f"m.dst `id` = {gone} is gone"]
    )
    assert contents(world) == found


async def test_a_schema_change_in_the_range_is_refused(
    connection: Connection, target: Target, tmp_path: Path
) -> None:
    history = History(world_of(connection, "int"))
    history.some(5)
    history.schema_change("ALTER TABLE dst ADD INDEX (v)")
    history.some(5)
    await history.write(tmp_path)
    with pytest.raises(Rejected, match=r"on m\.dst: ALTER TABLE dst ADD INDEX"):
        run.apply(no_spark, str(tmp_path), target)
    with pytest.raises(Rejected, match=r"on m\.dst: ALTER TABLE dst ADD INDEX"):
        run.write_script(no_spark, str(tmp_path), str(tmp_path / "undo.sql"))


async def test_a_killed_flashback_goes_on(
    connection: Connection,
    target: Target,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Three processes die, each with rows written that are not committed."""
    world = world_of(connection, "keyless")
    history = History(world)
    history.some(20)
    copy_to_downstream(world)
    middle, before = history.last_ts, contents(world)
    history.some(60)
    await history.write(tmp_path / "archive")
    copy_to_downstream(world)
    monkeypatch.setattr(restore, "CHUNK_ROWS", 5)
    options = {"start": str(middle + 1)}
    for dies_at in (7, 5, 8):
        process = multiprocessing.get_context("fork").Process(
            target=_until, args=(str(tmp_path / "archive"), target, options, dies_at)
        )
        process.start()
        process.join(PATIENCE_S)
        assert process.exitcode == -signal.SIGKILL
    assert contents(world) != before
    done = run.apply(no_spark, str(tmp_path / "archive"), target, options)
    assert done.resumed
    assert contents(world) == before


@pytest.mark.parametrize("way", run.WAYS)
async def test_a_flashback_does_not_go_on_by_other_keys_than_those_of_its_first_chunk(
    connection: Connection, target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """With the further unique key rows go first and come again, without it they are overwritten."""
    world = world_of(connection, "int")
    history = History(world)
    for number in range(7):
        world.put(number, {"id": number, "v": number, "s": str(number)})
        history.tell([(INSERT, world.encoder.insert(world.rows[number], rowid=number))])
    copy_to_downstream(world)
    middle, before = history.last_ts, contents(world)
    for number, row in world.rows.items():
        world.run("UPDATE m.ref SET v=v+100 WHERE rid=%s", (number,))
        history.tell([(UPDATE, world.encoder.update(row, {**row, "v": number + 100}, rowid=number))])
    await history.write(tmp_path)
    copy_to_downstream(world)
    world.run("ALTER TABLE m.dst ADD UNIQUE KEY further (id, v)")
    monkeypatch.setattr(restore, "CHUNK_ROWS", 3)
    options = {"start": str(middle + 1)}

    def stop(_done: int) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        run.apply(no_spark, str(tmp_path), target, options, way=way, on_progress=stop)
    world.run("ALTER TABLE m.dst DROP KEY further")
    with pytest.raises(Conflict, match=r"m\.dst has other unique keys"):
        run.apply(no_spark, str(tmp_path), target, options, way=way)
    world.run("ALTER TABLE m.dst ADD UNIQUE KEY further (id, v)")
    assert run.apply(no_spark, str(tmp_path), target, options, way=way).resumed
    assert contents(world) == before


async def test_what_a_flashback_that_wrote_nothing_found_binds_nobody(
    connection: Connection, target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_of(connection, "int")
    history = History(world)
    history.some(20)
    await history.write(tmp_path)
    copy_to_downstream(world)

    def interrupted(*_given: Any) -> int:
        raise InterruptedError

    with monkeypatch.context() as patch:
        patch.setattr(restore.Restorer, "apply", interrupted)
        with pytest.raises(InterruptedError):
            run.apply(no_spark, str(tmp_path), target)
    world.run("ALTER TABLE m.dst ADD UNIQUE KEY further (id, v)")

    def stop(_done: int) -> None:
        raise InterruptedError

    monkeypatch.setattr(restore, "CHUNK_ROWS", 3)
    with pytest.raises(InterruptedError):
        run.apply(no_spark, str(tmp_path), target, on_progress=stop)
    assert run.apply(no_spark, str(tmp_path), target).resumed
    assert not contents(world)


def _until(archive: str, target: Target, options: dict[str, str], statements: int) -> None:
    """A life that ends without a word, in the middle of a transaction."""
    left = [statements]

    def dying(*given: Any) -> int:
        affected = execute(*given)
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return affected

    restore.execute = dying
    run.apply(no_spark, archive, target, options)

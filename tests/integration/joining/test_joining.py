"""Tables join a drainer that runs, with their rows: others go on, each change is there once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from tests.integration.support.joining_scene import COPY, JOINING, SCHEMA, Program, Scene, scene
from tests.waiting import PATIENCE_S

PROGRAMS = Path(sys.executable).parent

pytestmark = pytest.mark.integration

Made = tuple[Scene, Program]


@pytest.fixture
def open_scene(
    etcd_clean: str, mariadb: MariaDbServer, free_port: Callable[[], int], tmp_path: Path
) -> Callable[[int], contextlib.AbstractAsyncContextManager[Made]]:
    return lambda rows: scene(etcd_clean, mariadb, free_port, tmp_path, rows=rows)


OpenScene = Callable[[int], contextlib.AbstractAsyncContextManager[Made]]


@contextlib.asynccontextmanager
async def writing(program: Program) -> AsyncIterator[None]:
    """The program writes all the while."""
    stop = False

    async def write() -> None:
        while not stop:
            await program.write()

    task = asyncio.create_task(write())
    try:
        yield
    finally:
        stop = True
        await task
        await program.publisher.flush()


@contextlib.contextmanager
def in_use(made: Scene, table: str) -> Iterator[None]:
    """A table downstream that cannot be dropped: the load stands still before its first row."""
    reader = made.connect()
    reader.run(b"BEGIN")
    reader.rows(f"SELECT 1 FROM {COPY}.{table} LIMIT 1".encode())
    try:
        yield
    finally:
        reader.close()


@contextlib.contextmanager
def unreadable(made: Scene, table: str) -> Iterator[None]:
    """A table upstream that cannot be read: the load stands still at its first chunk."""
    locker = made.connect()
    locker.run(f"LOCK TABLES {SCHEMA}.{table} WRITE".encode())
    try:
        yield
    finally:
        locker.close()


async def stands_still(made: Scene) -> None:
    """The timestamp of the copy is drawn."""
    query = b"SELECT 1 FROM tidb_binlog.load_state WHERE phase='joining' AND ts > 0"
    await made.until(lambda: made.connection.rows_if_there(query)[0], "a timestamp is drawn")


async def copied(made: Scene) -> None:
    """A chunk of the other table is there."""
    query = b"SELECT 1 FROM tidb_binlog.load_chunks WHERE state=2"
    await made.until(lambda: made.connection.rows_if_there(query)[0], "a chunk is copied")


def shown(made: Scene) -> set[str]:
    """Tables of the load that the status has, once rows of one are there."""
    load = made.ask("/status")[1]["Load"]
    return {table["table"] for table in load["tables"]} if load["rows"] else set()


def log_of(made: Scene) -> str:
    return (made.directory / "log").read_text()


async def test_tables_are_loaded_beside_the_stream_and_are_like_all_others_then(
    open_scene: OpenScene,
) -> None:
    async with open_scene(5_000) as (made, program):
        await program.write()
        await made.until(lambda: made.rows(COPY, "keyed"), "rows of the stream")
        refused = await made.load(query="")
        assert refused[0] == 400
        assert "the downstream has rows already in join_copy.keyed" in refused[1]["message"]
        made.connection.run(f"INSERT INTO {COPY}.keyed VALUES (-9, 'only here')".encode())
        async with writing(program):
            with in_use(made, "plain"):
                begun = await made.load()
                assert begun[0] == 200, begun
                assert (await made.load())[1]["data"] == begun[1]["data"], "they are loaded already"
                assert (await made.load(f"{SCHEMA}.flows"))[0] == 409, "one load at a time"
                await stands_still(made)
                written = program.written
                await made.until(lambda: len(made.rows(COPY, "flows")) > written + 20, "others go on")
                ((waiting,),) = [made.joins()]
                assert waiting["state"].startswith("rows are loaded: ")
                assert waiting["possible"] == []
            await made.until(lambda: not made.joins(), "they are like all others")
        await made.is_equal()
        last = made.ask("/load")[1]["data"]["last"]
        assert (last["job_id"], last["tables"]) == (begun[1]["data"]["job_id"], 2)
        assert last["rows"] > 9_900
        assert made.connection.rows(b"SELECT COUNT(*) FROM tidb_binlog.load_state") == [(0,)]
        await program.write()
        await program.publisher.flush()
        await made.is_equal()


async def test_the_command_follows_a_load_to_its_end_through_a_kill(open_scene: OpenScene) -> None:
    async def command(*more: str) -> asyncio.subprocess.Process:
        words = ("load", "-pd-urls", made.etcd, "-tables", JOINING, *more)
        return await asyncio.create_subprocess_exec(
            str(PROGRAMS / "binlogctl"), *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    async with open_scene(3_000) as (made, program):
        await program.write()
        await made.until(lambda: made.rows(COPY, "keyed"), "rows of the stream")
        refused = await command()
        _, said = await refused.communicate()
        assert refused.returncode == 4
        assert b"the downstream has rows already in join_copy.keyed" in said
        with in_use(made, "plain"):
            follows = await command("-replace", "-output", "json")
            await stands_still(made)
            leaves = await command("-replace", "-no-wait")
            said, _ = await leaves.communicate()
            assert leaves.returncode == 0
            assert b"drainer join loads them" in said
            made.kill()
        made.start()
        said, errors = await follows.communicate()
        assert follows.returncode == 0, errors
        done = json.loads(said)
        assert (done["node_id"], done["tables"]) == ("join", 2)
        assert not made.joins()
        await made.is_equal()


async def test_a_load_that_is_given_up_leaves_no_part_of_a_copy(open_scene: OpenScene) -> None:
    async with open_scene(3_000) as (made, program):
        await program.write()
        await made.until(lambda: made.rows(COPY, "keyed"), "rows of the stream")
        async with writing(program):
            assert (await made.load(query="?replace=1&rate=1"))[0] == 200
            await copied(made)
            assert len(made.joins()) == 1, "the next chunk is hours away"
            words = ("load", "-pd-urls", made.etcd, "-give-up")
            gives_up = await asyncio.create_subprocess_exec(
                str(PROGRAMS / "binlogctl"), *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            said, errors = await gives_up.communicate()
            assert gives_up.returncode == 0, errors
            assert b"the load is given up: its tables are made anew" in said
            assert not made.joins()
            last = made.ask("/load")[1]["data"]["last"]
            assert (last["given_up"], last["tables"], last["rows"]) == (True, 2, 0)
            code, answer = made.ask("/load", "DELETE")
            assert (code, "nothing to give up" in answer["message"]) == (400, True)
        await made.has_what_comes(program)
        assert (await made.load())[0] == 200
        await made.is_equal()


async def test_a_load_that_wrote_nothing_yet_is_given_up_without_a_trace(open_scene: OpenScene) -> None:
    async with open_scene(300) as (made, program):
        await program.write()
        await made.until(lambda: made.rows(COPY, "keyed"), "rows of the stream")
        with program.application.session() as holding:
            await asyncio.to_thread(program.application.outcomes.hold_snapshots, holding)
            assert (await made.load())[0] == 200
            before = made.rows(COPY, "plain")
            code, answer = made.ask("/load", "DELETE")
            assert (code, answer["data"]["made_anew"]) == (200, False)
            await made.until(lambda: not made.joins(), "they are like all others")
            assert made.rows(COPY, "plain") == before
            holding.rollback()
        await made.has_what_comes(program)
        assert (await made.load())[0] == 200
        await made.is_equal()


async def test_a_drainer_whose_load_waits_for_an_upstream_that_hangs_stops(open_scene: OpenScene) -> None:
    async with open_scene(300) as (made, program):
        with unreadable(made, "plain"):
            assert (await made.load())[0] == 200
            await copied(made)
            assert made.drainer is not None
            made.drainer.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(made.drainer.wait, PATIENCE_S) == 0
        made.start()
        async with writing(program):
            await made.until(lambda: not made.joins(), "they are like all others")
        await made.is_equal()


async def test_who_follows_a_load_is_told_that_it_was_given_up(open_scene: OpenScene) -> None:
    async with open_scene(300) as (made, program):
        words = ("load", "-pd-urls", made.etcd, "-tables", JOINING, "-replace", "-rate", "1")
        follows = await asyncio.create_subprocess_exec(
            str(PROGRAMS / "binlogctl"), *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        await copied(made)
        assert made.ask("/load", "DELETE")[0] == 200
        made.kill()
        made.start()
        _, errors = await follows.communicate()
        assert follows.returncode == 4, errors
        assert b"the load was given up meanwhile" in errors
        await made.has_what_comes(program)


async def test_a_load_whose_upstream_hangs_can_be_given_up(open_scene: OpenScene) -> None:
    async with open_scene(300) as (made, program):
        with unreadable(made, "plain"):
            assert (await made.load())[0] == 200
            await copied(made)
            assert made.ask("/load", "DELETE")[1]["data"]["made_anew"]
            await made.until(lambda: not made.joins(), "they are like all others")
        await made.has_what_comes(program)


async def test_a_stream_that_waits_for_a_load_goes_on_once_it_is_given_up(open_scene: OpenScene) -> None:
    """What is kept has used up its room."""
    async with open_scene(300) as (made, program):
        made.kill()
        text = made.config.read_text()
        made.config.write_text(text.replace("[syncer]\n", "[syncer]\nquarantine-size = 1\n"))
        made.start()
        assert (await made.load(query="?replace=1&rate=1"))[0] == 200
        await copied(made)
        await program.write()
        await program.publisher.flush()
        await made.until(lambda: "quarantine-size is used up" in log_of(made), "the stream waits")
        assert made.ask("/load", "DELETE")[0] == 200
        await made.until(lambda: not made.joins(), "they are like all others")
        await made.has_what_comes(program)


async def test_a_load_whose_drainer_is_killed_goes_on_with_the_next_one(open_scene: OpenScene) -> None:
    async with open_scene(3_000) as (made, program):
        with unreadable(made, "plain"):
            assert (await made.load())[0] == 200
            await copied(made)
            await made.until(lambda: shown(made) == {f"{SCHEMA}.keyed", f"{SCHEMA}.plain"}, "it is shown")
            made.kill()
        for _ in range(5):
            await program.write()
        made.start()
        async with writing(program):
            await made.until(lambda: not made.joins(), "they are like all others")
        await made.is_equal()
        assert made.ask("/load")[1]["data"]["last"]["tables"] == 2
        await made.until(lambda: made.ask("/status")[1]["Load"] is None, "it is over")


async def test_a_ddl_after_the_copy_waits_for_the_rows_before_it(open_scene: OpenScene) -> None:
    async with open_scene(3_000) as (made, program):
        await program.write()
        with unreadable(made, "plain"):
            assert (await made.load())[0] == 200
            await copied(made)
            await program.add_column()
            await program.publisher.flush()
            await made.until(lambda: "DDL waits" in log_of(made), "the DDL is kept")
        await program.write()
        await program.publisher.flush()
        await made.is_equal()
        await made.until(lambda: "DDL that waited is over" in log_of(made), "it is said")
        assert "at a later timestamp" not in log_of(made)


async def test_a_ddl_before_the_copy_is_in_it(open_scene: OpenScene) -> None:
    """The database shows no past of an altered table: the load goes on at a later timestamp."""
    async with open_scene(3_000) as (made, program):
        await program.write()
        await program.publisher.flush()
        await made.until(lambda: made.rows(COPY, "plain"), "rows of the stream")
        with in_use(made, "plain"):
            assert (await made.load())[0] == 200
            await stands_still(made)
            await program.add_column()
        async with writing(program):
            await made.until(lambda: not made.joins(), "they are like all others")
        await made.is_equal()
        assert "at a later timestamp" in log_of(made)
        assert "DDL that waited is over" not in log_of(made)


async def test_tables_that_are_renamed_and_dropped_meanwhile(open_scene: OpenScene) -> None:
    async with open_scene(3_000) as (made, program):
        await program.write()
        await program.publisher.flush()
        await made.until(lambda: made.rows(COPY, "plain"), "rows of the stream")
        with in_use(made, "plain"):
            assert (await made.load())[0] == 200
            await stands_still(made)
            program.application.alter("DROP TABLE keyed")
            await program.publisher.drop_table(f"{SCHEMA}.keyed")
            program.application.alter("RENAME TABLE plain TO simple")
            await program.publisher.rename_table(f"{SCHEMA}.plain", "simple")
            await program.publisher.flush()
            await made.until(lambda: log_of(made).count("DDL waits") == 2, "both wait")
        await made.until(lambda: not made.joins(), "they are like all others")
        assert made.rows(COPY, "simple") == made.rows(SCHEMA, "simple")
        names = made.connection.rows(
            f"SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA='{COPY}'".encode()
        )
        assert sorted(names) == [("flows",), ("simple",)]


async def test_rows_that_were_refused_are_in_the_load(open_scene: OpenScene) -> None:
    async with open_scene(3_000) as (made, program):
        made.connection.run(f"DROP TABLE {COPY}.keyed".encode())
        await program.write()
        await program.publisher.flush()
        await made.until(lambda: (made.ask("/ddl")[1]["data"] or {}).get("waiting"), "rows wait")
        assert (await made.load())[0] == 200
        async with writing(program):
            await made.until(lambda: not made.joins(), "they are like all others")
        await made.is_equal()
        assert made.ask("/ddl")[1]["data"]["waiting"] == []

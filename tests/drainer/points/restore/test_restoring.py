"""Restores into a real MariaDB: an image and the archive after it come to what the upstream had."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from drainer.checkpoint import job_findings
from drainer.config.options import DrainerConfig
from drainer.mysql.connection import Target, connect
from drainer.mysql.literal.quoting import qualified, quote_name
from drainer.points.restore import image_source
from drainer.points.restore.options import RestoreOptions
from drainer.points.restore.restoring import Restoration
from drainer.reparo.options import SCHEMA
from drainer.reparo.summary import Summary
from tests.drainer.points.restore.image_world import ARCHIVE, options, restore, world
from tests.drainer.support.apply_life import differences, drainer_at_work, run
from tests.drainer.support.relay_world import items
from tests.spark.support.replay_world import our_archive
from tidb_binlog.errors import ConfigError, Conflict, Rejected
from tidb_binlog.status.drainer import LackStatus


@pytest.mark.parametrize(("scenario", "share"), [("basic", 0.7), ("types", 0.8), ("txn", 0.5)])
def test_image_and_archive_come_to_what_the_upstream_had(
    target: Target, tmp_path: Path, scenario: str, share: float
) -> None:
    made = world(tmp_path, scenario, share)
    wanted = options(target, tmp_path)
    found = restore(wanted)
    assert differences(scenario, target) == []
    assert found.finished
    assert found.is_equal, found.lines()
    assert found.rows == sum(one.rows for one in made.tables)
    assert found.upto_ts == items(scenario)[-1].commit_ts
    assert found.compared > found.rows
    again = restore(wanted)
    assert (again.rows, again.changes, again.finished, again.is_equal) == (0, 0, True, True)


def test_an_image_alone_is_restored_up_to_its_own_time(target: Target, tmp_path: Path) -> None:
    made = world(tmp_path, "keys", 0.6)
    found = restore(options(target, tmp_path, archive=""))
    assert (found.finished, found.is_equal, found.upto_ts) == (True, True, made.commit_ts)
    assert found.compared == found.rows == sum(one.rows for one in made.tables)
    # What came to it afterwards is found, in a table without a key as in others.
    name = next(f"`{one.schema}`.`{one.table}`" for one in made.tables if one.rows)
    run(target, f"DELETE FROM {name} LIMIT 1", "SELECT 1")
    again = restore(options(target, tmp_path, archive=""))
    assert not again.is_equal
    assert "rows are to be there" in again.different[0]


@pytest.mark.parametrize("shares", [(0.2, 0.5, 0.8)])
def test_a_restore_that_broke_off_goes_on(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shares: tuple[float, ...]
) -> None:
    """Within the image, which then has many transactions; rows of tables without a key too come once."""
    monkeypatch.setattr(image_source, "ROWS_AT_ONCE", 2)
    made = world(tmp_path, "keys", 0.6)
    wanted = options(target, tmp_path)
    transactions = sum(-(-one.rows // 2) for one in made.tables)
    of_group = image_source.ImageSource._of_group
    for share in shares:
        left = int(transactions * share)

        def breaking(self: Any, *place: Any) -> Iterator[Any]:
            nonlocal left
            for transaction in of_group(self, *place):
                left -= 1
                if left < 0:
                    raise InterruptedError
                yield transaction

        monkeypatch.setattr(image_source.ImageSource, "_of_group", breaking)
        with pytest.raises(InterruptedError):
            restore(wanted)
    monkeypatch.setattr(image_source.ImageSource, "_of_group", of_group)
    found = restore(wanted)
    assert (found.finished, found.is_equal) == (True, True)
    assert differences("keys", target) == []


def test_what_the_destination_lacks_of_definitions_is_said(target: Target, tmp_path: Path) -> None:
    world(tmp_path, "basic", 0.7)
    restoration = Restoration(options(target, tmp_path), asyncio.Event())
    outcome = restoration._outcome()
    summary = Summary(
        "mysql", finished=True, missing=["since job 7 (d.t): expression key k"], texts={"d.t.c": 2}
    )
    assert restoration._took(summary, outcome)
    assert outcome.lines()[1:3] == [
        "d.t.c: 2 values are not in its character set",
        "missing at the destination since job 7 (d.t): expression key k",
    ]


def test_a_signal_ends_it_and_the_same_call_goes_on(target: Target, tmp_path: Path) -> None:
    world(tmp_path, "keys", 0.6)
    stop = asyncio.Event()
    stop.set()
    found = restore(options(target, tmp_path), stop)
    assert not found.finished
    assert "the same command goes on" in found.lines()[-1]
    assert restore(options(target, tmp_path)).is_equal
    assert differences("keys", target) == []


def test_beside_a_drainer_it_goes_on_where_that_is_asked_for(target: Target, tmp_path: Path) -> None:
    world(tmp_path, "basic", 0.5)
    with drainer_at_work(target):
        with pytest.raises(Conflict, match=r"Drainer of cluster 77 works .* -beside-drainer"):
            restore(options(target, tmp_path))
        found = restore(options(target, tmp_path, beside_drainer=True))
    assert (found.finished, found.is_equal) == (True, True)


def test_what_would_be_done_is_said_and_nothing_written(target: Target, tmp_path: Path) -> None:
    made = world(tmp_path, "basic", 0.7)
    plan = Restoration(options(target, tmp_path), asyncio.Event()).plan()
    assert plan.rows == sum(one.rows for one in made.tables)
    assert plan.changes > 0
    assert any(line.startswith("archive: ") and "shop.orders" in line for line in plan.notes)
    assert ("shop",) not in run(target, "SHOW DATABASES")


def test_rows_that_are_there_are_never_written_over(target: Target, tmp_path: Path) -> None:
    world(tmp_path, "basic", 0.7)
    run(target, "CREATE DATABASE shop", "CREATE TABLE shop.orders (id INT)", "SELECT 1")
    run(target, "INSERT INTO shop.orders VALUES (1)", "SELECT 1")
    with pytest.raises(Rejected, match=r"shop.orders has rows at the destination already"):
        restore(options(target, tmp_path))
    assert run(target, "SELECT * FROM shop.orders") == [(1,)]
    assert ("tidb_binlog_reparo",) not in run(target, "SHOW DATABASES")


def test_a_destination_that_was_emptied_since_is_told(target: Target, tmp_path: Path) -> None:
    world(tmp_path, "basic", 0.7)
    restore(options(target, tmp_path))
    run(target, "DROP DATABASE shop", "SELECT 1")
    with pytest.raises(Conflict, match="none of its tables is at the destination any more"):
        restore(options(target, tmp_path))


def test_an_archive_that_begins_after_the_image_is_said_to(target: Target, tmp_path: Path) -> None:
    world(tmp_path, "basic", 0.7)
    assert (
        not Restoration(options(target, tmp_path), asyncio.Event()).plan().notes[0].startswith("the archive")
    )
    early = options(target, tmp_path, image="", begin_ts=items("basic")[0].commit_ts - 2)
    said = Restoration(early, asyncio.Event()).plan().notes[0]
    assert said.startswith(f"the archive begins at commit_ts {items('basic')[0].commit_ts}, after ")


def test_a_time_that_cannot_be_reached_is_refused(target: Target, tmp_path: Path) -> None:
    made = world(tmp_path, "basic", 0.7)
    with pytest.raises(ConfigError, match="before its image or backup"):
        restore(options(target, tmp_path, stop_ts=made.commit_ts - 1))
    with pytest.raises(Rejected, match="the archive ends at commit_ts"):
        restore(options(target, tmp_path, stop_ts=items("basic")[-1].commit_ts + 1))
    shutil.rmtree(tmp_path / ARCHIVE)
    our_archive("basic", tmp_path / ARCHIVE, 2_000)
    first = min((tmp_path / ARCHIVE).glob("binlog-*"))
    for path in (tmp_path / ARCHIVE).glob(f"{first.name}*"):
        path.unlink()
    with pytest.raises(Rejected, match="the archive begins with"):
        restore(options(target, tmp_path, image="", begin_ts=items("basic")[0].commit_ts))
    middle = items("basic")[int(len(items("basic")) * 0.8)].commit_ts
    assert restore(options(target, tmp_path, stop_ts=middle)).upto_ts == middle
    with pytest.raises(Conflict, match="went on to commit_ts"):
        restore(options(target, tmp_path, stop_ts=middle - 1))


def test_up_to_the_image_itself_nothing_of_the_archive_is_applied(target: Target, tmp_path: Path) -> None:
    made = world(tmp_path, "basic", 0.7)
    gone = options(target, tmp_path, archive=str(tmp_path / "gone"), stop_ts=made.commit_ts)
    assert Restoration(gone, asyncio.Event()).plan().upto_ts in (0, made.commit_ts)  # it is not asked for
    found = restore(options(target, tmp_path, stop_ts=made.commit_ts))
    assert (found.finished, found.is_equal, found.changes) == (True, True, 0)
    assert found.upto_ts == made.commit_ts
    assert "equal to what image and archive come to" in found.lines()[-1]
    assert restore(options(target, tmp_path)).upto_ts == items("basic")[-1].commit_ts
    assert differences("basic", target) == []


def test_a_column_that_the_destination_computes_is_said_not_to_be_compared(
    target: Target, tmp_path: Path
) -> None:
    made = world(tmp_path, "basic", 0.7)
    version = next(one.version for one in made.tables if one.rows)
    chosen = next(one.name for one in reversed(version.info.columns))
    wanted = options(target, tmp_path, archive="")
    assert restore(wanted).lines()[-1].endswith("equal to what image and archive come to")
    with closing(connect(target)) as connection:
        name = qualified(*version.downstream), quote_name(chosen)
        connection.run(b"ALTER TABLE %b DROP COLUMN %b" % name)
        connection.run(b"ALTER TABLE %b ADD COLUMN %b INT AS (1)" % name)
    found = restore(wanted)
    label = ".".join(version.downstream)
    assert found.not_compared == [f"{label}: {chosen}: the destination computes or lacks that"]
    assert found.lines()[-1].endswith("equal to what image and archive come to, as far as compared")


def test_an_end_after_the_archive_is_refused_where_no_index_says_its_end(tmp_path: Path) -> None:
    world(tmp_path, "basic", 0.7)
    for path in (tmp_path / ARCHIVE / "index").glob("*.json"):
        path.unlink()
    target, last_ts = Target("127.0.0.1", 1, "u", ""), items("basic")[-1].commit_ts
    Restoration(options(target, tmp_path, stop_ts=last_ts), asyncio.Event())
    with pytest.raises(Rejected, match=f"the archive ends at commit_ts {last_ts}"):
        Restoration(options(target, tmp_path, stop_ts=last_ts + 1), asyncio.Event())


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"settings": {"db_type": "file"}}, 'db-type = "file"'),
        ({"image": ""}, "begins with an image"),
        ({"begin_ts": 9}, "begins with an image"),
        ({"image": "", "begin_ts": 9, "archive": ""}, "nothing is to be done"),
    ],
)
def test_a_restore_that_makes_no_sense_is_refused(tmp_path: Path, more: Any, text: str) -> None:
    target = Target("127.0.0.1", 1, "u", "")
    if "settings" in more:
        settings = DrainerConfig(db_type="file")
        wanted = RestoreOptions(settings, image="x")
    else:
        wanted = options(target, tmp_path, **more)
    with pytest.raises(ConfigError, match=text):
        wanted.validate()


def test_a_backup_goes_on_with_the_archive_after_it(target: Target, tmp_path: Path) -> None:
    """The image stands for what a tool put there."""
    made = world(tmp_path, "basic", 0.7)
    restore(options(target, tmp_path, archive=""))
    found = restore(options(target, tmp_path, image="", begin_ts=made.commit_ts))
    assert (found.finished, found.rows, found.is_equal) == (True, 0, True)
    assert "what the backup has is not known here" in found.notes[0]
    assert differences("basic", target) == []


def test_a_backup_that_was_another_one_is_no_more_equal_the_next_time(target: Target, tmp_path: Path) -> None:
    made = world(tmp_path, "basic", 0.7)
    restore(options(target, tmp_path))
    run(target, "UPDATE shop.orders SET qty = qty + 1", "SELECT 1")
    wanted = options(target, tmp_path, image="", begin_ts=made.commit_ts)
    first = restore(wanted)
    assert first.drift
    again = restore(wanted)
    assert (again.changes, again.drift, again.is_equal) == (0, first.drift, False)
    assert again.lines()[-1].endswith("NOT equal to what image and archive come to")


def test_what_rows_were_like_on_the_way_does_not_count_where_the_end_was_compared(
    target: Target, tmp_path: Path
) -> None:
    made = world(tmp_path, "basic", 0.7)
    wanted = options(target, tmp_path)
    restore(wanted)
    labels = [made.tables[0].shown.upper(), "shop.gone"]
    with closing(connect(target)) as connection:
        job_findings.JobFindings(SCHEMA, wanted.job.number).count(
            connection, 0, job_findings.ROWS, [(one, 3) for one in labels]
        )
        connection.commit()
    found = restore(wanted)
    assert (found.drift, found.is_equal) == ({"shop.gone": 3}, False)


def test_what_the_destination_lacks_of_an_image_is_said_by_every_run(target: Target, tmp_path: Path) -> None:
    world(tmp_path, "basic", 0.7)
    wanted = options(target, tmp_path, archive="")
    restore(wanted)
    lack = LackStatus(job_id=7, commit_ts=9, tables=["shop.orders"], missing=["expression key k"])
    job_findings.JobFindings(SCHEMA, wanted.job.number).keep_lack(target, lack)
    assert restore(wanted).missing == ["since job 7 (shop.orders): expression key k"]

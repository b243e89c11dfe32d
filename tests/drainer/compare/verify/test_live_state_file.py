"""A comparison that was ended goes on with what was not equal yet."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.compare.verify.chunk_comparison import Part
from drainer.compare.verify.live import KEPT_S, StateFile
from drainer.compare.verify.result import State, Verification
from drainer.compare.verify.table_work import Request, TableWork
from drainer.compare.verify.verifying import Progress, Stopped
from drainer.mysql.chunks.chunk import Chunk
from tests.drainer.compare.verify.world import DOWNSTREAM, QUICK, UPSTREAM, World, world

NOW_S = 1_763_868_000.0


@pytest.fixture(scope="module")
def both(mariadb: MariaDbServer) -> Iterator[World]:
    with world(mariadb) as made:
        made.make("t", "id INT PRIMARY KEY, a VARCHAR(20)", "SELECT seq, 'x' FROM mysql.seq_1_to_200")
        yield made


def interrupted(both: World, path: Path, after: int) -> None:
    """Ended after so many chunks, as a kill would: the file is what it is."""
    stop, journal = threading.Event(), StateFile(path, "both", NOW_S)
    verifying = both.verifying("t", journal=journal, stop=stop)

    def progress(now: Progress) -> None:
        if now.rows >= after * QUICK.chunk_rows:
            stop.set()

    verifying.on_progress = progress
    with pytest.raises(Stopped):
        verifying.run()
    journal.close(finished=False)


def resumed(both: World, path: Path, of: str = "both", now_s: float = NOW_S) -> tuple[int, Verification]:
    journal = StateFile(path, of, now_s)
    found = both.verifying("t", journal=journal).run()
    journal.close(finished=True)
    return journal.resumed, found


def test_what_was_equal_is_not_compared_again(both: World, tmp_path: Path) -> None:
    path = tmp_path / "state"
    interrupted(both, path, after=4)
    with path.open("ab") as file:
        file.write(b'{"table": "verify_down.t", "how": "x", "chu')  # as a crash leaves it
    chunks, found = resumed(both, path)
    assert chunks >= 4
    assert (found.state, found.rows) == (State.EQUAL, 200)
    assert not path.exists()


def test_a_file_of_another_comparison_says_nothing(both: World, tmp_path: Path) -> None:
    path = tmp_path / "state"
    interrupted(both, path, after=4)
    assert resumed(both, path, "others")[0] == 0


def test_what_was_equal_more_than_a_day_ago_says_nothing_of_today(both: World, tmp_path: Path) -> None:
    path = tmp_path / "state"
    interrupted(both, path, after=4)
    later = StateFile(path, "both", NOW_S + 3600.0)
    later.close(finished=False)
    assert later.began_s == NOW_S, "a run that goes on began when the first one did"
    assert resumed(both, path, now_s=NOW_S + KEPT_S + 1)[0] == 0
    interrupted(both, path, after=4)
    assert resumed(both, path, now_s=NOW_S + KEPT_S)[0] >= 4


def test_a_table_that_was_altered_begins_anew(both: World, tmp_path: Path) -> None:
    path = tmp_path / "state"
    interrupted(both, path, after=4)
    both.run(*(f"ALTER TABLE {schema}.t ADD b INT" for schema in (UPSTREAM, DOWNSTREAM)))
    chunks, found = resumed(both, path)
    assert (chunks, found.state, found.rows) == (0, State.EQUAL, 200)


def test_the_file_is_for_its_owner_alone(both: World, tmp_path: Path) -> None:
    path = tmp_path / "state"
    interrupted(both, path, after=2)
    assert path.stat().st_mode & 0o777 == 0o600


def test_chunks_of_runs_that_cut_otherwise_leave_no_gap(both: World) -> None:
    (table,) = both.verifying("t").run().tables
    verifying = both.verifying("t")
    verifying.run()
    (how,) = verifying.compared().values()
    key = ("id",)
    first = [Chunk(0, key, (), (b"10",)), Chunk(2, key, (b"20",), (b"30",)), Chunk(3, key, (b"30",))]
    second = [Chunk(1, key, (b"10",), (b"15",)), Chunk(2, key, (b"15",), (b"18",))]
    work = TableWork(Request(table.upstream, table.downstream))
    work.resume(how, [(chunk, Part(1, 1)) for chunk in (*first, *second)])
    assert work.chunks == [first[0], *second]
    assert not work.is_cut

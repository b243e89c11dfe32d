"""Grid: a comparison chunk by chunk, of bounded size; and what a real one tells of itself."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.compare.verify.chunk_comparison import Part
from drainer.compare.verify.table_work import CELLS_MAX, TABLES_MAX, Request, TableWork, grids
from drainer.compare.verify.verifying import Progress
from drainer.mysql.chunks.chunk import Chunk
from tests.drainer.compare.verify.world import DOWNSTREAM, World, world
from tidb_binlog.status.drainer import ChunkGrid


def work(
    name: str, chunks: int, equal: Collection[int] = (), wrong: Collection[int] = (), *, is_cut: bool = False
) -> TableWork:
    request = Request((("up", name),), ("down", name), rows_expected=1000)
    made = TableWork(request, chunks=[Chunk(number) for number in range(chunks)], is_cut=is_cut)
    made.is_described = True
    made.equal = {number: Part(10, 10) for number in equal}
    made.wrong = {number: Part(10, 10) for number in wrong}
    return made


def test_a_cell_is_a_chunk_until_there_are_too_many() -> None:
    (few,) = grids([work("t", 5, equal=(0, 1, 3), wrong=(2,), is_cut=True)])
    assert few == ChunkGrid(table="down.t", cells="==!=.", chunks=5, is_cut=True, rows=40, rows_expected=1000)
    many = work("t", 3 * CELLS_MAX, equal=set(range(3 * CELLS_MAX)) - {4, 9}, wrong=(4,))
    (grouped,) = grids([many])
    assert grouped.cells == "=!=." + "=" * (CELLS_MAX - 4), "the worst of three says what a cell is"
    assert grouped.chunks == 3 * CELLS_MAX
    odd = work("t", CELLS_MAX + 1)
    assert grids([odd])[0].cells == "." * 101


def test_tables_with_a_difference_come_first_and_their_number_is_bounded() -> None:
    works = [work(f"done{number}", 1, equal=(0,), is_cut=True) for number in range(TABLES_MAX)]
    works += [work("begun", 3, equal=(0,)), work("not begun", 0), work("wrong", 2, wrong=(1,))]
    gone = work("gone", 2, wrong=(1,))
    gone.is_gone = True
    shown = [table.table for table in grids([*works, gone])]
    assert shown[:3] == ["down.wrong", "down.begun", "down.done0"]
    assert len(shown) == TABLES_MAX
    assert "down.not begun" not in shown


@pytest.fixture
def both(mariadb: MariaDbServer) -> Iterator[World]:
    with world(mariadb) as made:
        yield made


def test_a_real_comparison_tells_its_chunks_while_it_runs(both: World) -> None:
    both.make("t", "id INT PRIMARY KEY, a VARCHAR(20)", "SELECT seq, 'x' FROM mysql.seq_1_to_100")
    both.run(f"DELETE FROM {DOWNSTREAM}.t WHERE id=1")
    seen: list[ChunkGrid] = []

    def look(now: Progress) -> None:
        seen.extend(grids(now.works))

    verifying = both.verifying("t")
    verifying.on_progress = look
    verifying.run()
    assert {table.table for table in seen} == {f"{DOWNSTREAM}.t"}
    assert "." in seen[0].cells
    last = seen[-1]
    assert last.cells == "!" + "=" * (last.chunks - 1)
    assert (last.is_cut, last.rows) == (True, 100)

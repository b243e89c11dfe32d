"""Which chunks workers get, in which order: what is stored of them stands for the servers."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from drainer.checkpoint.load_progress import ChunkState, LoadedChunk
from drainer.mysql.chunks.chunk import Chunk
from drainer.mysql.errors import ConnectionLost
from drainer.points.load import copying
from drainer.points.load.copier import ChunkCopy, Copied
from drainer.points.load.copying import Copying
from drainer.points.load.counters import Counters
from drainer.points.worker_pool import WorkerPool

TS = 5


class FakeSession:
    def __init__(self, target: object) -> None: ...

    @contextmanager
    def connection(self) -> Iterator[Any]:
        yield SimpleNamespace(rollback=lambda: None)

    def close(self) -> None: ...


class Stored:
    """Progress with `chunks` of each table, of which the first is copied; the first look at each is lost."""

    def __init__(self, chunks: int) -> None:
        self._chunks = chunks
        self._lost: set[int] = set()

    def chunks(self, connection: object, number: int) -> list[LoadedChunk]:
        if number not in self._lost:
            self._lost.add(number)
            raise ConnectionLost("gone")
        bounds = [
            Chunk(place, ("id",), (b"%d" % place,), (b"%d" % (place + 1),) * (place < self._chunks - 1))
            for place in range(self._chunks)
        ]
        states = [ChunkState.COPIED, *(ChunkState.PLANNED for _ in bounds[1:])]
        return [
            LoadedChunk(one.number, TS, state, 10, one.stored())
            for one, state in zip(bounds, states, strict=True)
        ]


def given_to_workers(monkeypatch: pytest.MonkeyPatch, workers: int, tables: int, chunks: int) -> list[Any]:
    """Table and chunk of each job, in the order in which they were taken."""
    taken: list[tuple[int, int]] = []
    lock = threading.Lock()

    class FakeCopier:
        def __init__(self, *arguments: object, **named: object) -> None: ...

        def copy(self, job: ChunkCopy) -> Copied:
            with lock:
                taken.append((job.table.number, job.chunk.number))
            return Copied(10, 100)

        def close(self) -> None: ...

    monkeypatch.setattr(copying, "Copier", FakeCopier)
    monkeypatch.setattr(copying, "DownstreamSession", FakeSession)
    monkeypatch.setattr("tidb_binlog.backoff.Backoff.next_s", lambda self: 0.0)
    counters = Counters()
    counters.begin(TS, {f"t{number}": 40 for number in range(tables)})
    snapshot: Any = SimpleNamespace(ts=TS)
    progress: Any = Stored(chunks)
    target: Any = None
    all_tables: Any = iter(
        SimpleNamespace(number=number, parts_alike=True, source=SimpleNamespace(label=f"t{number}"))
        for number in range(tables)
    )
    Copying(snapshot, target, progress, 1, counters, workers=workers).run(all_tables, lambda table: None)
    assert counters.view().rows == 10 * tables * chunks
    loaded = counters.status().tables
    assert {(table.rows, table.rows_expected, table.done) for table in loaded} == {(10 * chunks, 40, True)}
    return taken


def test_each_worker_has_a_table_of_its_own_while_there_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = given_to_workers(monkeypatch, workers=1, tables=2, chunks=3)
    assert taken == [(0, 1), (0, 2), (1, 1), (1, 2)]
    monkeypatch.undo()
    taken = given_to_workers(monkeypatch, workers=2, tables=3, chunks=4)
    assert sorted(taken) == [(table, chunk) for table in range(3) for chunk in (1, 2, 3)]


@pytest.mark.parametrize(("tables", "expected"), [(1, [0, 0, 0]), (2, [0, 1] * 3), (3, [0, 1] * 3 + [2] * 3)])
def test_chunks_are_put_in_turns(monkeypatch: pytest.MonkeyPatch, tables: int, expected: list[int]) -> None:
    """Two workers: a table that ends makes room for the next one."""
    put: list[int] = []
    original = WorkerPool.run

    def observed(
        self: WorkerPool[Sequence[ChunkCopy]], jobs: Iterator[Sequence[ChunkCopy]], works: Any
    ) -> None:
        def noted() -> Iterator[Sequence[ChunkCopy]]:
            for job in jobs:
                put.append(job[0].table.number)
                yield job

        original(self, noted(), works)

    monkeypatch.setattr(WorkerPool, "run", observed)
    given_to_workers(monkeypatch, workers=2, tables=tables, chunks=4)
    assert put == expected

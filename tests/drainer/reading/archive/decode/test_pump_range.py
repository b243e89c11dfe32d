"""What tasks are sent of a schema: once unpacked, it serves all tasks of a process."""

from __future__ import annotations

import pickle

from drainer.reading.archive.decode.definitions import Definitions
from drainer.reading.archive.decode.pump_range import StreamState, packed
from drainer.sink.file.table_definitions import ArchivedTable
from drainer.stream.pull.range_reader import PumpSet
from drainer.stream.schema.tracker import SchemaTracker
from tests.benchmarks.drainer import sysbench_like
from tests.benchmarks.drainer.recorder import Recorder
from tidb_binlog.tso import TS_MAX

NEWEST = 1 << 40


def tracker(tables: int) -> SchemaTracker:
    recorder = Recorder()
    for number in range(tables):
        sysbench_like.create(recorder, number)
    tracked = SchemaTracker.from_history([job for _, job in recorder.jobs])
    tracked.catch_up(TS_MAX, NEWEST)
    return tracked


def state(tracked: SchemaTracker) -> StreamState:
    """As a task gets it."""
    sent: StreamState = pickle.loads(pickle.dumps(StreamState(PumpSet(1, {}), packed(tracked))))
    return sent


def test_a_translator_serves_all_tasks_of_a_schema() -> None:
    one, two = tracker(1), tracker(2)
    first = state(one).translator()
    assert state(one).translator() is first
    assert len(state(two).translator().names()) == 2
    assert len(state(one).translator().names()) == 1


def test_one_that_has_moved_on_is_not_given_to_the_next_task() -> None:
    recorder = Recorder()
    sysbench_like.create(recorder, 1)
    tracked = SchemaTracker.from_history([job for _, job in recorder.jobs])
    first = state(tracked).translator()
    first.catch_up(TS_MAX, NEWEST)
    assert first.names()
    second = state(tracked).translator()
    assert second is not first
    assert not second.names()


def test_definitions_are_read_once_and_sent_as_they_are_now() -> None:
    tracked = tracker(2)
    first, second = (tracked.table_named("sbtest", f"sbtest{number}") for number in range(2))
    assert first is not None
    assert second is not None
    known = Definitions([ArchivedTable(0, "sbtest", "sbtest0", first)])
    sent = pickle.loads(pickle.dumps(known))
    assert pickle.loads(pickle.dumps(known)) is sent
    known.add(0, "sbtest", "sbtest1", second)
    assert len(pickle.loads(pickle.dumps(known))) == 2
    assert len(sent) == 1

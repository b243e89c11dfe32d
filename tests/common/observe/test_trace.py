"""Trace: what is told becomes a file that viewers read, within bounds, whatever ends the process."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import PATIENCE_S
from tidb_binlog.errors import ConfigError
from tidb_binlog.observe import trace
from tidb_binlog.observe.trace import TraceFile

Event = dict[str, Any]


def begin(path: Path, bytes_max: int = 1 << 20) -> TraceFile:
    return TraceFile(str(path), "test", began_ns=5_000, wall_s=1000.0, bytes_max=bytes_max)


def read(path: Path) -> list[Event]:
    found: list[Event] = json.loads(path.read_text())
    return found


def named(events: list[Event], name: str) -> list[Event]:
    return [event for event in events if event["name"] == name]


def track_of(events: list[Event], event: Event) -> str:
    (track,) = (one for one in named(events, "thread_name") if one["tid"] == event["tid"])
    return str(track["args"]["name"])


def test_events_as_the_format_has_them(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    file = begin(path)
    file.add(("X", "work", "lane-0", 6_500, 2_000, 1_500, {"rows": 3}))
    file.add(("X", "wait", "stream", 7_000, 1_000, -1, {}))
    file.add(("i", "mark", "stream", 8_000, 0, -1, {"at": 7}))
    file.add(("b", "queued", "queue", 8_000, 0, -1, {"id": "0:1", "rows": 2}))
    file.add(("e", "queued", "queue", 9_000, 0, -1, {"id": "0:1"}))
    file.flush()
    file.close()
    events, pid = read(path), os.getpid()
    assert events == [
        {"name": "process_name", "ph": "M", "pid": pid, "tid": 0, "args": {"name": "test"}},
        {"name": "thread_name", "ph": "M", "pid": pid, "tid": 1, "args": {"name": "lane-0"}},
        {"name": "work", "ph": "X", "pid": pid, "tid": 1, "ts": 1e9 + 1.5, "dur": 2.0, "tdur": 1.5}
        | {"args": {"rows": 3}},
        {"name": "thread_name", "ph": "M", "pid": pid, "tid": 2, "args": {"name": "stream"}},
        {"name": "wait", "ph": "X", "pid": pid, "tid": 2, "ts": 1e9 + 2, "dur": 1.0},
        {"name": "mark", "ph": "i", "pid": pid, "tid": 2, "ts": 1e9 + 3, "s": "t", "args": {"at": 7}},
        {"name": "thread_name", "ph": "M", "pid": pid, "tid": 3, "args": {"name": "queue"}},
        {"name": "queued", "ph": "b", "pid": pid, "tid": 3, "ts": 1e9 + 3, "cat": "queued"}
        | {"id": "0:1", "args": {"rows": 2}},
        {"name": "queued", "ph": "e", "pid": pid, "tid": 3, "ts": 1e9 + 4, "cat": "queued", "id": "0:1"},
    ]


def test_what_is_written_is_valid_but_for_a_bracket_at_any_time(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    file = begin(path)
    for count in range(4):
        file.flush()
        assert len(json.loads(path.read_text() + "]")) == (1 if not count else count + 2)
        file.add(("i", "mark", "stream", 8_000, 0, -1, {}))
    file.close()


def test_a_file_that_is_full_is_kept_beside_the_next_one_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    file = begin(path, bytes_max=400)
    for number in range(9):
        file.add(("i", f"mark {number}", "stream", 8_000, 0, -1, {}))
        file.flush()
    file.close()
    assert sorted(tmp_path.iterdir()) == [path, tmp_path / "trace.1"]
    kept = read(tmp_path / "trace.1"), read(path)
    assert all(named(events, "process_name") for events in kept)
    marks = [event["name"] for events in kept for event in events if event["ph"] == "i"]
    assert marks == [f"mark {number}" for number in range(9)][-len(marks) :]
    assert len(marks) >= 2
    for events in kept:
        assert all(track_of(events, event) == "stream" for event in events if event["ph"] == "i")
    assert all(file.stat().st_size < 800 for file in tmp_path.iterdir())


def test_where_no_other_file_can_begin_the_trace_ends(tmp_path: Path) -> None:
    file = begin(tmp_path / "trace", bytes_max=1)
    (tmp_path / "trace.1").mkdir()
    with pytest.raises(OSError):
        file.flush()
    file.close()
    assert named(read(tmp_path / "trace"), "process_name")


def test_what_finds_no_room_in_memory_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    file = begin(path, bytes_max=1 << 26)
    for _ in range(trace.EVENTS_MAX + 3):
        file.add(("i", "mark", "stream", 8_000, 0, -1, {}))
    file.flush()
    file.close()
    events = read(path)
    assert len(named(events, "mark")) == trace.EVENTS_MAX
    assert [event["args"] for event in named(events, "events lost")] == [{"count": 3}]


def test_that_of_an_earlier_run_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text("of a run that was killed")
    begin(path).close()
    assert (tmp_path / "trace.1").read_text() == "of a run that was killed"


def test_spans_of_threads_and_tracks(tmp_path: Path) -> None:
    path = tmp_path / "trace"

    def work() -> None:
        with trace.span("work", rows=1):
            pass

    with trace.writing(str(path), "test"):
        assert trace.is_on()
        thread = threading.Thread(target=work, name="lane-7")
        thread.start()
        thread.join()
        with pytest.raises(KeyError), trace.span("fails", "stream"):
            raise KeyError
        trace.moment("mark", "stream", at=1)
        trace.since("long", "stream", trace.now_ns() - 1_000_000)
        trace.waits("queued", "queue", "7", rows=2)
        trace.waited("queued", "queue", "7")
        gc.collect()
    assert not trace.is_on()
    events = read(path)
    (worked,), (failed,), (mark,), (long,) = (
        named(events, name) for name in ("work", "fails", "mark", "long")
    )
    assert (track_of(events, worked), worked["args"]) == ("lane-7", {"rows": 1})
    assert 0 <= worked["tdur"] <= worked["dur"] + 1000
    assert (track_of(events, failed), failed["args"]) == ("stream", {"error": "KeyError"})
    assert "tdur" not in failed
    assert mark["args"] == {"at": 1}
    assert long["dur"] >= 1000
    assert [event["ph"] for event in named(events, "queued")] == ["b", "e"]
    pauses = [event for event in events if event["name"].startswith("generation 2")]
    assert pauses
    assert track_of(events, pauses[0]) == "garbage"


def test_without_a_file_nothing_is_noted(tmp_path: Path) -> None:
    with trace.writing("", "test"):
        assert not trace.is_on()
        assert trace.span("work") is trace.span("other", "stream", rows=1)
        with trace.span("work"):
            trace.moment("mark", "stream")
            trace.waits("queued", "queue", "7")
            trace.waited("queued", "queue", "7")
    assert trace._process._collects not in gc.callbacks
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "none" / "trace"
    with pytest.raises(ConfigError) as caught, trace.writing(str(path), "test"):
        raise AssertionError("not entered")
    assert caught.value.message == f"trace {path} cannot be written: No such file or directory"
    assert not trace.is_on()


def test_a_disk_that_is_full_at_the_start_is_one_line() -> None:
    with pytest.raises(ConfigError) as caught, trace.writing("/dev/full", "test"):
        raise AssertionError("not entered")
    assert caught.value.message == "trace /dev/full cannot be written: No space left on device"


FULL = """
import resource, sys, time
from tidb_binlog.observe import log, trace
log.setup(stream=sys.stderr)
with trace.writing(sys.argv[1], "full"):
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))
    while trace.is_on():
        for _ in range(10):
            trace.moment("mark", "stream")
        time.sleep(0.01)
    trace.moment("mark", "stream")
print("went on")
"""


def test_a_full_disk_ends_the_trace_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    command = [sys.executable, "-c", FULL, str(path)]
    done = subprocess.run(command, check=True, timeout=PATIENCE_S, capture_output=True, text=True)
    assert done.stdout == "went on\n"
    assert done.stderr.count("the trace ends here") == 1
    assert "File too large" in done.stderr
    assert read(path)


KILLED = """
import os, signal, sys, time
from tidb_binlog.observe import trace
with trace.writing(sys.argv[1], "killed"):
    with trace.span("work", "stream"):
        pass
    while "work" not in open(sys.argv[1]).read():
        time.sleep(0.01)
    with trace.span("lost", "stream"):
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_of_a_killed_process_all_is_there_but_the_bracket(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False, timeout=PATIENCE_S)
    assert done.returncode == -9
    events = json.loads(path.read_text() + "]")
    assert [event["name"] for event in events if event["ph"] == "X"] == ["work"]

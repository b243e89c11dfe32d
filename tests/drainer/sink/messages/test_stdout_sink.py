"""Lines on standard output: into a pipe, a file, and into a pipe that nobody reads any more."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from drainer import SinkEnded
from drainer.formats.messages.message import Message
from drainer.sink.messages import stdout_sink
from drainer.sink.messages.stdout_sink import BUFFER_BYTES, StdoutSink


def message(ts: int, value: bytes = b'{"a":1}') -> Message:
    return Message("d", "t", None, value, ts, 0, "insert")


def test_a_line_each_in_order(tmp_path: Path) -> None:
    with open(tmp_path / "out", "wb") as file:
        sink = StdoutSink(file.fileno())
        sink.write([[message(1, b"1"), message(1, b"2")], iter([message(2, b"3")])], 5)  # type: ignore[list-item]
        sink.write([], 9)
    assert (tmp_path / "out").read_bytes() == b"1\n2\n3\n"


def test_a_slow_reader_gets_all_of_it() -> None:
    reading, writing = os.pipe()
    data = [message(number, b"x" * 1000) for number in range(3 * BUFFER_BYTES // 1000)]
    done = threading.Thread(target=StdoutSink(writing).write, args=([data], 5))
    done.start()
    wanted, found = sum(1001 for _ in data), 0
    while found < wanted:
        found += len(os.read(reading, 4096))
    done.join()
    os.close(reading)
    os.close(writing)
    assert found == wanted


def test_a_reader_that_is_gone_ends_the_drainer() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with pytest.raises(SinkEnded, match="nobody reads standard output"):
        StdoutSink(writing).write([[message(1)]], 5)
    os.close(writing)


@pytest.mark.parametrize("appends", [False, True])
def test_half_a_line_that_a_full_disk_left_is_not_the_beginning_of_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, appends: bool
) -> None:
    written = os.write

    def full(descriptor: int, data: bytes) -> int:
        if len(data) < 9:
            raise OSError(errno.ENOSPC, "no space")
        return written(descriptor, data[:9])

    with open(tmp_path / "out", "ab" if appends else "wb") as file:
        sink = StdoutSink(file.fileno())
        sink.open()
        sink.write([[message(1)]], 1)
        monkeypatch.setattr(os, "write", full)
        with pytest.raises(OSError, match="no space"):
            sink.write([[message(2, b'{"b":2}'), message(3)]], 3)
        monkeypatch.undo()
        sink.open()
        sink.write([[message(2, b'{"b":2}'), message(3)]], 3)
    assert (tmp_path / "out").read_bytes() == b'{"a":1}\n{"b":2}\n{"b":2}\n{"a":1}\n'


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"", b""),
        (b'{"a":1}\n', b'{"a":1}\n'),
        (b'{"a":1}\n{"b"', b'{"a":1}\n'),
        (b"{" + b"x" * 2 * BUFFER_BYTES, b""),
        (b"1\n{" + b"x" * 2 * BUFFER_BYTES, b"1\n"),
        (b'{"a":1}\nwords of others', b'{"a":1}\nwords of others'),
    ],
)
def test_what_a_kill_left_of_a_line_goes(tmp_path: Path, before: bytes, after: bytes) -> None:
    path = tmp_path / "out"
    path.write_bytes(before)
    with open(path, "ab") as file:
        sink = StdoutSink(file.fileno())
        sink.open()
        sink.write([[message(9)]], 9)
    assert path.read_bytes() == after + b'{"a":1}\n'


def test_of_a_pipe_nothing_is_cut() -> None:
    reading, writing = os.pipe()
    StdoutSink(writing).open()
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize("error", [PermissionError, FileNotFoundError])
def test_a_file_that_cannot_be_read_is_no_reason_not_to_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[OSError]
) -> None:
    """Another user opened it, or nothing is at /dev/fd."""

    def refuse(*_given: object) -> None:
        raise error

    with open(tmp_path / "out", "ab") as file:
        file.write(b'{"a":1}\n{"b"')
        file.flush()
        monkeypatch.setattr(stdout_sink, "open", refuse, raising=False)
        StdoutSink(file.fileno()).open()
    assert (tmp_path / "out").read_bytes() == b'{"a":1}\n{"b"'


def test_a_file_that_is_written_over_stays_as_long_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"other words")
    with open(path, "r+b") as file:
        sink = StdoutSink(file.fileno())
        sink.open()
        sink.write([[message(9)]], 9)
    assert path.read_bytes() == b'{"a":1}\nrds'

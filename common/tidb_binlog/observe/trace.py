"""Trace: what this process did and when, as a timeline for the trace viewers of Chrome and Perfetto.

Out    a file of the Trace Event Format: a JSON array, an event a line
Owns   a thread that writes every `WRITE_S`; the callback that notes pauses of the garbage collector
Holds  not started, a span costs a call that returns nothing's context, and callers tell of batches, never of
       rows. At most `EVENTS_MAX` events wait in memory: what comes above that is lost, and the file says how
       many. At `FILE_BYTES_MAX` the file becomes FILE.1, in place of the one before, and another one begins
Why    the array's closing bracket may be missing, says the format, and the comma stands before an event: so a
       killed process leaves whole lines, after which a bracket makes the file valid for any JSON reader
Never  stops what it watches: a disk that is full ends the trace, with one line in the log

A track is one line of the timeline. Without a name it is that of the thread, with the CPU time that the
thread had meanwhile: what is missing in it was spent waiting, also for the interpreter's lock. Tasks of the
event loop have tracks of their own, since spans of one track must not overlap.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Final

from tidb_binlog import clock
from tidb_binlog.errors import ConfigError
from tidb_binlog.observe import log

WRITE_S: Final = 0.1
EVENTS_MAX: Final = 20_000
FILE_BYTES_MAX: Final = 64 << 20

_logger = log.get("trace")

_Event = tuple[str, str, str, int, int, int, dict[str, Any]]
"""(phase, name, track, begin and length in ns, CPU ns or -1, what is known of it). Names and ids are words of
this project, without quotes; all else may be any text."""
_NOTHING: Final = contextlib.nullcontext()


class TraceFile:
    """A trace that is being written. `wall_s` when `began_ns` was: times in the file are since 1970."""

    def __init__(self, path: str, program: str, began_ns: int, wall_s: float, *, bytes_max: int) -> None:
        """Raises `OSError`."""
        self._path = path
        self._program = program
        self._pid = os.getpid()
        self._shift_ns = round(wall_s * 1e9) - began_ns
        self._bytes_max = bytes_max
        self._events: deque[_Event] = deque()
        self._lost = 0
        self._open()

    def _open(self) -> None:
        """An earlier one is kept as FILE.1: after a crash it is what is looked for."""
        if os.path.isfile(self._path):
            os.replace(self._path, f"{self._path}.1")
        self._file = open(self._path, "ab", buffering=0)  # noqa: SIM115 - closed by `close`
        self._tracks: dict[str, int] = {}
        self._size = 0
        try:
            self._write(f"[{self._metadata('process_name', 0, self._program)}")
        except OSError:
            self._file.close()
            raise

    def _write(self, text: str) -> None:
        data = text.encode()
        try:
            written = 0
            while written < len(data):
                written += self._file.write(data[written:])
        except OSError:
            with contextlib.suppress(OSError):
                self._file.truncate(self._size)  # no half of a line
            raise
        self._size += len(data)

    def _metadata(self, kind: str, track: int, name: str) -> str:
        named = {"name": kind, "ph": "M", "pid": self._pid, "tid": track, "args": {"name": name}}
        return json.dumps(named)

    def add(self, event: _Event) -> None:
        """On any thread."""
        if len(self._events) < EVENTS_MAX:
            self._events.append(event)
        else:
            self._lost += 1

    def flush(self) -> None:
        """Write what waits. On one thread at a time; raises `OSError`."""
        lines = []
        while self._events:
            lines.append(self._line(self._events.popleft()))
        if self._lost:
            lost, self._lost = self._lost, 0
            now_ns = clock.monotonic_ns()
            lines.append(self._line(("i", "events lost", "trace", now_ns, 0, -1, {"count": lost})))
        if lines:
            self._write("".join(lines))
        if self._size >= self._bytes_max:
            self.close()
            self._open()

    def _line(self, event: _Event) -> str:
        phase, name, track, begin_ns, length_ns, cpu_ns, what = event
        number = self._tracks.get(track)
        named = ""
        if number is None:
            number = self._tracks[track] = len(self._tracks) + 1
            named = ",\n" + self._metadata("thread_name", number, track)
        ts = (begin_ns + self._shift_ns) / 1000
        line = (
            f'{named},\n{{"name": "{name}", "ph": "{phase}", "pid": {self._pid}, "tid": {number}, "ts": {ts}'
        )
        if phase == "X":
            line += f', "dur": {length_ns / 1000}'
            if cpu_ns >= 0:
                line += f', "tdur": {cpu_ns / 1000}'
        elif phase == "i":
            line += ', "s": "t"'
        else:  # of something that waits: it may overlap with others of its kind
            line += f', "cat": "{name}", "id": "{what.pop("id")}"'
        return f'{line}, "args": {json.dumps(what)}}}' if what else line + "}"

    def close(self) -> None:
        """What waits is not written any more; once is enough. Raises `OSError`."""
        if self._file.closed:  # where another one could not begin
            return
        try:
            self._write("\n]\n")
        finally:
            self._file.close()


class _Span:
    """See `span`."""

    __slots__ = ("_begin_ns", "_cpu_ns", "_file", "_name", "_track", "_what")

    def __init__(self, file: TraceFile, name: str, track: str, what: dict[str, Any]) -> None:
        self._file = file
        self._name = name
        self._track = track
        self._what = what

    def __enter__(self) -> None:
        self._cpu_ns = -1 if self._track else clock.thread_ns()
        self._begin_ns = clock.monotonic_ns()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        length_ns = clock.monotonic_ns() - self._begin_ns
        cpu_ns = -1 if self._track else clock.thread_ns() - self._cpu_ns
        if kind is not None:
            self._what["error"] = kind.__name__
        track = self._track or threading.current_thread().name
        self._file.add(("X", self._name, track, self._begin_ns, length_ns, cpu_ns, self._what))


class _Process:
    """The trace of this process, if it writes one."""

    def __init__(self) -> None:
        self.file: TraceFile | None = None
        self._writer: threading.Thread | None = None
        self._ended = threading.Event()
        self._collection_ns = 0

    def start(self, path: str, program: str) -> None:
        assert self.file is None
        began_ns, wall_s = clock.monotonic_ns(), clock.wall_s()
        self.file = TraceFile(path, program, began_ns, wall_s, bytes_max=FILE_BYTES_MAX)
        self._ended.clear()
        gc.callbacks.append(self._collects)
        self._writer = threading.Thread(target=self._write, args=(self.file,), name="trace", daemon=True)
        self._writer.start()

    def stop(self) -> None:
        self._ended.set()
        if self._writer is not None:
            self._writer.join()
            self._writer = None

    def _write(self, file: TraceFile) -> None:
        try:
            while not self._ended.wait(WRITE_S):
                file.flush()
            file.flush()
        except OSError as error:
            _logger.warning("the trace ends here", reason=error.strerror)
        finally:
            self.file = None
            gc.callbacks.remove(self._collects)
            with contextlib.suppress(OSError):
                file.close()

    def _collects(self, phase: str, about: dict[str, int]) -> None:
        if phase == "start":
            self._collection_ns = clock.monotonic_ns()
        elif (file := self.file) is not None:
            length_ns = clock.monotonic_ns() - self._collection_ns
            name = f"generation {about['generation']}"
            what = {"collected": about["collected"], "thread": threading.current_thread().name}
            file.add(("X", name, "garbage", self._collection_ns, length_ns, -1, what))


_process: Final = _Process()


@contextlib.contextmanager
def writing(path: str, program: str) -> Iterator[None]:
    """Trace this process meanwhile; with "" it is not. Raises `ConfigError` for a path that cannot be
    written."""
    if not path:
        yield
        return
    try:
        _process.start(path, program)
    except OSError as error:
        raise ConfigError(
            f"trace {path} cannot be written: {error.strerror}", hint="choose another --trace"
        ) from None
    try:
        yield
    finally:
        _process.stop()


def is_on() -> bool:
    """Whether a trace is written: for what is dear to find out."""
    return _process.file is not None


def span(name: str, track: str = "", **what: Any) -> AbstractContextManager[None]:
    """What is done within, with what is known of it at its beginning."""
    file = _process.file
    return _NOTHING if file is None else _Span(file, name, track, what)


def moment(name: str, track: str, **what: Any) -> None:
    """Something that has happened."""
    if (file := _process.file) is not None:
        file.add(("i", name, track, clock.monotonic_ns(), 0, -1, what))


def since(name: str, track: str, begin_ns: int, **what: Any) -> None:
    """A span from `begin_ns` (`now_ns`) until now."""
    if (file := _process.file) is not None:
        file.add(("X", name, track, begin_ns, clock.monotonic_ns() - begin_ns, -1, what))


def waits(name: str, track: str, key: str, **what: Any) -> None:
    """Something begins to wait; until `waited` with the same name and key. Many may wait at once."""
    if (file := _process.file) is not None:
        file.add(("b", name, track, clock.monotonic_ns(), 0, -1, {"id": key, **what}))


def waited(name: str, track: str, key: str) -> None:
    """See `waits`."""
    if (file := _process.file) is not None:
        file.add(("e", name, track, clock.monotonic_ns(), 0, -1, {"id": key}))


now_ns: Final = clock.monotonic_ns

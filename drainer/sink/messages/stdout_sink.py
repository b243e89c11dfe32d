"""Stdout sink: every change as one line of JSON, for a program behind a pipe.

Holds   a line is never half written while the reader is there; the position follows what the pipe took. What
        a kill or a full disk left of a file's last line is cut off: its line comes again
Stops   a reader that is gone ends the Drainer, as if it were asked to; what the pipe had not taken as a whole
        comes again at the next start
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterable, Sequence
from typing import Any, BinaryIO, Final

from drainer.formats.messages.message import Message
from drainer.sink.batch.protocol import SinkEnded

BUFFER_BYTES: Final = 256 << 10
STDOUT: Final = 1


class StdoutSink:
    """Stores no position: it is the savepoint's."""

    def __init__(self, descriptor: int = STDOUT) -> None:
        self._descriptor = descriptor
        self._is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)

    def open(self) -> None:
        """At the start, and after each failure."""
        descriptor = self._descriptor
        if not self._is_file:
            return
        size = os.fstat(descriptor).st_size
        appends = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_APPEND
        if not appends and os.lseek(descriptor, 0, os.SEEK_CUR) != size:
            return  # what is there is written over
        unreadable = PermissionError, FileNotFoundError
        with contextlib.suppress(*unreadable), open(f"/dev/fd/{descriptor}", "rb") as file:
            end = _end_of_lines(file, size)
            if end < size:
                os.ftruncate(descriptor, end)
                os.lseek(descriptor, end, os.SEEK_SET)

    def write(self, items: Sequence[Iterable[Message]], position: int) -> None:
        """Returns when the reader's pipe, or the file, has it all."""
        try:
            waiting = bytearray()
            for item in items:
                for message in item:
                    waiting += message.value or b"null"
                    waiting += b"\n"
                    if len(waiting) >= BUFFER_BYTES:
                        self._put(waiting)
                        waiting.clear()
            self._put(waiting)
        except BrokenPipeError:
            raise SinkEnded("nobody reads standard output any more") from None
        if self._is_file:
            os.fsync(self._descriptor)

    def _put(self, data: Any) -> None:
        with memoryview(data) as rest:
            done = 0
            while done < len(rest):
                done += os.write(self._descriptor, rest[done:])


def _end_of_lines(file: BinaryIO, size: int) -> int:
    """Where the last whole line ends; the file's end where what follows is no line of ours."""
    end = size
    while end:
        begin = max(end - BUFFER_BYTES, 0)
        file.seek(begin)
        newline = file.read(end - begin).rfind(b"\n")
        end = begin + newline + 1
        if newline >= 0:
            break
    file.seek(end)
    return end if file.read(1) in b"{n" else size

"""The program that the first argument names, on a loop that measures each callback.

Out    at its end a last line of its log: `Measured`, from the first SIGUSR1 on
Holds  CPU of the loop's thread alone: what others on this machine do is not in it. It is told in terms of a
       work that took `REFERENCE_S` where 100 ms were promised, so that a slower machine may take longer
Why    uvloop's callbacks are not seen from Python; asyncio's run the same code
"""

from __future__ import annotations

import asyncio
import importlib
import json
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from tidb_binlog.process import daemon

REFERENCE_S: Final = 0.065
"""CPU of `_reference`."""
_MARK: Final = "measured "


class Measured(NamedTuple):
    """`longest_s`: CPU of the longest callback, as if this machine were the reference, which it is `slower`
    than."""

    longest_s: float
    callback: str
    callbacks: int
    slower: float


def measured(log: Path) -> Measured:
    """What a process has said at its end."""
    line = log.read_text().rstrip().rpartition("\n")[2]
    assert line.startswith(_MARK), line
    return Measured(*json.loads(line.removeprefix(_MARK)))


class MeasuredLoop(asyncio.SelectorEventLoop):
    """All ways in which a callback comes to run."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.longest: tuple[float, str] = (0.0, "")

    def begin(self, *_: object) -> None:
        self.count, self.longest = 0, (0.0, "")

    def _measuring(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            began_s = time.thread_time()
            try:
                return callback(*arguments)
            finally:
                spent_s = time.thread_time() - began_s
                self.count += 1
                if spent_s > self.longest[0]:
                    self.longest = spent_s, _name(callback)

        return run

    def call_soon(self, callback: Any, *arguments: Any, **context: Any) -> asyncio.Handle:
        return super().call_soon(self._measuring(callback), *arguments, **context)

    def call_soon_threadsafe(self, callback: Any, *arguments: Any, **context: Any) -> asyncio.Handle:
        return super().call_soon_threadsafe(self._measuring(callback), *arguments, **context)

    def call_at(self, when: float, callback: Any, *arguments: Any, **context: Any) -> asyncio.TimerHandle:
        return super().call_at(when, self._measuring(callback), *arguments, **context)

    def _add_reader(self, descriptor: Any, callback: Any, *arguments: Any) -> Any:
        return super()._add_reader(descriptor, self._measuring(callback), *arguments)  # type: ignore[misc]

    def _add_writer(self, descriptor: Any, callback: Any, *arguments: Any) -> Any:
        return super()._add_writer(descriptor, self._measuring(callback), *arguments)  # type: ignore[misc]


def _name(callback: Any) -> str:
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return repr(owner.get_coro())
    return repr(callback)


def _reference() -> float:
    """CPU seconds of a known work, the least of some."""
    took_s = []
    for _ in range(5):
        began_s = time.thread_time()
        table: dict[int, int] = {}
        for number in range(400_000):
            table[number & 1023] = table.get(number & 4095, 0) + number
        took_s.append(time.thread_time() - began_s)
    return min(took_s)


def main() -> None:
    program = importlib.import_module(f"{sys.argv.pop(1)}.program")
    daemon.share_arenas()
    slower = max(_reference() / REFERENCE_S, 1.0)
    loop = MeasuredLoop()
    signal.signal(signal.SIGUSR1, loop.begin)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        code = runner.run(program.run(sys.argv[1:]))
    longest_s, callback = loop.longest
    print(f"{_MARK}{json.dumps(Measured(longest_s / slower, callback, loop.count, slower))}", flush=True)
    sys.exit(code)

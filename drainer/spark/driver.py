"""Driver: what the process that runs a command knows of its tasks, which run in other processes.

Progress
    Drives  Spark's status tracker from a thread of its own, twice a second, while the block runs; what
            this process does by itself says at least that it goes on
    Out     standard error: on a terminal one line that is written over, elsewhere a line every ten seconds
    Never   writes to standard output, which is the command's result, or after the block has ended
Errors
    In      the exception that a Spark action raised here, with a worker's traceback in its text
    Out     the error as it was raised, with its class and exit code; a `BinlogError` for what users can do
            something about; None for all else
    Why     Spark carries errors of workers as text. What is read is the class's qualified name in front of
            the text, which Python writes; the words of an error decide nothing
"""

from __future__ import annotations

import re
import sys
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from drainer.spark import jvm
from tidb_binlog import errors
from tidb_binlog.clock import Clock, SystemClock
from tidb_binlog.errors import BinlogError, ConfigError, Unavailable
from tidb_binlog.observe import show
from tidb_binlog.quantities import span

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RAISED: Final = re.compile(r"^((?:tidb_binlog|drainer)(?:\.\w+)+)\.(\w+): ", re.M)
_END: Final = re.compile(
    # the next traceback, the JVM's stack, or how pyspark ends a message
    r"\n(?=\s*at [\w.$/]+\(|\nDuring handling|\nThe above exception|Traceback \(most recent|"
    r"Driver stacktrace|JVM stacktrace|SQLSTATE|=== )"
)
_SQLSTATE: Final = re.compile(r"\.? SQLSTATE: \w{5}$")
_IS_THERE: Final = "[PATH_ALREADY_EXISTS] Path "
_EXECUTORS_GONE: Final = re.compile(
    r"ExecutorLostFailure|Python worker exited unexpectedly|All masters are unresponsive|Could not connect to"
)
PACE_S: Final = 0.5
LINE_EVERY_S: Final = 10.0
_ESTIMATE_FROM: Final = 0.05
"""Part of the tasks that is done before a time left is worth saying."""


def shown(work: str, done: int, tasks: int, elapsed_s: float, stage_s: float, detail: str = "") -> str:
    """One line. The time left is that of the stages that run, for `stage_s` now."""
    parts = [work]
    if detail:
        parts.append(detail)
    if tasks:
        parts.append(f"{done} of {tasks} tasks")
    parts.append(span(elapsed_s))
    if tasks and done < tasks and done >= tasks * _ESTIMATE_FROM and done:
        parts.append(f"about {span(stage_s * (tasks - done) / done)} left")
    return ", ".join(parts)


class TaskProgress:
    """`with TaskProgress("counting", spark): ...`; `detail` says more than the tasks do."""

    def __init__(self, work: str, spark: SparkSession | None = None, clock: Clock | None = None) -> None:
        self._tracker: Any = None
        if spark is not None:
            self.follow(spark)
        self._work = work
        self._clock = clock or SystemClock()
        self._detail = ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="task-progress", daemon=True)
        self._line: show.TerminalLine | None = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            self._line = show.TerminalLine()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()
        if self._line is not None:
            self._line.clear()

    def follow(self, spark: SparkSession) -> None:
        """From now on its tasks are counted, too."""
        context = getattr(spark, "sparkContext", None)  # a session of Spark Connect has none
        self._tracker = context.statusTracker() if context is not None else None

    def detail(self, text: str) -> None:
        """What is done now, in words."""
        self._detail = text

    def _run(self) -> None:
        began_s = said_s = stages_s = self._clock.monotonic_s()
        running: list[int] = []
        while not self._ended.wait(PACE_S):
            now_s = self._clock.monotonic_s()
            tasks_now = self._tasks()
            if tasks_now is None:  # the JVM ends: the block hears of it too, and tells why
                return
            stages, done, tasks = tasks_now
            if stages != running:
                running, stages_s = stages, now_s
            if self._line is None and now_s - said_s < LINE_EVERY_S:
                continue
            said_s = now_s
            text = shown(self._work, done, tasks, now_s - began_s, now_s - stages_s, self._detail)
            if self._line is not None:
                self._line.show(text)
            else:
                show.print_warning(text)

    def _tasks(self) -> tuple[list[int], int, int] | None:
        """Stages that run, and of these: done, all. None where Spark does not answer any more."""
        tracker = self._tracker
        if tracker is None:
            return [], 0, 0
        from py4j.protocol import Py4JError

        try:
            stages = list(tracker.getActiveStageIds())
            stage_infos = [info for info in map(tracker.getStageInfo, stages) if info is not None]
        except Py4JError:
            return None
        done, tasks = (
            sum(getattr(info, name) for info in stage_infos) for name in ("numCompletedTasks", "numTasks")
        )
        return stages, done, tasks


class JvmGone(BinlogError):
    """The session is gone for good: only another process gets a new one."""

    exit_code = 3


def translated(error: BaseException) -> BinlogError | None:
    """What to tell the user for this exception."""
    if isinstance(error, BinlogError):
        return error
    text = str(error)
    raised = list(_RAISED.finditer(text))
    if raised:
        return _as_raised(raised[-1], text)
    if _EXECUTORS_GONE.search(text):
        return Unavailable(
            f"the Spark cluster lost this job: {text.splitlines()[0]}",
            hint="look into the executors' logs (memory is the usual cause), then run the same command again",
        )
    if jvm.has_ended(error):
        return JvmGone(
            "Spark's JVM has ended, and with it this command",
            hint="run the same command again; with more memory (--conf spark.driver.memory=4g) if it ran out",
        )
    if text.startswith(_IS_THERE):
        path = text.removeprefix(_IS_THERE).partition(" already exists")[0]
        return ConfigError(f"{path} is there already", hint="name another directory")
    return None


def _as_raised(raised: re.Match[str], text: str) -> BinlogError:
    """The last one: in a chain of causes Python writes the one that came through last."""
    kind = _kind(raised[1], raised[2])
    rest = text[raised.end() :]
    end = _END.search(rest)
    message = rest[: end.start()] if end else rest
    return kind(_SQLSTATE.sub("", message.strip()).strip())


def _kind(module: str, name: str) -> type[BinlogError]:
    """The class itself, without importing what a text names: what is not loaded is a plain error."""
    kind = getattr(sys.modules.get(module, errors), name, BinlogError)
    return kind if isinstance(kind, type) and issubclass(kind, BinlogError) else BinlogError

"""Daemon: one process's life. Tasks, signals, the ordered end and the exit code.

Owns   the process's tasks (the first failure stops the daemon and is its cause) and its signal handlers
Stops  runs the stop phases in the order of registration, each with a deadline; a phase that overruns or
       fails is logged and abandoned; afterwards each task that still runs is cancelled
Tells  the service manager (`systemd`): ready, stopping, and while the event loop turns that it does
Never  hides an error: the cause of the end is logged, printed in one line, and decides the exit code

SIGHUP is a signal to stop, but for a daemon that `reloads`: there it has the configuration read again, and
one that comes before `on_reload` is remembered. A second signal to stop ends the process at once with code
130.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, NoReturn, Self

from tidb_binlog.clock import SystemClock
from tidb_binlog.errors import BinlogError
from tidb_binlog.observe import log
from tidb_binlog.observe.log import Logger
from tidb_binlog.observe.printable import one_line
from tidb_binlog.process.garbage import collect_rarely

_STATUS_CHARS_MAX: Final = 500
_logger = log.get("systemd")


class Notifier:
    """Where to send to; `Notifier()` sends nowhere. `watchdog_s`: the silence that ends us, 0: none."""

    def __init__(self, address: str = "", watchdog_s: float = 0.0) -> None:
        self.watchdog_s = watchdog_s if address else 0.0
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._failed = False

    @classmethod
    def from_environment(cls, environ: Mapping[str, str], pid: int) -> Self:
        """What the service manager left for the process `pid`; another one's watchdog is not ours."""
        period = environ.get("WATCHDOG_USEC", "")
        owner = environ.get("WATCHDOG_PID", "")
        ours = period.isascii() and period.isdigit() and owner in ("", str(pid))
        return cls(environ.get("NOTIFY_SOCKET", ""), int(period) / 1e6 if ours else 0.0)

    @property
    def is_on(self) -> bool:
        """Whether anybody listens."""
        return bool(self._address)

    def ready(self, status: str) -> bool:
        """The start is over. False if that could not be said now: the manager would wait in vain."""
        return self._send("READY=1", _status(status))

    def status(self, status: str) -> None:
        """One line for `systemctl status`."""
        self._send(_status(status))

    def reloading(self, monotonic_s: float) -> None:
        """The configuration is read again, since then; `ready` ends it."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={int(monotonic_s * 1e6)}")

    def stopping(self, status: str) -> None:
        """The end has begun."""
        self._send("STOPPING=1", _status(status))

    def alive(self) -> None:
        """Feed the watchdog."""
        self._send("WATCHDOG=1")

    def extend(self, seconds: float) -> None:
        """The start or the end may take so long from now on."""
        self._send(f"EXTEND_TIMEOUT_USEC={round(seconds * 1e6)}")

    def _send(self, *lines: str) -> bool:
        if not self._address:
            return True
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                sender.sendto("\n".join(lines).encode(), self._address)
        except (OSError, ValueError) as error:
            if not self._failed:
                _logger.warning("the service manager cannot be notified", socket=self._address, error=error)
            self._failed = True
            return False
        self._failed = False
        return True


def _status(text: str) -> str:
    return "STATUS=" + " ".join(text.split())[:_STATUS_CHARS_MAX]


_M_ARENA_MAX: Final = -8
ARENAS: Final = 1


def share_arenas() -> bool:
    """Let all threads share so many arenas; before any other thread is started. False where the C library is
    another than glibc, whose allocators have no arenas of this kind."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(_M_ARENA_MAX, ARENAS))


SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
EXIT_FORCED: Final = 130
EXIT_FAILURE: Final = 2
# How long cancelled tasks and phases may take to end.
CANCEL_DEADLINE_S: Final = 5.0
# The service manager ends a start or a stop that has not reported progress for so long.
_EXTEND_EVERY_S: Final = 5.0
_EXTEND_S: Final = 60.0

SWITCH_S: Final = 0.0005
"""How long a busy thread may keep the others waiting, a tenth of the default: a writer whose sync ended
waits for the event loop's thread, and that one for threads that decode pages."""


def settle() -> None:
    """Set the interpreter up for the long run: collect garbage rarely, and let threads take turns quickly."""
    collect_rarely()
    gc.freeze()  # what the start made, too
    sys.setswitchinterval(SWITCH_S)


class Daemon:
    """See the module. One use: construct, `run`, done."""

    def __init__(
        self,
        name: str,
        logger: Logger,
        *,
        cancel_deadline_s: float = CANCEL_DEADLINE_S,
        notifier: Notifier | None = None,
        reloads: bool = False,
    ) -> None:
        """`notifier`: by default what the service manager left in the environment."""
        self._notifier = notifier or Notifier.from_environment(os.environ, os.getpid())
        self._ready = False
        self._ready_status: str | None = None  # not sent yet
        self._status = ""
        self._reloads = reloads
        self._hang_up = asyncio.Event()
        self._tell_end: Callable[[int, BaseException | None], Awaitable[None]] | None = None
        self._name = name
        self._logger = logger
        self._cancel_deadline_s = cancel_deadline_s
        self._tasks: set[asyncio.Task[Any]] = set()
        self._phases: list[tuple[str, Callable[[], Awaitable[None]], float]] = []
        self._stopping = asyncio.Event()
        self._cause: BaseException | None = None
        self._signals = 0

    @property
    def stopping(self) -> bool:
        """Whether the end has begun."""
        return self._stopping.is_set()

    def task(self, name: str, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `coroutine` beside the others. It may return; if it raises, the daemon stops for that cause."""
        task = asyncio.get_running_loop().create_task(coroutine, name=f"{self._name}.{name}")
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)
        return task

    def on_stop(self, name: str, stop: Callable[[], Awaitable[None]], deadline_s: float) -> None:
        """Add a phase to the end; also while running."""
        self._phases.append((name, stop, deadline_s))

    def ready(self, status: str) -> None:
        """The start is over: notify the service manager."""
        self._ready, self._status = True, status
        self._ready_status = None if self._notifier.ready(status) else status

    def status(self, status: str) -> None:
        """What this process does now, one line for the service manager."""
        self._status = status
        self._notifier.status(status)

    def on_reload(self, reload: Callable[[], Awaitable[None]]) -> None:
        """Call `reload` at each SIGHUP from now on, one at a time."""
        assert self._reloads
        self.task("reload", self._reload_when_told(reload))

    async def _reload_when_told(self, reload: Callable[[], Awaitable[None]]) -> None:
        while True:
            await self._hang_up.wait()
            self._hang_up.clear()
            if self._ready:
                self._notifier.reloading(SystemClock().monotonic_s())
            try:
                await reload()
            except Exception as error:  # whatever it was, the daemon goes on as it is
                self._logger.failure("the configuration was not read again", error)
            if self._ready and not self._stopping.is_set():
                self.ready(self._status)

    def on_end(self, tell: Callable[[int, BaseException | None], Awaitable[None]]) -> None:
        """Await `tell` with exit code and cause, when all else has ended. It bounds its own time."""
        self._tell_end = tell

    def stop(self, cause: BaseException | None = None) -> None:
        """Begin the end. The first cause counts."""
        if not self._stopping.is_set():
            self._cause = cause
            self._stopping.set()
            self._notifier.stopping("stopping" if cause is None else f"stopping: {cause}")

    async def run(self, setup: Callable[[Daemon], Awaitable[None]]) -> int:
        """`setup`, then wait for a signal, `stop` or a failure, then the phases. Returns the exit code."""
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._on_signal, number)
        telling = loop.create_task(self._notify_manager(), name=f"{self._name}.systemd")
        try:
            await self._run_setup(setup)
            await self._stopping.wait()
            await self._run_phases()
            await self._cancel(set(self._tasks))
            code = self._exit_code()
            await self._told_end(code)
        finally:
            telling.cancel()
            for number in SIGNALS:
                loop.remove_signal_handler(number)
        return code

    async def _told_end(self, code: int) -> None:
        if self._tell_end is None:
            return
        try:
            await self._tell_end(code, self._cause)
        except Exception as error:  # whatever it was, the exit code stays
            self._logger.failure("the end was not told", error)

    async def _notify_manager(self) -> None:
        """Feed the watchdog, and ask for time while the start or the end takes it.

        From the event loop: one that is stuck goes silent. A node that lost its disk or its peers does not;
        it is alive, and says so itself.
        """
        if not self._notifier.is_on:
            return
        pause_s = min(_EXTEND_EVERY_S, self._notifier.watchdog_s / 2 or _EXTEND_EVERY_S)
        while True:
            if self._ready_status is not None:
                self.ready(self._ready_status)
            if self._notifier.watchdog_s:
                self._notifier.alive()
            if not self._ready or self._stopping.is_set():
                self._notifier.extend(_EXTEND_S)
            await asyncio.sleep(pause_s)

    async def _run_setup(self, setup: Callable[[Daemon], Awaitable[None]]) -> None:
        async def start() -> None:
            await setup(self)

        starting = asyncio.get_running_loop().create_task(start(), name=f"{self._name}.setup")
        stopping = asyncio.get_running_loop().create_task(self._stopping.wait())
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        await asyncio.wait({stopping})
        if not starting.done():
            await self._cancel({starting})
        if starting.done() and not starting.cancelled() and (error := starting.exception()) is not None:
            self.stop(error)

    def _on_signal(self, number: signal.Signals) -> None:
        if number == signal.SIGHUP and self._reloads:
            self._logger.info("got signal to read the configuration again", signal="SIGHUP")
            self._hang_up.set()
            return
        self._signals += 1
        if self._signals > 1:
            self._logger.warning("second signal, exit at once", signal=signal.Signals(number).name)
            os._exit(EXIT_FORCED)
        self._logger.info("got signal to exit", signal=signal.Signals(number).name)
        self.stop()

    def _task_ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            return
        if self._stopping.is_set() and isinstance(error, BinlogError):
            self._logger.warning("task failed while stopping", task=task.get_name(), error=error)
        elif isinstance(error, BinlogError):
            self._logger.error("task failed", task=task.get_name(), error=error)
        else:
            self._logger.failure("task failed", error, task=task.get_name())
        self.stop(error)

    async def _run_phases(self) -> None:
        for name, stop, deadline_s in self._phases:

            async def phase(stop: Callable[[], Awaitable[None]] = stop) -> None:
                await stop()

            task = asyncio.get_running_loop().create_task(phase(), name=f"{self._name}.stop.{name}")
            done, _ = await asyncio.wait({task}, timeout=deadline_s)
            if not done:
                self._logger.warning("stop phase overran its deadline", phase=name, deadline_s=deadline_s)
                await self._cancel({task})
            elif not task.cancelled() and (error := task.exception()) is not None:
                if isinstance(error, BinlogError):
                    self._logger.warning("stop phase failed", phase=name, error=error)
                else:
                    self._logger.failure("stop phase failed", error, phase=name)
                if self._cause is None:
                    self._cause = error

    async def _cancel(self, tasks: set[asyncio.Task[Any]]) -> None:
        for task in tasks:
            task.cancel()
        if not tasks:
            return
        done, stubborn = await asyncio.wait(tasks, timeout=self._cancel_deadline_s)
        for task in stubborn:
            self._logger.warning("task does not end, left behind", task=task.get_name())
        for task in done:
            if not task.cancelled():
                task.exception()  # seen: it is not the cause of anything any more

    def _exit_code(self) -> int:
        cause = _named(self._cause)
        if cause is None:
            self._logger.info("stopped", daemon=self._name)
            return 0
        if isinstance(cause, BinlogError):
            self._logger.error("stopped by an error", daemon=self._name, error=cause)
        else:
            self._logger.failure("stopped by an unexpected error", cause, daemon=self._name)
        print_error(self._name, cause)
        return exit_code(cause)


def _named(error: BaseException | None) -> BaseException | None:
    """What the operating system says of a file is an error with a place, and no surprise."""
    if isinstance(error, OSError) and error.filename is not None:
        hint = "look at its disk and at the rights of the file, then start again"
        return BinlogError(f"{error.filename}: {error.strerror}", hint=hint)
    return error


def exit_code(error: BaseException) -> int:
    """The process exit code for an error."""
    return error.exit_code if isinstance(error, BinlogError) else EXIT_FAILURE


def print_error(program: str, error: BaseException) -> None:
    """One line on standard error: what, where, and the next thing to do."""
    error = _named(error) or error
    text = str(error) if isinstance(error, BinlogError) else f"unexpected {type(error).__name__}: {error}"
    sys.stderr.write(f"{program}: error: {one_line(text)}\n")
    sys.stderr.flush()


def main(program: str, run: Callable[[list[str]], Awaitable[int]]) -> NoReturn:
    """Run a program's asynchronous main function and exit with its code."""
    if not __debug__:
        sys.stderr.write(f"{program}: error: assertions are off (run python without -O)\n")
        sys.exit(1)

    share_arenas()

    async def entry() -> int:
        return await run(sys.argv[1:])

    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            code = runner.run(entry())
    except BinlogError as error:
        print_error(program, error)
        code = error.exit_code
    except KeyboardInterrupt:
        code = EXIT_FORCED
    sys.exit(code)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.new_event_loop

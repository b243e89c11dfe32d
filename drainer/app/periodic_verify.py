"""Periodic verify: the Drainer lets a process compare its downstream with the upstream, every so often.

Owns    the child, and the record of what was found, in a file of the data directory
Why     a process of its own: what it computes takes no time of the interpreter that applies rows
Stops   a cancelled run ends the child; one whose drainer was killed ends by itself. The next one goes on with
        what was equal
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from drainer import metrics
from drainer.app import verify_link
from drainer.config.options import DrainerConfig
from drainer.operate.control.hold import Hold
from drainer.operate.control.http import add_hold_routes
from drainer.operate.status import verify_record
from tidb_binlog.clock import Clock
from tidb_binlog.door.http.routes import Peer, Request, Response, Routes
from tidb_binlog.filesystem import replace_file
from tidb_binlog.foreign_document import UNREADABLE, left_in
from tidb_binlog.observe import log
from tidb_binlog.status.codec import plain, read
from tidb_binlog.status.drainer import ChunkGrid, VerifyStatus

logger = log.get("verify")

CHILD: Final = (sys.executable, "-m", "drainer.app.verify_child")
FILE: Final = "verify.json"
END_S: Final = 5.0
_ROOT: Final = str(Path(__file__).resolve().parents[2])
_LAST_LINES: Final = 2000


class _Parent:
    """The other end of the pipe is a child of this process."""

    def refusal(self, request: Request) -> Response | None:
        return None


class PeriodicVerify:
    """`settings` are those in force, `behind_s` is how far the stream is behind the upstream."""

    def __init__(
        self,
        settings: Callable[[], DrainerConfig],
        hold: Hold,
        clock: Clock,
        behind_s: Callable[[], float],
        command: Sequence[str] = CHILD,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._behind_s = behind_s
        self._command = command
        self._routes = Routes()
        add_hold_routes(self._routes, hold)
        self._path = os.path.join(settings().data_dir, FILE)
        self.status: VerifyStatus = verify_record.at_start(
            left_in(self._path), settings().verify_every_s, clock.wall_s()
        )
        metrics.VERIFY_WRONG_ROWS.set_function(lambda: float(self.status.wrong))
        metrics.VERIFY_NOT_COMPARED.set_function(lambda: float(self.status.left_out))
        metrics.VERIFY_FAILURES.set_function(lambda: float(self.status.failures))

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(max(0.0, self.status.next_s - self._clock.wall_s()))
            await self.once()

    async def once(self) -> None:
        """One comparison, and the record of it."""
        settings, status = self._settings(), self.status
        every_s = settings.verify_every_s
        verify_record.begun(status, self._clock.wall_s())
        try:
            document = await self._compared(settings)
            verify_record.ended(status, document, every_s, self._clock.wall_s())
        except (_Failed, OSError, *UNREADABLE) as error:
            verify_record.failed(status, str(error), every_s, self._clock.wall_s())
            logger.warning("the comparison came to no end", reason=error, failures=status.failures)
        else:
            tell = logger.error if status.wrong else logger.info
            tell(
                "downstream was compared with upstream",
                state=status.state,
                ts=status.ts,
                rows=status.rows,
                tables=status.tables,
                wrong_rows=status.wrong,
                not_compared=status.left_out,
                seconds=round(status.ended_s - status.began_s, 1),
            )
        try:
            await asyncio.to_thread(replace_file, self._path, json.dumps(plain(status)).encode())
        except OSError as error:  # no reason to end: rows go on
            logger.warning("what a comparison found is not kept over a restart", reason=error)

    async def _compared(self, settings: DrainerConfig) -> dict[str, Any]:
        """The document of one comparison, by a child that is gone afterwards."""
        path = os.pathsep.join(filter(None, (_ROOT, os.environ.get("PYTHONPATH"))))
        child = await asyncio.create_subprocess_exec(
            *self._command,
            str(os.getpid()),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            limit=verify_link.LINE_BYTES_MAX,
        )
        assert child.stderr is not None
        said = asyncio.create_task(child.stderr.read(), name="verify.stderr")
        try:
            result = await self._served(child, settings)
            if result is None:
                code = await child.wait()
                last = (await said)[-_LAST_LINES:].decode("utf-8", "replace").strip().rpartition("\n")[2]
                raise _Failed(f"the process that compares ended with exit code {code}: {last}")
            return result
        finally:
            await _end(child)
            await asyncio.gather(said, return_exceptions=True)

    async def _served(
        self, child: asyncio.subprocess.Process, settings: DrainerConfig
    ) -> dict[str, Any] | None:
        """Answer its orders until its last word; None without one. Raises `_Failed`."""
        assert child.stdin is not None
        assert child.stdout is not None
        with contextlib.suppress(ConnectionError):
            child.stdin.write(verify_link.opening(settings))
            while text := await child.stdout.readline():
                said = json.loads(text)
                if "result" in said:
                    return dict(said["result"])
                if "failed" in said:
                    raise _Failed(str(said["failed"]))
                if "progress" in said:
                    self.status.progress = str(said["progress"])
                    self.status.grid = [read(entry, ChunkGrid) for entry in said.get("grid", ())]
                    continue
                child.stdin.write(verify_link.line(await self._answer(said)))
                await child.stdin.drain()
        return None

    async def _answer(self, said: dict[str, Any]) -> dict[str, Any]:
        if "behind" in said:
            return {"behind_s": self._behind_s()}
        request = Request("PUT", str(said["put"]), "localhost", None, Peer(""))
        answer = await self._routes.answer(request, _Parent())
        return {"status": answer.status, "body": answer.body.decode()}


class _Failed(Exception):
    """There is no result, and why."""


async def _end(child: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        child.terminate()
    try:
        async with asyncio.timeout(END_S):
            await child.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()

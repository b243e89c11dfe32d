"""Starts the load generator and tells when its measured time begins and ends."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.rig import ROOT
from tidb_binlog.errors import Unavailable


class Load:
    """A running load generator."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def said(self, event: str) -> dict[str, Any]:
        """Its next line, which must be `event`. Raises `Unavailable` with what it said instead."""
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        line = await self._process.stdout.readline()
        document: dict[str, Any] = json.loads(line) if line else {}
        if document.get("event") != event:
            why = (await self._process.stderr.read()).decode().strip().rpartition("\n")[2]
            raise Unavailable(f"the load generator ended early: {why}")
        return document

    async def end(self) -> None:
        """Wait until everything it sent is answered."""
        await self._process.wait()


@asynccontextmanager
async def load(
    address: str,
    cluster_id: int,
    *,
    first_ts: int,
    writers: int,
    seconds: float,
    payload_bytes: int,
) -> AsyncIterator[Load]:
    """Run it; killed at the end of the block if it still runs."""
    arguments = (address, cluster_id, first_ts, writers, seconds, payload_bytes)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.benchmarks.pump.load_generator",
        *map(str, arguments),
        stdout=PIPE,
        stderr=PIPE,
        cwd=ROOT,
    )
    try:
        yield Load(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()

"""Verify link: what a Drainer and the process that compares for it say to each other, a JSON line each.

    first, to the child       the settings in force, pickled, as base64
    from the child            {"put": path}     an order to the drainer, as over HTTP: hold, go on, release
    to the child              {"status": 200, "body": text}
    from the child            {"behind": 1}     how far is the stream behind the upstream?
    to the child              {"behind_s": seconds}
    from the child            {"progress": text, "grid": [...]}    for whoever asks, a `ChunkGrid` for a table
    from the child, last      {"result": document} or {"failed": why}

Why     over its own pipe the child needs neither an address that this host may administrate nor a
        certificate; and it compares by the rules in force, whatever the file says by now
Tests   tests/drainer/app/test_periodic_verify.py
"""

from __future__ import annotations

import asyncio
import base64
import json
import pickle
import sys
import threading
from typing import IO, Any, Final

from drainer.config.options import DrainerConfig
from tidb_binlog.errors import Unavailable
from tidb_binlog.net.http_client import Page

LINE_BYTES_MAX: Final = 64 << 20


def opening(settings: DrainerConfig) -> bytes:
    """The first line to the child."""
    return base64.b64encode(pickle.dumps(settings)) + b"\n"


def line(document: dict[str, Any]) -> bytes:
    return json.dumps(document).encode() + b"\n"


class ChildLink:
    """The child's end. From any thread, one order at a time."""

    def __init__(self, incoming: IO[bytes] | None = None, outgoing: IO[bytes] | None = None) -> None:
        self._incoming = incoming or sys.stdin.buffer
        self._outgoing = outgoing or sys.stdout.buffer
        self._lock = threading.Lock()

    def settings(self) -> DrainerConfig:
        """To be called first."""
        settings = pickle.loads(base64.b64decode(self._read()))
        assert isinstance(settings, DrainerConfig)
        return settings

    async def ask(self, _address: str, path: str, _timeout_s: float) -> Page:
        """An order to the drainer; its answer comes within the time that the order allows."""
        answer = await asyncio.to_thread(self._ask, {"put": path})
        return Page(int(answer["status"]), str(answer["body"]).encode(), 0.0, 0.0, None)

    def behind_s(self) -> float:
        """How far the drainer is behind the upstream now."""
        return float(self._ask({"behind": 1})["behind_s"])

    def say(self, document: dict[str, Any]) -> None:
        with self._lock:
            self._write(document)

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            self._write(question)
            return dict(json.loads(self._read()))

    def _write(self, document: dict[str, Any]) -> None:
        self._outgoing.write(line(document))
        self._outgoing.flush()

    def _read(self) -> bytes:
        line = self._incoming.readline()
        if not line:
            raise Unavailable("the drainer that asked for this has ended")
        return line

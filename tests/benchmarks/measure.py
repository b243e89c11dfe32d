"""What the kernel says of a process, and small statistics."""

from __future__ import annotations

import http.client
import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tidb_binlog.errors import Unavailable


def cpu_s(pid: int) -> float:
    """CPU time (user and system) of a process and its threads so far, to the nanosecond: the kernel's clock
    of that process (see `clock_getcpuclockid`)."""
    return time.clock_gettime(~pid << 3 | 2)


def wake_ups(pid: int) -> int:
    """How often its threads have waited for something so far."""
    statuses = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/status")]
    return sum(int(text.partition("\nvoluntary_ctxt_switches:")[2].split()[0]) for text in statuses)


def peak_rss_mib(pid: int | str) -> float:
    """Most memory the process ever had resident, MiB.

    What `getrusage` tells of a child includes what its parent had before the child became another program.
    """
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise Unavailable(f"process {pid} has ended")


def percentile(values: Sequence[float], fraction: float) -> float:
    """The smallest value that at least `fraction` of all are at or below."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(fraction * len(ordered)) - 1)]


class StatusPage:
    """Reads a node's /status over one kept connection: asking often must cost the node little."""

    def __init__(self, url: str) -> None:
        self._address = url.removeprefix("http://").partition("/")[0]
        self._connection: http.client.HTTPConnection | None = None

    def document(self) -> dict[str, Any]:
        """Raises `Unavailable` while it does not answer."""
        if self._connection is None:
            self._connection = http.client.HTTPConnection(self._address, timeout=5)
        try:
            self._connection.request("GET", "/status")
            reply = self._connection.getresponse().read()
            document: dict[str, Any] = json.loads(reply)
        except (OSError, ValueError, http.client.HTTPException) as error:
            self.close()
            raise Unavailable(f"{self._address} does not answer: {error}") from None
        return document

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

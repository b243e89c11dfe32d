"""Which process this is, in a form that another process can check.

A node that was killed leaves a lease that runs out only seconds later. Its successor on the same
machine need not wait: it can see that the process is gone. Process ids are reused and mean nothing on
another machine or in another container, so the machine's boot, the id space and the start time belong to
the identity.
"""

from __future__ import annotations

import os
import socket

import msgspec

from tidb_binlog.foreign_document import UNREADABLE, ready
from tidb_binlog.late_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """`space` identifies machine, boot and id space; empty where that is not known."""

    host: str
    pid: int
    space: str
    started: str
    token: str

    def to_json(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, data: bytes) -> ProcessIdentity | None:
        """None if it is not one."""
        try:
            return msgspec.json.decode(data, type=ready(cls))
        except UNREADABLE:
            return None


def current(token: str) -> ProcessIdentity:
    """This process; `token` distinguishes several owners within it."""
    pid = os.getpid()
    return ProcessIdentity(socket.gethostname(), pid, _space(), _started(pid), token)


def is_gone(identity: ProcessIdentity) -> bool:
    """Whether that process has certainly ended. False when it lives or that is not known here."""
    if not identity.space or identity.space != _space():
        return False
    return _started(identity.pid) != identity.started


def boot() -> str:
    """Names the time since this host was started; "" where that is not known."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def _space() -> str:
    try:
        boot_id = boot()
        return f"{boot_id}:{os.readlink('/proc/self/ns/pid')}" if boot_id else ""
    except OSError:
        return ""


def _started(pid: int) -> str:
    """Start time in clock ticks since boot; empty when there is no such process (or only its zombie)."""
    try:
        with open(f"/proc/{pid}/stat", encoding="latin-1") as file:
            # The name in parentheses may hold anything, so count from its end.
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in ("Z", "X") else fields[19]

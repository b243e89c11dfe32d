"""Rot: what was synced is damaged on a node's disk, and restored by an operator.

Holds  damaged are files that are not written any more: the end of one that is may be as a power cut left
       it, and is cut for it. Where a file is purged meanwhile, its damage goes with it

Tests  tests/sim/test_worlds.py
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Final

from tests.crash.faults.disk import Disk

_BLOCK: Final = 512
BYTE, ZEROS, END = "byte", "zeros", "end"


@dataclass(frozen=True)
class _Damage:
    name: str
    at: int
    before: bytes


@dataclass
class Rot:
    """Of one disk."""

    damage: list[_Damage] = field(default_factory=list)

    def strike(self, disk: Disk, rng: random.Random, *, cuts: bool) -> str:
        """Damage a file; what and where, "" if there is none. `cuts`: its end may go, too."""
        files = {name: inode for name, inode in disk.files().items() if name.endswith(".vlog")}
        files |= {name: inode for name, inode in disk.files().items() if name.startswith("binlog-")}
        newest = max((name.partition(".")[0] for name in files), default="")
        closed = [name for name in sorted(files) if not name.startswith(newest) and files[name].data]
        if not closed:
            return ""
        name, how = rng.choice(closed), rng.choice((BYTE, ZEROS, END) if cuts else (BYTE, ZEROS))
        data = files[name].data
        at = rng.randrange(len(data))
        end = {BYTE: at + 1, ZEROS: at + _BLOCK, END: len(data)}[how]
        before = bytes(data[at:end])
        after = {BYTE: bytes((before[0] ^ 1 << rng.randrange(8),)), ZEROS: bytes(len(before)), END: b""}[how]
        for image in (data, files[name].medium):
            image[at:end] = after
        self.damage.append(_Damage(name, at, before))
        return f"{how} of {name} at {at}"

    def restore(self, disk: Disk) -> None:
        """From a backup."""
        for each in reversed(self.damage):
            inode = disk.files().get(each.name)
            for image in (inode.data, inode.medium) if inode is not None else ():
                image[each.at : each.at + len(each.before)] = each.before
        self.damage.clear()

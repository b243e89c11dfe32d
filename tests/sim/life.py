"""Life: one process of the world, from its start to its death; everything that runs belongs to one."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.crash.faults.disk import Disk
    from tests.sim.scheduling import SimThread


@dataclass(eq=False)
class Life:
    """`host` outlives it. `skew_s`: of its wall clock. Not `alive`: whatever it still does reaches nobody."""

    host: str
    number: int = 0
    disk: Disk | None = None
    skew_s: float = 0.0
    alive: bool = True
    tasks: dict[asyncio.Task[object], None] = field(default_factory=dict)
    threads: dict[SimThread, None] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.host}.{self.number}"


WORLD: Final = Life("world")
LIFE: ContextVar[Life] = ContextVar("life", default=WORLD)

"""Kept from: the Drainer's entry in the registry, before it runs, so that pumps keep what follows T for it.

Drives  the registry
Never   writes into the entry of a Drainer that runs
Tests   tests/drainer/load/test_imported.py
"""

from __future__ import annotations

from common.cluster.node import PAUSED, NodeStatus
from common.cluster.registry import DRAINERS, Registry
from common.errors import Rejected
from drainer.config.options import DrainerConfig


async def keep_from(settings: DrainerConfig, nodes: Registry, ts: int) -> None:
    """The Drainer of these settings stands at `ts` and is paused. Raises `Rejected` where it runs."""
    name = settings.name
    entry = (await nodes.view()).drainers.get(name)
    if entry is not None and entry.alive:
        raise Rejected(f"drainer {name} is running", hint="stop it first, and start it afterwards")
    status = NodeStatus(name, settings.advertised, PAUSED, ts, ts)
    await nodes.put(DRAINERS, status, entry.mod_revision if entry is not None else None)

"""Forget: takes a node that never comes back out of the registry.

Never   forgets a node that lives: one whose lease is held, one that answers at its address, and a Go node
        that renewed its entry just now
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from binlogctl.cli.command_line import Call
from binlogctl.cli.commands import DONE
from binlogctl.cli.settings import CtlSettings
from binlogctl.cluster import forget_consequences, node_lookup
from binlogctl.cluster.node_lookup import RegisteredNode
from binlogctl.net import connection
from tidb_binlog import tso
from tidb_binlog.clock import SystemClock
from tidb_binlog.cluster.node import OFFLINE
from tidb_binlog.errors import Rejected, Unavailable
from tidb_binlog.net import node_http
from tidb_binlog.observe import show
from tidb_binlog.quantities import span

FRESH_S: Final = 30.0
"""A running Go node renews its entry every second or two, and may be held up."""
PROBE_S: Final = 3.0


async def run(call: Call) -> int:
    """Raises `Rejected` for a node that lives or is needed, `Conflict` when its entry changes meanwhile."""
    settings = call.settings
    async with connection.registry(settings) as registry:
        view = await registry.view()
        node = node_lookup.find(view, call.words[0], settings.kind)
        status = node.entry.status
        if status.state == OFFLINE and not settings.delete:
            show.print_lines(f"{node.label} is offline already; -delete removes its entry")
            return DONE
        await _check_dead(settings, node)
        lost = forget_consequences.loss(view, node)
        if lost.is_needed and not settings.yes:
            raise Rejected(
                f"{node.label} is needed: {'; '.join(lost.lines)}",
                hint="bring it back, or give that up with -yes",
            )
        if settings.delete:
            await registry.remove(node.kind, node.node_id, node.entry.mod_revision)
        else:
            await registry.put(node.kind, status.with_state(OFFLINE), node.entry.mod_revision)
    done = "is removed from the registry" if settings.delete else "is offline now"
    show.print_lines(f"{node.label} {done}", *(f"  {line}" for line in lost.lines))
    return DONE


async def _check_dead(settings: CtlSettings, node: RegisteredNode) -> None:
    hint = f"`binlogctl close {node.node_id}` lets it leave in order"
    if node.entry.alive:
        raise Rejected(f"{node.label} lives", hint=hint)
    if await _answers(settings, node):
        raise Rejected(f"{node.label} lives: it answers at {node.entry.status.host}", hint=hint)
    age_s = tso.age_s(node.entry.status.update_ts, SystemClock().wall_s())
    if node.entry.alive is None and 0 <= age_s < FRESH_S and node.entry.status.state != OFFLINE:
        raise Rejected(
            f"{node.label} may live: it renewed its entry {span(age_s)} ago",
            hint=f"try again when that is more than {FRESH_S:.0f} s, or stop it",
        )


async def _answers(settings: CtlSettings, node: RegisteredNode) -> bool:
    """Whether this node, and no other one, listens at its address."""
    try:
        answer = await node_http.ask(
            node.label, node.entry.status.host, "GET", "/status", settings.tls, deadline_s=PROBE_S
        )
    except Unavailable:
        return False
    document = answer.document or {}
    pump = document.get("pump")
    name = pump.get("node_id") if isinstance(pump, Mapping) else document.get("NodeID")
    return name in (None, node.node_id)

"""binlogctl forget: takes a node that never comes back out of the registry.

Drives  `forget_consequences` (core)
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
from binlogctl.cluster.node_lookup import Found
from binlogctl.net import connection, node_http
from tidb_binlog import tso
from tidb_binlog.clock import SystemClock
from tidb_binlog.cluster.node import OFFLINE
from tidb_binlog.errors import Rejected, Unavailable
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
        found = node_lookup.find(view, call.words[0], settings.kind)
        status = found.entry.status
        if status.state == OFFLINE and not settings.delete:
            show.print_lines(f"{found.label} is offline already; -delete removes its entry")
            return DONE
        await _check_dead(settings, found)
        lost = forget_consequences.loss(view, found)
        if lost.is_needed and not settings.yes:
            raise Rejected(
                f"{found.label} is needed: {'; '.join(lost.lines)}",
                hint="bring it back, or give that up with -yes",
            )
        if settings.delete:
            await registry.remove(found.kind, found.node_id, found.entry.mod_revision)
        else:
            await registry.put(found.kind, status.with_state(OFFLINE), found.entry.mod_revision)
    done = "is removed from the registry" if settings.delete else "is offline now"
    show.print_lines(f"{found.label} {done}", *(f"  {line}" for line in lost.lines))
    return DONE


async def _check_dead(settings: CtlSettings, found: Found) -> None:
    hint = f"`binlogctl close {found.node_id}` lets it leave in order"
    if found.entry.alive:
        raise Rejected(f"{found.label} lives", hint=hint)
    if await _answers(settings, found):
        raise Rejected(f"{found.label} lives: it answers at {found.entry.status.host}", hint=hint)
    age_s = tso.age_s(found.entry.status.update_ts, SystemClock().wall_s())
    if found.entry.alive is None and 0 <= age_s < FRESH_S and found.entry.status.state != OFFLINE:
        raise Rejected(
            f"{found.label} may live: it renewed its entry {span(age_s)} ago",
            hint=f"try again when that is more than {FRESH_S:.0f} s, or stop it",
        )


async def _answers(settings: CtlSettings, found: Found) -> bool:
    """Whether this node, and no other one, listens at its address."""
    try:
        answer = await node_http.ask(
            found.label, found.entry.status.host, "GET", "/status", settings.tls, deadline_s=PROBE_S
        )
    except Unavailable:
        return False
    document = answer.document or {}
    pump = document.get("pump")
    name = pump.get("node_id") if isinstance(pump, Mapping) else document.get("NodeID")
    return name in (None, found.node_id)

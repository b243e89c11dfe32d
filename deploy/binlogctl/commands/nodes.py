"""Nodes: all pumps and drainers as the registry has them.

Tests  tests/deploy/binlogctl/commands/test_leave_cluster.py
"""

from __future__ import annotations

from binlogctl.cli.command_line import Call
from binlogctl.cli.commands import DONE, JSON
from binlogctl.cluster import node_lookup, node_table
from binlogctl.net import connection
from tidb_binlog.cluster.node import OFFLINE
from tidb_binlog.quantities import count


async def run(call: Call) -> int:
    """The list. Raises `Unavailable`."""
    kinds = node_lookup.kinds(call.settings.kind)
    async with connection.registry(call.settings) as registry:
        view = await registry.view()
    nodes = {
        kind: [
            entry
            for _, entry in sorted(view.of(kind).items())
            if call.settings.show_offline or entry.status.state != OFFLINE
        ]
        for kind in kinds
    }
    if call.output == JSON:
        node_table.print_documents(nodes)
        return DONE
    entries = [(kind, entry) for kind in kinds for entry in nodes[kind]]
    hidden = sum(len(view.of(kind)) for kind in kinds) - len(entries)
    counted = ", ".join(count(len(nodes[kind]), kind.removesuffix("s")) for kind in kinds)
    more = f"; {hidden} offline, shown with -show-offline-nodes" if hidden else ""
    node_table.print_entries(entries, counted + more)
    return DONE

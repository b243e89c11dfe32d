"""binlogctl nodes: all pumps and drainers as the registry has them."""

from __future__ import annotations

from common.node import OFFLINE
from deploy.ctl import connection, node_name, node_table
from deploy.ctl.command_line import Call
from deploy.ctl.commands import DONE, JSON


async def run(call: Call) -> int:
    """The list. Raises `Unavailable`."""
    kinds = node_name.kinds(call.settings.kind)
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
    counted = ", ".join(f"{len(nodes[kind])} {kind}" for kind in kinds)
    more = f"; {hidden} offline, shown with -show-offline-nodes" if hidden else ""
    node_table.print_entries(entries, counted + more)
    return DONE

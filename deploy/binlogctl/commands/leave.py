"""Leave: `pause`, `resume`, `close` of one node of either kind, by id or the beginning of one.

Order   find the node, ask it, then poll registry and node until the registry says that it is there
Stops   by -timeout (13) and Ctrl-C (130): the node still does what it was asked
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from binlogctl.cli.command_line import Call
from binlogctl.cli.commands import DONE, STILL_WAITING
from binlogctl.cli.settings import CtlSettings
from binlogctl.cluster import leaving, node_lookup
from binlogctl.cluster.leaving import CLOSE, ON_THE_WAY, PAUSE, TARGETS, Arrived, Astray, Waits
from binlogctl.cluster.node_lookup import RegisteredNode
from binlogctl.commands import go_compat
from binlogctl.net import connection
from tidb_binlog.clock import Clock, SystemClock
from tidb_binlog.cluster.node import CLOSING, OFFLINE, ONLINE, PAUSED
from tidb_binlog.cluster.registry import DRAINERS, NodeEntry
from tidb_binlog.errors import BinlogError, FlagError, Rejected, Unavailable
from tidb_binlog.etcd.registry import EtcdRegistry
from tidb_binlog.net import node_http
from tidb_binlog.observe import show
from tidb_binlog.quantities import span

POLL_S: Final = 0.3
REPORT_S: Final = 2.0
STATUS_DEADLINE_S: Final = 3.0


class StillOnItsWay(BinlogError):
    """The time that the operator gave is over; the node goes on."""

    exit_code: ClassVar[int] = STILL_WAITING


async def pause(call: Call) -> int:
    """`pause NODE`; with -apply a drainer only holds applying back."""
    async with connection.registry(call.settings) as registry:
        node = await _find(call, registry)
        if call.settings.apply:
            _require_drainer(node)
            _require_running(node, PAUSE)
            await _put(call.settings, node, "/apply/pause")
            show.print_lines(
                f"{node.label} holds applying back; `binlogctl resume {node.node_id}` lets it go on"
            )
            return DONE
        return await _leave(call.settings, registry, node, PAUSE)


async def close(call: Call) -> int:
    """`close NODE`; -force does not wait."""
    async with connection.registry(call.settings) as registry:
        node = await _find(call, registry)
        return await _leave(call.settings, registry, node, CLOSE)


async def resume(call: Call) -> int:
    """`resume NODE`: lets a drainer apply again, or says how a stopped process comes back."""
    settings = call.settings
    async with connection.registry(settings) as registry:
        node = await _find(call, registry)
    state = node.entry.status.state
    if state != ONLINE or node.entry.alive is False:
        raise Rejected(f"{node.label} is {_stopped(node.entry)}", hint=_how_to_start(node))
    if node.kind == DRAINERS:
        answer = await node_http.ask(node.label, node.entry.status.host, "GET", "/status", settings.tls)
        control = (answer.document or {}).get("Control")
        if isinstance(control, Mapping) and control.get("paused") is True:
            await _put(settings, node, "/apply/resume")
            show.print_lines(f"{node.label} applies again")
            return DONE
    show.print_lines(f"{node.label} is online; there is nothing to resume")
    return DONE


async def _find(call: Call, registry: EtcdRegistry) -> RegisteredNode:
    return node_lookup.find(await registry.view(), call.words[0], call.settings.kind)


def _stopped(entry: NodeEntry) -> str:
    state = entry.status.state
    return (
        state if entry.alive is not False or state in (PAUSED, OFFLINE) else f"dead, its entry says {state}"
    )


def _how_to_start(node: RegisteredNode) -> str:
    program = node.kind[:-1]
    start = f"start it on its host: `systemctl start {program}`, or `{program} --config FILE`"
    if node.entry.status.is_reader:
        start = "start the program again that reads under this name"
    if node.entry.status.state == OFFLINE:
        return f"it has left for good; to have it back, {start}"
    return start


def _require_drainer(node: RegisteredNode) -> None:
    if node.kind != DRAINERS or node.entry.status.is_reader:
        raise FlagError(f"{node.label} applies nothing", hint="-apply is for drainers")


def _require_running(node: RegisteredNode, action: str) -> None:
    state = node.entry.status.state
    if node.entry.alive is False or state in (PAUSED, OFFLINE):
        again = f"start it and {action} it then" if action == CLOSE else "there is nothing to pause"
        raise Rejected(
            f"{node.label} is {_stopped(node.entry)}: there is no process that could {action}",
            hint=f"{again}; if it never comes back: `binlogctl forget {node.node_id}`",
        )


async def _put(settings: CtlSettings, node: RegisteredNode, path: str) -> None:
    answer = await node_http.ask(node.label, node.entry.status.host, "PUT", path, settings.tls)
    if not answer.is_success:
        raise answer.refusal(node.label)


async def _leave(settings: CtlSettings, registry: EtcdRegistry, node: RegisteredNode, action: str) -> int:
    state = node.entry.status.state
    if state == TARGETS[action] and not node.entry.alive:
        show.print_lines(f"{node.label} is {state} already")
        return DONE
    _require_running(node, action)
    force = settings.force and action == CLOSE
    if state == ON_THE_WAY[action] and not (force and state == CLOSING):
        show.print_lines(f"{node.label} is {state} already")
    else:
        query = "?force=true" if force else ""
        await go_compat.tell(settings, node.label, node.entry, action, query)
        show.print_lines(f"{node.label} was asked to {action}")
    if settings.no_wait:
        return DONE
    try:
        await _until_arrived(settings, registry, node, action, SystemClock())
    except asyncio.CancelledError:
        show.print_warning(
            f"binlogctl: {node.label} goes on to {action}; `binlogctl status` shows how far it is"
        )
        raise
    show.print_lines(f"{node.label} is {TARGETS[action]}")
    return DONE


async def _until_arrived(
    settings: CtlSettings, registry: EtcdRegistry, node: RegisteredNode, action: str, clock: Clock
) -> None:
    """Raises `StillOnItsWay`, `Rejected` when it ended up elsewhere. etcd may be away in between."""
    end_s = clock.monotonic_s() + settings.timeout_s if settings.timeout_s else None
    shown_s, shown = 0.0, ""
    while True:
        seen = await _read_progress(settings, registry, node, action)
        now_s = clock.monotonic_s()
        if isinstance(seen, Arrived):
            return
        if isinstance(seen, Astray):
            raise Rejected(f"{node.label} did not {action}: {seen.why}", hint="see its log")
        left = "" if seen.left_s is None else f", about {span(seen.left_s)} left"
        line = f"{node.label} waits for {seen.what}{left}"
        if line != shown and now_s - shown_s >= REPORT_S:
            shown_s, shown = now_s, line
            show.print_lines(line)
        if end_s is not None and now_s >= end_s:
            raise StillOnItsWay(
                f"{node.label} waits for {seen.what} after {span(settings.timeout_s)}",
                hint="it goes on; `binlogctl status` shows how far it is",
            )
        await asyncio.sleep(POLL_S)


async def _read_progress(
    settings: CtlSettings, registry: EtcdRegistry, node: RegisteredNode, action: str
) -> Arrived | Waits | Astray:
    try:
        entry = (await registry.view()).of(node.kind).get(node.node_id)
    except Unavailable as error:
        return Waits(f"etcd: {error.message}")
    document: dict[str, Any] | None = None
    if entry is not None and entry.status.state != TARGETS[action]:
        try:
            answer = await node_http.ask(
                node.label, entry.status.host, "GET", "/status", settings.tls, deadline_s=STATUS_DEADLINE_S
            )
            document = answer.document
        except Unavailable:
            document = None
    return leaving.progress(action, entry, document)

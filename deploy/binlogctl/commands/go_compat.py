"""Go compat: what the Go binlogctl does, in its words and lines, and failing when a node refused.

    pumps, drainers                  list the nodes
    update-pump, update-drainer      write a state into an entry, for a node that does not run
    pause-*, offline-*               PUT /state/NODE/pause or close; returns once the node has agreed
    generate_meta, encrypt           a savepoint of the current time; the encrypted form of a text

Scripts read these lines. Unlike Go, status and body of a node's answer are read, requests have a deadline,
and listings are in order.
"""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any, Final

from binlogctl.cli.command_line import Call
from binlogctl.cli.commands import DONE, JSON, LOG
from binlogctl.cli.settings import CtlSettings
from binlogctl.cluster import node_table
from binlogctl.net import connection
from tidb_binlog import tso
from tidb_binlog.cluster.node import OFFLINE, STATES
from tidb_binlog.cluster.registry import DRAINERS, PUMPS, NodeEntry, status_key
from tidb_binlog.errors import Conflict, FlagError, Rejected
from tidb_binlog.net import node_http
from tidb_binlog.observe import log
from tidb_binlog.tso import Ts

if TYPE_CHECKING:
    from tidb_binlog.etcd.registry import EtcdRegistry

_UPDATE_ATTEMPTS: Final = 5
ACTIONS: Final = {"pause": "pause", "offline": "close"}

_logger = log.get("ctl")


def kind_of(cmd: str) -> str:
    """The kind of node a command is about."""
    return PUMPS if cmd.removesuffix("s").endswith("pump") else DRAINERS


def update_time(ts: Ts) -> str:
    """The time of a timestamp, local zone, whole seconds, as Go prints a time."""
    return go_time(datetime.datetime.fromtimestamp(int(tso.physical_s(ts))).astimezone())


def go_time(time: datetime.datetime) -> str:
    """As Go's `Time.String`; `time` has a zone and whole seconds."""
    return time.strftime("%Y-%m-%d %H:%M:%S %z %Z")


async def listing(call: Call) -> int:
    """`-cmd pumps`, `-cmd drainers`."""
    kind = kind_of(call.command.cmd)
    async with connection.registry(call.settings) as registry:
        nodes = (await registry.view()).of(kind)
    entries = [
        nodes[node_id]
        for node_id in sorted(nodes)
        if call.settings.show_offline or nodes[node_id].status.state != OFFLINE
    ]
    if call.output == LOG:
        for entry in entries:
            _print_line(kind, entry)
    elif call.output == JSON:
        node_table.print_documents({kind: entries})
    else:
        node_table.print_entries([(kind, entry) for entry in entries], f"{len(entries)} {kind}")
    return DONE


def _print_line(kind: str, entry: NodeEntry) -> None:
    status = entry.status
    node = (
        f"{{NodeID: {status.node_id}, Addr: {status.host}, State: {status.state}, "
        f"MaxCommitTS: {status.max_commit_ts}, UpdateTime: {update_time(status.update_ts)}}}"
    )
    _logger.info("query node", type=kind[:-1], node=node)


def _entry(nodes: Any, kind: str, node_id: str) -> NodeEntry:
    entry: NodeEntry | None = nodes.get(node_id)
    if entry is None:
        key = status_key(kind, node_id).decode()
        raise Rejected(f"key {key} in etcd not found", hint=f"`-cmd {kind}` lists the nodes")
    return entry


def _node_id(call: Call) -> str:
    kind = kind_of(call.command.cmd)
    if not call.settings.node_id:
        raise FlagError(f"{call.command.cmd} needs a node", hint=f"pass -node-id; `-cmd {kind}` lists them")
    return call.settings.node_id


async def update(call: Call) -> int:
    """`-cmd update-pump`, `-cmd update-drainer`."""
    state, node_id = call.settings.state, _node_id(call)
    if state not in STATES:
        raise Rejected(f"state {state} is illegal", hint="use " + ", ".join(STATES))
    async with connection.registry(call.settings) as registry:
        await write_state(registry, kind_of(call.command.cmd), node_id, state)
    return DONE


async def write_state(registry: EtcdRegistry, kind: str, node_id: str, state: str) -> None:
    """Change an entry's state and nothing else. Raises `Rejected`, `Conflict` when it keeps changing."""
    for attempt in range(_UPDATE_ATTEMPTS):
        entry = _entry((await registry.view()).of(kind), kind, node_id)
        if entry.alive and attempt == 0:
            _logger.warning("this node is running and will write its own state again", node_id=node_id)
        try:
            await registry.put(kind, entry.status.with_state(state), entry.mod_revision)
        except Conflict:
            if attempt == _UPDATE_ATTEMPTS - 1:
                raise
        else:
            return


async def action(call: Call) -> int:
    """`-cmd pause-pump`, `pause-drainer`, `offline-pump`, `offline-drainer`."""
    kind, node_id = kind_of(call.command.cmd), _node_id(call)
    asked = ACTIONS[call.command.cmd.partition("-")[0]]
    async with connection.registry(call.settings) as registry:
        entry = _entry((await registry.view()).of(kind), kind, node_id)
    await tell(call.settings, f"{kind[:-1]} {node_id}", entry, asked)
    _logger.info("Apply action on node success", action=asked, NodeID=node_id)
    return DONE


async def tell(settings: CtlSettings, who: str, entry: NodeEntry, asked: str, query: str = "") -> None:
    """Ask a node to pause or close. Raises `Rejected` if it refused, `Unavailable`."""
    import urllib.parse

    node = urllib.parse.quote(entry.status.node_id, safe=":")
    answer = await node_http.ask(who, entry.status.host, "PUT", f"/state/{node}/{asked}{query}", settings.tls)
    if not answer.is_success:
        raise answer.refusal(who)


async def generate_meta(call: Call) -> int:
    """`-cmd generate_meta`."""
    from binlogctl.commands import savepoint

    settings = call.settings
    savepoint.make_directory(settings.data_dir)
    ts = await connection.timestamp(settings)
    savepoint.write(settings.data_dir, ts, _lines(ts, settings.time_zone))
    _logger.info("save meta", meta=f"commitTS: {ts}")
    return DONE


def _lines(ts: Ts, zone_name: str) -> str:
    """The time in UTC and in a zone, which Go appends; nothing for no zone and for an unknown one."""
    if not zone_name:
        return ""
    from tidb_binlog import time_text

    try:
        zone = time_text.zone(zone_name)
    except FlagError as error:
        _logger.warning("fail to load location", **{"time zone": zone_name, "error": error.message})
        return ""
    utc = datetime.datetime.fromtimestamp(int(tso.physical_s(ts)), datetime.UTC)
    return f"{go_time(utc)}\n{go_time(utc.astimezone(zone))}"


async def encrypt(call: Call) -> int:
    """`-cmd encrypt`."""
    from binlogctl.commands import encrypt as encryption

    if not call.settings.text:
        raise FlagError(
            "need to specify the text to be encrypt", hint="pass -text, or use `binlogctl encrypt`"
        )
    encrypted, key_is_known = encryption.encrypted(call.settings.text)
    if key_is_known:
        _logger.warning("use the default secret key to encrypt")
    _logger.info("encrypt text", encrypted=encrypted)
    return DONE

"""binlogctl: look at the registry, correct entries of dead nodes, decide about DDL (`ddl`).

Lines come out as the Go binlogctl prints them (scripts parse those), or as a table or JSON for people and
programs. Talks to a node only for DDL. Editing an entry is for nodes that do not run, a running one writes
its own state again within seconds.
"""

from __future__ import annotations

import datetime
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from rich.console import Console
from rich.table import Table

from common import config, daemon, etcd, log, tso
from common.config import option
from common.errors import Conflict, FlagError, Rejected
from common.node import OFFLINE, STATES
from common.registry import DRAINERS, PUMPS, NodeEntry, status_key
from common.tls import TlsConfig
from deploy.ctl import ddl as ctl_ddl

PROGRAM: Final = "binlogctl"
_UPDATE_ATTEMPTS: Final = 5
_logger = log.get("ctl")

USAGE_NOTES: Final = """
Commands (-cmd):
  pumps, drainers                 list the nodes; offline ones with -show-offline-nodes
  update-pump, update-drainer     write -state into the entry of -node-id (of a node that does not run)
  ddl-list, ddl-show              what a running drainer lets wait for a decision; -job-id for one of it
  ddl-retry, ddl-skip             decide about the DDL job -job-id: run it again, or never
  ddl-rewrite                     run the statement in -text instead
also written as: binlogctl ddl list|show JOB|retry JOB|skip JOB|rewrite JOB --text SQL

Exit codes:
  0  done
  1  wrong configuration
  2  wrong flag or unknown command
  3  etcd, or the drainer, does not answer
  4  refused: no such node or DDL job, illegal state, a decision that makes no sense, not allowed from here
  5  the entry kept changing: the node is running; or the DDL is being carried out already
"""


@dataclass(frozen=True, slots=True)
class ControlConfig:
    usage_notes: ClassVar[str] = USAGE_NOTES

    cmd: str = option("pumps", key=None, flag="cmd", help="what to do, see below")
    node_id: str = option("", key=None, flag="node-id", help="the node to update")
    job_id: int = option(0, key=None, flag="job-id", kind="int", help="the DDL job that is meant")
    text: str = option("", key=None, flag="text", help="the statement to run instead")
    state: str = option("", key=None, flag="state", help="its new state: " + ", ".join(STATES))
    pd_urls: str = option(
        "http://127.0.0.1:2379", key=None, flag="pd-urls", help="comma list of URLs of PD or etcd"
    )
    show_offline: bool = option(
        False, key=None, flag="show-offline-nodes", kind="bool", help="list offline nodes too"
    )
    output: str = option("log", key=None, flag="output", help="form of listings: log, table or json")
    ssl_ca: str = option("", key=None, flag="ssl-ca", help="PEM file of the certificate authority")
    ssl_cert: str = option("", key=None, flag="ssl-cert", help="PEM file of our certificate")
    ssl_key: str = option("", key=None, flag="ssl-key", help="PEM file of our private key")

    def validate(self) -> None:
        known = (*COMMANDS, *ctl_ddl.commands())
        if self.cmd not in known:
            raise FlagError(f"cmd {self.cmd} not supported", hint="use " + ", ".join(known))
        ctl_ddl.DdlCommand.of(self.cmd, self.job_id, self.text)
        if self.output not in OUTPUTS:
            raise FlagError(f"output {self.output!r} is unknown", hint="use log, table or json")
        if self.cmd.startswith("update-"):
            if not self.node_id:
                raise FlagError(f"{self.cmd} needs a node", hint="pass -node-id; `-cmd pumps` lists them")
            if self.state not in STATES:
                raise Rejected(f"state {self.state} is illegal", hint="use " + ", ".join(STATES))


# command -> (kind, whether it updates)
COMMANDS: Final[dict[str, tuple[str, bool]]] = {
    "pumps": (PUMPS, False),
    "drainers": (DRAINERS, False),
    "update-pump": (PUMPS, True),
    "update-drainer": (DRAINERS, True),
}


def update_time(ts: int) -> str:
    """The moment of a timestamp, local zone, whole seconds, as Go prints a time."""
    moment = datetime.datetime.fromtimestamp(int(tso.physical_s(ts))).astimezone()
    return moment.strftime("%Y-%m-%d %H:%M:%S %z %Z")


def _print_log(kind: str, entries: list[NodeEntry]) -> None:
    for entry in entries:
        status = entry.status
        node = (
            f"{{NodeID: {status.node_id}, Addr: {status.host}, State: {status.state}, "
            f"MaxCommitTS: {status.max_commit_ts}, UpdateTime: {update_time(status.update_ts)}}}"
        )
        extra = {} if entry.alive is None else {"alive": entry.alive}
        _logger.info("query node", type=kind[:-1], node=node, **extra)


def _print_table(kind: str, entries: list[NodeEntry]) -> None:
    table = Table(title=f"{len(entries)} {kind}")
    for heading in ("node id", "address", "state", "alive", "max commit ts", "updated"):
        table.add_column(heading, overflow="fold")
    for entry in entries:
        status = entry.status
        alive = {True: "yes", False: "no", None: "?"}[entry.alive]
        table.add_row(
            status.node_id,
            status.host,
            status.state,
            alive,
            str(status.max_commit_ts),
            update_time(status.update_ts),
        )
    Console().print(table)


def _print_json(kind: str, entries: list[NodeEntry]) -> None:
    nodes: list[dict[str, Any]] = [
        {**json.loads(entry.status.to_json()), "alive": entry.alive} for entry in entries
    ]
    sys.stdout.write(json.dumps({kind: nodes}, indent=2) + "\n")


OUTPUTS: Final[dict[str, Callable[[str, list[NodeEntry]], None]]] = {
    "log": _print_log,
    "table": _print_table,
    "json": _print_json,
}


async def _list(registry: etcd.EtcdRegistry, settings: ControlConfig, kind: str) -> None:
    nodes = (await registry.view()).of(kind)
    entries = [
        nodes[node_id]
        for node_id in sorted(nodes)
        if settings.show_offline or nodes[node_id].status.state != OFFLINE
    ]
    OUTPUTS[settings.output](kind, entries)


async def _update(registry: etcd.EtcdRegistry, settings: ControlConfig, kind: str) -> None:
    for attempt in range(_UPDATE_ATTEMPTS):
        entry = (await registry.view()).of(kind).get(settings.node_id)
        if entry is None:
            key = status_key(kind, settings.node_id).decode()
            raise Rejected(f"key {key} in etcd not found", hint=f"`-cmd {kind}` lists the nodes")
        if entry.alive:
            _logger.warning(
                "this node is running and will write its own state again", node_id=settings.node_id
            )
        try:
            await registry.put(kind, entry.status.with_state(settings.state), entry.mod_revision)
        except Conflict:
            if attempt == _UPDATE_ATTEMPTS - 1:
                raise
            continue
        _logger.info("update node state success", node_id=settings.node_id, state=settings.state)
        return


async def run(argv: list[str]) -> int:
    """The program; returns the exit code or raises the error that has one."""
    if argv[:1] == ["ddl"]:
        argv = ctl_ddl.as_flags(argv[1:])
    settings = config.load(ControlConfig, argv, {}, program=PROGRAM, env_prefix="BINLOGCTL")
    log.setup()
    tls = TlsConfig.from_paths(settings.ssl_ca, settings.ssl_cert, settings.ssl_key)
    registry = await etcd.connect(settings.pd_urls, tls=tls)
    ddl = ctl_ddl.DdlCommand.of(settings.cmd, settings.job_id, settings.text)
    try:
        if ddl is not None:
            address = ctl_ddl.address_of(await registry.view(), settings.node_id)
            await ctl_ddl.run(ddl, address, tls, settings.output)
            return 0
        kind, updates = COMMANDS[settings.cmd]
        await (_update if updates else _list)(registry, settings, kind)
    finally:
        await registry.close()
    return 0


def main() -> None:
    """Console script."""
    daemon.main(PROGRAM, run)


if __name__ == "__main__":
    main()

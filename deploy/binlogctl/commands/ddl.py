"""Ddl: what a running drainer lets wait, and deciding about it.

    binlogctl ddl list                    what waits for a decision, and the last decisions
    binlogctl ddl show JOB                one DDL: statement, tables, why it waits, what was decided
    binlogctl ddl retry JOB               run it again, after the downstream was corrected
    binlogctl ddl skip JOB                never run it
    binlogctl ddl rewrite JOB --text SQL  run this statement instead

In     the drainer's address, from the registry: `-node-id`, or the only one that lives; `list` and `show`
       ask all
Out    lines, a table or JSON; a failed request is an error that says what to do
Never  decides by itself: the drainer stores a decision before it answers
Tests  tests/drainer/ddl/quarantine/test_http_routes.py
"""

from __future__ import annotations

import datetime
import shlex
import sys
from collections.abc import Callable
from typing import Any, Final

from binlogctl.cli.command_line import Call
from binlogctl.cli.commands import DONE, JSON, LOG, TABLE, TEXT
from binlogctl.net import connection
from tidb_binlog.cluster.node import OFFLINE
from tidb_binlog.cluster.registry import ClusterView
from tidb_binlog.errors import BinlogError, Conflict, FlagError, Rejected
from tidb_binlog.late_dataclass import dataclass, replace
from tidb_binlog.net import node_http
from tidb_binlog.net.tls import TlsConfig
from tidb_binlog.observe import log, show

ASKING: Final = ("list", "show")
VERBS: Final = (*ASKING, "retry", "skip", "rewrite")
DEADLINE_S: Final = 30.0
_PREFIX: Final = "ddl-"

_logger = log.get("ctl")


@dataclass(frozen=True, slots=True)
class DdlCommand:
    """What was asked: `verb` is one of VERBS. `node_id`: of the drainer, where it has to be named."""

    verb: str
    job_id: int = 0
    text: str = ""
    node_id: str = ""

    @classmethod
    def of(cls, cmd: str, job_id: int, text: str) -> DdlCommand | None:
        """The command that `-cmd ddl-VERB` names; None for another one. Raises `FlagError`."""
        verb = cmd.removeprefix(_PREFIX)
        if verb == cmd or verb not in VERBS:
            return None
        if verb != "list" and job_id <= 0:
            raise FlagError(
                f"{cmd} needs the number of a DDL job",
                hint=f"`binlogctl ddl {verb} JOB`; `ddl list` shows them",
            )
        if (verb == "rewrite") != bool(text.strip()):
            wrong = "needs the statement to run" if verb == "rewrite" else "takes no text"
            raise FlagError(f"{cmd} {wrong}", hint="`binlogctl ddl rewrite JOB --text 'ALTER TABLE ...'`")
        return cls(verb, job_id, text.strip())

    @property
    def request(self) -> tuple[str, str]:
        """Method and path."""
        if self.verb == "list":
            return "GET", "/ddl"
        if self.verb == "show":
            return "GET", f"/ddl/{self.job_id}"
        return "PUT", f"/ddl/{self.job_id}/{self.verb}"


def addresses_of(view: ClusterView, node_id: str, verb: str) -> dict[str, str]:
    """Host and port of the drainers that are meant, by node id: the one named, else all that live. Raises
    `Rejected`, also where one of several is to decide."""
    living = {
        name: entry.status.host
        for name, entry in view.drainers.items()
        if entry.status.state != OFFLINE and entry.alive is not False and not entry.status.is_reader
    }
    hint = "`binlogctl -cmd drainers` lists them"
    if node_id:
        if node_id not in view.drainers:
            raise Rejected(f"there is no drainer {node_id}", hint=hint)
        return {node_id: view.drainers[node_id].status.host}
    if not living or (len(living) > 1 and verb not in ASKING):
        names = ", ".join(sorted(living)) or "none"
        raise Rejected(f"which drainer? running: {names}", hint="pass -node-id; " + hint)
    return dict(sorted(living.items()))


async def call(invoked: Call) -> int:
    """The program: `ddl VERB [JOB]` or `-cmd ddl-VERB`. Raises `FlagError` and what `run` raises."""
    settings = invoked.settings
    job = invoked.words[0] if invoked.words else ""
    if job and not (job.isascii() and job.isdigit()):
        raise FlagError(f"ddl: {job!r} is no number of a DDL job", hint="`binlogctl ddl list` shows them")
    command = DdlCommand.of(invoked.command.cmd, int(job or 0), settings.text)
    assert command is not None
    async with connection.registry(settings) as registry:
        addresses = addresses_of(await registry.view(), settings.node_id, command.verb)
    failed: BinlogError | None = None
    for name, address in addresses.items():
        of = name if settings.node_id or len(addresses) > 1 else ""
        try:
            await run(replace(command, node_id=of), address, settings.tls, invoked.output)
        except BinlogError as error:
            if failed is not None:
                show.print_warning(str(failed))
            failed = error  # the others are asked nevertheless
    if failed is not None:
        raise failed
    return DONE


async def run(command: DdlCommand, address: str, tls: TlsConfig | None, output: str) -> None:
    """Ask the drainer and print its answer. Raises what the answer means."""
    method, path = command.request
    answer = await node_http.ask(
        "the drainer", address, method, path, tls, body=command.text.encode(), deadline_s=DEADLINE_S
    )
    if answer.status == 404 and answer.document is None:
        raise Rejected(
            f"the drainer at {address} decides no DDL",
            hint="its db-type is no database, or it is still starting",
        )
    if answer.status == 409:
        raise Conflict(answer.said)
    if not answer.is_success or answer.document is None:
        raise answer.refusal(f"the drainer at {address}")
    OUTPUTS[output](command, answer.document.get("data") or {})


# Output ----------------------------------------------------------------------------------------------------


def _time(ms: int) -> str:
    """Local time."""
    return datetime.datetime.fromtimestamp(ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S %z")


def _waiting(command: DdlCommand, data: dict[str, Any]) -> list[dict[str, Any]]:
    if command.verb == "list":
        return list(data.get("waiting") or ())
    if command.verb == "show":
        return [data["waiting"]] if data.get("waiting") else []
    return [data]


def _print_log(command: DdlCommand, data: dict[str, Any]) -> None:
    at = {"node_id": command.node_id} if command.node_id else {}
    for entry in _waiting(command, data):
        _logger.info("DDL waits", **{**at, **entry, "since_ms": _time(entry["since_ms"])})
    for decided in data.get("decisions") or ():
        _logger.info("DDL decision", **{**at, **decided, "decided_ms": _time(decided["decided_ms"])})
    if command.verb not in ASKING:
        _logger.info("DDL decided", job_id=command.job_id, decision=command.verb)


def _print_text(command: DdlCommand, data: dict[str, Any]) -> None:
    """What waits, why, and the commands that decide it, to be copied."""
    node = f" -node-id {shlex.quote(command.node_id)}" if command.node_id else ""
    if command.verb not in ASKING:
        show.print_lines(
            f"job {command.job_id}: {command.verb} is stored; `binlogctl ddl list{node}` follows it"
        )
        return
    entries = _waiting(command, data)
    in_table = sys.stdout.isatty() and command.verb == "list"
    if in_table and entries:
        _print_waiting(command, entries)
    if not entries:
        show.print_lines(f"nothing waits{' at ' + command.node_id if node else ''}")
    for entry in entries:
        kept = f"{entry['kept_bytes'] / (1 << 20):.1f} MiB of rows kept"
        since = f" on {', '.join(entry['tables'])}: {entry['state']} since {_time(entry['since_ms'])}, {kept}"
        show.print_lines(
            f"job {entry['job_id']}{'' if in_table else since}",
            *([f"  why     {entry['reason']}"] if entry["reason"] not in entry["state"] else ()),
            *([f"  DDL     {entry['query']}"] if entry["query"] and not in_table else ()),
        )
        for action in entry.get("possible") or ():
            text = " -text 'ALTER TABLE ...'" if action == "rewrite" else ""
            show.print_lines(f"  decide  binlogctl ddl {action} {entry['job_id']}{text}{node}")
    for decided in data.get("decisions") or ():
        outcome = f": {decided['outcome']}" if decided["outcome"] else ""
        text = f" ({decided['text']})" if decided["text"] else ""
        when = _time(decided["decided_ms"])
        show.print_lines(f"decided {when}: {decided['action']} job {decided['job_id']}{text}{outcome}")


_WAITING: Final = ("job", "tables", "state", "since", "kept", "statement")
_DECIDED: Final = ("job", "decision", "when", "asked from", "text", "outcome")


def _print_waiting(command: DdlCommand, entries: list[dict[str, Any]]) -> None:
    rows = [
        (
            entry["job_id"],
            ", ".join(entry["tables"]),
            entry["state"],
            _time(entry["since_ms"]),
            f"{entry['kept_bytes'] / (1 << 20):.1f} MiB",
            entry["query"],
        )
        for entry in entries
    ]
    at = f" at {command.node_id}" if command.node_id else ""
    show.print_table(f"{len(entries)} waiting DDL{at}", _WAITING, rows)


def _print_table(command: DdlCommand, data: dict[str, Any]) -> None:
    entries = _waiting(command, data)
    if command.verb == "list":
        _print_waiting(command, entries)
    else:
        for entry in entries:
            shown = {**entry, "since_ms": _time(entry["since_ms"]), "tables": ", ".join(entry["tables"])}
            show.print_facts(list(shown.items()))
    decisions = data.get("decisions") or ()
    if decisions:
        rows = [
            (
                decided["job_id"],
                decided["action"],
                _time(decided["decided_ms"]),
                decided["asked_from"],
                decided["text"],
                decided["outcome"],
            )
            for decided in decisions
        ]
        show.print_table("decisions", _DECIDED, rows)


def _print_json(command: DdlCommand, data: dict[str, Any]) -> None:
    show.print_json({"node_id": command.node_id, **data} if command.node_id else data)


OUTPUTS: Final[dict[str, Callable[[DdlCommand, dict[str, Any]], None]]] = {
    TEXT: _print_text,
    LOG: _print_log,
    TABLE: _print_table,
    JSON: _print_json,
}

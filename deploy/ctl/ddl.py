"""binlogctl ddl: what a running drainer lets wait, and deciding about it.

    binlogctl ddl list                    what waits for a decision, and the last decisions
    binlogctl ddl show JOB                one DDL: statement, tables, why it waits, what was decided
    binlogctl ddl retry JOB               run it again, after the downstream was corrected
    binlogctl ddl skip JOB                never run it
    binlogctl ddl rewrite JOB --text SQL  run this statement instead

In     the drainer's address, from the registry: `-node-id`, or the only one that lives
Out    lines, a table or JSON; a failed request is an error that says what to do
Never  decides by itself: the drainer stores a decision before it answers
"""

from __future__ import annotations

import asyncio
import datetime
import http.client
import json
import ssl
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from common import log
from common.errors import BinlogError, Conflict, FlagError, Rejected, Unavailable
from common.node import OFFLINE
from common.port import split_address
from common.registry import ClusterView
from common.tls import TlsConfig

VERBS: Final = ("list", "show", "retry", "skip", "rewrite")
DEADLINE_S: Final = 30.0
_PREFIX: Final = "ddl-"
_BYTES_MAX: Final = 64 << 20

_logger = log.get("ctl")


@dataclass(frozen=True, slots=True)
class DdlCommand:
    """What was asked: `verb` is one of VERBS."""

    verb: str
    job_id: int = 0
    text: str = ""

    @classmethod
    def of(cls, cmd: str, job_id: int, text: str) -> DdlCommand | None:
        """The command behind `-cmd ddl-VERB`; None for another one. Raises `FlagError`."""
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


def commands() -> tuple[str, ...]:
    """As values of `-cmd`."""
    return tuple(_PREFIX + verb for verb in VERBS)


def as_flags(argv: Sequence[str]) -> list[str]:
    """`ddl VERB [JOB] flags` as the flags that mean it. Raises `FlagError`."""
    usage = "binlogctl ddl list|show JOB|retry JOB|skip JOB|rewrite JOB --text SQL"
    words = list(argv)
    if not words or words[0] not in VERBS:
        raise FlagError(f"ddl: {words[0] if words else 'nothing'} is no command of it", hint=usage)
    flags = [f"-cmd={_PREFIX}{words.pop(0)}"]
    if words and not words[0].startswith("-"):
        job = words.pop(0)
        if not (job.isascii() and job.isdigit()):
            raise FlagError(f"ddl: {job!r} is no number of a DDL job", hint=usage)
        flags.append(f"-job-id={job}")
    return flags + words


def address_of(view: ClusterView, node_id: str) -> str:
    """Host and port of the drainer that is meant. Raises `Rejected`."""
    living = {
        name: entry
        for name, entry in view.drainers.items()
        if entry.status.state != OFFLINE and entry.alive is not False
    }
    hint = "`binlogctl -cmd drainers` lists them"
    if node_id:
        if node_id not in view.drainers:
            raise Rejected(f"there is no drainer {node_id}", hint=hint)
        return view.drainers[node_id].status.host
    if len(living) != 1:
        names = ", ".join(sorted(living)) or "none"
        raise Rejected(f"which drainer? running: {names}", hint="pass -node-id; " + hint)
    return next(iter(living.values())).status.host


async def run(command: DdlCommand, address: str, tls: TlsConfig | None, output: str) -> None:
    """Ask the drainer and print its answer. Raises what the answer means."""
    context = tls.client_context() if tls else None
    status, body = await asyncio.to_thread(_ask, address, command, context)
    document = _read(address, status, body)
    if status != 200:
        raise _refusal(status, str(document.get("message", "")).strip())
    data = document.get("data") or {}
    OUTPUTS[output](command, data)


def _ask(address: str, command: DdlCommand, context: ssl.SSLContext | None) -> tuple[int, bytes]:
    host, port = split_address("address of the drainer", address)
    method, path = command.request
    connection = (
        http.client.HTTPConnection(host, port, timeout=DEADLINE_S)
        if context is None
        else http.client.HTTPSConnection(host, port, timeout=DEADLINE_S, context=context)
    )
    try:
        connection.request(method, path, body=command.text.encode() or None)
        response = connection.getresponse()
        return response.status, response.read(_BYTES_MAX)
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(
            f"drainer at {address} does not answer: {error}", hint="is it running? look at its log"
        ) from None
    finally:
        connection.close()


def _read(address: str, status: int, body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    if isinstance(document, dict):
        return document
    text = body.decode("utf-8", "replace").strip()
    if status == 404:
        raise Rejected(
            f"the drainer at {address} decides no DDL", hint="it is an older one, or still starting"
        )
    return {"message": text or f"HTTP status {status}"}


def _refusal(status: int, message: str) -> BinlogError:
    if status == 409:
        return Conflict(message)
    return Rejected(message) if status < 500 else Unavailable(message, hint="look at the drainer's log")


# Output ----------------------------------------------------------------------------------------------------


def _moment(ms: int) -> str:
    """Local time."""
    return datetime.datetime.fromtimestamp(ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S %z")


def _waiting(command: DdlCommand, data: dict[str, Any]) -> list[dict[str, Any]]:
    if command.verb == "list":
        return list(data.get("waiting") or ())
    if command.verb == "show":
        return [data["waiting"]] if data.get("waiting") else []
    return [data]


def _print_log(command: DdlCommand, data: dict[str, Any]) -> None:
    for entry in _waiting(command, data):
        _logger.info("DDL waits", **{**entry, "since_ms": _moment(entry["since_ms"])})
    for decided in data.get("decisions") or ():
        _logger.info("DDL decision", **{**decided, "decided_ms": _moment(decided["decided_ms"])})
    if command.verb not in ("list", "show"):
        _logger.info("DDL decided", job_id=command.job_id, decision=command.verb)


def _print_table(command: DdlCommand, data: dict[str, Any]) -> None:
    console = Console()
    entries = _waiting(command, data)
    if command.verb == "list":
        table = Table(title=f"{len(entries)} waiting DDL")
        for heading in ("job", "tables", "state", "since", "kept", "statement"):
            table.add_column(heading, overflow="fold")
        for entry in entries:
            table.add_row(
                str(entry["job_id"]),
                ", ".join(entry["tables"]),
                entry["state"],
                _moment(entry["since_ms"]),
                f"{entry['kept_bytes'] / (1 << 20):.1f} MiB",
                entry["query"],
            )
        console.print(table)
    else:
        for entry in entries:
            table = Table(title=f"DDL job {entry['job_id']}", show_header=False)
            for key, value in entry.items():
                shown = _moment(value) if key == "since_ms" else value
                table.add_row(key, ", ".join(shown) if isinstance(shown, list) else str(shown))
            console.print(table)
    decisions = data.get("decisions") or ()
    if decisions:
        table = Table(title="decisions")
        for heading in ("job", "decision", "when", "asked from", "text", "outcome"):
            table.add_column(heading, overflow="fold")
        for decided in decisions:
            table.add_row(
                str(decided["job_id"]),
                decided["action"],
                _moment(decided["decided_ms"]),
                decided["asked_from"],
                decided["text"],
                decided["outcome"],
            )
        console.print(table)


def _print_json(_command: DdlCommand, data: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(data, indent=2) + "\n")


OUTPUTS: Final[dict[str, Callable[[DdlCommand, dict[str, Any]], None]]] = {
    "log": _print_log,
    "table": _print_table,
    "json": _print_json,
}

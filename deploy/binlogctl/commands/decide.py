"""Decide: an operator tells a pump what became of a transaction that the upstream does not know any more.

    decide START_TS rolled-back      PUT /transactions/START_TS/rolled-back
    decide START_TS COMMIT_TS        PUT /transactions/START_TS/COMMIT_TS

Every pump is asked: the one that has the prewrite takes it, the others have nothing open by that name.
Never   tells anything of a transaction that the upstream can still answer for: the pump refuses it
"""

from __future__ import annotations

from typing import Final

from binlogctl.cli.command_line import Call
from binlogctl.cli.commands import DONE
from binlogctl.cli.settings import CtlSettings
from binlogctl.net import connection
from tidb_binlog import tso
from tidb_binlog.cluster.registry import NodeEntry
from tidb_binlog.errors import BinlogError, FlagError, Rejected
from tidb_binlog.net import node_http
from tidb_binlog.observe import log

ROLLED_BACK: Final = "rolled-back"
_NOT_OPEN: Final = 404
_logger = log.get("binlogctl")


async def run(call: Call) -> int:
    """`binlogctl decide`."""
    start_ts, end = call.words
    if not _is_ts(start_ts) or not (end == ROLLED_BACK or _is_ts(end)):
        raise FlagError(
            f"decide {start_ts} {end}: not a start_ts and an outcome",
            hint=f"binlogctl decide START_TS {ROLLED_BACK}, or binlogctl decide START_TS COMMIT_TS",
        )
    async with connection.registry(call.settings) as registry:
        pumps = (await registry.view()).pumps
    node_id = call.settings.node_id
    asked = {name: entry for name, entry in sorted(pumps.items()) if node_id in ("", name)}
    decided, errors = 0, list[BinlogError]()
    for name, entry in asked.items():
        try:
            decided += await _tell(call.settings, f"pump {name}", entry, f"/transactions/{start_ts}/{end}")
        except BinlogError as error:
            errors.append(error)
            _logger.warning("not decided by this pump", node_id=name, error=error.message)
    if decided:
        _logger.info("the transaction is decided", start_ts=start_ts, outcome=end, pumps=decided)
        return DONE
    if errors:
        raise errors[0]
    raise Rejected(f"transaction {start_ts} is open at no pump", hint="see `oldest` in a pump's /status")


def _is_ts(text: str) -> bool:
    return tso.is_number(text) and int(text) > 0


async def _tell(settings: CtlSettings, who: str, entry: NodeEntry, path: str) -> bool:
    """False where it is not open. Raises `Rejected`, `Unavailable`."""
    answer = await node_http.ask(who, entry.status.host, "PUT", path, settings.tls)
    if answer.status == _NOT_OPEN:
        return False
    if not answer.is_success:
        raise answer.refusal(who)
    return True

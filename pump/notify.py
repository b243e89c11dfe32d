"""Notify: tells every living drainer that this pump exists, before it accepts writes.

A drainer that does not merge this pump yet could pass a timestamp that this pump commits next. So each
drainer that is online is called, all in parallel within one budget, tried again until it is spent. One whose
lease is gone is dead and will find this pump when it starts.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from common import log, node
from common.errors import BinlogError, Rejected, Unavailable
from common.registry import ClusterView, NodeEntry
from common.rpc import Client, RpcStatus
from common.tls import TlsConfig
from common.wire import drainer_pb2

BUDGET_S: Final = 10.0
_METHOD: Final = "/binlog.Cistern/Notify"
_PAUSE_S: Final = 0.5
_REFUSALS_MAX: Final = 3
_logger = log.get("notify")


class DrainerNotNotified(Rejected):
    """A living drainer does not know this pump; writes must not be accepted."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class _Failed:
    node_id: str
    address: str
    error: BinlogError


def to_notify(view: ClusterView) -> list[tuple[str, NodeEntry]]:
    """Drainers that are online and not known to be dead."""
    return [
        (node_id, entry)
        for node_id, entry in sorted(view.drainers.items())
        if entry.status.state == node.ONLINE and entry.alive is not False
    ]


async def notify_drainers(
    view: ClusterView, *, tls: TlsConfig | None, required: bool, budget_s: float = BUDGET_S
) -> None:
    """Call them all. `required`: raise `DrainerNotNotified` if one living drainer did not answer."""
    drainers = to_notify(view)
    results = await asyncio.gather(
        *(_notify(node_id, entry.status.host, tls, budget_s) for node_id, entry in drainers)
    )
    failed = [result for result in results if result is not None]
    for one in failed:
        _logger.warning("drainer not notified", node_id=one.node_id, address=one.address, error=one.error)
    if failed and required:
        first = failed[0]
        raise DrainerNotNotified(
            f"fail to notify all living drainer: notify drainer {first.node_id} ({first.address}): "
            f"{first.error.message}",
            hint="start that drainer, or mark it: binlogctl -cmd update-drainer "
            f"-node-id {first.node_id} -state offline",
        )
    if drainers:
        _logger.info("drainers notified", count=len(drainers) - len(failed))


async def _notify(node_id: str, address: str, tls: TlsConfig | None, budget_s: float) -> _Failed | None:
    last: BinlogError = Unavailable(f"no answer within {budget_s:g} s")
    client: Client | None = None
    try:
        async with asyncio.timeout(budget_s):
            client = Client(address, tls=tls)
            refusals = 0
            while refusals < _REFUSALS_MAX:
                try:
                    request = drainer_pb2.NotifyReq().SerializeToString()
                    await client.unary(_METHOD, request, budget_s)
                    return None
                except Unavailable as error:
                    last = error
                except RpcStatus as error:
                    last = error
                    refusals += 1
                await asyncio.sleep(_PAUSE_S)
            return _Failed(node_id, address, last)
    except TimeoutError:
        return _Failed(node_id, address, last)
    finally:
        if client is not None:
            await client.close()

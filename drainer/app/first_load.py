"""First load: what the upstream has is copied before a Drainer's first start (`--load`).

Holds   it happens once: a downstream that has a checkpoint of the cluster is not touched. A load that was
        begun, by this or by `binlogctl load`, is brought to its end
Says    how far it is, as what the start waits for: to the log, `/status`, `/readyz`, the service manager

Tests  tests/integration/test_first_load.py
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from drainer.app.build_mysql import patiently, seen
from drainer.config.options import DrainerConfig
from drainer.points.load.counters import Counters
from drainer.points.load.load import Load
from tidb_binlog.cluster.registry import Registry
from tidb_binlog.observe import log
from tidb_binlog.serving.starting import Starting
from tidb_binlog.serving.status_page import StatusPage
from tidb_binlog.upstream_port import Upstream

logger = log.get("drainer.first_load")

SAY_EVERY_S: Final = 5.0


async def load_first(
    settings: DrainerConfig, upstream: Upstream, nodes: Registry, starting: Starting, page: StatusPage
) -> None:
    """Raises as `Load.run`."""
    inspection = await patiently(lambda: seen(settings, upstream.cluster_id), lambda: None)
    if not inspection.is_to_load:
        logger.info("nothing to load: the downstream has a checkpoint", cluster_id=upstream.cluster_id)
        return
    load = Load(settings, upstream, nodes)
    page.load = load.counters.status
    saying = asyncio.create_task(_say(load.counters, starting))
    try:
        done = await load.run()
    finally:
        saying.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await saying
        starting.waits("")
        page.load = lambda: None
    for line in done.missing:
        logger.warning("the downstream lacks something", missing=line)
    logger.info(
        "loaded",
        ts=done.ts,
        tables=done.tables,
        rows=done.rows,
        compared=done.compared,
        seconds=round(done.seconds, 1),
    )


async def _say(counters: Counters, starting: Starting) -> None:
    while True:
        now = counters.view()
        share = now.share
        percent = "" if share is None else f" ({share:.0%})"
        starting.waits(f"loads what the upstream has: {now.note or now.stage}, {now.rows} rows{percent}")
        await asyncio.sleep(SAY_EVERY_S)

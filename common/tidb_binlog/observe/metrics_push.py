"""Metrics push: sends this process's metrics to a Prometheus Pushgateway, for hosts that cannot be scraped.

Owns   one thread at a time, which talks to the gateway; the text is made on the event loop, where the numbers
       are at home, as for a scrape
Pace   every `interval_s`; a push that takes longer delays the next one and nothing else
Never  fails the process: a gateway that does not take the metrics is logged once, and counted
"""

from __future__ import annotations

import asyncio
from http.client import HTTPException
from typing import Final

from tidb_binlog.observe import log, metrics

DEADLINE_S: Final = 3.0

FAILURES = metrics.counter("binlog_common_metrics_push_failures_total", "Pushes the gateway did not take")

_logger = log.get("metrics")


async def run(gateway: str, instance: str, interval_s: float) -> None:
    """Push until cancelled; returns at once without a gateway or with an interval of 0."""
    if not gateway or interval_s <= 0:
        return
    failing = False
    while True:
        await asyncio.sleep(interval_s)
        text = metrics.exposition()
        try:
            await asyncio.to_thread(metrics.push, gateway, instance, text, DEADLINE_S)
        except (OSError, ValueError, HTTPException) as error:
            FAILURES.inc()
            if not failing:
                # A URL with a password may be quoted in part by what fails on it.
                why = type(error).__name__ if "@" in gateway else error
                _logger.warning("metrics cannot be pushed, trying again", gateway=gateway, error=why)
            failing = True
            continue
        if failing:
            _logger.info("metrics are pushed again", gateway=gateway)
        failing = False

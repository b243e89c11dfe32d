"""Metrics of this process as a scraper has them."""

from __future__ import annotations

from tidb_binlog.observe import metrics


def sample(series: str) -> float:
    """A value, by its name and labels; 0 if the series is not there."""
    lines = metrics.exposition().decode().splitlines()
    return next((float(line.split()[-1]) for line in lines if line.startswith(series + " ")), 0.0)

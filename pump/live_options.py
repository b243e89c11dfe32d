"""Live options: how a reload changes a running pump. All others are named, and need a restart.

Tests  tests/pump/test_live_options.py
"""

from __future__ import annotations

from pump.config import PumpConfig
from pump.pull.puller import Pullers
from pump.retention.purger import Purger
from pump.write.disk_guard import DiskGuard
from tidb_binlog.serving.listener import Listener
from tidb_binlog.serving.reload import Commit, Reload, add_logging

RETENTION_FIELDS = (
    "gc_s",
    "retention_bytes",
    "retention_free_bytes",
    "retention_protects",
    "retention_alarm_s",
)


def take_reloads(
    reload: Reload[PumpConfig],
    listener: Listener,
    purger: Purger,
    disk_guard: DiskGuard,
    pullers: Pullers,
) -> None:
    """Put in place what a reload brings, from now on."""

    def retention(fresh: PumpConfig) -> Commit:
        policy = fresh.retention_policy
        return lambda: purger.change_policy(policy)

    def floor(fresh: PumpConfig) -> Commit:
        return lambda: disk_guard.change_floor(fresh.stop_write_at_bytes)

    def streams(fresh: PumpConfig) -> Commit:
        return lambda: pullers.change_limits(fresh.pull_streams, fresh.pull_streams_per_connection)

    add_logging(reload)
    listener.take_reloads(reload)
    reload.add(RETENTION_FIELDS, retention)
    reload.add(["stop_write_at_bytes"], floor)
    reload.add(["pull_streams", "pull_streams_per_connection"], streams)

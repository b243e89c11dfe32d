"""Every option of a pump is taken by a reload, and then has its effect, or is named."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pump.config import PumpConfig
from pump.program import RETENTION_FIELDS, take_reloads
from pump.pull.puller import Pullers, Stream
from pump.retention.purger import Purger
from pump.write.disk_guard import DiskGuard
from tests.cases import case
from tests.common.support.other_values import other_value
from tests.exposition import sample
from tests.pump.support.payloads import opened
from tests.pump.support.purging import LIMITS, MINUTE, World, fill
from tidb_binlog.clock import ManualClock
from tidb_binlog.config.declaring import options
from tidb_binlog.door.http.routes import Routes
from tidb_binlog.door.limits import Limits
from tidb_binlog.rpc import RpcStatus
from tidb_binlog.serving import listener
from tidb_binlog.serving.listener import Listener
from tidb_binlog.serving.reload import LOG_FIELDS, Reload, changes

OPTIONS = options(PumpConfig)
CERTIFICATES = ("cert_allowed_cn", "cert_read_cn", "cert_write_cn", "cert_admin_cn")
LISTENER = {*options(Limits), "admin_from", *CERTIFICATES}
TAKEN = {
    *LISTENER,
    *LOG_FIELDS,
    *RETENTION_FIELDS,
    "stop_write_at_bytes",
    "pull_streams",
    "pull_streams_per_connection",
}
"""What the tests below, of the listener and of the log change and look at."""


def test_an_option_is_live_or_named() -> None:
    for name in OPTIONS:
        with case(name):
            before = PumpConfig()
            found = changes(before, replace(before, **{name: other_value(before, name)}))
            key = OPTIONS[name].key or f"-{OPTIONS[name].flag}"
            assert (found.live, found.fixed) == (({name: key}, {}) if name in TAKEN else ({}, {name: key}))


@dataclass
class Life:
    """What a reload of a pump reaches."""

    file: PumpConfig
    reload: Reload[PumpConfig]
    pullers: Pullers
    disk_guard: DiskGuard
    purger: Purger
    listener: Listener

    async def change(self, **values: Any) -> list[str]:
        self.file = replace(self.file, **values)
        return (await self.reload.run()).keys


@asynccontextmanager
async def living(path: Path, storage: Any = None, world: World | None = None) -> AsyncIterator[Life]:
    nothing: Any = None
    world = world or World()
    file = PumpConfig(addr="127.0.0.1:0", gc_s=3600.0, log_file=str(path / "pump.log"))
    life: Life
    reload: Reload[PumpConfig] = Reload(file, lambda: life.file, ManualClock())
    life = Life(
        file,
        reload,
        Pullers(nothing, nothing, 1, streams_max=128, connection_streams_max=32),
        DiskGuard(str(path), 0),
        world.purger(storage),
        await listener.listen(file, [], Routes()),
    )
    take_reloads(reload, life.listener, life.purger, life.disk_guard, life.pullers)
    try:
        yield life
    finally:
        await life.listener.stop(0.0)


async def test_each_live_option_has_somebody_who_takes_it(tmp_path: Path) -> None:
    async with living(tmp_path) as life:
        assert life.reload.taken == TAKEN


async def test_the_disk_floor_counts_at_once(tmp_path: Path) -> None:
    async with living(tmp_path) as life:
        await life.disk_guard.refresh()
        assert not life.disk_guard.disk.is_full
        assert await life.change(stop_write_at_bytes=1 << 60) == ["storage.stop-write-at-available-space"]
        assert life.disk_guard.disk.is_full
        await life.disk_guard.refresh()
        assert life.disk_guard.disk.is_full
        assert sample('binlog_pump_storage_storage_size_bytes{type="floor"}') == 1 << 60


async def test_streams_that_come_are_counted_by_the_new_limits(tmp_path: Path) -> None:
    async with living(tmp_path) as life:
        caller: Any = SimpleNamespace(address="10.0.0.1", connection=1)
        life.pullers.check_streams(caller)
        running: Any = [Stream("entity", caller) for _ in range(3)]
        life.pullers._streams.update(dict.fromkeys(running))
        await life.change(pull_streams_per_connection=3)
        with pytest.raises(RpcStatus, match="pull-streams-per-connection"):
            life.pullers.check_streams(caller)
        await life.change(pull_streams_per_connection=9, pull_streams=6)
        with pytest.raises(RpcStatus, match="half of pull-streams"):
            life.pullers.check_streams(caller)
        await life.change(pull_streams=9)
        life.pullers.check_streams(caller)


async def test_the_next_purge_goes_by_the_new_retention(tmp_path: Path) -> None:
    world = World()
    async with opened(tmp_path / "data", limits=LIMITS) as storage:
        await fill(storage, range(1, 60))
        world.oracle.now_ts = 100 * MINUTE
        async with living(tmp_path, storage, world) as life:
            life.file = life.reload.settings = replace(life.file, gc_s=86400.0)
            life.purger.change_policy(life.file.retention_policy)
            await life.purger.work()
            assert storage.gc_ts == 0
            assert await life.change(gc_s=3600.0) == ["gc"]
            await life.purger.work()
            assert 0 < storage.gc_ts <= 40 * MINUTE + 1
            values: dict[str, Any] = {
                "retention_bytes": 1 << 40,
                "retention_free_bytes": 1 << 40,
                "retention_protects": "drainers",
                "retention_alarm_s": 5.0,
            }
            await life.change(**values)
            assert life.purger.policy == life.file.retention_policy
            assert life.purger.facts().alarm_s == 5.0

"""Savepoint: the file from which a drainer without a checkpoint begins.

    commitTS = 408012454863044609

Holds  the file is there whole or as it was; another one is replaced only when the operator says so, since it
       may be the checkpoint of a drainer
Tests  tests/deploy/binlogctl/commands/test_position.py
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from binlogctl.cli.command_line import Call
from binlogctl.cli.commands import DONE, JSON
from binlogctl.net import connection, drainer_file
from drainer.checkpoint import backup_position
from drainer.checkpoint.backup_position import BackupPosition
from tidb_binlog import time_text, tso
from tidb_binlog.clock import SystemClock
from tidb_binlog.errors import ConfigError, Rejected
from tidb_binlog.filesystem import replace_file
from tidb_binlog.observe import show
from tidb_binlog.tso import Ts

NAME: Final = "savepoint"
_DIRECTORY_MODE: Final = 0o700
_FILE_MODE: Final = 0o644
_AHEAD_MAX_S: Final = 3600.0


def make_directory(data_dir: str) -> None:
    """Raises `ConfigError`."""
    try:
        os.makedirs(data_dir, _DIRECTORY_MODE, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make {data_dir}: {error.strerror}", hint="correct -data-dir") from None


def write(data_dir: str, ts: Ts, more: str = "") -> str:
    """Write the savepoint durably; its path. `more` follows it, as Go has it. Raises `ConfigError`."""
    path = os.path.join(data_dir, NAME)
    try:
        replace_file(path, f"commitTS = {ts}\n{more}".encode(), _FILE_MODE)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}", hint="correct -data-dir") from None
    return path


async def now(call: Call) -> int:
    """`savepoint now`."""
    _check(call)
    return _done(call, await connection.timestamp(call.settings))


async def at(call: Call) -> int:
    """`savepoint at TIME`."""
    _check(call)
    now_s = SystemClock().wall_s()
    ts = time_text.parse(call.words[0], now_s, time_text.zone(call.settings.time_zone))
    if tso.physical_s(ts) > now_s:
        raise Rejected(
            f"{call.words[0]} is still to come", hint=f"it is {time_text.local(tso.from_wall_s(now_s))}"
        )
    return _done(call, ts)


async def from_dumpling(call: Call) -> int:
    """`savepoint from-dumpling DIR`."""
    return await _of_backup(call, backup_position.of_dumpling)


async def from_br(call: Call) -> int:
    """`savepoint from-br DIR`."""
    return await _of_backup(call, backup_position.of_br)


async def _of_backup(call: Call, read: Callable[[str], BackupPosition]) -> int:
    """With a Drainer's file it is stored where that Drainer has its checkpoint."""
    file = call.settings.drainer_config
    if not file:
        _check(call)
        return _done(call, _not_ahead(read(call.words[0])))
    from drainer.config.cluster import cluster
    from drainer.points.load.imported import store_imported

    position = read(call.words[0])
    settings = drainer_file.read(file, call.command.words)
    async with cluster(settings) as (upstream, nodes):
        where = await store_imported(settings, upstream, nodes, position, replace=call.settings.yes)
    return _say(call, "checkpoint", where, position.ts)


def _not_ahead(position: BackupPosition) -> int:
    """Its timestamp; `Rejected` for one that only another clock can have given."""
    if tso.physical_s(position.ts) > SystemClock().wall_s() + _AHEAD_MAX_S:
        raise Rejected(
            f"{position.path} is of {time_text.utc(position.ts)}, which is still to come",
            hint="is this host's clock right?",
        )
    return position.ts


def _check(call: Call) -> None:
    path = os.path.join(call.settings.data_dir, NAME)
    if os.path.lexists(path) and not call.settings.yes:
        raise Rejected(f"{path} is there already", hint="replace it with -yes, or choose another -data-dir")


def _done(call: Call, ts: Ts) -> int:
    make_directory(call.settings.data_dir)
    return _say(call, "file", write(call.settings.data_dir, ts), ts)


def _say(call: Call, what: str, where: str, ts: Ts) -> int:
    if call.output == JSON:
        show.print_json({what: where, "commitTS": ts, "utc": time_text.utc(ts), "local": time_text.local(ts)})
        return DONE
    rows = [(what, where), ("commitTS", ts), ("UTC", time_text.utc(ts)), ("here", time_text.local(ts))]
    if call.settings.time_zone:
        zone = call.settings.time_zone
        rows.append((zone, time_text.local(ts, time_text.zone(zone))))
    show.print_facts(rows)
    return DONE

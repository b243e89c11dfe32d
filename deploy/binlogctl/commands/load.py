"""binlogctl load: copies what the upstream has into the downstream, so that a Drainer goes on from there.

Drives  `drainer.points.load` with a Drainer's configuration
Holds   the same command goes on after whatever ended it
"""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Final

from binlogctl.cli.command_line import Call
from binlogctl.cli.commands import DONE, JSON
from binlogctl.net import drainer_file
from tidb_binlog import time_text
from tidb_binlog.errors import ConfigError, FlagError
from tidb_binlog.observe import log, show

if TYPE_CHECKING:
    from drainer.config.options import DrainerConfig
    from drainer.points.load.reconcile import Mode

DATABASE: Final = "database"
ARCHIVE: Final = "archive"
PROGRAM: Final = "binlogctl"


async def run(call: Call) -> int:
    """Raises `FlagError`, and whatever ends a load."""
    from drainer.config.cluster import cluster
    from drainer.points.load.load import Load, estimate
    from drainer.points.load.shown import print_done, print_estimate, shown

    given = call.settings
    if given.rate < -1:
        raise FlagError(f"rate is {given.rate}", hint="rows a second, 0: without a limit")
    to_archive = writes_image(call)
    settings = drainer_file.read(given.drainer_config, "load")
    log.setup("error", stream=sys.stderr)
    if to_archive:
        return await _to_image(call, settings)
    mode = _mode(call)
    async with cluster(settings) as (upstream, nodes):
        if given.dry_run:
            expected = await estimate(settings, upstream, nodes, mode=mode, rate_rows=max(given.rate, 0))
            print_estimate(expected, as_json=call.output == JSON)
            return DONE
        load = Load(settings, upstream, nodes, mode=mode, rate_rows=max(given.rate, 0))
        async with shown(load.counters, PROGRAM, quiet=call.output == JSON):
            done = await load.run()
    if call.output == JSON:
        show.print_json(dataclasses.asdict(done))
    else:
        print_done(done, PROGRAM, "Start the Drainer: it goes on from there.")
    return DONE


def writes_image(call: Call) -> bool:
    """Whether it goes into an image beside an archive. Raises `FlagError`."""
    given = call.settings
    if given.to not in (DATABASE, ARCHIVE):
        raise FlagError(f"-to is {given.to!r}", hint=f"{DATABASE} or {ARCHIVE}")
    if given.to == DATABASE:
        if given.directory:
            raise FlagError("-dir is for -to archive", hint="leave it away, or write -to archive")
        return False
    if not given.directory:
        raise FlagError("-to archive needs -dir", hint="name a new directory for the image")
    if given.replace or given.append:
        raise FlagError("-replace and -append are for databases", hint="an image takes a new directory")
    return True


async def _to_image(call: Call, settings: DrainerConfig) -> int:
    from drainer.config.cluster import cluster
    from drainer.places.file_system import EXTRA_HINT

    try:
        from drainer.places.place import Place
        from drainer.points.dump.dump import Dump
        from drainer.points.dump.dump_directory import NEEDS
        from drainer.points.load.shown import print_estimate, shown
    except ModuleNotFoundError as error:
        raise ConfigError(f"{error.name} is not installed", hint=EXTRA_HINT) from None
    given = call.settings
    Place(given.directory).require("-dir", NEEDS)
    async with cluster(settings) as (upstream, _):
        dump = Dump(settings, upstream, given.directory, rate_rows=max(given.rate, 0))
        if given.dry_run:
            print_estimate(await dump.plan(), as_json=call.output == JSON)
            return DONE
        async with shown(dump.counters, PROGRAM, quiet=call.output == JSON):
            done = await dump.run()
    if call.output == JSON:
        show.print_json(dataclasses.asdict(done))
        return DONE
    kept = f", {done.kept:,} of an earlier run" if done.kept else ""
    show.print_lines(
        f"image of {done.tables} tables in {done.directory}: {done.rows:,} rows in {done.seconds:.1f} s"
        f"{kept}",
        f"at {done.ts} ({time_text.utc(done.ts)}). An archive that has all after it restores any later time.",
    )
    return DONE


def _mode(call: Call) -> Mode:
    from drainer.points.load.reconcile import Mode

    if call.settings.replace and call.settings.append:
        raise FlagError("-replace and -append are two ways", hint="leave one of them away")
    if call.settings.replace:
        return Mode.REPLACE
    return Mode.APPEND if call.settings.append else Mode.NEW

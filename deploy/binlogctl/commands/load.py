"""binlogctl load: copies what the upstream has into the downstream, so that a Drainer goes on from there.

Drives  `drainer.points.load` with a Drainer's configuration; with -tables a Drainer that runs, which loads
        them itself beside its stream
Holds   the same command goes on after whatever ended it
"""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from typing import TYPE_CHECKING, Any, Final

from binlogctl.cli.command_line import Call
from binlogctl.cli.commands import DONE, JSON
from binlogctl.commands.ddl import addresses_of
from binlogctl.net import connection, drainer_file
from tidb_binlog import time_text
from tidb_binlog.errors import ConfigError, Conflict, FlagError, Rejected, Unavailable
from tidb_binlog.net import node_http
from tidb_binlog.observe import log, show

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from drainer.config.options import DrainerConfig
    from drainer.points.load.reconcile import Mode

    Ask = Callable[..., Awaitable[dict[str, Any]]]

DATABASE: Final = "database"
ARCHIVE: Final = "archive"
PROGRAM: Final = "binlogctl"
ASK_S: Final = 60.0
LOOK_S: Final = 1.0


async def run(call: Call) -> int:
    """Raises `FlagError`, and whatever ends a load."""
    from drainer.config.cluster import cluster
    from drainer.points.load.load import Load, estimate
    from drainer.points.load.shown import print_done, print_estimate, shown

    given = call.settings
    if given.give_up:
        return await _give_up(call)
    if given.rate < -1:
        raise FlagError(f"rate is {given.rate}", hint="rows a second, 0: without a limit")
    to_archive = writes_image(call)
    if given.tables:
        return await _join(call)
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


async def _join(call: Call) -> int:
    """Tables join a Drainer that runs. It goes on with them if this ends before. Raises `FlagError`,
    `Rejected`, `Conflict`, `Unavailable`."""
    given = call.settings
    others = {
        "-to archive": given.to == ARCHIVE,
        "-append": given.append,
        "-dry-run": given.dry_run,
        "-drainer-config": bool(given.drainer_config),
    }
    for flag, is_given in others.items():
        if is_given:
            raise FlagError(
                f"{flag} and -tables are two ways",
                hint="-tables asks a Drainer that runs, which has its own configuration",
            )
    name, ask = await _drainer(call)
    asked = {"replace": "1" if given.replace else "", "rate": str(given.rate) if given.rate != -1 else ""}
    query = "&".join(f"{key}={value}" for key, value in asked.items() if value)
    job_id = (await ask("PUT", f"/load?{query}" if query else "/load", given.tables))["job_id"]
    if given.no_wait:
        show.print_lines(f"drainer {name} loads them: `binlogctl ddl list -node-id {name}` shows how far")
        return DONE
    try:
        last = await _until_joined(ask, job_id, quiet=call.output == JSON)
    except asyncio.CancelledError:
        show.print_warning(
            f"drainer {name} goes on with the load: `binlogctl load -give-up -node-id {name}` ends it"
        )
        raise
    if await _was_given_up(ask, job_id, last):
        raise Rejected("the load was given up meanwhile", hint="docs/load.md says what the tables have now")
    if call.output == JSON:
        show.print_json({"job_id": job_id, "node_id": name, **last})
        return DONE
    rows = f": {last['rows']:,} rows in {last['seconds']:.1f} s, at {last['ts']}" if last else ""
    show.print_lines(f"the tables are replicated by {name} with all others{rows}")
    for missing in last.get("missing", ()):
        show.print_warning(f"not there: {missing}")
    return DONE


async def _was_given_up(ask: Ask, job_id: int, last: dict[str, Any]) -> bool:
    """`last` is empty of a Drainer that was started again: then what it has stored tells."""
    if last:
        return bool(last.get("given_up"))
    stored = await ask("GET", f"/ddl/{job_id}")
    return any(decided["action"] == "give up" for decided in stored["decisions"])


async def _give_up(call: Call) -> int:
    """Tables that join are not to. Raises `FlagError`, `Rejected`, `Conflict`, `Unavailable`."""
    given = call.settings
    others = (given.tables, given.drainer_config, given.directory, given.replace, given.append, given.dry_run)
    if any(others) or given.rate != -1 or given.to != DATABASE:
        raise FlagError(
            "-give-up stands alone", hint="the Drainer knows what it loads; -node-id names one of several"
        )
    name, ask = await _drainer(call)
    answer = await ask("DELETE", "/load")
    if not given.no_wait:
        await _until_joined(ask, answer["job_id"], quiet=call.output == JSON)
    if call.output == JSON:
        show.print_json({"node_id": name, **answer})
    elif answer["made_anew"]:
        show.print_lines("the load is given up: its tables are made anew, and have rows from now on alone")
    else:
        show.print_lines("the load is given up: it had not begun to write, its tables are as they were")
    return DONE


async def _drainer(call: Call) -> tuple[str, Ask]:
    """Its name, and what asks it. Raises `Rejected`, `Conflict`, `Unavailable`."""
    given = call.settings
    async with connection.registry(given) as registry:
        addresses = addresses_of(await registry.view(), given.node_id, "load")
    ((name, address),) = addresses.items()

    async def ask(method: str, path: str, body: str = "") -> dict[str, Any]:
        answer = await node_http.ask(
            "the drainer", address, method, path, given.tls, body=body.encode(), deadline_s=ASK_S
        )
        if answer.status == 404:
            raise Rejected(
                f"the drainer at {address} loads no tables beside its stream",
                hint="its db-type is not mysql or tidb, it is an older one, or still starting",
            )
        if answer.status == 409:
            raise Conflict(answer.said)
        if not answer.is_success or answer.document is None:
            raise answer.refusal(f"the drainer at {address}")
        return dict(answer.document.get("data") or {})

    return name, ask


async def _until_joined(ask: Ask, job_id: int, *, quiet: bool) -> dict[str, Any]:
    """What the Drainer says of the load once its tables are like all others; nothing where it was started
    again meanwhile."""
    terminal = show.TerminalLine() if sys.stderr.isatty() and not quiet else None
    said = ""
    try:
        while True:
            try:
                now = await ask("GET", "/load")
            except (Unavailable, Rejected) as error:  # it is down or starts, and goes on after that
                line = error.message
            else:
                entries = [entry for entry in now["joining"] if entry["job_id"] == job_id]
                if not entries:
                    last = dict(now["last"])
                    return last if last.get("job_id") == job_id else {}
                line = f"{', '.join(entries[0]['tables'])}: {entries[0]['state']}"
            if terminal is not None:
                terminal.show(line)
            elif line != said and not quiet:
                show.print_warning(line)
            said = line
            await asyncio.sleep(LOOK_S)
    finally:
        if terminal is not None:
            terminal.clear()


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

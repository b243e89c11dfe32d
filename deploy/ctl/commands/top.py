"""binlogctl top: the page of `status`, again and again.

Owns   the terminal while it runs: the live view, and its input without echo for the key q
Stops  by q, Ctrl-C, or after one snapshot with -once; the terminal is as it was then
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import sys
from collections.abc import Awaitable, Callable, Iterator

from common.clock import SystemClock
from common.errors import FlagError, Unavailable
from common.observe import show
from deploy.ctl.cli.command_line import Call
from deploy.ctl.cli.commands import DONE, JSON
from deploy.ctl.cluster import snapshot
from deploy.ctl.cluster.overview import Overview
from deploy.ctl.commands import status
from deploy.ctl.net import connection

_TakeSnapshot = Callable[[], Awaitable[Overview]]


async def run(call: Call) -> int:
    """Until q, Ctrl-C or -once ends it."""
    settings = call.settings
    if settings.interval_s <= 0:
        raise FlagError(f"interval is {settings.interval_s:g}", hint="pass a duration above 0, as 2s")
    async with connection.cluster(settings) as (registry, client):

        async def take_snapshot() -> Overview:
            return await snapshot.take(registry, client, settings.tls)

        if settings.once:
            seen = await take_snapshot()
            status.print_once(seen, call.output)
            return status.EXIT_CODES[seen.worst]
        if sys.stdout.isatty() and call.output != JSON:
            return await _live(take_snapshot, settings.interval_s)
        while True:
            _print_lines(await _tried(take_snapshot), call.output)
            await asyncio.sleep(settings.interval_s)


async def _tried(take_snapshot: _TakeSnapshot) -> Overview | Unavailable:
    """What is seen, or that etcd does not answer now."""
    try:
        return await take_snapshot()
    except Unavailable as error:
        return error


def _print_lines(seen: Overview | Unavailable, output: str) -> None:
    if isinstance(seen, Unavailable):
        show.print_warning(f"binlogctl: warning: {seen}")
        return
    if output == JSON:
        show.print_json(snapshot.document(seen), indent=None)
    else:
        now = datetime.datetime.fromtimestamp(SystemClock().wall_s()).astimezone()
        show.print_lines(*(f"{now:%H:%M:%S} {line}" for line in status.lines(seen)))


async def _live(take_snapshot: _TakeSnapshot, interval_s: float) -> int:
    from rich.live import Live

    ended = asyncio.Event()
    with _keys(ended), Live(auto_refresh=False, screen=True) as live:
        while not ended.is_set():
            seen = await _tried(take_snapshot)
            page = show.text(seen, style="red") if isinstance(seen, Unavailable) else status.page(seen)
            live.update(page, refresh=True)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), interval_s)
    return DONE


@contextlib.contextmanager
def _keys(ended: asyncio.Event) -> Iterator[None]:
    """Sets `ended` at q; does nothing without a terminal."""
    if not sys.stdin.isatty():
        yield
        return
    import os
    import termios
    import tty

    descriptor, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before = termios.tcgetattr(descriptor)

    def typed() -> None:
        if b"q" in os.read(descriptor, 64).lower():
            ended.set()

    tty.setcbreak(descriptor)
    loop.add_reader(descriptor, typed)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)

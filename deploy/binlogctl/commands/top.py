"""Top: the page of `status`, again and again.

Owns   the terminal while it runs: the live view, and its input without echo
Stops  by q, Ctrl-C, or after one snapshot with -once; the terminal is as it was then
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING

from binlogctl.cli.command_line import Call
from binlogctl.cli.commands import DONE, JSON
from binlogctl.cluster import snapshot, top_view
from binlogctl.cluster.top_view import SORTS, Past, View
from binlogctl.commands import status
from binlogctl.net import connection
from tidb_binlog.clock import SystemClock
from tidb_binlog.cluster.overview import Overview
from tidb_binlog.errors import FlagError, Unavailable
from tidb_binlog.observe import show

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.segment import Segment

_TakeSnapshot = Callable[[], Awaitable[Overview]]


async def run(call: Call) -> int:
    """Until q, Ctrl-C or -once ends it."""
    settings = call.settings
    if settings.interval_s <= 0:
        raise FlagError(f"interval is {settings.interval_s:g}", hint="pass a duration above 0, as 2s")
    if settings.sort not in SORTS:
        raise FlagError(f"sort {settings.sort!r} is unknown", hint="use " + ", ".join(SORTS))
    view = View(settings.sort)
    async with connection.cluster(settings) as (registry, client):

        async def take_snapshot() -> Overview:
            return await snapshot.take(registry, client, settings.tls)

        if settings.once:
            seen = top_view.ordered(await take_snapshot(), view)
            status.print_once(seen, call.output)
            return status.EXIT_CODES[seen.worst]
        if sys.stdout.isatty() and call.output != JSON:
            return await _live(take_snapshot, settings.interval_s, view)
        while True:
            _print_lines(await _tried(take_snapshot), view, call.output)
            await asyncio.sleep(settings.interval_s)


async def _tried(take_snapshot: _TakeSnapshot) -> Overview | Unavailable:
    """What is seen, or that etcd does not answer now."""
    try:
        return await take_snapshot()
    except Unavailable as error:
        return error


def _print_lines(seen: Overview | Unavailable, view: View, output: str) -> None:
    if isinstance(seen, Unavailable):
        show.print_warning(f"binlogctl: warning: {seen}")
        return
    seen = top_view.ordered(seen, view)
    if output == JSON:
        show.print_json(snapshot.document(seen), indent=None)
    else:
        now = datetime.datetime.fromtimestamp(SystemClock().wall_s()).astimezone()
        show.print_lines(*(f"{now:%H:%M:%S} {line}" for line in status.lines(seen)))


async def _live(take_snapshot: _TakeSnapshot, interval_s: float, view: View) -> int:
    """A key is answered at once, with what was seen last, also while the cluster is asked."""
    from rich.live import Live

    woken, typed, clock = asyncio.Event(), _Typed(), SystemClock()
    console = show.console()
    seen: Overview | Unavailable | None = None
    past = Past()
    due_s = clock.monotonic_s()
    asking: asyncio.Task[Overview | Unavailable] | None = None
    with _keys(typed, woken), Live(console=console, auto_refresh=False, screen=True) as live:
        try:
            while True:
                woken.clear()
                if asking is not None and asking.done():
                    seen, asking = asking.result(), None
                    if isinstance(seen, Overview):
                        past.note(seen)
                    due_s = clock.monotonic_s() + interval_s
                left_s = due_s - clock.monotonic_s()
                if asking is None and left_s <= 0:
                    asking = asyncio.create_task(_tried(take_snapshot))
                    asking.add_done_callback(lambda _: woken.set())
                view = _drawn(live, seen, past, view, typed.take())
                if view.is_over:
                    return DONE
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(woken.wait(), None if asking else left_s)
        finally:
            if asking is not None:
                asking.cancel()


def _drawn(live: Live, seen: Overview | Unavailable | None, past: Past, view: View, keys: list[str]) -> View:
    """The view after these keys, which is on the screen now."""
    window = max(1, live.console.size.height - 1)
    lines = _rendered(live.console, seen, past, view)
    for key in keys:
        view = top_view.pressed(view, key, len(lines), window)
    lines = _rendered(live.console, seen, past, view)
    view = top_view.within(view, len(lines), window)
    overview = seen if isinstance(seen, Overview) else None
    bar = top_view.bar(view, overview, len(lines), window)
    live.update(_page(lines[view.first : view.first + window], bar), refresh=True)
    return view


def _rendered(
    console: Console, seen: Overview | Unavailable | None, past: Past, view: View
) -> list[list[Segment]]:
    """The lines of the whole page, however long it is."""
    page: RenderableType
    if isinstance(seen, Overview):
        page = status.page(top_view.ordered(seen, view), past.curves(), bars=True)
    else:
        page = show.text(seen or "the cluster is asked ...", style="red" if seen else "")
    return console.render_lines(page, console.options.update(height=None), pad=False)


def _page(lines: list[list[Segment]], bar: str) -> RenderableType:
    from rich.console import Group
    from rich.segment import SegmentLines

    below = show.text(bar, style="reverse")
    below.no_wrap, below.overflow = True, "ellipsis"
    return Group(SegmentLines(lines, new_lines=True), below)


class _Typed:
    """Keys that nobody has answered yet."""

    def __init__(self) -> None:
        self._text = ""

    def add(self, text: str) -> None:
        self._text += text

    def take(self) -> list[str]:
        keys, self._text = top_view.keys(self._text)
        return keys


@contextlib.contextmanager
def _keys(typed: _Typed, woken: asyncio.Event) -> Iterator[None]:
    """Hands keys on, and wakes for them and for another size of the window; without a terminal it does
    nothing."""
    if not sys.stdin.isatty():
        yield
        return
    import os
    import signal
    import termios
    import tty

    descriptor, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before = termios.tcgetattr(descriptor)

    def read() -> None:
        typed.add(os.read(descriptor, 64).decode("ascii", "replace"))
        woken.set()

    tty.setcbreak(descriptor)
    loop.add_reader(descriptor, read)
    loop.add_signal_handler(signal.SIGWINCH, woken.set)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)

"""binlogctl advance: the clock of a standalone cluster, set forward by who knows the time.

Nodes find the time themselves as long as etcd's hosts tell theirs (`common.upstream.standalone.time_bound`).

Tests  tests/deploy/ctl/commands/test_position.py
"""

from __future__ import annotations

from common import time_text, tso
from common.clock import SystemClock
from common.errors import Rejected
from common.observe import show
from deploy.ctl.cli.command_line import Call
from deploy.ctl.cli.commands import DONE


async def run(call: Call) -> int:
    """Raises `Unavailable`, `Rejected` where it makes no sense, `FlagError` for what is no time."""
    from common.upstream.standalone import StandaloneUpstream

    settings, now_s = call.settings, SystemClock().wall_s()
    ts = time_text.parse(call.words[0], now_s, time_text.zone(settings.time_zone))
    if tso.physical_s(ts) > now_s:
        raise Rejected(
            f"{call.words[0]} is still to come", hint=f"it is {time_text.local(tso.from_wall_s(now_s))} here"
        )
    if not settings.yes:
        raise Rejected(
            f"the clock would stand at {time_text.utc(ts)} or later for good",
            hint="if that is the time, say it again with -yes",
        )
    upstream = await StandaloneUpstream.connect(settings.pd_urls, tls=settings.tls, create=False)
    try:
        stands = await upstream.oracle.advance(ts)
    finally:
        await upstream.close()
    show.print_facts(
        [("timestamp", stands), ("UTC", time_text.utc(stands)), ("here", time_text.local(stands))]
    )
    return DONE

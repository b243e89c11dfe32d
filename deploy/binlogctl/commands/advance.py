"""Advance: the clock of a standalone cluster, set forward by who knows the time.

Nodes find the time themselves as long as etcd's hosts tell theirs
(`tidb_binlog.upstream.standalone.time_bound`).

Tests  tests/deploy/binlogctl/commands/test_position.py
"""

from __future__ import annotations

from binlogctl.cli.command_line import Call
from binlogctl.cli.commands import DONE
from tidb_binlog import time_text, tso
from tidb_binlog.clock import SystemClock
from tidb_binlog.errors import Rejected
from tidb_binlog.observe import show


async def run(call: Call) -> int:
    """Raises `Unavailable`, `Rejected` where it makes no sense, `FlagError` for what is no time."""
    from tidb_binlog.upstream.standalone import StandaloneUpstream

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

"""Position: a time as a timestamp of the upstream, and back; and the clock that gives timestamps."""

from __future__ import annotations

from binlogctl.cli.command_line import Call
from binlogctl.cli.commands import DONE, JSON
from tidb_binlog import time_text, tso
from tidb_binlog.clock import SystemClock
from tidb_binlog.errors import Rejected
from tidb_binlog.observe import show
from tidb_binlog.quantities import span


async def run(call: Call) -> int:
    """`position TIME`. Raises `FlagError` for what is no time."""
    name = call.settings.time_zone
    zone, now_s = time_text.zone(name), SystemClock().wall_s()
    ts = time_text.parse(call.words[0], now_s, zone)
    age_s = tso.age_s(ts, now_s)
    if call.output == JSON:
        document: dict[str, object] = {
            "ts": ts,
            "physical_ms": tso.physical_ms(ts),
            "logical": ts & tso.LOGICAL_MAX,
            "utc": time_text.utc(ts),
            "local": time_text.local(ts),
            "age_s": round(age_s, 3),
        }
        show.print_json({**document, **({name: time_text.local(ts, zone)} if name else {})})
        return DONE
    rows: list[tuple[str, object]] = [
        ("timestamp", ts),
        ("physical", f"{tso.physical_ms(ts)} ms"),
        ("logical", ts & tso.LOGICAL_MAX),
        ("UTC", time_text.utc(ts)),
        ("here", time_text.local(ts)),
        *([(name, time_text.local(ts, zone))] if name else []),
        ("age", f"{span(age_s)} ago" if age_s >= 0 else f"in {span(-age_s)}"),
    ]
    show.print_facts(rows)
    return DONE


async def advance(call: Call) -> int:
    """`advance TIME`: set the clock of a standalone cluster forward, as who knows the time may.

    Nodes find the time themselves as long as etcd's hosts tell theirs
    (`tidb_binlog.upstream.standalone.oracle`). Raises `Unavailable`, `Rejected` where it makes no sense,
    `FlagError` for what is no time.
    """
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

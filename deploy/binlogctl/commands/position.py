"""Position: a time as a timestamp of the upstream, and back."""

from __future__ import annotations

from binlogctl.cli.command_line import Call
from binlogctl.cli.commands import DONE, JSON
from tidb_binlog import time_text, tso
from tidb_binlog.clock import SystemClock
from tidb_binlog.observe import show
from tidb_binlog.quantities import span


async def run(call: Call) -> int:
    """Raises `FlagError` for what is no time."""
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

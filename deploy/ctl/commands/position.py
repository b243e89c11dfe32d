"""binlogctl position: a time as a timestamp of the upstream, and back."""

from __future__ import annotations

from common import time_text as moment
from common import tso
from common.clock import SystemClock
from common.observe import show
from common.quantities import span
from deploy.ctl.cli.command_line import Call
from deploy.ctl.cli.commands import DONE, JSON


async def run(call: Call) -> int:
    """Raises `FlagError` for what is no time."""
    name = call.settings.time_zone
    zone, now_s = moment.zone(name), SystemClock().wall_s()
    ts = moment.parse(call.words[0], now_s, zone)
    age_s = tso.age_s(ts, now_s)
    if call.output == JSON:
        document: dict[str, object] = {
            "ts": ts,
            "physical_ms": tso.physical_ms(ts),
            "logical": ts & tso.LOGICAL_MAX,
            "utc": moment.utc(ts),
            "local": moment.local(ts),
            "age_s": round(age_s, 3),
        }
        show.print_json({**document, **({name: moment.local(ts, zone)} if name else {})})
        return DONE
    rows: list[tuple[str, object]] = [
        ("timestamp", ts),
        ("physical", f"{tso.physical_ms(ts)} ms"),
        ("logical", ts & tso.LOGICAL_MAX),
        ("UTC", moment.utc(ts)),
        ("here", moment.local(ts)),
        *([(name, moment.local(ts, zone))] if name else []),
        ("age", f"{span(age_s)} ago" if age_s >= 0 else f"in {span(-age_s)}"),
    ]
    show.print_facts(rows)
    return DONE

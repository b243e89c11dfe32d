"""`upstream.tso`: timestamps of PD for many callers of one process, against a stream with a request for each.

The fake PD and the callers are processes of their own; CPU is the callers'.
"""

from __future__ import annotations

from typing import Any, Final

from tests.benchmarks.door.children import Child, median
from tests.benchmarks.report import Result
from tests.benchmarks.settings import Settings
from tests.benchmarks.upstream.tso_load import BARE, ORACLE

NAME: Final = "upstream.tso"
CALLERS: Final = 256
ROUNDS: Final = 3


def run(settings: Settings) -> Result:
    seconds = settings.seconds / ROUNDS / 2
    rounds: dict[str, list[dict[str, Any]]] = {ORACLE: [], BARE: []}
    with Child("upstream.tso_server") as server:
        address = f"127.0.0.1:{server.said('listening')['port']}"
        for _ in range(ROUNDS):
            for kind, seen in rounds.items():
                with Child("upstream.tso_load", kind, address, CALLERS, seconds) as load:
                    load.said("begin")
                    seen.append(load.said("end"))
                    load.wait()
    ours, other = (
        {
            figure: median([one[figure] for one in rounds[kind]])
            for figure in rounds[kind][0]
            if figure != "event"
        }
        for kind in (ORACLE, BARE)
    )
    return Result(
        name=NAME,
        value=ours["timestamps_per_s"],
        unit="timestamps/s",
        cpu_us_per_unit=ours["cpu_us"],
        p50_ms=ours["p50_ms"],
        p99_ms=ours["p99_ms"],
        peak_rss_mib=ours["peak_rss_mib"],
        compared_to=f"CPU of a bare grpcio stream without batches, {other['cpu_us']:.0f} us",
        ratio=ours["cpu_us"] / other["cpu_us"],
        note=(
            f"{CALLERS} callers, median of {ROUNDS} rounds in turns; the bare stream"
            f" {other['timestamps_per_s']:,.0f}/s, p50 {other['p50_ms']:.2g} ms, p99 {other['p99_ms']:.2g} ms"
        ),
    )

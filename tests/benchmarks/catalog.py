"""Every benchmark by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.benchmarks import demo, drain_sysbench, lag, pump_start, pump_write, rowcodec_decode
from tests.benchmarks.report import Result
from tests.benchmarks.settings import Settings

Benchmark = Callable[[Settings], Result]

BENCHMARKS: Final[dict[str, Benchmark]] = {
    "rowcodec.decode": rowcodec_decode.run,
    "pump.write.unary.64": pump_write.run,
    "pump.start.killed": pump_start.run,
    "drain.sysbench": drain_sysbench.run,
    "lag.idle.1": lag.idle_1,
    "lag.idle.2": lag.idle_2,
    "lag.load": lag.load,
    "demo.first_row": demo.run,
}
"""In the order in which they are run and printed."""

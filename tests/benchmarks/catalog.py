"""Every benchmark by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.benchmarks import drain_sysbench, rowcodec_decode
from tests.benchmarks.report import Result
from tests.benchmarks.settings import Settings

Benchmark = Callable[[Settings], Result]

BENCHMARKS: Final[dict[str, Benchmark]] = {
    "rowcodec.decode": rowcodec_decode.run,
    "drain.sysbench": drain_sysbench.run,
}
"""In the order in which they are run and printed."""

"""`pump.index.catchup`: records a second from the value log into an index that has to be built anew.

What is measured is the way of the slow chaser, the index and the sorter; no pump process is around it. The
comparison, in turns with it: as many entries put into a LevelDB, in the same order and nothing else.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pump.index.index import key_of
from pump.index.leveldb_store import plyvel
from pump.log.record import ValuePointer, encode_pointer
from tests.benchmarks.door.children import Child, median
from tests.benchmarks.pump.prepared import FIRST_TS, PAYLOAD_BYTES, prepared
from tests.benchmarks.report import Result
from tests.benchmarks.settings import Settings

NAME: Final = "pump.index.catchup"
ASKED: Final = 200_000
PAIRS: Final = 500_000
SEGMENT_BYTES: Final = 64 << 20
ROUNDS: Final = 2
BATCH: Final = 4096
WRITE_BUFFER_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class Round:
    open_s: float
    seconds: float
    cpu_s: float
    peak_rss_mib: float


def catch_up(directory: Path, watermark: int) -> Round:
    with Child("pump.catchup_child", directory, watermark) as child:
        child.said("begin")
        seen = child.said("end")
        child.wait()
    return Round(seen["open_s"], seen["seconds"], seen["cpu_s"], seen["peak_rss_mib"])


def bare_s(directory: Path, records: int) -> float:
    """Seconds of CPU and disk that LevelDB alone takes for as many entries."""
    value = encode_pointer(ValuePointer(1, 1 << 20))
    database = plyvel.DB(str(directory), create_if_missing=True, write_buffer_size=WRITE_BUFFER_BYTES)
    began_s = time.monotonic()
    try:
        for first in range(0, records, BATCH):
            with database.write_batch() as batch:
                for number in range(first, min(first + BATCH, records)):
                    batch.put(key_of(FIRST_TS + number), value)
    finally:
        database.close()
    return time.monotonic() - began_s


def run(settings: Settings) -> Result:
    store = prepared(PAIRS, segment_bytes=SEGMENT_BYTES)
    records = 2 * store.pairs
    rounds: list[Round] = []
    bare: list[float] = []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory(prefix="binlog-bench-") as name:
            rounds.append(catch_up(store.copy(Path(name) / "pump", index=False), store.last_ts))
            bare.append(bare_s(Path(name) / "bare", records))
    rate = records / median([one.seconds for one in rounds])
    bare_rate = records / median(bare)
    return Result(
        name=NAME,
        value=rate,
        unit="records/s",
        cpu_us_per_unit=median([one.cpu_s for one in rounds]) / records * 1e6,
        peak_rss_mib=max(one.peak_rss_mib for one in rounds),
        compared_to=f"LevelDB alone, {bare_rate:,.0f}/s",
        ratio=rate / bare_rate,
        note=(
            f"asked: at least {ASKED:,}/s; {store.pairs:,} pairs of {PAYLOAD_BYTES} B without an index,"
            f" from the beginning of opening, which took {median([one.open_s for one in rounds]):.2f} s"
        ),
    )

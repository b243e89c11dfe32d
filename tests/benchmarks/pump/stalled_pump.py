"""A pump whose index can be made to stall: LevelDB takes no write while FILE exists.

python -m tests.benchmarks.pump.stalled_pump FILE PUMP_ARGUMENT...
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pump import program as pump
from pump.index.index import Index
from pump.log.record import LogRecord, ValuePointer

LOOK_S: Final = 0.05


def stall_while(file: Path) -> None:
    """From now on every write of the index waits until `file` is gone."""
    write = Index.write

    def stalling_write(
        index: Index, records: Sequence[LogRecord], head: ValuePointer, watermark: int, decided: ValuePointer
    ) -> None:
        while file.exists():
            time.sleep(LOOK_S)
        write(index, records, head, watermark, decided)

    Index.write = stalling_write  # type: ignore[method-assign]


if __name__ == "__main__":
    stall_while(Path(sys.argv.pop(1)))
    pump.main()

"""DDL against meaning: every case of every kind on servers of every kind, and recordings of TiDB on them.

`BINLOG_MYSQLD` and `BINLOG_TIDB`: see tests/downstreams.py.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from drainer.mysql.connection import Target
from tests.downstreams import of_a_campaign
from tests.drainer.ddl.generated.downstream import applied, configured, run
from tests.drainer.ddl.generated.kinds import KINDS
from tests.drainer.support.apply_life import clean, differences, read

RECORDED = "ddl", "types", "keys", "charset", "ddl-swap", "ddl-exchange", "ddl-multischema"


async def campaign(target: Target, seeds: int, kinds: list[str]) -> int:
    wrong = 0
    for seed in range(seeds):
        for kind in kinds:
            outcomes, found = await run(target, seed, KINDS[kind]())
            print(f"seed {seed}, {kind}: {dict(outcomes)}", *found, sep="\n", flush=True)
            wrong += len(found)
        for name in RECORDED if len(kinds) > 1 else ():
            clean(target)
            with configured(target, seed):
                await applied(target, read(name))
            print(f"seed {seed}, {name}:", *(found := differences(name, target)), flush=True)
            wrong += len(found)
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.drainer.ddl.generated", allow_abbrev=False)
    parser.add_argument("--kind", choices=KINDS)
    parser.add_argument("--seeds", type=int, default=8)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, of_a_campaign(Path(directory) / "db") as target:
        wrong = asyncio.run(campaign(target, options.seeds, [options.kind] if options.kind else [*KINDS]))
    print(f"{wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())

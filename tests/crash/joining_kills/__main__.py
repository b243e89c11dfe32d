"""Deaths of drainers while tables join them.

    python -m tests.crash.joining_kills [--runs N] [--seed S]
    python -m tests.crash.joining_kills --every N

`--runs`: one to three drawn deaths each, of the successors too. `--every`: one death in each run, at every
N-th command, until a run gets through.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

from binlog_playground.cluster import etcd_server
from binlog_playground.cluster.mariadb import MariaDbServer
from tests.crash.joining_kills.runs import Death, Kills, Story, drawn
from tidb_binlog.net.port import free_ports


async def _main(chosen: argparse.Namespace, directory: Path) -> None:
    server, began_s = MariaDbServer(), time.monotonic()
    server.start(directory / "db")
    deaths = given_up = 0
    try:
        for number in range(chosen.runs) if not chosen.every else range(10**6):
            seed = chosen.seed + number
            place = Death(1 + number * chosen.every, number % 2 == 1)
            story = Story([place], seed=seed) if chosen.every else drawn(seed)
            run = directory / str(number)
            run.mkdir()
            etcd = etcd_server.EtcdServer.start(run / "etcd")
            kills = Kills(etcd.endpoint, server, lambda: free_ports(1)[0])
            try:
                died = await kills.run(story, run)
            except BaseException:
                print(f"{story}: {dict(kills.seen)}", file=sys.stderr)
                raise
            finally:
                etcd.stop()
            deaths += died
            given_up += kills.given_up
            print(f"{story}: {dict(kills.seen)}", "given up" if kills.given_up else "", flush=True)
            if chosen.every and not died:
                break
        took = f"{time.monotonic() - began_s:.0f} s"
        print(f"{deaths} deaths, {given_up} loads given up, each with equal contents at its end, {took}")
    finally:
        server.stop()


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="tests.crash.joining_kills", allow_abbrev=False)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every", type=int, default=0)
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(_main(parser.parse_args(arguments), Path(directory)))


if __name__ == "__main__":
    main(sys.argv[1:])

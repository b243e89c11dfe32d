"""Acknowledged commits survive kill -9: a real pump, a writer in a process of its own, a ledger outside both.

    python -m tests.crash.acknowledged [--rounds 20] [--acks 500000] [--seed N] [--directory DIR]

Each round writes its share of the acknowledgements, one call a binlog or many a message in turns, kills the
pump at a random time, starts it again, and compares everything it serves with the ledger: every
acknowledged commit is there once and byte for byte, nothing is there that was not sent, the order is that of
the timestamps. Commits without an answer are then sent again, as a client would.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from binlog_playground.cluster.etcd_server import EtcdServer
from tests.crash import ledger
from tests.crash.ledger import ACKNOWLEDGED, Ledger, LedgerWriter
from tests.pump.support.process import ROOT, PumpClient, PumpProcess
from tests.waiting import PATIENCE_S
from tidb_binlog import binlog
from tidb_binlog.errors import BinlogError
from tidb_binlog.net.port import free_ports
from tidb_binlog.upstream.standalone import StandaloneUpstream

WAYS = ("batch", "single")
_IN_FLIGHT = 64

AnyPump = TypeVar("AnyPump", bound=PumpProcess)


@dataclass(frozen=True)
class Comparison:
    """Of one restart. `unsent`: served though never sent; `extra`: served, sent, never acknowledged;
    `resumed`: pull streams that broke off and were taken up again."""

    served: int
    missing: int
    altered: int
    unsent: int
    extra: int
    resumed: int
    seconds: float

    @property
    def is_clean(self) -> bool:
        return not (self.missing or self.altered or self.unsent)


async def compare(client: PumpClient, known: Ledger) -> Comparison:
    """Read everything back. Raises AssertionError where the order is broken or something comes twice."""
    began_s = time.monotonic()
    last = altered = unsent = 0
    served: set[int] = set()
    starts: set[int] = set()
    if not known.acknowledged:
        return Comparison(0, 0, 0, 0, 0, 0, 0.0)
    upto = max(known.acknowledged)
    resumed = watermark = 0
    async with asyncio.timeout(600):
        while watermark < upto:
            try:
                async for headers, payloads, watermark in client.pull_batches(last):
                    for (_, start_ts, commit_ts), payload in zip(headers, payloads, strict=True):
                        assert commit_ts > last, f"{commit_ts} came after {last}"
                        assert start_ts not in starts, f"transaction {start_ts} came twice"
                        last = commit_ts
                        served.add(commit_ts)
                        starts.add(start_ts)
                        if known.sent.get(commit_ts) != start_ts:
                            unsent += 1
                        elif payload != ledger.joined(start_ts, commit_ts):
                            altered += 1
                    assert watermark >= last, "a watermark below what was served"
                    if watermark >= upto:
                        break
            except BinlogError as error:
                resumed += 1
                print(f"the pull stream broke off after {last}: {error}", flush=True)
                await asyncio.sleep(0.2)
    missing = len(known.acknowledged - served)
    extra = len(served - known.acknowledged) - unsent
    return Comparison(len(served), missing, altered, unsent, extra, resumed, time.monotonic() - began_s)


async def settle(path: Path, address: str, cluster_id: int, known: Ledger) -> None:
    """What the killed pump left: commits are sent again, prewrites without one are rolled back."""
    writer = LedgerWriter(str(path), address, cluster_id, 0)
    again = known.unanswered
    payloads = [ledger.commit(*pair) for pair in again]
    payloads += [binlog.rollback(start_ts, b"t%020d" % start_ts) for start_ts in sorted(known.open)]
    for at in range(0, len(payloads), _IN_FLIGHT):
        await asyncio.gather(*(writer.write(payload) for payload in payloads[at : at + _IN_FLIGHT]))
    writer.note(ACKNOWLEDGED, again)
    await writer.close()
    known.open.clear()
    known.read(path)


@dataclass(frozen=True)
class Stage(Generic[AnyPump]):
    """A pump that is not started yet, and the ledger of what it is going to be told."""

    pump: AnyPump
    upstream: StandaloneUpstream
    path: Path
    known: Ledger

    async def writer(self, way: str) -> subprocess.Popen[bytes]:
        """A process that writes until the pump is gone. The upstream's clock stands: no timestamp that the
        pump draws lies between the writer's, all within the seconds that a clock may be ahead."""
        first_ts = await self.upstream.oracle.timestamp()
        await self.upstream.oracle.pin(first_ts)
        given = (str(self.path), self.pump.address, str(self.upstream.cluster_id), str(first_ts + 1), way)
        return subprocess.Popen([sys.executable, "-m", "tests.crash.ledger", *given], cwd=ROOT)

    async def judge(self) -> Comparison:
        """`settle`, then `compare` with what the pump serves; the clock runs on beyond all of it."""
        await settle(self.path, self.pump.address, self.upstream.cluster_id, self.known)
        await self.upstream.oracle.unpin()
        client = PumpClient(self.pump.address, self.upstream.cluster_id)
        try:
            return await compare(client, self.known)
        finally:
            await client.close()


@asynccontextmanager
async def stage(directory: Path, kind: type[AnyPump]) -> AsyncIterator[Stage[AnyPump]]:
    """One pump with an etcd and a ledger of its own."""
    (directory / "etcd").mkdir()
    server = EtcdServer.start(directory / "etcd")
    pump = kind(directory / "pump", server.endpoint, lambda: free_ports(1)[0], "-node-id=p1")
    upstream = await StandaloneUpstream.connect(server.endpoint)
    path = directory / "ledger"
    path.touch()
    try:
        yield Stage(pump, upstream, path, Ledger())
    finally:
        pump.end()
        await upstream.close()
        server.stop()


async def run_round(at: Stage[PumpProcess], way: str, wanted: int, rng: random.Random) -> None:
    """Write until `wanted` more are acknowledged, and a little longer; the pump is dead then."""
    known = at.known
    writer = await at.writer(way)
    goal = len(known.acknowledged) + wanted
    try:
        async with asyncio.timeout(600):
            while len(known.acknowledged) < goal:
                assert writer.poll() is None, "the writer ended before the pump was killed"
                await asyncio.sleep(0.02)
                known.read(at.path)
        await asyncio.sleep(rng.uniform(0, 0.3))
        at.pump.kill()
        await asyncio.to_thread(writer.wait, PATIENCE_S)
    finally:
        if writer.poll() is None:
            writer.kill()
            writer.wait(PATIENCE_S)
    assert writer.returncode == 0, "the writer failed"
    known.read(at.path)


async def campaign(directory: Path, rounds: int, acks: int, seed: int) -> bool:
    rng, clean = random.Random(seed), True
    async with stage(directory, PumpProcess) as at:
        pump, known = at.pump, at.known
        await pump.start_and_wait()
        for number in range(rounds):
            way = WAYS[number % 2]
            await run_round(at, way, -(-acks // rounds), rng)
            began_s = time.monotonic()
            await pump.start_and_wait()
            up_s = time.monotonic() - began_s
            unanswered, orphans = len(known.unanswered), len(known.open)
            acknowledged = len(known.acknowledged)
            found = await at.judge()
            clean = clean and found.is_clean
            print(
                f"round {number + 1:2} {way:6} acknowledged {acknowledged:7} unanswered {unanswered:3}"
                f" orphans {orphans:3} | up in {up_s:.2f} s, served {found.served:7}:"
                f" missing {found.missing}, altered {found.altered}, unsent {found.unsent},"
                f" resumed {found.resumed}, {found.seconds:.1f} s",
                flush=True,
            )
    lost = "none" if clean else "SOME"
    print(f"{len(known.acknowledged)} acknowledged commits over {rounds} kills: {lost} lost")
    return clean


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="tests.crash.acknowledged", allow_abbrev=False)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--acks", type=int, default=500_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--directory", type=Path)
    chosen = parser.parse_args(arguments)
    print(f"seed {chosen.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="acknowledged-") as made:
        directory = chosen.directory or Path(made)
        directory.mkdir(exist_ok=True)
        sys.exit(not asyncio.run(campaign(directory, chosen.rounds, chosen.acks, chosen.seed)))


if __name__ == "__main__":
    main(sys.argv[1:])

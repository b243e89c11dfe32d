"""`door.write.*`: durable writes to a pump, beside empty calls of grpcio's server.

The client is `h2_load` on one connection, so that what differs is the server. Pumps of their own, without a
cluster around them: etcd and nothing else. With a Go pump at hand (`--peer`) it takes turns with them.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Final

from tests.benchmarks.door.children import Round, load_round, median_round, server
from tests.benchmarks.door.pumps import PAYLOAD_BYTES, Pump, cluster, until_ready
from tests.benchmarks.door.server import DOOR, GRPCIO
from tests.benchmarks.measure import peak_rss_mib
from tests.benchmarks.peer.programs import PUMP, programs
from tests.benchmarks.report import Result, Theirs
from tests.benchmarks.settings import Settings

ROUNDS: Final = 3
TURNS: Final = 5
"""Of each: what else the machine does is in single ones, and the median leaves it out."""
PEER: Final = "Go"


async def measure(name: str, in_flight: int, settings: Settings) -> Result:
    """A pump of ours, grpcio's server and Go's pump in turns."""
    seconds = settings.seconds / TURNS / 2
    async with AsyncExitStack() as stack:
        pumps, cluster_id = await stack.enter_async_context(cluster(tls=False))
        servers = {DOOR: await pumps.start()}
        grpcio = stack.enter_context(server(GRPCIO))
        empty: list[Round] = []
        go = stack.enter_context(programs(settings, PUMP, pumps.supervisor, pumps.endpoint))
        if go is not None:
            node = go.pump()
            node.process.start()
            await until_ready(node.process, node.address)
            servers[PEER] = Pump(node.process, node.address, tls=False)
        rounds: dict[str, list[Round]] = {kind: [] for kind in servers}
        for number in range(TURNS):
            for kind, pump in servers.items():
                found = await asyncio.to_thread(pump.round, cluster_id, number, in_flight, seconds)
                rounds[kind].append(found)
            options = ("--in-flight", in_flight, "--seconds", seconds)
            empty.append(await asyncio.to_thread(load_round, grpcio.pid, grpcio.address, *options))
        rss = peak_rss_mib(servers[DOOR].process.pid)
    middle, other = median_round(rounds[DOOR]), median_round(empty)
    peers = rounds.get(PEER, [])
    return Result(
        name=name,
        value=middle.requests_per_s,
        unit="requests/s",
        cpu_us_per_unit=middle.cpu_us,
        p50_ms=middle.p50_ms,
        p99_ms=middle.p99_ms,
        peak_rss_mib=rss,
        compared_to=f"CPU of an empty call at grpcio's server, {other.cpu_us:.3g} us",
        ratio=middle.cpu_us / other.cpu_us,
        note=(
            f"{PAYLOAD_BYTES}-byte prewrites and their commits, {in_flight} in flight, median of {TURNS}"
            f" rounds in turns (us: {'; '.join(f'{kind} {_costs(some)}' for kind, some in rounds.items())});"
            f" grpcio, empty: {other.requests_per_s:,.0f}/s, p50 {other.p50_ms:.2g} ms;"
            f" client {middle.client_cpu_us:.1f} us of CPU a call"
        ),
        theirs=Theirs.of([one.requests_per_s for one in peers], [one.cpu_us for one in peers]),
    )


def _costs(rounds: list[Round]) -> str:
    return ", ".join(f"{one.cpu_us:.1f}" for one in rounds)


async def measure_tls(name: str, in_flight: int, settings: Settings) -> Result:
    """The door with TLS and without, in turns."""
    seconds = settings.seconds / ROUNDS / 2
    clear: list[Round] = []
    secret: list[Round] = []
    async with cluster(tls=False) as (plain, plain_id), cluster(tls=True) as (pumps, cluster_id):
        plain_pump, pump = await plain.start(), await pumps.start()
        for number in range(ROUNDS):
            clear.append(await asyncio.to_thread(plain_pump.round, plain_id, number, in_flight, seconds))
            secret.append(await asyncio.to_thread(pump.round, cluster_id, number, in_flight, seconds))
        rss = peak_rss_mib(pump.process.pid)
    ours, other = median_round(secret), median_round(clear)
    return Result(
        name=name,
        value=ours.requests_per_s,
        unit="requests/s",
        cpu_us_per_unit=ours.cpu_us,
        p50_ms=ours.p50_ms,
        p99_ms=ours.p99_ms,
        peak_rss_mib=rss,
        compared_to=f"CPU in clear text, {other.cpu_us:.1f} us",
        ratio=ours.cpu_us / other.cpu_us,
        note=(
            f"{PAYLOAD_BYTES}-byte prewrites and their commits, {in_flight} in flight, median of {ROUNDS}"
            f" rounds in turns; clear {other.requests_per_s:,.0f}/s; P-256 certificates on both sides"
        ),
    )


def write_64(settings: Settings) -> Result:
    return asyncio.run(measure("door.write.unary.64", 64, settings))


def write_256(settings: Settings) -> Result:
    return asyncio.run(measure("door.write.unary.256", 256, settings))


def write_8(settings: Settings) -> Result:
    return asyncio.run(measure("door.write.unary.8", 8, settings))


def write_1(settings: Settings) -> Result:
    return asyncio.run(measure("door.write.unary.1", 1, settings))


def tls_64(settings: Settings) -> Result:
    return asyncio.run(measure_tls("door.write.tls.64", 64, settings))

"""`file.sysbench`, `file.inserts`: a pump full of binlogs, a drainer that starts, an archive that is empty.

A rate is row changes by the time from the archive's first byte to its last one. Rounds take turns with the
ready-made bytes of the same archive, written and synced as often, which is the limit of the disk, and with
Go's drainer. The archive is read again and folded by key after every round, and compared then.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from binlog_playground.check.verify import ExpectedChecksum
from binlog_playground.cluster.cluster import Cluster, Node
from binlog_playground.replay import Replay
from binlog_playground.scenario import Scenario
from tests.benchmarks.drainer import workloads
from tests.benchmarks.drainer.draining import OURS, PEER, going_on
from tests.benchmarks.drainer.stored import fill
from tests.benchmarks.drainer.sysbench import workload
from tests.benchmarks.measure import StatusPage, cpu_s, peak_rss_mib, percentile
from tests.benchmarks.peer.programs import DRAINER, programs
from tests.benchmarks.report import Result, Theirs
from tests.benchmarks.settings import Settings, private_cluster
from tidb_binlog.errors import DownstreamError, Unavailable
from tidb_binlog.record import decode_file
from tidb_binlog.rowcodec.varint import svarint
from tidb_binlog.wire import pb_binlog_pb2 as pb

ROUNDS: Final = 3
PUMP: Final = "pump-1"
SAMPLE_S: Final = 0.005
STATUS_S: Final = 0.1
DEADLINE_S: Final = 60.0
SYNC_BYTES: Final = 1 << 20

Rows = dict[str, dict[str, tuple[str | int, ...]]]


@dataclass(frozen=True, slots=True)
class Archived:
    """One round; CPU of drainer and pump."""

    seconds: float
    drainer_s: float
    pump_s: float
    peak_rss_mib: float
    rows: int
    size: int


def segments(directory: Path) -> list[Path]:
    return sorted(directory.glob("binlog-*"))


def value(datum: bytes) -> str | int:
    if datum[0] == 8:
        return svarint(datum, 1)[0]
    assert datum[0] == 2, datum
    return datum[svarint(datum, 1)[1] :].decode()


def replayed(directory: Path) -> tuple[Rows, int]:
    """Tables by their first column, as the archive leaves them; the number of row changes."""
    tables: Rows = {}
    count = 0
    for path in segments(directory):
        data, at = path.read_bytes(), 0
        while at < len(data):
            payload, at = decode_file(data, at)
            for event in pb.Binlog.FromString(payload).dml_data.events:
                count += 1
                rows = tables.setdefault(event.table_name, {})
                columns = [pb.Column.FromString(column) for column in event.row]
                if event.tp != pb.Insert:
                    del rows[str(value(columns[0].value))]
                if event.tp != pb.Delete:
                    update = event.tp == pb.Update
                    new = tuple(value(one.changed_value if update else one.value) for one in columns)
                    rows[str(new[0])] = new
    return tables, count


def verify(tables: Rows, expected: list[ExpectedChecksum]) -> None:
    """Raises `DownstreamError` if a table differs from what it must be."""
    for table in expected:
        rows = sorted(tables[table.name].values(), key=lambda row: int(row[0]))
        digest = hashlib.sha256()
        for row in rows:
            digest.update("\t".join(map(str, row)).encode() + b"\n")
        if (len(rows), digest.hexdigest()) != (table.rows, table.sha256):
            raise DownstreamError(f"archive of {table.name} differs: {len(rows)} rows, not {table.rows}")


class Bench:
    """A cluster whose pump holds the workload, and a drainer that archives it again and again."""

    def __init__(self, cluster: Cluster, scenario: Scenario) -> None:
        self._cluster = cluster
        self._scenario = scenario
        self.directory = cluster.directory / "archive"

    async def fill(self) -> None:
        cluster, scenario = self._cluster, self._scenario
        upstream = await cluster.start_base(scenario.cluster_id)
        await Replay.prepare(scenario, upstream)
        (records,) = scenario.files
        await fill(cluster.directory / PUMP, PUMP, scenario.cluster_id, records)
        # Above every commit: a time mark of the pump must not have the timestamp of a transaction.
        await upstream.oracle.pin(scenario.last_commit_ts + 1)
        await cluster.start_pumps(1)
        self._node = await cluster.start_archiver("archive")
        await asyncio.to_thread(self._node.process.stop)

    async def archive(self, peer: Node | None = None) -> Archived:
        shutil.rmtree(self.directory)
        node = peer or self._node
        if peer is not None:  # its savepoint says that all is there
            shutil.rmtree(self._cluster.directory / peer.name, ignore_errors=True)
        node.process.start()
        pids = node.process.pid, self._cluster.pumps[0].process.pid
        async with nullcontext() if peer is None else going_on(self._cluster):
            seconds, drainer_s, pump_s = await asyncio.to_thread(self._observe, node, pids)
        peak = peak_rss_mib(pids[0])
        await asyncio.to_thread(node.process.stop)
        tables, rows = await asyncio.to_thread(replayed, self.directory)
        verify(tables, self._scenario.checksums)
        size = sum(path.stat().st_size for path in segments(self.directory))
        return Archived(seconds, drainer_s, pump_s, peak, rows, size)

    def _observe(self, node: Node, pids: tuple[int, int]) -> tuple[float, float, float]:
        """Seconds, CPU of drainer and pump, from the last look at an empty archive to the whole one."""
        applied = (OURS if node is self._node else PEER).done
        page = StatusPage(node.status_url)
        end_s = time.monotonic() + DEADLINE_S
        samples: list[tuple[int, float, float, float]] = []
        next_status_s = 0.0
        while True:
            size = sum(path.stat().st_size for path in segments(self.directory))
            samples.append((size, time.monotonic(), cpu_s(pids[0]), cpu_s(pids[1])))
            now_s = samples[-1][1]
            if size and now_s > next_status_s:
                next_status_s = now_s + STATUS_S
                if int(page.document().get(applied, 0)) >= self._scenario.last_commit_ts:
                    break
            if now_s > end_s:
                raise Unavailable("the archive is not whole in time", hint=node.process.tail(2))
            time.sleep(SAMPLE_S)
        page.close()
        begin = next(sample for sample in reversed(samples) if not sample[0])
        end = next(sample for sample in samples if sample[0] == samples[-1][0])
        return end[1] - begin[1], end[2] - begin[2], end[3] - begin[3]

    def limit(self) -> float:
        """Seconds to write the same bytes, synced every MiB."""
        data = b"".join(path.read_bytes() for path in segments(self.directory))
        path = self.directory / "limit"
        started_s = time.monotonic()
        with path.open("wb", buffering=0) as file:
            for at in range(0, len(data), SYNC_BYTES):
                file.write(data[at : at + SYNC_BYTES])
                os.fdatasync(file.fileno())
        seconds = time.monotonic() - started_s
        path.unlink()
        return seconds


async def measured(name: str, what: str, scenario: Scenario, settings: Settings) -> Result:
    found: list[Archived] = []
    peers: list[Archived] = []
    limits: list[float] = []
    async with private_cluster() as cluster:
        bench = Bench(cluster, scenario)
        await bench.fill()
        with programs(settings, DRAINER, cluster.supervisor, cluster.etcd_endpoint) as go:
            to_files = f'[syncer]\ndb-type = "file"\n[syncer.to]\ndir = "{bench.directory}"\n'
            peer = None if go is None else go.drainer(to_files)
            for _ in range(ROUNDS):
                found.append(await bench.archive())
                limits.append(await asyncio.to_thread(bench.limit))
                if peer is not None:
                    peers.append(await bench.archive(peer))
    rows, size = found[0].rows, found[0].size
    rate = rows / percentile([one.seconds for one in found], 0.5)
    limit = rows / percentile(limits, 0.5)
    cost = percentile([one.drainer_s for one in found], 0.5) / rows * 1e6
    pump = percentile([one.pump_s for one in found], 0.5) / rows * 1e6
    rates = ", ".join(f"{rows / one.seconds:,.0f}" for one in found)
    return Result(
        name=name,
        value=rate,
        unit="changes/s",
        cpu_us_per_unit=cost,
        peak_rss_mib=max(one.peak_rss_mib for one in found),
        compared_to=f"the same bytes ready-made, synced every MiB, {limit:,.0f}/s",
        ratio=rate / limit,
        note=(
            f"{what}, {rows:,} row changes, {size / rows:.0f} bytes each, synced; rounds {rates}/s; CPU us a"
            f" change: drainer {cost:.1f}, pump {pump:.1f}; contents verified"
        ),
        theirs=Theirs.of(
            [rows / one.seconds for one in peers], [one.drainer_s / rows * 1e6 for one in peers]
        ),
    )


def sysbench(settings: Settings) -> Result:
    scenario, source = workload(settings)
    return asyncio.run(measured("file.sysbench", source, scenario, settings))


def inserts(settings: Settings) -> Result:
    what = f"INSERTs, {workloads.INSERTS_A_TRANSACTION} a transaction"
    return asyncio.run(measured("file.inserts", what, workloads.inserts(), settings))

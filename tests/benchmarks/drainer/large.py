"""`drain.large`: one transaction of a gibibyte, one of a million short rows, one row of 60 MiB.

Each is in the files of a pump that starts afterwards, with a small transaction behind it; a drainer applies
it to an empty MariaDB. What counts is the most memory that drainer and pump ever had resident; the seconds
are from the start of the drainer to the last row. Contents are compared by count and checksums of columns.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from binlog_playground.cluster.cluster import Cluster
from binlog_playground.replay import Replay
from binlog_playground.scenario import Record
from drainer.txn import INSERT
from tests.benchmarks.drainer.recorder import SCHEMA, Made, Recorder
from tests.benchmarks.drainer.stored import fill
from tests.benchmarks.measure import StatusPage, cpu_s, peak_rss_mib
from tests.benchmarks.report import Result
from tests.benchmarks.settings import Settings, private_cluster
from tests.rig.workload.tables import HANDLE, INT, Kind, new_table
from tidb_binlog import binlog
from tidb_binlog.errors import DownstreamError, Unavailable
from tidb_binlog.rowcodec.encoder import prewrite_value

ASKED_MIB: Final = 600
PUMP: Final = "pump-1"
PACKET_BYTES: Final = 1 << 30
DEADLINE_S: Final = 600.0
POLL_S: Final = 0.05
LONG_TEXT: Final = Kind("LONGTEXT", 251, "text", 0, (1 << 32) - 1, 0, "utf8mb4", "utf8mb4_bin")
_TABLE: Final = "large"


@dataclass(frozen=True, slots=True)
class Workload:
    """`rows` rows with a text of `text_bytes` in one transaction."""

    name: str
    rows: int
    text_bytes: int

    def texts(self) -> Iterator[str]:
        fill = ("0123456789abcdefghijklmnopqrstuvwxyz-" * (self.text_bytes // 37 + 2))[: self.text_bytes]
        for number in range(self.rows):
            head = f"{number:09d}"
            yield head + fill[len(head) :]


WORKLOADS: Final = (
    Workload("drain.large", 1 << 20, 1 << 10),
    Workload("drain.large.rows", 1_000_000, 40),
    Workload("drain.large.row", 1, 60 << 20),
)


@dataclass(frozen=True, slots=True)
class Measured:
    """`checksum`: sum of the CRC-32 of all texts; MiB at most."""

    seconds: float
    cpu_s: float
    drainer_mib: float
    pump_mib: float
    payload_bytes: int


def record(workload: Workload) -> tuple[Recorder, Made, int]:
    """The table's DDL, the large transaction and a small one behind it; the size of the large one."""
    recorder = Recorder()
    columns = (("id", INT), ("t", LONG_TEXT))
    made = recorder.create(
        new_table(recorder.next_id(), SCHEMA, _TABLE, columns, primary=("id",), storage=HANDLE)
    )
    rows = [made.encoder.insert((number, text)) for number, text in enumerate(workload.texts(), 1)]
    last = recorder.records[-1]
    value = prewrite_value(2, [(made.table.id, [INSERT] * len(rows), rows)])
    rows.clear()
    start_ts = last.commit_ts + 1000
    prewrite = binlog.prewrite(start_ts, b"large", value)
    del value
    commit = binlog.commit(start_ts, start_ts + 1, b"large")
    recorder.records += [
        Record(binlog.PREWRITE, start_ts, 0, prewrite),
        Record(binlog.COMMIT, start_ts, start_ts + 1, commit),
    ]
    small = prewrite_value(2, [(made.table.id, [INSERT], [made.encoder.insert((0, "behind"))])])
    after_ts = start_ts + 1000
    recorder.records += [
        Record(binlog.PREWRITE, after_ts, 0, binlog.prewrite(after_ts, b"small", small)),
        Record(binlog.COMMIT, after_ts, after_ts + 1, binlog.commit(after_ts, after_ts + 1, b"small")),
    ]
    return recorder, made, len(prewrite)


def verify(cluster: Cluster, workload: Workload) -> None:
    """Raises `DownstreamError` if the table is not what was written."""
    expected = (
        workload.rows + 1,
        workload.rows * (workload.rows + 1) // 2,
        crc32(b"behind") + sum(crc32(text.encode()) for text in workload.texts()),
    )
    connection = cluster.mariadb.open()
    try:
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT COUNT(*), SUM(id), SUM(CRC32(t)) FROM {SCHEMA}.{_TABLE}")
            (row,) = cursor.fetchall()
            found = tuple(int(value) for value in row)
    finally:
        connection.close()
    if found != expected:
        raise DownstreamError(f"count and sums are {found}, must be {expected}")


def wait(cluster: Cluster, last_ts: int) -> None:
    """Until everything is applied. Raises `Unavailable`, or `ProcessDied` if the drainer ends."""
    node = cluster.drainer
    assert node is not None
    page, end_s = StatusPage(node.status_url), time.monotonic() + DEADLINE_S
    try:
        while True:
            if not node.process.is_running:
                raise node.process.death()
            try:
                if int(page.document().get("AppliedTS", 0)) >= last_ts:
                    return
            except Unavailable:
                pass
            if time.monotonic() > end_s:
                raise Unavailable(f"not applied within {DEADLINE_S:g} s", hint=node.process.tail(2))
            time.sleep(POLL_S)
    finally:
        page.close()


async def measure(workload: Workload) -> Measured:
    recorder, _, payload_bytes = await asyncio.to_thread(record, workload)
    scenario = recorder.scenario(workload.name)
    async with private_cluster() as cluster:
        upstream = await cluster.start_base(scenario.cluster_id)
        await Replay.prepare(scenario, upstream)
        await fill(cluster.directory / PUMP, PUMP, scenario.cluster_id, recorder.records)
        last_ts = scenario.last_commit_ts
        recorder.records.clear()
        await upstream.oracle.pin(last_ts + 1)
        connection = cluster.mariadb.open()
        with connection.cursor() as cursor:
            cursor.execute(f"SET GLOBAL max_allowed_packet={PACKET_BYTES}")
        connection.close()
        await cluster.start_pumps(1)
        began_s = time.monotonic()
        node = await cluster.start_drainer()
        await asyncio.to_thread(wait, cluster, last_ts)
        measured = Measured(
            time.monotonic() - began_s,
            cpu_s(node.process.pid),
            peak_rss_mib(node.process.pid),
            peak_rss_mib(cluster.pumps[0].process.pid),
            payload_bytes,
        )
        await asyncio.to_thread(verify, cluster, workload)
        return measured


def result(workload: Workload, found: Measured) -> Result:
    size_mib = found.payload_bytes / (1 << 20)
    return Result(
        name=workload.name,
        value=found.drainer_mib,
        unit="MiB",
        cpu_us_per_unit=found.cpu_s / workload.rows * 1e6,
        peak_rss_mib=found.drainer_mib,
        compared_to=f"the transaction, {size_mib:,.0f} MiB",
        ratio=found.drainer_mib / size_mib,
        note=(
            f"asked: at most {ASKED_MIB} MiB; {workload.rows:,} rows of {workload.text_bytes:,} B in one"
            f" transaction, {found.seconds:.1f} s from exec ({workload.rows / found.seconds:,.0f} rows/s),"
            f" CPU us a row; the pump {found.pump_mib:.0f} MiB at most; contents compared"
        ),
    )


def run(settings: Settings) -> list[Result]:
    del settings  # sizes are given
    return [result(workload, asyncio.run(measure(workload))) for workload in WORKLOADS]

"""`kafka.obinlog`, `kafka.canal-json`: a pump full of binlogs, a drainer that starts, an empty topic.

Brokers are librdkafka's mock cluster in the process of the benchmark: its CPU does not count. Rounds take
turns with a drainer that archives the same binlogs into files, whose contents are verified. What counts is
the time and CPU from the first answer of its status, so not its start, to the acknowledged end of the stream.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from dataclasses import dataclass
from typing import Final

from binlog_playground.cluster.cluster import Node
from binlog_playground.replay import Replay
from binlog_playground.scenario import Scenario
from tests.benchmarks.drainer.file_sink import PUMP, replayed, verify
from tests.benchmarks.drainer.stored import fill
from tests.benchmarks.drainer.sysbench import workload
from tests.benchmarks.measure import StatusPage, cpu_s, peak_rss_mib, percentile
from tests.benchmarks.report import Result
from tests.benchmarks.settings import Settings, private_cluster
from tests.fakes.kafka import MockKafka
from tidb_binlog.errors import Unavailable

ROUNDS: Final = 3
SAMPLE_S: Final = 0.02
DEADLINE_S: Final = 120.0
TOPIC: Final = "benchmark"


@dataclass(frozen=True, slots=True)
class Round:
    """One drainer, from its first answer to the end of the stream."""

    seconds: float
    drainer_s: float
    peak_mib: float


def observed(node: Node, last_ts: int) -> Round:
    page, pid = StatusPage(node.status_url), node.process.pid
    end_s = time.monotonic() + DEADLINE_S
    page.document()
    begin_s, begin_cpu_s = time.monotonic(), cpu_s(pid)
    while int(page.document().get("AppliedTS", 0)) < last_ts:
        if time.monotonic() > end_s:
            raise Unavailable("the stream does not end in time", hint=node.process.tail(2))
        time.sleep(SAMPLE_S)
    page.close()
    return Round(time.monotonic() - begin_s, cpu_s(pid) - begin_cpu_s, peak_rss_mib(pid))


async def rounds(scenario: Scenario, to: str) -> tuple[list[Round], list[Round], int]:
    """Of Kafka, of files; row changes."""
    kafka = MockKafka()
    sent: list[Round] = []
    archived: list[Round] = []
    rows = 0
    try:
        async with private_cluster() as cluster:
            upstream = await cluster.start_base(scenario.cluster_id)
            await Replay.prepare(scenario, upstream)
            (records,) = scenario.files
            await fill(cluster.directory / PUMP, PUMP, scenario.cluster_id, records)
            await upstream.oracle.pin(scenario.last_commit_ts + 1)
            await cluster.start_pumps(1)
            for number in range(ROUNDS):
                for db_type, found in (("kafka", sent), ("file", archived)):
                    name = f"{db_type}{number}"
                    topic = f"{TOPIC}{number}"
                    lines = f'[syncer.to]\nkafka-addrs = "{kafka.servers}"\ntopic-name = "{topic}"\n{to}'
                    if db_type == "kafka":
                        kafka.create(topic, 4)
                    node = await cluster.start_archiver(
                        name, lines if db_type == "kafka" else "", db_type=db_type
                    )
                    found.append(await asyncio.to_thread(observed, node, scenario.last_commit_ts))
                    await asyncio.to_thread(node.process.stop)
                    if db_type == "file":
                        tables, rows = await asyncio.to_thread(replayed, cluster.directory / name)
                        verify(tables, scenario.checksums)
                    shutil.rmtree(cluster.directory / name)
            return sent, archived, rows
    finally:
        kafka.close()


def measured(name: str, to: str, settings: Settings) -> Result:
    scenario, source = workload(settings)
    sent, archived, rows = asyncio.run(rounds(scenario, to))
    cost, file_cost = (
        percentile([one.drainer_s for one in found], 0.5) / rows * 1e6 for found in (sent, archived)
    )
    seconds = percentile([one.seconds for one in sent], 0.5)
    return Result(
        name=name,
        value=rows / seconds,
        unit="changes/s",
        cpu_us_per_unit=cost,
        peak_rss_mib=max(one.peak_mib for one in sent),
        compared_to=f"CPU of the file sink, {file_cost:.1f} us a change",
        ratio=cost / file_cost,
        note=f"{source}, {rows:,} row changes; CPU us a change in rounds: Kafka"
        f" {', '.join(f'{one.drainer_s / rows * 1e6:.1f}' for one in sent)}, files"
        f" {', '.join(f'{one.drainer_s / rows * 1e6:.1f}' for one in archived)}",
    )


def obinlog(settings: Settings) -> Result:
    return measured("kafka.obinlog", "", settings)


def canal_json(settings: Settings) -> Result:
    return measured("kafka.canal-json", 'format = "canal-json"\npartition = "key"\n', settings)

"""Every benchmark by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.benchmarks import (
    archive_in_s3,
    demo,
    drainer_idle,
    imports,
    load,
    reparo,
    rowcodec_decode,
    tail,
    verify,
    verify_lag,
)
from tests.benchmarks import hold as verify_hold
from tests.benchmarks.client import write as pumpclient_write
from tests.benchmarks.door import empty as door_empty
from tests.benchmarks.door import hostile as door_hostile
from tests.benchmarks.door import idle as door_idle
from tests.benchmarks.door import message as door_message
from tests.benchmarks.door import pullers as door_pullers
from tests.benchmarks.door import stream as door_stream
from tests.benchmarks.door import write as door_write
from tests.benchmarks.drainer import file_sink, kafka_sink, lag, messages, subscribe
from tests.benchmarks.drainer import large as drain_large
from tests.benchmarks.drainer import memory as drain_memory
from tests.benchmarks.drainer import rules as drain_rules
from tests.benchmarks.drainer import shapes as drain_shapes
from tests.benchmarks.drainer import start as drain_start
from tests.benchmarks.drainer import sysbench as drain_sysbench
from tests.benchmarks.pump import catchup as pump_catchup
from tests.benchmarks.pump import compressed as pump_compressed
from tests.benchmarks.pump import delivery as pump_delivery
from tests.benchmarks.pump import idle as pump_idle
from tests.benchmarks.pump import memory as pump_memory
from tests.benchmarks.pump import open_prewrites as pump_open
from tests.benchmarks.pump import pull as pump_pull
from tests.benchmarks.pump import start as pump_start
from tests.benchmarks.pump import write as pump_write
from tests.benchmarks.pump import write_batch as pump_write_batch
from tests.benchmarks.reading import archive_arrow
from tests.benchmarks.report import Result
from tests.benchmarks.settings import Settings
from tests.benchmarks.spark import live as spark_live
from tests.benchmarks.spark import mirror as spark_mirror
from tests.benchmarks.spark import read as spark_read
from tests.benchmarks.spark import replay as spark_replay
from tests.benchmarks.spark import waiting as spark_waiting
from tests.benchmarks.upstream import history as upstream_history
from tests.benchmarks.upstream import tso as upstream_tso

Benchmark = Callable[[Settings], Result | list[Result]]
"""Several results are named after their benchmark: `door.idle.1000`, `door.idle.1000.tls`."""

BENCHMARKS: Final[dict[str, Benchmark]] = {
    "rowcodec.decode": rowcodec_decode.run,
    "pump.write.unary.64": pump_write.run,
    "pump.write.batch": pump_write_batch.small,
    "pump.write.64k": pump_write_batch.large,
    "pumpclient.write.64": pumpclient_write.write_64,
    "pumpclient.write.256": pumpclient_write.write_256,
    "pumpclient.failover": pumpclient_write.failover,
    "pump.start.clean": pump_start.clean,
    "pump.start.killed": pump_start.killed,
    "pump.pull.batch": pump_pull.run,
    "pump.pull.compressed": pump_compressed.run,
    "pump.memory.peak": pump_memory.run,
    "pump.memory.open": pump_open.run,
    "pump.delivery": pump_delivery.run,
    "pump.idle": pump_idle.run,
    "drainer.idle": drainer_idle.run,
    "pump.index.catchup": pump_catchup.run,
    "drain.sysbench": drain_sysbench.run,
    "drain.inserts": drain_shapes.inserts,
    "file.sysbench": file_sink.sysbench,
    "file.inserts": file_sink.inserts,
    "file.s3": archive_in_s3.s3,
    "kafka.obinlog": kafka_sink.obinlog,
    "kafka.canal-json": kafka_sink.canal_json,
    "archive.arrow": archive_arrow.run,
    "spark.read.changes": spark_read.changes,
    "spark.count": spark_read.count,
    "spark.scaling": spark_read.scaling,
    "spark.executors": spark_read.executors,
    "spark.memory": spark_read.memory,
    "reparo.sysbench": reparo.run,
    "load.sysbench": load.run,
    "verify.equal": verify.run,
    "spark.replay": spark_replay.run,
    "spark.fold10": spark_replay.fold10,
    "spark.live": spark_live.run,
    "spark.live.memory": spark_waiting.run,
    "spark.mirror": spark_mirror.run,
    "messages": messages.run,
    "drain.durable": drain_sysbench.durable,
    "drain.keyless": drain_shapes.keyless,
    "drain.rules": drain_rules.run,
    "drain.hot": drain_shapes.hot,
    "drain.wide": drain_shapes.wide,
    "drain.collation": drain_shapes.collation,
    "drain.relay": drain_sysbench.relay,
    "drain.ddl": drain_sysbench.ddl,
    "drain.start": drain_start.run,
    "drain.memory": drain_memory.run,
    "drain.large": drain_large.run,
    "lag.idle.1": lag.idle_1,
    "subscribe.rows": subscribe.rows,
    "subscribe.lag": subscribe.lag,
    "lag.idle.2": lag.idle_2,
    "lag.load": lag.load,
    "verify.hold": verify_hold.run,
    "lag.verify": verify_lag.run,
    "demo.first_row": demo.run,
    "tail.start": tail.run,
    "imports": imports.run,
    "binlogctl": imports.binlogctl,
    "door.write.unary.1": door_write.write_1,
    "door.write.unary.8": door_write.write_8,
    "door.write.unary.64": door_write.write_64,
    "door.write.unary.256": door_write.write_256,
    "door.write.tls.64": door_write.tls_64,
    "door.write.pullers.50": door_pullers.run,
    "door.empty.unary.64": door_empty.run,
    "door.message.1gib": door_message.run,
    "door.stream.64k": door_stream.run,
    "door.idle.1000": door_idle.run,
    "door.hostile": door_hostile.run,
    "upstream.tso": upstream_tso.run,
    "upstream.history.1m": upstream_history.run,
}
"""In the order in which they are run and printed."""

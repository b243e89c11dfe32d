"""Every benchmark by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.benchmarks import (
    demo,
    door_empty,
    door_hostile,
    door_idle,
    door_message,
    door_pullers,
    door_stream,
    door_write,
    drain_large,
    drain_memory,
    drain_shapes,
    drain_start,
    drain_sysbench,
    file_sink,
    lag,
    pump_catchup,
    pump_delivery,
    pump_idle,
    pump_memory,
    pump_pull,
    pump_start,
    pump_write,
    pump_write_batch,
    pumpclient_write,
    rowcodec_decode,
    spark_read,
    upstream_history,
    upstream_tso,
)
from tests.benchmarks.report import Result
from tests.benchmarks.settings import Settings

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
    "pump.memory.peak": pump_memory.run,
    "pump.delivery": pump_delivery.run,
    "pump.idle": pump_idle.run,
    "pump.index.catchup": pump_catchup.run,
    "drain.sysbench": drain_sysbench.run,
    "drain.inserts": drain_shapes.inserts,
    "file.sysbench": file_sink.sysbench,
    "file.inserts": file_sink.inserts,
    "spark.read.changes": spark_read.changes,
    "spark.count": spark_read.count,
    "spark.scaling": spark_read.scaling,
    "spark.memory": spark_read.memory,
    "drain.durable": drain_sysbench.durable,
    "drain.keyless": drain_shapes.keyless,
    "drain.hot": drain_shapes.hot,
    "drain.wide": drain_shapes.wide,
    "drain.relay": drain_sysbench.relay,
    "drain.start": drain_start.run,
    "drain.memory": drain_memory.run,
    "drain.large": drain_large.run,
    "lag.idle.1": lag.idle_1,
    "lag.idle.2": lag.idle_2,
    "lag.load": lag.load,
    "demo.first_row": demo.run,
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

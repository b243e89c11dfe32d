"""Job: what one run of reparo is about, and who else is at work where it writes.

Out    the number under which its positions are stored; `Conflict` where it must not begin
Holds  the same archive, range, rules and name are the same job, wherever it is called from. A job that was
       named is not taken for another range
Why    positions are kept as a Drainer's are, in a schema of their own: no Drainer reads or fences them

Tests  tests/drainer/reparo/test_applying.py
"""

from __future__ import annotations

import asyncio
import os
from hashlib import blake2b
from typing import Final

from drainer.checkpoint.inspection import Inspection, inspect
from drainer.mysql.connection import Target, connect
from drainer.mysql.literal.quoting import qualified
from drainer.reparo.options import SCHEMA, ReparoConfig
from tidb_binlog.clock import Clock
from tidb_binlog.errors import ConfigError, Conflict
from tidb_binlog.late_dataclass import dataclass

_OWNER_MAX: Final = 200
ENDING_S: Final = 10.0
"""How long the sessions of a process that was killed may stay."""
_PAUSE_S: Final = 0.1
_STATES: Final = b"SELECT TABLE_SCHEMA FROM information_schema.TABLES WHERE TABLE_NAME='drainer_state'"


@dataclass(frozen=True, slots=True)
class Job:
    """`number` stands for the cluster id in the checkpoint's tables. `owner` says what it is about."""

    name: str
    number: int
    owner: str

    @classmethod
    def of(cls, config: ReparoConfig) -> Job:
        """Make the job of a configuration."""
        archive = config.data_dir if "://" in config.data_dir else os.path.realpath(config.data_dir)
        about = f"{config.start}..{config.stop or ''} {archive}"
        digest = _digest(f"{about} {config.rules.text}")
        number = _digest(config.job) if config.job else digest
        return cls(config.job or f"{number:016x}", number, f"reparo {digest:016x} {about}"[:_OWNER_MAX])

    def check_same(self, inspection: Inspection) -> None:
        """Raises `ConfigError` if the name was given to something else."""
        state = inspection.stored.state
        if state is not None and state.owner.split(" ")[:2] != self.owner.split(" ")[:2]:
            raise ConfigError(
                f"the job {self.name} was begun for another archive, range or rules: {state.owner}",
                hint="give this one another name with -job, or none",
            )


def _digest(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


async def inspected(target: Target, job: Job, clock: Clock) -> Inspection:
    """What is stored of the job. Sessions of one that was killed are waited for.

    Raises `Conflict` if another process is at it, `ConfigError` if its name was given to something else.
    """
    end_s = clock.monotonic_s() + ENDING_S
    while (inspection := await asyncio.to_thread(inspect, target, SCHEMA, job.number)).sessions:
        if clock.monotonic_s() >= end_s:
            raise Conflict(
                f"another reparo is at the job {job.name} (connection ids"
                f" {', '.join(map(str, inspection.sessions))})",
                hint="let it end; if its host is gone, KILL these connections at the destination",
            )
        await asyncio.sleep(_PAUSE_S)
    job.check_same(inspection)
    return inspection


def check_no_drainer(target: Target) -> None:
    """Raises `Conflict` if a Drainer works on the downstream, wherever its checkpoint is. Blocks."""
    connection = connect(target)
    try:
        schemas = [str(schema) for (schema,) in connection.rows(_STATES)]
        clusters = [
            (schema, int(cluster_id))
            for schema in schemas
            if schema != SCHEMA
            for (cluster_id,) in connection.rows(
                b"SELECT cluster_id FROM " + qualified(schema, "drainer_state")
            )
        ]
    finally:
        connection.close()
    for schema, cluster_id in clusters:
        sessions = inspect(target, schema, cluster_id).sessions
        if sessions:
            raise Conflict(
                f"a Drainer of cluster {cluster_id} works on the destination (its checkpoint is in {schema},"
                f" connection ids {', '.join(map(str, sessions))})",
                hint="stop it; or go on with -beside-drainer, if it does not write the same tables",
            )

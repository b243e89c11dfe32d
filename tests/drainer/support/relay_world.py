"""What tests of the relay log have in common: recorded streams, relay logs made of them, recoveries.

    python -m tests.drainer.support.relay_world [SCENARIO ...]

takes every recorded scenario through the relay log alone, the Go drainer's and ours in both formats, and
compares.
"""

from __future__ import annotations

import asyncio
import functools
import gzip
import json
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from binlog_playground.check.downstream import Downstream
from binlog_playground.check.verify import Report, compare
from binlog_playground.cluster.mariadb import MariaDbServer
from binlog_playground.scenario import load
from drainer.app.recovery import RelayRecovery, stored_checkpoint
from drainer.app.start_wait import Summary
from drainer.checkpoint.inspection import inspect
from drainer.checkpoint.resume import Start
from drainer.checkpoint.store import CheckpointStore
from drainer.config.relay_format import FORMATS, PAYLOAD
from drainer.ddl.policy import Policy
from drainer.ddl.rules import Rule
from drainer.ddl.run.recycle_bin import KeepDropped
from drainer.ddl.run.runner import DdlRunner
from drainer.mysql.connection import Target, connect
from drainer.mysql.literal.quoting import string_literal
from drainer.operate.control.pause_and_reload import Control
from drainer.relay.relay_log import RelayLog
from drainer.relay.source import RelaySchema, RelaySource
from drainer.sink.mysql.lane import LaneSettings
from drainer.sink.mysql.mysql_sink import MysqlSink, mysql_sink
from drainer.sink.mysql.quarantine_setup import QuarantineSetup, load_waiting
from drainer.sink.mysql.settings import ApplierSettings
from drainer.sink.runner import Runner
from drainer.stream.rules.rule_set import Rules
from drainer.stream.schema.tracker import SchemaTracker
from drainer.stream.translate.translator import Translator
from drainer.txn import Ddl, Item
from tests.drainer.support import recorded
from tests.drainer.support.apply_life import clean
from tests.rig.workload.limits import MARIADB
from tests.waiting import PATIENCE_S, until
from tidb_binlog.clock import SystemClock
from tidb_binlog.errors import BinlogError

CLUSTER_ID = 7
SCHEMA = "tidb_binlog"
# Its EXCHANGE PARTITION ... WITHOUT VALIDATION puts rows into a partition that does not allow them, which
# MariaDB has no statement for: the same with the upstream.
BEYOND_MARIADB = ("ddl-exchange",)


@functools.cache
def items(scenario: str) -> list[Item]:
    """What the translator gives to the applier, DDL that do not run left out."""
    translator = Translator(SchemaTracker.from_history([], finished_ts=0), Rules())
    found = [translator.translate(entry) for entry in recorded.merged(scenario)]
    return [item for item in found if item is not None and not (isinstance(item, Ddl) and item.skip)]


def go_relay(scenario: str, directory: Path) -> Path:
    """The relay log that the Go drainer wrote."""
    directory.mkdir()
    for path in (recorded.ROOT / scenario / "relay").iterdir():
        (directory / path.name.removesuffix(".gz")).write_bytes(gzip.decompress(path.read_bytes()))
    return directory


async def write(relay: RelayLog, stream: Iterable[Item], every: int = 50) -> None:
    for number, item in enumerate(stream):
        relay.append(item)
        if number % every == 0:
            await relay.sync()
    await relay.sync()


async def our_relay(
    stream: Iterable[Item], directory: Path, max_file_size: int = 256 << 10, form: str = PAYLOAD
) -> Path:
    """The relay log that this drainer writes."""
    relay = RelayLog.open(str(directory), max_file_size, SystemClock(), form=form)
    await write(relay, stream)
    await relay.close()
    return directory


def target_of(server: MariaDbServer) -> Target:
    return Target(server.host, server.port, server.user, server.password, server.socket)


def put_go_checkpoint(target: Target, commit_ts: int, *, consistent: bool = False) -> None:
    """A row as a Go drainer leaves it."""
    document = {"consistent": consistent, "commitTS": commit_ts, "ts-map": {}, "schema-version": 0}
    connection = connect(target)
    connection.run(b"CREATE DATABASE IF NOT EXISTS tidb_binlog")
    connection.run(
        b"CREATE TABLE IF NOT EXISTS tidb_binlog.checkpoint"
        b" (clusterID BIGINT UNSIGNED PRIMARY KEY, checkPoint MEDIUMTEXT)",
    )
    text = string_literal(json.dumps(document))
    connection.run(b"REPLACE INTO tidb_binlog.checkpoint VALUES (%d, %s)" % (CLUSTER_ID, text))
    connection.commit()
    connection.close()


def quarantine_setup(
    store: CheckpointStore,
    start: Start,
    target: Target,
    schema: RelaySchema,
    directory: Path,
    rules: Sequence[Rule] = (),
) -> QuarantineSetup:
    """A quarantine, without rules but for those given."""
    return QuarantineSetup(
        load_waiting(store, foreign=start.foreign),
        Policy(rules),
        schema,
        lambda frozen: DdlRunner(target, frozen),
        str(directory),
        64 << 20,
    )


def recovery(target: Target, path: Path, lanes: int = 2, rules: Sequence[Rule] = ()) -> RelayRecovery:
    async def runner_of(store: CheckpointStore, start: Start, source: RelaySource) -> Runner[MysqlSink]:
        sink = mysql_sink(
            start,
            store,
            target,
            DdlRunner(target, source.schema, keep=KeepDropped(SCHEMA, CLUSTER_ID, 86400.0)),
            ApplierSettings(LaneSettings()),
            SystemClock(),
            quarantine_setup(store, start, target, source.schema, path.parent, rules),
        )
        return Runner(sink, source, Control(SystemClock()), interval_s=0.05)

    return RelayRecovery(
        str(path),
        target,
        stored_checkpoint(target, SCHEMA),
        lambda cluster_id: CheckpointStore(target, cluster_id, schema=SCHEMA),
        runner_of,
        SystemClock(),
        lanes,
        lambda cluster_id: inspect(target, SCHEMA, cluster_id),
        quiet_s=0.0,
    )


async def recover(target: Target, path: Path, lanes: int = 2, rules: Sequence[Rule] = ()) -> Summary:
    """Once the server has given up what was connected before."""
    await until(lambda: not inspect(target, SCHEMA, CLUSTER_ID).sessions, "the sessions of before are gone")
    async with asyncio.timeout(PATIENCE_S):
        return await recovery(target, path, lanes, rules).run()


def report(server: MariaDbServer, scenario: str) -> Report:
    """The downstream compared with what the upstream had at the end."""
    expected = load(recorded.ROOT / scenario).expected
    connection = server.open()
    try:
        return compare(expected, Downstream(connection).contents(expected), MARIADB)
    finally:
        connection.close()


def is_consistent(target: Target) -> bool:
    stored = stored_checkpoint(target, SCHEMA)
    assert stored is not None
    return stored.checkpoint.consistent


async def _campaign(names: list[str], scratch: Path) -> bool:
    server, clean_all = MariaDbServer(), True
    server.start(scratch / "db")
    target = target_of(server)
    try:
        for name in names:
            for number, whose in enumerate(("go", *FORMATS)):
                clean(target)
                put_go_checkpoint(target, 1)
                path = scratch / f"{name}-{number}"
                try:
                    if number:
                        await our_relay(items(name), path, form=whose)
                    else:
                        await asyncio.to_thread(go_relay, name, path)
                    summary = await recover(target, path)
                    found = report(server, name)
                    clean_all = clean_all and (found.equal or not number)
                    print(
                        f"{name:18} {whose:8} {'equal' if found.equal else 'DIFFERS'}  {summary}", flush=True
                    )
                except BinlogError as error:
                    clean_all = clean_all and not number
                    print(f"{name:18} {whose:8} {type(error).__name__}: {error}", flush=True)
    finally:
        server.stop()
    return clean_all


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="relay-") as made:
        sys.exit(not asyncio.run(_campaign(sys.argv[1:] or list(recorded.SCENARIOS), Path(made))))

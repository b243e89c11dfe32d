"""Cluster with a real TiDB: PD, a stand-in for TiKV, TiDB, Pumps, a Drainer and its downstream, as processes.

Drives  programs of the directory that `--peers` names: tidb-server, pd-server, unistore-server, pump, drainer

Tests   tests/rig/tidb/test_tidb.py
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import urllib.parse
import urllib.request
from base64 import b64decode, b64encode
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

from binlog_playground.cluster.cluster import Cluster, Node, http_get, http_request
from binlog_playground.cluster.supervisor import Process, ProcessDied
from drainer.mysql.connection import Connection, Target
from drainer.mysql.errors import SessionError
from drainer.mysql.server_text import AS_SENT
from tests.benchmarks.peer.programs import Programs
from tests.rig.tidb.binlogs import Overwritten, binlogs, changes, overwritten, unfinished
from tests.rig.tidb.statements import SCHEMAS
from tidb_binlog.clock import Clock, SystemClock
from tidb_binlog.errors import Unavailable
from tidb_binlog.net.port import LOOPBACK, free_ports
from tidb_binlog.upstream.tidb import TidbUpstream
from tidb_binlog.wire.binlog_pb2 import Binlog

SERVERS: Final = ("tidb-server", "pd-server", "unistore-server")
KEEPS: Final = "10m"
"""How long the Drainer keeps dropped tables: longer than a run."""
_STORAGE: Final = """\
[server]
pd-addr = "{pd}"
store-addr = "127.0.0.1:{port}"
status-addr = "127.0.0.1:{status}"
raft = false
log-level = "warn"
[engine]
db-path = "{directory}"
"""
_TIDB: Final = """\
store = "tikv"
path = "{pd}"
host = "127.0.0.1"
port = {port}
new_collations_enabled_on_first_bootstrap = true
[status]
status-port = {status}
status-host = "127.0.0.1"
[log]
level = "warn"
slow-query-file = "{slow}"
[binlog]
enable = {binlog}
[performance]
run-auto-analyze = false
stats-lease = "0"
[tikv-client]
max-batch-size = 0
"""
_GO_SYNCER: Final = 'sql-mode = "ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO"'
"""What a session that is not strict has stored, Go's Drainer cannot write in one that is."""
# The stand-in takes no message over 10 MiB, evaluates none of these functions (those of the second line end
# it at a document with a time in it), answers a DISTINCT of nothing with a row, has no pessimistic locks and
# no fast index build.
_NOT_PUSHED: Final = """\
regexp regexp_like rlike find_in_set json_contains firstrow
eq ne lt le gt ge nulleq in cast max min"""
_SETTINGS: Final = (
    *(
        f"INSERT INTO mysql.expr_pushdown_blacklist VALUES ('{name}', 'tikv', '')"
        for name in _NOT_PUSHED.split()
    ),
    "ADMIN RELOAD expr_pushdown_blacklist",
    "SET GLOBAL tidb_txn_mode = 'optimistic'",
    "SET GLOBAL tidb_enable_auto_analyze = OFF",
    "SET GLOBAL tidb_ddl_enable_fast_reorg = OFF",
    "SET GLOBAL tidb_txn_assertion_level = 'OFF'",
    "SET GLOBAL tidb_ddl_error_count_limit = 20",  # an index of a partition that is gone is tried so often
)


def _coded(key: str) -> str:
    return b64encode(key.encode()).decode()


class Storage:
    """PD, a stand-in for TiKV and TiDBs on them."""

    def __init__(self, cluster: Cluster, peers: Path, name: str, tidbs: int = 1) -> None:
        self._cluster, self._peers, self._name = cluster, peers, name
        self._directory = cluster.directory / name
        self.pd_port, *self._ports = free_ports(4)
        self._tidb_ports = [free_ports(2) for _ in range(tidbs)]
        self.port = self._tidb_ports[0][0]
        self.servers: list[Process] = []
        """PD and the storage, which nobody kills."""
        self.tidbs: list[Process] = []

    @property
    def pd(self) -> str:
        return f"http://{LOOPBACK}:{self.pd_port}"

    async def start(self) -> None:
        """PD and the storage."""
        peer, store, status = self._ports
        data = self._directory / "kv"
        for part in ("kv", "raft"):
            (data / part).mkdir(parents=True)
        pd = self._add(
            "pd-server",
            f"--data-dir={self._directory / 'pd'}",
            f"--client-urls={self.pd}",
            f"--peer-urls=http://{LOOPBACK}:{peer}",
            "-L=warn",
        )
        pd.start()
        await self._cluster.until(pd, lambda: http_get(f"{self.pd}/pd/api/v1/version"))
        await self._cluster.until(pd, lambda: http_get(f"{self.pd}/health"))
        address = f"{LOOPBACK}:{self.pd_port}"
        config = self._directory / "kv.toml"
        config.write_text(_STORAGE.format(pd=address, port=store, status=status, directory=data))
        storage = self._add("unistore-server", f"-config={config}")
        storage.start()
        await self._cluster.until(storage, lambda: self._has_store(f"{self.pd}/pd/api/v1/stores"))
        self.servers += [pd, storage]

    async def start_tidbs(self, *, binlog: bool, settings: Iterable[str] = ()) -> None:
        """Settled for what the storage can do. Pumps run already, if the servers are to write binlogs."""
        address = f"{LOOPBACK}:{self.pd_port}"
        for number, (port, status) in enumerate(self._tidb_ports):
            slow = self._directory / f"slow-{number}.log"
            config = self._directory / f"tidb-{number}.toml"
            config.write_text(
                _TIDB.format(pd=address, binlog=str(binlog).lower(), slow=slow, port=port, status=status)
            )
            self.tidbs.append(self._add("tidb-server", f"-config={config}", number=number))
            await self.restart()
        connection = self.connect()
        for statement in (*_SETTINGS, *settings):
            connection.run(statement.encode())
        connection.close()

    async def restart(self) -> None:
        """Those that were killed; until each answers. One ends itself if a write to its Pumps fails."""
        for number, tidb in enumerate(self.tidbs):
            for attempt in range(3):
                if not tidb.is_running:
                    await asyncio.to_thread(self._expire, self._tidb_ports[number][0])
                    tidb.start()
                try:
                    await self._cluster.until(tidb, partial(self._answers, number))
                    break
                except ProcessDied:
                    if attempt == 2:
                        raise

    def connect(self, session: int = 0) -> Connection:
        """A session of root's, of which each server has some; `Unavailable` if it is not there."""
        try:
            connection = Connection(
                host=LOOPBACK,
                port=self._tidb_ports[session % len(self._tidb_ports)][0],
                user="root",
                charset="utf8mb4",
                autocommit=True,
                connect_timeout=5,
                read_timeout=60,
                ssl_disabled=True,
                local_infile=True,
            )
        except SessionError as error:
            raise Unavailable(f"TiDB does not answer: {error}") from None
        connection.encoding = AS_SENT  # a text may have any octets
        return connection

    def definition(self, table: tuple[str, str]) -> dict[str, Any]:
        """TableInfo of a table."""
        schema, name = table
        names = [schema] if "/" in name else [schema, name]  # in a path it would be two: all tables then
        path = "/".join(urllib.parse.quote(one, safe="") for one in names)
        document = json.loads(http_get(f"http://{LOOPBACK}:{self._tidb_ports[0][1]}/schema/{path}"))
        tables: list[dict[str, Any]] = document if len(names) == 1 else [document]
        return next(info for info in tables if info["name"]["L"] == name.lower() or len(names) == 2)

    def _expire(self, port: int) -> None:
        """What a TiDB that is gone holds in etcd: its DDL would wait a minute for that."""
        everything = {"key": _coded("/tidb/"), "range_end": _coded("/tidb0")}
        entries = [
            (*(b64decode(entry.get(part, "")).decode() for part in ("key", "value")), entry["lease"])
            for entry in self._etcd("kv/range", everything).get("kvs", ())
            if "lease" in entry
        ]
        servers = [
            key.rpartition("/")[2]
            for key, value, _ in entries
            if "/server/info/" in key and json.loads(value)["listening_port"] == port
        ]
        held = {lease for key, value, lease in entries if any(one in key + value for one in servers)}
        for lease in held:
            self._etcd("lease/revoke", {"ID": lease})

    def _etcd(self, call: str, body: dict[str, str]) -> dict[str, Any]:
        request = urllib.request.Request(f"{self.pd}/v3/{call}", json.dumps(body).encode())
        answer: dict[str, Any] = json.loads(http_request(request, 10.0))
        return answer

    def _answers(self, number: int) -> None:
        self.connect(number).close()

    def _add(self, program: str, *arguments: str, number: int = 0) -> Process:
        argv = [str(self._peers / program), *arguments]
        environ = {**os.environ, "TMPDIR": str(self._directory)}  # TiDB leaves a directory there
        return self._cluster.supervisor.add(f"{self._name}-{program}-{number}", argv, environ)

    @staticmethod
    def _has_store(url: str) -> None:
        if '"Up"' not in http_get(url).decode():
            raise Unavailable("the storage is not registered yet")


class TidbCluster(Cluster):
    """Start the parts in order: `start_upstream`, `start_mysql_drainer`."""

    def __init__(self, peers: Path, downstream: str, *, go_pump: bool = False, tidbs: int = 1) -> None:
        clock: Clock = SystemClock()
        super().__init__(clock)
        self._peers = peers.absolute()
        self._go_pump = go_pump
        self.source = Storage(self, self._peers, "source", tidbs)
        self.target = Storage(self, self._peers, "target") if downstream == "tidb" else None
        """Of a downstream that is a TiDB."""

    async def start_upstream(self, settings: Iterable[str]) -> None:
        """Everything but the Drainer; `settings`: statements that the upstream's TiDB begins with."""
        await self.source.start()
        self.etcd_endpoint = self.source.pd
        await self.start_pumps(1 if self._go_pump else 2)
        if self._go_pump:
            node = self._programs().pump("pump-go")
            node.process.start()
            await self.until_ready(node)
            self.pumps.append(node)
        await self.source.start_tidbs(binlog=True, settings=settings)
        if self.target is not None:
            await self.target.start()
            await self.target.start_tidbs(binlog=False)
        else:
            self.mariadb.prepare(self.directory / "mariadb", self.supervisor.log_path("mariadb"))
            assert self.mariadb.process is not None
            self.supervisor.adopt(self.mariadb.process)
            await self.restart_mariadb()

    async def restart_mariadb(self) -> None:
        """After it was killed, or for the first time; until it answers."""
        assert self.mariadb.process is not None
        self.mariadb.launch()
        await self.until(self.mariadb.process, self.mariadb.ping)

    async def start_mysql_drainer(self, syncer: str, *, relays: bool) -> Node:
        """Ours, into the downstream; `[syncer.from]` is there for verify. `syncer`: lines of its section."""
        to = self._downstream
        node = self._prepare_drainer(
            "drainer",
            f'[syncer]\ndb-type = "mysql"\nkeep-dropped = "{KEEPS}"\n{syncer}'
            f'[syncer.to]\nhost = "{to.host}"\nport = {to.port}\nuser = "{to.user}"\n'
            f'password = "{to.password}"\n'
            f'[syncer.from]\nhost = "{LOOPBACK}"\nport = {self.source.port}\nuser = "root"\npassword = ""\n'
            + (f'[syncer.relay]\nlog-dir = "{self.directory / "relay"}"\n' if relays else ""),
        )
        return await self.begin_drainer(node)

    async def start_archive(self) -> Node:
        """A Drainer of its own that archives; then `replay` is possible."""
        archive = self.directory / "archive"
        node = self._prepare_drainer(
            "archiver", f'[syncer]\ndb-type = "file"\n[syncer.to]\ndir = "{archive}"\n'
        )
        node.process.start()
        await self.until_ready(node)
        return node

    async def replay(self) -> tuple[int, str]:
        """reparo of all of the archive into the downstream, which has nothing left before."""
        connection = self.open_downstream()
        for schema in SCHEMAS:
            connection.run(f"DROP DATABASE IF EXISTS `{schema}`".encode())
        connection.close()
        to, config = self._downstream, self.directory / "reparo.toml"
        kind = "mysql" if self.target is None else "tidb"
        config.write_text(
            f'data-dir = "{self.directory / "archive"}"\ndest-type = "{kind}"\n[dest-db]\n'
            f'host = "{to.host}"\nport = {to.port}\nuser = "{to.user}"\npassword = "{to.password}"\n'
        )
        return await _output(["-m", "drainer.reparo", "-config", str(config)], None)

    def go_drainer(self) -> Node:
        """Go's, for the same downstream and with the same id; not started."""
        return self._programs().mysql_drainer(self._downstream, _GO_SYNCER)

    @property
    def _downstream(self) -> Target:
        if self.target is not None:
            return Target(LOOPBACK, self.target.port, "root", "")
        server = self.mariadb
        return Target(server.host, server.port, server.drainer_user, server.password)

    def open_downstream(self) -> Connection:
        """A session of one who may do anything."""
        return self.mariadb.connect() if self.target is None else self.target.connect()

    async def control(
        self, *arguments: str, pd: bool = True, limit_s: float | None = None
    ) -> tuple[int, str]:
        """binlogctl: exit status and what it printed."""
        urls = ["-pd-urls", self.etcd_endpoint] if pd else []
        return await _output(["-m", "binlogctl", *arguments, *urls], limit_s)

    async def until_storage_ends(self) -> NoReturn:
        """Raises `ProcessDied` once PD or a storage has ended, without which everything waits for ever."""
        storages = [self.source] if self.target is None else [self.source, self.target]
        while True:
            for process in (server for storage in storages for server in storage.servers):
                if process.died:
                    panics = [line for line in process.tail(200).splitlines() if line.startswith("panic: ")]
                    raise ProcessDied(f"{process.name} ended by itself: {panics or process.tail(1)}")
            await asyncio.sleep(0.5)

    def binlogs(self) -> list[Binlog]:
        """All that the Pumps have."""
        return binlogs(self.directory / node.process.name for node in self.pumps)

    def overwritten(self, table: tuple[str, str]) -> list[Overwritten]:
        """Rows of a table without key of which the upstream's binlog contradicts itself."""
        info = self.source.definition(table)
        partitions = (info.get("partition") or {}).get("definitions") or ()
        return overwritten(changes(list(self.binlogs()), {info["id"], *(one["id"] for one in partitions)}))

    async def end_abandoned(self) -> int:
        """How many transactions without an outcome there are. Those that TiKV has no trace of cannot commit
        from now on: for what a dead TiDB left, Pumps wait ten minutes. Nobody may write meanwhile."""
        transactions = unfinished(self.binlogs())
        upstream = await TidbUpstream.connect(self.etcd_endpoint)
        try:
            await upstream.transactions.outcomes(transactions, {start_ts for start_ts, _ in transactions})
        finally:
            await upstream.close()
        return len(transactions)

    def _programs(self) -> Programs:
        return Programs(self._peers, self.supervisor, self.etcd_endpoint)


def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()


async def _output(arguments: list[str], limit_s: float | None) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    if limit_s is not None:
        asyncio.get_running_loop().call_later(limit_s, _end, process)
    out, err = await process.communicate()
    return process.returncode or 0, (out or err).decode(errors="replace")

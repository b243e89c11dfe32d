"""`python -m tests.rig.tidb --peers DIR`: random SQL against a real TiDB, and what is downstream then.

Exit status 0 if each table is equal or waits with a reason, 1 if not, 2 if it could not run.

Tests  tests/rig/tidb/test_tidb.py
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import shutil
import sys
import threading
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from random import Random
from typing import Any, Final

from binlog_playground.check.verify import Report
from binlog_playground.cluster.cluster import Node
from binlog_playground.cluster.supervisor import Process
from binlog_playground.program import DIFFERENT, EQUAL, supervise
from binlogctl.cli.commands import DIFFERS, NOT_COMPARABLE
from tests.benchmarks.peer.programs import program
from tests.rig.tidb.binlogs import contradicted
from tests.rig.tidb.cluster import SERVERS, TidbCluster
from tests.rig.tidb.comparison import by_own_rules, compared, without_key
from tests.rig.tidb.session import Session, Work
from tests.rig.tidb.statements import SCHEMAS
from tidb_binlog.errors import ConfigError, Unavailable

PROGRAMS: Final = (*SERVERS, "pump", "drainer")
STALLED_S: Final = 120.0
_NOT_FOR_GO: Final = "rename table .* to .*, "
"""Go's Drainer knows tables by their old names after it, and writes rows to others."""
_NOT_ARCHIVED: Final = "set (character_set|collation|sql_mode|time_zone|timestamp)"
"""An archive has the text of a DDL, and nothing of its session."""
_DIFFER: Final = re.compile(r"^([\d,]+) rows? differ", re.M)
_COMPUTED: Final = re.compile(r"([\d,]+) rows differ only in what each server computes")
_SHOWN: Final = 40
_BATCHES: Final = "SET GLOBAL tidb_enable_batch_dml = ON"
_LOAD_S: Final = 60.0
"""A value that nothing downstream can hold is tried for as long as the command runs."""
_UNFINISHED: Final = b"""SELECT job_id FROM information_schema.ddl_jobs
WHERE state NOT IN ('synced', 'cancelled', 'rollback done') AND job_type NOT LIKE '%subjob%' LIMIT 1"""
"""DDL of a session that was lost."""


def parse(argv: list[str]) -> argparse.Namespace:
    """Options from the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.rig.tidb", description=__doc__)
    add = parser.add_argument
    add("--peers", type=Path, required=True, metavar="DIR", help=f"has {', '.join(PROGRAMS)}")
    add("--seconds", type=float, default=30.0, help="how long sessions write (30)")
    add("--seed", type=int, default=1)
    add("--sessions", type=int, default=4, help="sessions that write rows (4)")
    add("--ddl-sessions", type=int, default=3, help="sessions that change definitions (3)")
    add("--downstream", choices=("mariadb", "tidb"), default="mariadb")
    add("--tidbs", type=int, default=1, help="how many TiDBs write (1)")
    add("--go-pump", action="store_true", help="one of both Pumps is Go's")
    add("--go-drainer", action="store_true", help="then Go's Drainer goes on for a while, and ours after it")
    add("--kills", action="store_true", help="kill -9 of Pumps, the Drainer, TiDB and MariaDB meanwhile")
    add("--every", action="store_true", help="each form of a statement in turn, instead of random ones")
    add(
        "--archive",
        action="store_true",
        help="another Drainer archives, and what reparo makes of it is compared",
    )
    add("--log", type=Path, help="where the statements go")
    add("--keep", action="store_true", help="leave everything running until a signal comes")
    return parser.parse_args(argv)


class Campaign:
    """One run."""

    def __init__(self, options: argparse.Namespace, cluster: TidbCluster) -> None:
        self._options = options
        self._cluster = cluster
        self._random = Random(f"{options.seed} kills")
        self._ways = Random(f"{options.seed} ways")
        self._drainer: Node | None = None
        self._archiver: Node | None = None
        self._is_doubled = False
        self._began_ts = ""
        self.waits: list[dict[str, Any]] = []
        self.named: set[str] = set()
        """Tables of which the Drainer says that their rows differ."""
        self.kills: Counter[str] = Counter()
        log = options.log or cluster.directory / "statements.sql"
        skips = [_NOT_FOR_GO] * options.go_drainer + [_NOT_ARCHIVED] * options.archive
        self.work = Work(cluster.source.connect, log, "|".join(skips))

    async def run(self) -> int:
        """Everything, while the storages live; the exit status."""
        work = asyncio.create_task(self._run())
        death = asyncio.create_task(self._cluster.until_storage_ends())
        try:
            await asyncio.wait((work, death), return_when=asyncio.FIRST_COMPLETED)
            return work.result() if work.done() else death.result()
        finally:
            for tidb in self._cluster.source.tidbs:
                tidb.kill()  # for whose answers sessions wait
            for task in (work, death):
                task.cancel()
            await asyncio.wait((work, death))

    async def _run(self) -> int:
        cluster = self._cluster
        ways = self._ways
        # Without it rows are written by definitions that are not those of the moment, as before version 6.5.
        locks = ways.choice(("ON", "OFF"))
        await cluster.start_upstream((f"SET GLOBAL tidb_enable_metadata_lock = {locks}", _BATCHES))
        workers, dispatch = ways.choice((1, 4, 16)), ways.choice(("row", "row", "transaction"))
        safe = ways.choice(("false", "false", "true"))
        syncer = f'worker-count = {workers}\ndispatch = "{dispatch}"\nsafe-mode = {safe}\n'
        relays = ways.random() < 0.25
        print(f"metadata locks {locks}, {syncer.split()}, {relays=}")
        self._drainer = await cluster.start_mysql_drainer(syncer, relays=relays)
        if self._options.archive:
            self._archiver = await cluster.start_archive()
        connection = cluster.source.connect()
        self._began_ts = str(connection.rows(b"SHOW MASTER STATUS")[0][1])
        for schema in SCHEMAS:
            connection.run(f"CREATE DATABASE `{schema}`".encode())
        connection.run(b"CREATE SEQUENCE a.s1")  # a default that TiDB takes without it, and MariaDB does not
        connection.close()
        if self._options.every:
            await asyncio.to_thread(Session(0, self._options.seed, self.work).every)
        else:
            await self._load(self._options.seconds, self._options.ddl_sessions)
        if self._options.go_drainer:
            await self._exchange()
        await self._until_applied()
        return await self._tell()

    async def _load(self, seconds: float, ddl_sessions: int) -> None:
        options, work = self._options, self.work
        work.ends.clear()
        numbers = range(options.sessions + ddl_sessions)
        sessions = [Session(n, options.seed, work, writes_ddl=n >= options.sessions) for n in numbers]
        threads = [threading.Thread(target=session.run) for session in sessions]
        for thread in threads:
            thread.start()
        try:
            loop = asyncio.get_running_loop()
            end = loop.time() + seconds
            while loop.time() < end:
                await asyncio.sleep(min(max(0.0, end - loop.time()), 2 + self._random.random() * 4))
                if options.kills:
                    await self._kill()
                    await self._cluster.source.restart()  # it ends itself if no Pump answers
        finally:
            work.ends.set()
            for thread in threads:
                await asyncio.to_thread(thread.join)

    async def _kill(self) -> None:
        cluster = self._cluster
        assert self._drainer is not None
        victims: list[tuple[str, Process]] = [("drainer", self._drainer.process)]
        victims += [("tidb", process) for process in cluster.source.tidbs]
        victims += [("pump", node.process) for node in cluster.pumps]
        if cluster.mariadb.process is not None:
            victims.append(("mariadb", cluster.mariadb.process))
        name, process = self._random.choice(victims)
        process.kill()
        self.kills[name] += 1
        await asyncio.sleep(self._random.random())
        process.start()
        if name == "tidb":
            await cluster.source.restart()
        elif name == "mariadb":
            await cluster.until(process, cluster.mariadb.ping)

    async def _exchange(self) -> None:
        """Go's Drainer in the place of ours while rows are written, then ours again."""
        assert self._drainer is not None
        await self._until_applied()
        if self.waits:
            print("without Go's Drainer: it would begin where the first table began to wait")
            return
        self._drainer.process.stop(60)
        node = self._cluster.go_drainer()
        node.process.start()
        await self._load(self._options.seconds / 3, 0)
        await asyncio.sleep(5)
        state = node.process.state
        node.process.stop(60)
        print(f"Go's Drainer was {state}; {node.process.tail(1)[:300]}")
        # One that fails has applied more than it remembers: rows without a key are there twice after it.
        self._is_doubled = "syncer exited abnormal" in node.process.log.read_text(errors="replace")
        self._drainer.process.start()
        await self._cluster.until_ready(self._drainer)

    async def _until_applied(self) -> None:
        """Until everything is applied but what waits; what waits is kept."""
        cluster, drainer = self._cluster, self._drainer
        assert drainer is not None
        connection = cluster.source.connect()
        while connection.rows(_UNFINISHED):
            await asyncio.sleep(0.5)
        if self.kills["tidb"]:
            print(f"{await cluster.end_abandoned()} transactions of dead TiDBs have ended")
        last = int(connection.rows(b"SHOW MASTER STATUS")[0][1])
        connection.close()
        loop = asyncio.get_running_loop()
        stalled, seen = loop.time() + STALLED_S, 0
        while True:
            if drainer.process.died:
                raise drainer.process.death()
            try:
                status = await drainer.status()
            except Unavailable:
                status = {}
            if "EarlyRows" not in status:  # it is starting
                await asyncio.sleep(0.5)
                continue
            self.status = status
            self.named |= {name for ddl in status["EarlyRows"] for name in ddl["tables"]}
            code, text = await cluster.control("ddl", "list", "-node-id", "drainer", "-output", "json")
            if code:  # it has just been started again
                await asyncio.sleep(0.5)
                continue
            self.waits = json.loads(text)["waiting"]
            if status["AppliedTS"] >= last:
                return
            if status["AppliedTS"] != seen:
                stalled, seen = loop.time() + STALLED_S, status["AppliedTS"]
            if loop.time() > stalled:
                raise Unavailable(f"the Drainer stands still: {json.dumps(status)[:3000]}")
            await asyncio.sleep(0.5)

    async def _replay(self) -> Report:
        """What the archive has, in the place of what the Drainer wrote; differences are shown."""
        assert self._archiver is not None
        while (await self._archiver.status())["AppliedTS"] < self.status["AppliedTS"]:
            await asyncio.sleep(0.5)
        code, text = await self._cluster.replay()
        print(f"reparo: {code} {text[-600:]}")
        return await self._compared(self.named)

    async def _compared(self, waiting: Collection[str]) -> Report:
        upstream, downstream = self._cluster.source.connect(), self._cluster.open_downstream()
        try:
            source = self._cluster.source
            computed = lambda table: by_own_rules(source.definition(table))  # noqa: E731
            report = await asyncio.to_thread(
                compared, upstream, downstream, waiting, computed, self._cluster.overwritten
            )
        finally:
            upstream.close()
            downstream.close()
        for difference in report.differences[:_SHOWN]:
            print(difference)
        return report

    async def _decide(self, names: Collection[str]) -> bool:
        """What waits is copied anew beside the stream, as its messages and docs/load.md say: if it can be."""
        patterns = ",".join(name if "." in name else f"{name}.*" for name in sorted(names))
        load = self._cluster.control(
            "load", "-node-id", "drainer", "-tables", patterns, "-replace", limit_s=_LOAD_S
        )
        code, text = await load
        print(f"load of what waits, {patterns}: {code} {text[-300:]}")
        if not code:
            await self._until_applied()
        return not code

    async def _keep_changes(self) -> None:
        """All rows that the Pumps have, and their own logs, beside the logs: directories do not stay."""
        for node in self._cluster.pumps:
            name = node.process.name
            kept = self._cluster.supervisor.log_path(name).with_suffix("")
            shutil.copytree(self._cluster.directory / name / "value", kept / "value")
        until = str(self.status["AppliedTS"])
        every = ("tail", "-from", self._began_ts, "-until", until, "-output", "json")
        _, text = await self._cluster.control(*every, limit_s=_LOAD_S)
        self._cluster.supervisor.log_path("changes").write_text(text)

    async def _tell(self) -> int:
        cluster, counts, waits = self._cluster, self.work.counts, self.waits
        for one in waits:
            print("waits:", one["tables"], one["reason"])
        anew = {name.lower() for name in self.named} | {name for one in waits for name in one["tables"]}
        if self._is_doubled:
            upstream = cluster.source.connect()
            anew |= without_key(upstream)
            upstream.close()
        report = await self._compared(anew)
        if any(one.what.startswith(("table ", "columns ")) for one in report.differences):
            # What one RENAME of two tables leaves in a TiDB's memory is not what there is.
            for tidb in cluster.source.tidbs:
                tidb.kill()
            await cluster.source.restart()
            print("compared again, after TiDB has read what tables it has")
            report = await self._compared(anew)
        if anew and report.equal and await self._decide(anew):
            report = await self._compared(())
        if report.differences:
            await self._keep_changes()
            if undone := contradicted(cluster.binlogs()):
                raise Unavailable(
                    f"the stand-in for TiKV called committed transactions rolled back: {undone}"
                )
        elif self._archiver is not None and not waits:
            replayed = await self._replay()
            report.differences += replayed.differences
            report.limited += replayed.limited
        config = str(cluster.config_of("drainer"))
        code, text = await cluster.control("verify", "-drainer-config", config, pd=False)
        print("verify:", code, "\n".join(text.splitlines()[-(12 if code else 1) :]))
        print("missing:", json.dumps(self.status["DDL"]["missing"])[:3000])
        print("done:", dict(counts.done.most_common()))
        print("refused:", dict(counts.refused.most_common(60)))
        done = f"{counts.commits} commits, {counts.rows} rows, {counts.lost} connections lost"
        same = f"{report.tables} tables, {report.rows_identical} rows identical, {dict(report.limited)}"
        other = f"{len(report.differences)} differences, {len(waits)} DDL waited"
        print(f"seed {self._options.seed}: {done}, kills {dict(self.kills)}; {same}, {other}")
        if self._options.keep:
            print(
                f"TiDB at {cluster.source.port}, PD {cluster.etcd_endpoint}, {cluster.directory}", flush=True
            )
            await asyncio.Event().wait()
        return EQUAL if report.equal and self._is_explained(code, text, report) else DIFFERENT

    def _is_explained(self, code: int, text: str, report: Report) -> bool:
        """verify knows no limit of MariaDB: without a key such a row is one missing, and one too many."""
        if code == DIFFERS:
            told = _DIFFER.search(text)
            computed = sum(_number(rows) for rows in _COMPUTED.findall(text))
            return told is not None and _number(told[1]) - computed <= 2 * report.limited.total()
        return code == EQUAL or (code == NOT_COMPARABLE and bool(self.waits))


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def main() -> None:
    """Run and exit with the playground's documented status."""
    options = parse(sys.argv[1:])

    def cluster() -> TidbCluster:
        absent = [name for name in PROGRAMS if program(options.peers, name) is None]
        if absent:
            raise ConfigError(f"{options.peers} has no {', '.join(absent)}")
        return TidbCluster(options.peers, options.downstream, go_pump=options.go_pump, tidbs=options.tidbs)

    sys.exit(supervise(cluster, lambda cluster: Campaign(options, cluster).run()))


if __name__ == "__main__":
    main()

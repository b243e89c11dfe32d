"""Archive's world: publishers that write, and Drainers that archive on disks of their own.

Holds   what a savepoint says is archived is on the medium, whatever the disk did: each transaction once, in
        the order of commit_ts, and none that did not commit. Healed, a program that reads the archive finds
        what the upstream has, rows as they were written

Tests  tests/sim/test_worlds.py
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import drainer
from drainer.checkpoint import savepoint
from pumpclient import Publisher, column
from tests.crash.faults.disk import ROOT
from tests.sim.kinds.readers_world import Reader, ReadersWorld
from tests.sim.node import ETCD, DrainerNode, Node
from tests.sim.shrinking import Size
from tests.sim.world import World
from tidb_binlog.errors import BinlogError
from tidb_binlog.record import RecordError, decode_file
from tidb_binlog.tso import Ts
from tidb_binlog.wire import pb_binlog_pb2 as pb


class ArchiveWorld(ReadersWorld):
    live_s = World.live_s
    may_lose = False

    def __init__(
        self, seed: int, size: Size, directory: Path, say: Callable[[str], None] | None = None
    ) -> None:
        super().__init__(seed, size, directory, say)
        self.readers = []
        for number in range(1, size.readers + 1):
            text = "\n".join(
                (
                    f'node-id = "d{number}"\npd-urls = "{ETCD}"\ninitial-commit-ts = 0',
                    f'[syncer]\ndb-type = "file"\ncheckpoint-interval = "{self.rng.choice((1, 3))}s"',
                    f'[syncer.to]\ndir = "{ROOT}/archive"\nfile-size = {self.rng.choice((1500, 1 << 20))}',
                )
            )
            self.drainers.append(DrainerNode(f"d{number}", directory, text, f"{ROOT}/data"))

    async def _begin(self) -> None:
        await self._founded()
        await self._begin_drainers()
        for number in range(1, self.size.programs + 1):
            self._start_app(f"app-{number}")

    async def _transaction(self, publisher: Publisher) -> None:
        """Now and then a table is created."""
        await super()._transaction(publisher)
        if self.rng.random() < 0.05:
            name = f"shop.more_{next(self._numbers)}"
            columns = [column("id", "bigint", nullable=False)]
            with contextlib.suppress(BinlogError):  # the next one is another table
                await publisher.create_table(name, columns, primary_key=["id"])

    # -- what is looked at -----------------------------------------------------------------------------

    async def _look_after(self) -> None:
        for node in self.drainers:
            if not node.rot.damage:
                self._check(node)
        await super()._look_after()

    def _check(self, node: Node) -> None:
        """What a power cut would leave."""
        has = _archived(node)
        if any(after <= before for before, after in itertools.pairwise(has)):
            self.breaks(f"{node.name} archives out of order: {has}")
        if strange := set(has) - set(self.commits.values()):
            self.breaks(f"{node.name} has archived {strange}, which did not commit")
        done_ts = _stored_ts(node)
        missing = {commit_ts for commit_ts in self.committed if commit_ts <= done_ts} - set(has)
        if missing:
            self.breaks(f"{node.name} has stored {done_ts} and lost {sorted(missing)}")

    def _applied(self) -> dict[str, Ts]:
        """A start goes on from the last record where the savepoint is behind it."""
        return {node.name: max([_stored_ts(node), *_archived(node)[-1:]]) for node in self.drainers}

    def _lost(self, host: str, name: str, commit_ts: Ts) -> None:
        World._lost(self, host, name, commit_ts)

    # -- what goes wrong -------------------------------------------------------------------------------

    def _faults(self) -> tuple[Callable[[], Any], ...]:
        return *World._faults(self), self._kill_drainer, self._stop_drainer, self._kill_app

    def _with_disks(self) -> list[Node]:
        return [*super()._with_disks(), *self.drainers, *self.drainers]  # which are looked at here

    def _readers(self) -> list[str]:
        return [node.name for node in self.drainers]

    # -- the end ---------------------------------------------------------------------------------------

    async def _converge(self) -> None:
        await self._until_stored(lambda: min(map(_stored_ts, self.drainers)), self.committed[-1])
        for node in self.drainers:
            self._check(node)
            files = node.disk.files()
            copy = self.directory / f"{node.name}.archive"
            (copy / "index").mkdir(parents=True)
            for name, inode in files.items():
                if name.startswith("binlog-"):
                    (copy / ("index" if "." in name else "") / name).write_bytes(bytes(inode.data))
            reader = Reader(node.name)
            for item in drainer.open_archive(copy):
                self._came(reader, item)
            if missing := set(self.committed) - set(reader.has):
                self.breaks(f"who reads the archive of {node.name} finds no {sorted(missing)}")
            self.counts["archived"] += len(reader.has)
        await self._purged()


def _stored_ts(node: Node) -> Ts:
    text = node.disk.durable().get(savepoint.NAME)
    return savepoint.parse(text.decode()).commit_ts if text else 0


def _archived(node: Node) -> list[Ts]:
    """commit_ts of each record, up to what is none."""
    segments = {
        name: bytes(data)
        for name, data in sorted(node.disk.durable().items())
        if name.startswith("binlog-") and not os.path.splitext(name)[1]
    }
    return [commit_ts for data in segments.values() for commit_ts in _records(data)]


@functools.lru_cache(maxsize=64)
def _records(segment: bytes) -> tuple[Ts, ...]:
    """Most of them do not change from one look to the next."""
    commits: list[Ts] = []
    at = 0
    with contextlib.suppress(RecordError):
        while at < len(segment):
            payload, at = decode_file(segment, at)
            commits.append(pb.Binlog.FromString(payload).commit_ts)
    return tuple(commits)

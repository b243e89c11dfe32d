"""A lane on the thread of its test, and a server that does as it is told."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from drainer.mysql import session
from drainer.mysql.connection import Target
from drainer.mysql.errors import ConnectionLost, StatementRefused, TransientError
from drainer.mysql.mark import Mark
from drainer.mysql.refusal import Refusal
from drainer.mysql.rows.change import Position, TableTarget
from drainer.mysql.rows.dialect import Dialect
from drainer.mysql.rows.table_target import target_of
from drainer.sink.mysql import lane as lane_module
from drainer.sink.mysql.dispatcher import Dispatcher
from drainer.sink.mysql.lane import (
    Lane,
    LaneSettings,
)
from drainer.sink.row_mismatch import Drift
from drainer.txn import DELETE, INSERT, TableEvents, TableVersion, Transaction
from tests.common.rowcodec.tables import index, key, kind, table
from tidb_binlog.clock import ManualClock
from tidb_binlog.errors import BinlogError
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.table_info import TableInfo

NUMBER = 3
KEYED = table(("id", key("int")), ("v", kind("int")))
UNIQUE = replace(KEYED, indexes=(index(2, ("v", 1)),))
LOCKED = TransientError(1205, "Lock wait timeout exceeded")
LOST = ConnectionLost(2006, "gone away")
DUPLICATE = StatementRefused(1062, "Duplicate entry '5' for key 'i2'")


class Server:
    """Sessions and the lane's row. It notes what is asked for; `fails`: errors by the first word, in turn;
    `affects`: by the first word, what a statement says of rows."""

    def __init__(self) -> None:
        self.said: list[Any] = []
        self.fails: dict[str, list[BaseException]] = {}
        self.affects: dict[str, list[int]] = {}
        self.packet = self.packet_globally = 1 << 24
        self.timeouts: list[float | None] = []
        self.marks: list[Mark | None] = []
        self.position_is = Position(0)
        self.noted: list[tuple[int, Position]] = []
        self.committed = self
        self.dialect = Dialect.MARIADB
        self.before: dict[str, Callable[[], None]] = {}

    def does(self, word: str, *more: Any) -> None:
        self.said.append((word, *more) if more else word)
        if word in self.before:
            self.before[word]()
        if self.fails.get(word):
            raise self.fails[word].pop(0)

    # -- sessions

    def open(self, target: Target) -> Any:
        self.timeouts.append(target.read_timeout_s)
        self.marks.append(target.mark)
        self.does("open")
        return self

    def run(self, sql: bytes) -> int:
        word = sql.split()[0].decode()
        self.does(word, sql) if word == "SET" else self.does(word)
        return self.affects[word].pop(0) if self.affects.get(word) else sql.count(b"),(") + 1

    def run_lax(self, sql: bytes, mode: Any, enums: object) -> int:
        return self.run(sql)

    def commit(self) -> None:
        self.does("COMMIT")

    def rollback(self) -> None:
        self.does("ROLLBACK")

    def close(self) -> None:
        self.said.append("close")

    def packet_bytes_max(self, scope: str = "session") -> int:
        return self.packet_globally if scope == "global" else self.packet

    # -- the lane's row

    def claim(self, connection: Any, lane: int) -> None:
        assert lane == NUMBER
        self.does("claim")

    def position(self, connection: Any, lane: int, *, lock: bool) -> Position:
        assert (lane, lock) == (NUMBER, True)
        self.does("position")
        return self.position_is

    def advance(self, connection: Any, lane: int, position: Position) -> None:
        assert lane == NUMBER
        self.does("advance", position.commit_ts)

    def note(self, lane: int, position: Position) -> None:
        self.noted.append((lane, position))


class World:
    def __init__(self, server: Server, target: Target | None = None, **settings: Any) -> None:
        self.server = server
        self.clock = ManualClock()
        self.drift = Drift(self.clock)
        self.told: list[Any] = []
        self.changed = 0
        self.lane = Lane(
            NUMBER,
            target or Target("h", 1, "u", ""),
            cast(Any, server),
            LaneSettings(drift=self.drift, **settings),
            self.clock,
            lambda *what: self.told.append(what),
            lambda *what: self.told.append(what),
            self.note_changed,
        )
        self.ts = 0

    def note_changed(self) -> None:
        self.changed += 1

    def offer(
        self, info: TableInfo, *values: int, gone: tuple[int, ...] = (), into: TableTarget | None = None
    ) -> None:
        """A transaction: rows with these values in each column, and others that are gone."""
        self.ts += 10
        target = into or made(info)
        lanes = Dispatcher([Position(0)])
        lanes.learn(target)
        encoder = RowEncoder(info)
        width = len(info.columns)
        rows = [encoder.insert((value,) * width, rowid=value) for value in values]
        rows += [encoder.delete((value,) * width, rowid=value) for value in gone]
        kinds = [INSERT] * len(values) + [DELETE] * len(gone)
        lanes.dispatch(Transaction(self.ts - 1, self.ts, (TableEvents(target.version, kinds, rows, 0),), 1))
        for _, chunk in lanes.take():
            self.lane.offer(replace(chunk, sequence=self.ts, size_bytes=100))

    def run(self) -> list[Any]:
        """To its end; what the server was asked for, without how a session begins and ends."""
        self.lane.finish()
        self.lane.run()
        assert self.server.said[-1] == "close"
        return [said for said in self.server.said[:-1] if said not in ("claim",)]

    @property
    def error(self) -> BinlogError:
        ((number, error),) = self.told
        assert number == NUMBER
        assert isinstance(error, BinlogError), error
        return error


@functools.cache
def made(info: TableInfo, **more: Any) -> TableTarget:
    return target_of(TableVersion(info, "d", "t", 1, **more), 1)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    """For sessions that lanes open from now on."""
    server = Server()
    monkeypatch.setattr(session, "connect", server.open)
    monkeypatch.setattr(
        lane_module, "Backoff", lambda first_s, max_s: SimpleNamespace(next_s=lambda: first_s / 50)
    )

    def described(connection: Any, work: Any, refusal: Refusal, execute: Any, *, values: bool) -> str:
        return f"; the row {5 if values else '...'}"

    monkeypatch.setattr(lane_module.refused_rows, "described", described)
    return server


def begun(*statements: Any) -> list[Any]:
    return ["open", *statements]


BATCH = ["REPLACE", ("advance", 10), "COMMIT"]

"""Pictures of what the merger, the dispatcher and the marks do here with a few small transactions.

Drives  `Merger`, `Dispatcher`, `Mark` and `MarkRows`

Tests  tests/architecture/test_generated_pages.py
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, cast

from drainer.mysql.mark import MARK_SCHEMA, MARK_TABLE, Mark
from drainer.mysql.mark_table import CREATE_TABLE
from drainer.mysql.rows.change import KEY, OP, PUT_MOVED, REMOVE, REMOVE_OLD, TABLE, Change, Position
from drainer.mysql.rows.table_target import target_of
from drainer.sink.mysql.dispatcher import Dispatcher
from drainer.stream.pull.merged import Merged
from drainer.stream.pull.merger import Merger
from drainer.stream.translate.row_filter import MarkRows
from drainer.txn import DELETE, INSERT, UPDATE, TableEvents, TableVersion, Transaction
from pumpclient.schema.table_definition import column, table
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.table_info import TableInfo
from tools.pictures.drawing import Drawing

# -- pumps whose streams are merged ------------------------------------------------------------------------

_TS_WIDTH: Final = 44
_TWO: Final = ("pump-1", "pump-2")
_STEPS: Final[tuple[tuple[str, Sequence[str], dict[str, tuple[tuple[int, ...], int]]], ...]] = (
    ("Two Pumps have sent binlogs.", _TWO, {"pump-1": ((1, 3, 5), 0), "pump-2": ((2, 4, 6), 0)}),
    ("pump-3 joins. The others send more.", ["pump-3"], {"pump-1": ((7, 9), 0), "pump-2": ((10,), 0)}),
    ("pump-3 sends what it has.", (), {"pump-3": ((8, 12), 0)}),
    ("The others have nothing new: they send watermarks.", (), dict.fromkeys(_TWO, ((), 12))),
)


def merging(out: Drawing) -> None:
    """How a Drainer merges the binlogs of several Pumps.

    Pump-1 has the commit timestamps 1, 3, 5, 7 and 9, pump-2 has 2, 4, 6 and 10, and pump-3 joins
    with 8 and 12. At each step all binlogs leave that no Pump can precede any more, in order.
    """
    merger = Merger(0)
    sent: dict[str, list[int]] = {}
    left: list[int] = []
    for number, (says, joining, pushes) in enumerate(_STEPS):
        for name in joining:
            merger.add_source(name, merger.position)
        for name, (stamps, watermark) in pushes.items():
            merger.push(name, [Merged(ts, b"x") for ts in stamps], watermark)
            sent.setdefault(name, []).extend(stamps)
        left += [entry.commit_ts for entry in merger.pop(1 << 20).entries]
        awaited = merger.awaits()
        waits = f"{min(awaited.values())} waits for {' and '.join(awaited)}" if awaited else "nothing waits"
        top = 30 + 144 * number
        out.words(10, top, f"{number + 1}. {says}", "bold")
        for row, name in enumerate(merger.source_ids):
            y = top + 22 + 28 * row
            out.words(20, y + 4, name, "small")
            out.line((80, y), (80 + 13 * _TS_WIDTH, y))
            promise = 80 + _TS_WIDTH * (cast(int, merger.floor(name)) + 0.5)
            out.line((promise, y - 12), (promise, y + 12), kind="mark")
            for ts in sent.get(name, ()):
                out.ball(80 + ts * _TS_WIDTH, y, str(ts), "done" if ts in left else "wait")
        out.words(660, top + 40, f"out: {left[0]} to {left[-1]}", "small")
        out.words(660, top + 60, waits, "small")
    legend = "green: has left the merger, in order · dashed: waits · bar: nothing up to here is still to come"
    out.words(20, 586, legend, "small")


# -- transactions that are cut into lanes ------------------------------------------------------------------
_ID: Final = column("id", "bigint", nullable=False)
_TEXT: Final = column("text", "varchar(40)")
ORDERS: Final = replace(table("orders", [_ID, _TEXT], ["id"]), id=104)
PEOPLE: Final = replace(table("people", [_ID, _TEXT], ["id"], unique=[["text"]]), id=109)
LOG: Final = replace(table("log", [_ID, _TEXT]), id=111)
LANES: Final = 4
_Row = tuple[int, str]
_Event = tuple[TableInfo, _Row | None, _Row | None]
_TRANSACTIONS: Final[tuple[tuple[int, str, Sequence[_Event]], ...]] = (
    (101, "INSERT orders 1 to 6", [(ORDERS, None, (number, "pen")) for number in range(1, 7)]),
    (102, "UPDATE orders 2 and 5", [(ORDERS, (n, "pen"), (n, "ink")) for n in (2, 5)]),
    (103, "UPDATE orders: 3 becomes 7", [(ORDERS, (3, "pen"), (7, "pen"))]),
    (104, "INSERT people 1", [(PEOPLE, None, (1, "a@b.c"))]),
    (105, "DELETE people 1", [(PEOPLE, (1, "a@b.c"), None)]),
    (106, "INSERT people 3, e-mail of 1", [(PEOPLE, None, (3, "a@b.c"))]),
    (107, "INSERT log, twice", [(LOG, None, (1, "in")), (LOG, None, (1, "in"))]),
)


def _encoded(info: TableInfo, old: _Row | None, new: _Row | None) -> tuple[int, bytes]:
    encoder, rowid = RowEncoder(info), None if info.pk_is_handle else 1
    if old is None:
        return INSERT, encoder.insert(cast(_Row, new), rowid=rowid)
    if new is None:
        return DELETE, encoder.delete(old, rowid=rowid)
    return UPDATE, encoder.update(old, new, rowid=rowid)


def _dispatched() -> Iterable[tuple[str, list[tuple[int, Change]]]]:
    """Each transaction, and the changes that it is cut into, by lane."""
    dispatcher = Dispatcher((Position(0),) * LANES)
    versions = {info: TableVersion(info, "shop", info.name, 1) for info in (ORDERS, PEOPLE, LOG)}
    for version in versions.values():
        dispatcher.learn(target_of(version, LANES))
    for commit_ts, says, events in _TRANSACTIONS:
        kinds, rows = zip(*(_encoded(*event) for event in events), strict=True)
        part = TableEvents(versions[events[0][0]], list(kinds), list(rows), 0)
        dispatcher.dispatch(Transaction(commit_ts - 1, commit_ts, (part,), 100))
        cut = [(lane, change) for lane, chunk in dispatcher.take() for change in chunk.changes]
        yield f"{commit_ts}  {says}", cut


def _name(change: Change) -> str:
    """What the change does to which row, read from its key."""
    target = change[TABLE]
    if not target.keyed:
        return "+"
    keys = {target.sql.insert_key(_encoded(target.version.info, None, (n, ""))[1]): n for n in range(1, 10)}
    return {REMOVE: "−", REMOVE_OLD: "−", PUT_MOVED: "→"}.get(change[OP], "+") + str(keys[change[KEY]])


def lanes(out: Drawing) -> None:
    """Which lane applies which change.

    Seven transactions are cut into four lanes. All changes of one row of orders are in one lane.
    The tables people, with a second unique key, and log, without a key, are in one lane each.
    """
    out.words(10, 22, "transaction, by commit_ts", "bold")
    for lane in range(LANES):
        x = 290 + 148 * lane
        out.words(x + 66, 22, f"lane {lane}", "bold", "middle")
        out.line((x - 8, 8), (x - 8, 318))
    for row, (says, changes) in enumerate(_dispatched()):
        top = 34 + 41 * row
        out.line((10, top), (870, top))
        out.words(10, top + 25, says, "small")
        for lane in range(LANES):
            in_lane = [change for of, change in changes if of == lane]
            if in_lane:
                version = in_lane[0][TABLE].version
                says = " ".join([version.name, *map(_name, in_lane)])
                kind = "ours" if version.info is ORDERS else "done"
                out.box(290 + 148 * lane, top + 6, 132, 30, says, kind=kind)
    legend = (
        "blue: rows are spread by key · green: the whole table in one lane · + put, − removed, → moved here"
    )
    out.words(10, 342, legend, "small")


# -- marks of two-way replication --------------------------------------------------------------------------


_NUMBERS: Final = [column(name, "bigint", nullable=False) for name in ("id", "channel_id", "val")]
MARKS: Final = table(MARK_TABLE, [*_NUMBERS, column("channel_info", "varchar(64)")], ["id", "channel_id"])


def _marked() -> tuple[str, list[tuple[Any, ...]], bool]:
    """How a transaction of lane 1 is marked, the marks then, and whether the other side drops it."""
    database, lanes = sqlite3.connect(":memory:"), [Mark(1, lane) for lane in range(3)]
    database.execute(f"ATTACH ':memory:' AS {MARK_SCHEMA}")
    database.execute(CREATE_TABLE.decode())
    for lane in lanes:
        database.execute(lane.write_row(lane.row_id(0)).decode().partition(" ON DUPLICATE")[0])
    query = f"SELECT * FROM {MARK_SCHEMA}.{MARK_TABLE}"
    before = database.execute(query).fetchall()
    marking = lanes[1].raise_row(lanes[1].row_id(0)).decode().removesuffix(" limit 1;")
    database.execute(marking)
    after = database.execute(query).fetchall()
    row = RowEncoder(MARKS).update(before[1], after[1])
    return marking, after, MarkRows(MARKS, 1).is_ours([UPDATE], [row], 7)


def marks(out: Drawing) -> None:
    """How two-way replication marks a transaction.

    A program writes to cluster A. The Drainer from A to B changes a row of the mark table in the
    same transaction downstream. The Drainer from B to A sees the mark in the binlog of that
    transaction and drops it. A transaction of a program in B has no mark and goes to A.
    """
    statement, rows, dropped = _marked()
    out.words(10, 22, "cluster A", "bold")
    out.words(330, 22, "cluster B", "bold")
    out.box(10, 34, 150, 44, "a program writes", "orders 7")
    out.line((160, 56), (200, 56), kind="way")
    out.box(202, 34, 110, 44, "a-to-b", "lane 1", kind="ours")
    out.line((312, 56), (330, 56), kind="way")
    out.box(332, 34, 538, 64, kind="done")
    out.words(344, 60, statement, "code")
    out.words(344, 84, "the row of orders 7, then COMMIT", "small")
    out.line((600, 98), (600, 128), kind="way")
    decision = "the mark is of its channel: " + ("dropped" if dropped else "goes on")
    out.box(332, 130, 538, 44, "b-to-a", decision, kind="gone" if dropped else "done")
    out.box(720, 200, 150, 44, "a program writes", "orders 9")
    out.line((720, 222), (612, 222), kind="way")
    out.box(440, 200, 170, 44, "b-to-a", "no mark: goes on", kind="ours")
    out.line((440, 222), (162, 222), kind="way")
    out.box(10, 200, 150, 44, "orders 9", "arrives in A", kind="done")
    out.words(10, 276, f"{MARK_SCHEMA}.{MARK_TABLE} in B then: one row for each lane", "bold")
    for number, (lane, channel, val, _) in enumerate(rows):
        out.words(20, 296 + 20 * number, f"id {lane} · channel_id {channel} · val {val}", "small")

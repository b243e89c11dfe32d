"""Plain pictures: what the pages say in words, as boxes and times.

Tests  tests/architecture/test_generated_pages.py
"""

from __future__ import annotations

from tools.pictures.drawing import Drawing


def ddl_waits(out: Drawing) -> None:
    """A DDL that waits for a decision.

    The downstream refuses an ALTER of shop.orders. The ALTER and the rows behind it wait in order
    for the operator's decision, while rows of shop.items are applied.
    """
    for y, name in ((52, "shop.orders"), (112, "shop.items"), (172, "checkpoint")):
        out.words(10, y + 5, name, "bold")
    out.box(120, 30, 90, 44, "rows", "applied", kind="done")
    out.box(220, 30, 110, 44, "ALTER", "refused", kind="gone")
    for x in (340, 440):
        out.box(x, 30, 90, 44, "rows", "wait", kind="wait")
    out.box(640, 30, 90, 44, "ALTER", "runs", kind="done")
    out.box(740, 30, 130, 44, "rows", "applied in order", kind="done")
    for x in (120, 220, 340, 440, 640, 740):
        out.box(x, 90, 90, 44, "rows", "applied", kind="done")
    out.line((120, 172), (215, 172), kind="mark")
    out.words(225, 176, "stays in front of the ALTER", "small")
    out.line((640, 172), (870, 172), kind="mark")
    out.line((585, 14), (585, 200))
    out.words(585, 222, "an operator decides: binlogctl ddl", "small", "middle")


def one_moment(out: Drawing) -> None:
    """One moment of load and verify.

    Upstream, transactions are committed before and after the timestamp T. A load copies the rows as
    they were at T, and the Drainer applies what was committed after T. A verify holds the Drainer
    at T for some milliseconds, opens snapshots on both sides, and compares them while the Drainer
    goes on.
    """
    out.words(10, 45, "upstream", "bold")
    for number in range(1, 11):
        out.ball(80 + 70 * number, 40, str(number), "done" if number < 6 else "ours")
    out.line((465, 16), (465, 148))
    out.words(465, 290, "T", "bold", "middle")
    out.words(10, 105, "load", "bold")
    out.box(110, 80, 345, 44, "copy", "rows as they were at T, chunk by chunk", kind="done")
    out.box(475, 80, 395, 44, "stream", "the Drainer starts at T and applies what came after it", kind="ours")
    out.words(10, 175, "verify", "bold")
    out.box(110, 150, 310, 44, "the Drainer applies", "all lanes have applied all up to T", kind="ours")
    out.box(424, 150, 82, 44, "held", "milliseconds", kind="wait")
    out.box(510, 150, 360, 44, "the Drainer goes on", "programs have written all the time", kind="ours")
    out.line((465, 194), (465, 222), kind="way")
    out.box(390, 224, 150, 48, "two snapshots", "both as they were at T")
    out.line((540, 248), (576, 248), kind="way")
    out.box(578, 224, 292, 48, "chunks are compared", "later, without holding anybody up", kind="done")


def relay_log(out: Drawing) -> None:
    """What the relay log is for.

    A Drainer writes each binlog to its relay log before a lane commits it. When the upstream is
    lost, recovery reads the relay log and brings all lanes to its last whole record.
    """
    out.box(10, 60, 130, 50, "Pumps", "lost", kind="gone")
    out.line((140, 85), (180, 85), kind="way")
    out.box(182, 60, 130, 50, "Drainer", "pulls and merges", kind="ours")
    out.line((312, 85), (352, 85), kind="way")
    out.box(354, 44, 150, 82, "relay log", "on the Drainer's disk,", "synced first", kind="ours")
    for lane, reached in enumerate((640, 590, 690)):
        y = 40 + 45 * lane
        out.line((504, 85), (538, y), kind="way")
        out.words(544, y + 5, f"lane {lane}", "small")
        out.line((600, y), (820, y))
        out.line((590, y), (reached + 40, y), kind="mark")
    out.line((820, 22), (820, 232))
    out.words(870, 260, "last whole record of the relay log", "small", "end")
    out.line((430, 126), (430, 196), (538, 196), kind="way")
    out.words(434, 216, "recovery reads it", "small")
    out.box(540, 172, 270, 48, "recovery", "all lanes are brought to this record", kind="done")


def failover(out: Drawing) -> None:
    """How a Drainer goes on at another server.

    The Drainer has written rows and its checkpoint to db-1, which is gone. Of the next servers of
    its list, db-2 is read-only and db-3 was promoted. It goes on from the checkpoint of db-3.
    """
    out.box(10, 100, 170, 64, "Drainer", "knows what was", "confirmed: 470", kind="ours")
    out.box(370, 16, 200, 52, "db-1", "rows, checkpoint 470", kind="gone")
    out.box(370, 104, 200, 52, "db-2", "read_only = 1")
    out.box(370, 192, 200, 52, "db-3, promoted", "rows, checkpoint 460", kind="done")
    out.line((368, 42), (180, 112), (180, 132), (368, 130))
    out.line((180, 152), (368, 216), kind="way")
    out.words(590, 46, "1. gone for 10 s: cut all connections", "small")
    out.words(590, 134, "2. a replica: never written to", "small")
    out.words(590, 222, "3. the Drainer pulls again from 460", "small")
